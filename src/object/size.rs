//! Estimated heap size of a value, from its `Serialize` implementation.
//!
//! The fields of a struct in a list count [`ABSENT`] times their size, because missing fields take
//! space as well. Every map counts as a `BTreeMap`. Unused capacity and the overhead of the
//! allocator are not included.

use serde::{
    Serialize, Serializer,
    ser::{
        SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
        SerializeTupleStruct, SerializeTupleVariant,
    },
};
use std::fmt;

/// Returns the heap size, without the value itself.
pub(super) fn heap_bytes(value: &impl Serialize) -> usize {
    // Fails only if the value's own `Serialize` does. Such a value counts as empty.
    value.serialize(Measure).unwrap_or_default().heap
}

/// Size of a value: inline and on the heap.
#[derive(Clone, Copy, Default)]
struct Size {
    inline: usize,
    heap: usize,
}

/// Serializer whose result is the size of the value.
struct Measure;

/// Values that are stored inline, such as the fields of a struct.
struct Inline(Size);

/// Values that are stored on the heap, such as the elements of a list.
struct Elements(usize);

/// Entries of a map, in nodes of eleven that are about three quarters full.
struct Entries {
    count: usize,
    sum: Size,
}

/// Chosen so that a pod of 4 KB of JSON, which takes 28 KB, is within 5 %.
const ABSENT: usize = 7;
/// Size of a number, a bool, or an enum without fields.
const SCALAR: Size = Size { inline: 8, heap: 0 };
/// Inline size of a string, a list or a map: pointer, capacity, length.
const POINTER: usize = 24;
const NODE: usize = 11;
const NODE_FILLED: usize = 8;
const NODE_HEADER: usize = 16;

macro_rules! nothing {
    ($($method:ident: $value:ty),* $(,)?) => {
        $(fn $method(self, _: $value) -> Result<Size, fmt::Error> { Ok(SCALAR) })*
    };
}

impl Serializer for Measure {
    type Ok = Size;
    type Error = fmt::Error;
    type SerializeSeq = Elements;
    type SerializeTuple = Inline;
    type SerializeTupleStruct = Inline;
    type SerializeTupleVariant = Inline;
    type SerializeMap = Entries;
    type SerializeStruct = Inline;
    type SerializeStructVariant = Inline;

    nothing! {
        serialize_bool: bool, serialize_char: char, serialize_f32: f32, serialize_f64: f64,
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_unit_struct: &'static str,
    }
    fn serialize_none(self) -> Result<Size, fmt::Error> {
        Ok(SCALAR)
    }
    fn serialize_unit(self) -> Result<Size, fmt::Error> {
        Ok(SCALAR)
    }
    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
    ) -> Result<Size, fmt::Error> {
        Ok(SCALAR)
    }
    fn serialize_str(self, text: &str) -> Result<Size, fmt::Error> {
        Ok(Size {
            inline: POINTER,
            heap: text.len(),
        })
    }
    fn serialize_bytes(self, bytes: &[u8]) -> Result<Size, fmt::Error> {
        Ok(Size {
            inline: POINTER,
            heap: bytes.len(),
        })
    }
    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<Size, fmt::Error> {
        value.serialize(self)
    }
    fn serialize_newtype_struct<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Size, fmt::Error> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<Size, fmt::Error> {
        value.serialize(self)
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Elements, fmt::Error> {
        Ok(Elements(0))
    }
    fn serialize_tuple(self, _: usize) -> Result<Inline, fmt::Error> {
        Ok(Inline(Size::default()))
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Inline, fmt::Error> {
        Ok(Inline(Size::default()))
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Inline, fmt::Error> {
        Ok(Inline(Size::default()))
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Entries, fmt::Error> {
        Ok(Entries {
            count: 0,
            sum: Size::default(),
        })
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Inline, fmt::Error> {
        Ok(Inline(Size::default()))
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Inline, fmt::Error> {
        Ok(Inline(Size::default()))
    }
}

impl SerializeSeq for Elements {
    type Ok = Size;
    type Error = fmt::Error;

    fn serialize_element<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), fmt::Error> {
        let size = value.serialize(Measure)?;
        self.0 += size.inline + size.heap;
        Ok(())
    }
    fn end(self) -> Result<Size, fmt::Error> {
        Ok(Size {
            inline: POINTER,
            heap: self.0,
        })
    }
}

impl SerializeMap for Entries {
    type Ok = Size;
    type Error = fmt::Error;

    fn serialize_key<T: ?Sized + Serialize>(&mut self, key: &T) -> Result<(), fmt::Error> {
        self.count += 1;
        self.serialize_value(key)
    }
    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), fmt::Error> {
        let size = value.serialize(Measure)?;
        self.sum.inline += size.inline;
        self.sum.heap += size.heap;
        Ok(())
    }
    fn end(self) -> Result<Size, fmt::Error> {
        let nodes = self.count.div_ceil(NODE_FILLED);
        let node = NODE * self.sum.inline / self.count.max(1) + NODE_HEADER;
        Ok(Size {
            inline: POINTER,
            heap: nodes * node + self.sum.heap,
        })
    }
}

macro_rules! inline {
    ($($kind:ident: $method:ident($($name:ty)?)),* $(,)?) => {
        $(impl $kind for Inline {
            type Ok = Size;
            type Error = fmt::Error;

            fn $method<T: ?Sized + Serialize>(&mut self, $(_: $name,)? value: &T) -> Result<(), fmt::Error> {
                // The size of a field is known from its type.
                self.0.inline += ABSENT * size_of_val(value);
                self.0.heap += value.serialize(Measure)?.heap;
                Ok(())
            }
            fn end(self) -> Result<Size, fmt::Error> {
                Ok(self.0)
            }
        })*
    };
}

inline! {
    SerializeTuple: serialize_element(),
    SerializeTupleStruct: serialize_field(),
    SerializeTupleVariant: serialize_field(),
    SerializeStruct: serialize_field(&'static str),
    SerializeStructVariant: serialize_field(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_list_counts_its_elements_and_their_heap() {
        assert_eq!(heap_bytes(&"four".to_owned()), 4);
        assert_eq!(heap_bytes(&vec![1_u64, 2, 3]), 24);
        assert_eq!(
            heap_bytes(&vec!["four".to_owned()]),
            size_of::<String>() + 4
        );
        assert_eq!(heap_bytes(&Some(7_u64)), 0);
    }

    #[test]
    fn a_map_counts_its_nodes() {
        let node = NODE * 2 * size_of::<String>() + NODE_HEADER;
        let map: BTreeMap<_, _> = [("a".to_owned(), "bc".to_owned())].into();
        assert_eq!(heap_bytes(&map), node + 3);
        assert_eq!(heap_bytes(&BTreeMap::<String, String>::new()), 0);
    }
}
