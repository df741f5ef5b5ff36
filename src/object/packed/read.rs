//! Deserializer of packed JSON.
//!
//! It behaves as that of `serde_json` on the text, except for integers beyond 64 bits: see [the
//! module](super).

use super::{
    DIGIT, DIGIT_BITS, FALSE, FLOAT, FLOAT_BITS, INTEGER, LIST, LONG_NAME, MORE, NAME_BITS,
    NEGATIVE, NULL, NUMBER, OBJECT, SHORT_INTEGER, SHORT_LIST, SHORT_OBJECT, SHORT_STRING, STRING,
    TRUE, UNKNOWN_NAME, names::Known,
};
use serde::{
    Deserializer,
    de::{
        DeserializeSeed, EnumAccess, Error as _, MapAccess, SeqAccess, Unexpected, VariantAccess,
        Visitor, value::BorrowedStrDeserializer,
    },
    forward_to_deserialize_any,
};
use serde_json::{Deserializer as Json, Error, de::StrRead};
use std::sync::Arc;

/// Prefix of names with which `serde_json` requests raw values.
const OF_SERDE_JSON: &str = "$serde_json::";

/// Deserializer of one value, positioned behind it afterwards.
pub(in crate::object) struct Packed<'a> {
    rest: &'a str,
    names: &'a [Arc<str>],
}

