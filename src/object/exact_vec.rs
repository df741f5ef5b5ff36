//! Deserializer that reserves one element for lists of unknown length.
//!
//! A `Vec` that grows starts with four elements, but most lists in Kubernetes objects have one: a
//! container status, an owner, an address. A pod of 3.8 KB of JSON takes 21.9 KB instead of 25.3
//! KB. The price is one element for each empty list, which API servers omit.

use serde::{
    Deserializer,
    de::{DeserializeSeed, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor},
};
use std::fmt;

/// Wrapper around a deserializer, visitor, seed or access, and everything below it.
pub(super) struct ExactVec<T>(pub(super) T);

/// Forwards methods for values that contain no lists.
macro_rules! plain {
    ($($method:ident),* $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(visitor)
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ExactVec<D> {
    type Error = D::Error;

    plain! {
        deserialize_bool, deserialize_i8, deserialize_i16, deserialize_i32, deserialize_i64, deserialize_i128, deserialize_u8, deserialize_u16,
        deserialize_u32, deserialize_u64, deserialize_u128, deserialize_f32, deserialize_f64, deserialize_char, deserialize_str, deserialize_string,
        deserialize_bytes, deserialize_byte_buf, deserialize_unit, deserialize_identifier, deserialize_ignored_any,
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(ExactVec(visitor))
    }
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(ExactVec(visitor))
    }
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_unit_struct(name, visitor)
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, ExactVec(visitor))
    }
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_seq(ExactVec(visitor))
    }
    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple(len, ExactVec(visitor))
    }
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0
            .deserialize_tuple_struct(name, len, ExactVec(visitor))
    }
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(ExactVec(visitor))
    }
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, ExactVec(visitor))
    }
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, ExactVec(visitor))
    }
    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! visit {
    ($($method:ident: $value:ty),* $(,)?) => {
        $(fn $method<E: Error>(self, value: $value) -> Result<V::Value, E> {
            self.0.$method(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for ExactVec<V> {
    type Value = V::Value;

    visit! {
        visit_bool: bool, visit_i64: i64, visit_i128: i128, visit_u64: u64, visit_u128: u128, visit_f64: f64, visit_str: &str,
        visit_borrowed_str: &'de str, visit_string: String, visit_bytes: &[u8], visit_borrowed_bytes: &'de [u8], visit_byte_buf: Vec<u8>,
    }

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }
    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }
    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(ExactVec(deserializer))
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(ExactVec(deserializer))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(ExactVec(seq))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(ExactVec(map))
    }
    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(ExactVec(variant))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for ExactVec<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(ExactVec(deserializer))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for ExactVec<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(ExactVec(seed))
    }
    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint().or(Some(1))
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for ExactVec<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(ExactVec(seed))
    }
    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for ExactVec<A> {
    type Error = A::Error;
    type Variant = ExactVec<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        self.0
            .variant_seed(seed)
            .map(|(value, variant)| (value, ExactVec(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for ExactVec<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(ExactVec(seed))
    }
    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(len, ExactVec(visitor))
    }
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, ExactVec(visitor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::{Value, json, value::RawValue};
    use std::collections::BTreeMap;

    fn read<'de, T: Deserialize<'de>>(json: &'de str) -> T {
        T::deserialize(ExactVec(&mut serde_json::Deserializer::from_str(json))).expect("readable")
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Outer {
        list: Vec<Inner>,
        map: BTreeMap<String, Option<Vec<String>>>,
        #[serde(flatten)]
        rest: BTreeMap<String, Value>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Inner(Vec<u64>);

    #[derive(Debug, Deserialize, PartialEq)]
    enum Any {
        Unit,
        New(Vec<i8>),
        Two(u8, Vec<u8>),
        Named { list: Vec<String> },
    }

    #[test]
    fn nested_lists_have_no_spare_capacity() {
        let outer: Outer = read(r#"{"list": [[7]], "map": {"a": ["x"], "b": null}, "more": 1}"#);
        assert_eq!((outer.list.capacity(), outer.list[0].0.capacity()), (1, 1));
        assert_eq!(outer.map["a"].as_ref().map(Vec::capacity), Some(1));
    }

    #[test]
    fn exact_capacity_does_not_change_the_value() {
        let text = r#"{"list": [[7, 8], []], "map": {"a": ["x", "y"], "b": null}, "more": {"c": [1.5, -1, true, null, "z"]}}"#;
        assert_eq!(
            read::<Outer>(text),
            serde_json::from_str(text).expect("readable")
        );
        assert_eq!(
            read::<Value>(text),
            serde_json::from_str::<Value>(text).expect("readable")
        );
        let text = r#"["Unit", {"New": [1]}, {"Two": [1, [2]]}, {"Named": {"list": ["a"]}}]"#;
        assert_eq!(
            read::<Vec<Any>>(text),
            serde_json::from_str::<Vec<Any>>(text).expect("readable")
        );
        let raw: BTreeMap<String, &RawValue> = read(r#"{"a": {"b" : [ ]}}"#);
        assert_eq!(raw["a"].get(), r#"{"b" : [ ]}"#);
        assert_eq!(read::<(u8, Value)>("[1, {}]"), (1, json!({})));
    }
}