/// Next value or start of a container.
enum Token<'a> {
    Null,
    Bool(bool),
    Integer(u64),
    Negative(i64),
    Float(f64),
    Number(&'a str),
    String(&'a str),
    Object(usize),
    List(usize),
}

impl<'a> Packed<'a> {
    /// Object without fields.
    pub(in crate::object) const EMPTY: Self = Self {
        rest: "\u{10}",
        names: &[],
    };

    /// Reads the output of a [`Packer`](super::Packer); `names` are of the same time or later.
    pub(in crate::object) fn new(packed: &'a str, names: &'a Known) -> Self {
        Self {
            rest: packed,
            names: names.names(),
        }
    }

    /// Returns an error unless everything was read.
    pub(in crate::object) fn end(&self) -> Result<(), Error> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(broken())
        }
    }

    fn token(&mut self) -> Result<Token<'a>, Error> {
        let byte = self.byte()?;
        Ok(match byte {
            NULL => Token::Null,
            FALSE => Token::Bool(false),
            TRUE => Token::Bool(true),
            INTEGER => Token::Integer(self.digits()?),
            NEGATIVE => Token::Negative(!self.digits()?.cast_signed()),
            FLOAT => {
                let bytes = self.take(u64::BITS.div_ceil(FLOAT_BITS) as usize)?.bytes();
                Token::Float(f64::from_bits(
                    bytes
                        .rev()
                        .fold(0, |bits, byte| bits << FLOAT_BITS | u64::from(byte)),
                ))
            }
            NUMBER => match self.token()? {
                Token::String(text) => Token::Number(text),
                _ => return Err(broken()),
            },
            STRING => {
                let length = self.digits()? as usize;
                Token::String(self.take(length)?)
            }
            OBJECT => Token::Object(self.digits()? as usize),
            LIST => Token::List(self.digits()? as usize),
            SHORT_OBJECT..SHORT_LIST => Token::Object((byte - SHORT_OBJECT).into()),
            SHORT_LIST..SHORT_INTEGER => Token::List((byte - SHORT_LIST).into()),
            SHORT_INTEGER..SHORT_STRING => Token::Integer((byte - SHORT_INTEGER).into()),
            SHORT_STRING.. => Token::String(self.take((byte - SHORT_STRING).into())?),
            _ => return Err(broken()),
        })
    }

    fn name(&mut self) -> Result<&'a str, Error> {
        let byte = self.byte()?;
        let number = match byte {
            ..LONG_NAME => u16::from(byte),
            UNKNOWN_NAME => match self.token()? {
                Token::String(name) => return Ok(name),
                _ => return Err(broken()),
            },
            _ => {
                u16::from(LONG_NAME)
                    + (u16::from(byte - LONG_NAME) << NAME_BITS)
                    + u16::from(self.byte()?)
            }
        };
        self.names
            .get(usize::from(number))
            .map(|name| &**name)
            .ok_or_else(broken)
    }

    fn digits(&mut self) -> Result<u64, Error> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & DIGIT)
                .checked_shl(shift)
                .ok_or_else(broken)?;
            if byte & MORE == 0 {
                return Ok(number);
            }
            shift += DIGIT_BITS;
        }
    }

    fn byte(&mut self) -> Result<u8, Error> {
        let byte = *self.rest.as_bytes().first().ok_or_else(broken)?;
        self.rest = self.rest.get(1..).ok_or_else(broken)?;
        Ok(byte)
    }

    fn take(&mut self, length: usize) -> Result<&'a str, Error> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(broken)?;
        self.rest = rest;
        Ok(taken)
    }

    fn is_null(&self) -> bool {
        self.rest.as_bytes().first() == Some(&NULL)
    }

    fn skip(&mut self) -> Result<(), Error> {
        match self.token()? {
            Token::Object(fields) => (0..fields).try_for_each(|_| {
                self.name()?;
                self.skip()
            }),
            Token::List(values) => (0..values).try_for_each(|_| self.skip()),
            _ => Ok(()),
        }
    }

    #[cfg(test)]
    pub(in crate::object) fn into_json(mut self) -> Result<String, Error> {
        let mut json = Vec::new();
        self.write(&mut json)?;
        self.end()?;
        Ok(String::from_utf8(json).expect("JSON is text"))
    }

    /// Writes the value as JSON.
    fn write(&mut self, json: &mut Vec<u8>) -> Result<(), Error> {
        match self.token()? {
            Token::Null => json.extend(b"null"),
            Token::Bool(value) => serde_json::to_writer(json, &value)?,
            Token::Integer(value) => serde_json::to_writer(json, &value)?,
            Token::Negative(value) => serde_json::to_writer(json, &value)?,
            Token::Float(value) => serde_json::to_writer(json, &value)?,
            Token::Number(text) => json.extend(text.as_bytes()),
            Token::String(text) => serde_json::to_writer(json, text)?,
            Token::Object(fields) => self.write_all(json, (b'{', b'}'), fields, |this, json| {
                serde_json::to_writer(&mut *json, this.name()?)?;
                json.push(b':');
                this.write(json)
            })?,
            Token::List(values) => self.write_all(json, (b'[', b']'), values, Self::write)?,
        }
        Ok(())
    }

    fn write_all(
        &mut self,
        json: &mut Vec<u8>,
        (begin, end): (u8, u8),
        count: usize,
        each: impl Fn(&mut Self, &mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        json.push(begin);
        for number in 0..count {
            if number > 0 {
                json.push(b',');
            }
            each(self, json)?;
        }
        json.push(end);
        Ok(())
    }

    /// Reads an object or a list with `read`, which must consume all elements.
    fn all<T>(
        &mut self,
        count: usize,
        read: impl FnOnce(&mut Parts<'_, 'a>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut parts = Parts {
            packed: self,
            left: count,
        };
        let value = read(&mut parts)?;
        match parts.left {
            0 => Ok(value),
            left => Err(Error::custom(format_args!(
                "{left} more elements than expected"
            ))),
        }
    }
}

/// Returns the error for invalid data, which only a bug causes.
#[cold]
fn broken() -> Error {
    Error::custom("the packed object is corrupt")
}

/// Reads numbers that were kept as text with `serde_json`.
macro_rules! numbers {
    ($($method:ident),* $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            if self.rest.as_bytes().first() != Some(&NUMBER) {
                return self.deserialize_any(visitor);
            }
            match self.token()? {
                Token::Number(text) => Name(text).$method(visitor),
                _ => Err(broken()),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Packed<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.token()? {
            Token::Null => visitor.visit_unit(),
            Token::Bool(value) => visitor.visit_bool(value),
            Token::Integer(value) => visitor.visit_u64(value),
            Token::Negative(value) => visitor.visit_i64(value),
            Token::Float(value) => visitor.visit_f64(value),
            Token::Number(text) => whole(text, |json| json.deserialize_any(visitor)),
            Token::String(text) => visitor.visit_borrowed_str(text),
            Token::Object(fields) => self.all(fields, |parts| visitor.visit_map(parts)),
            Token::List(values) => self.all(values, |parts| visitor.visit_seq(parts)),
        }
    }

    numbers! {
        deserialize_i8, deserialize_i16, deserialize_i32, deserialize_i64, deserialize_i128, deserialize_u8, deserialize_u16,
        deserialize_u32, deserialize_u64, deserialize_u128, deserialize_f32, deserialize_f64,
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.is_null() {
            self.byte()?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    /// Reads a string as its bytes.
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let before = self.rest;
        if let Token::String(text) = self.token()? {
            return visitor.visit_borrowed_bytes(text.as_bytes());
        }
        self.rest = before;
        self.deserialize_any(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name.starts_with(OF_SERDE_JSON) {
            let mut json = Vec::new();
            self.write(&mut json)?;
            return Json::from_reader(&*json).deserialize_newtype_struct(name, visitor);
        }
        visitor.visit_newtype_struct(self)
    }

    /// Reads the name of a variant, or an object of its name and content.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.token()? {
            Token::String(name) => visitor.visit_enum(BorrowedStrDeserializer::new(name)),
            Token::Object(1) => visitor.visit_enum(self),
            _ => Err(Error::invalid_type(
                Unexpected::Other("something else"),
                &"a string or an object of one field",
            )),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.skip()?;
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool char str string unit unit_struct seq tuple tuple_struct map struct identifier
    }
}

/// Remaining elements of an object or a list.
struct Parts<'p, 'de> {
    packed: &'p mut Packed<'de>,
    left: usize,
}

impl<'de> MapAccess<'de> for Parts<'_, 'de> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        seed.deserialize(Name(self.packed.name()?)).map(Some)
    }
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        self.left = self.left.saturating_sub(1);
        seed.deserialize(&mut *self.packed)
    }
    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> SeqAccess<'de> for Parts<'_, 'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        seed.deserialize(&mut *self.packed).map(Some)
    }
    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// Reads the only field of an object that represents a variant.
impl<'de> EnumAccess<'de> for &mut Packed<'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        Ok((seed.deserialize(Name(self.name()?))?, self))
    }
}

impl<'de> VariantAccess<'de> for &mut Packed<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        serde::Deserialize::deserialize(self)
    }
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self)
    }
    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }
    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }
}

/// Name of a field or key of a map, which may be a number as text.
struct Name<'de>(&'de str);

macro_rules! keys {
    ($($method:ident),* $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            whole(self.0, |json| json.$method(visitor))
        })*
    };
}

/// Reads JSON text that is exactly one value without white space around it.
fn whole<'de, T>(
    text: &'de str,
    read: impl FnOnce(&mut Json<StrRead<'de>>) -> Result<T, Error>,
) -> Result<T, Error> {
    if text.trim() != text {
        return Err(Error::custom("unexpected white space around the number"));
    }
    let mut json = Json::from_str(text);
    let value = read(&mut json)?;
    json.end().map(|()| value)
}

impl<'de> Deserializer<'de> for Name<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(self.0)
    }

    keys! {
        deserialize_bool, deserialize_i8, deserialize_i16, deserialize_i32, deserialize_i64, deserialize_i128, deserialize_u8, deserialize_u16,
        deserialize_u32, deserialize_u64, deserialize_u128, deserialize_f32, deserialize_f64,
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let name: BorrowedStrDeserializer<'de, Error> = BorrowedStrDeserializer::new(self.0);
        visitor.visit_enum(name)
    }
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_bytes(self.0.as_bytes())
    }
    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
    }
    forward_to_deserialize_any! {
        char str string unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
