//! Deserializer that skips `metadata.managedFields`.
//!
//! It also adds `apiVersion` and `kind` if the message does not have them, as in items of lists.

use super::wire_meta::Text;
use kube_core::TypeMeta;
use serde::{
    Deserializer,
    de::{
        DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor,
        value::{BorrowedStrDeserializer, StrDeserializer, StringDeserializer},
    },
    forward_to_deserialize_any,
};
use std::{borrow::Cow, fmt};

/// Position in the object.
#[derive(Clone, Copy)]
enum Level<'t> {
    Object {
        types: &'t TypeMeta,
        managed_fields: bool,
    },
    Metadata,
}

/// Wrapper around a deserializer, visitor or seed, with its position.
pub(super) struct SkipManagedFields<'t, T> {
    inner: T,
    level: Level<'t>,
}

impl<'t, T> SkipManagedFields<'t, T> {
    pub(super) fn new(inner: T, types: &'t TypeMeta, managed_fields: bool) -> Self {
        Self {
            inner,
            level: Level::Object {
                types,
                managed_fields,
            },
        }
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for SkipManagedFields<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(SkipManagedFields {
            inner: visitor,
            level: self.level,
        })
    }
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_option(SkipManagedFields {
            inner: visitor,
            level: self.level,
        })
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_newtype_struct(
            name,
            SkipManagedFields {
                inner: visitor,
                level: self.level,
            },
        )
    }
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_ignored_any(visitor)
    }
    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum identifier
    }
}

/// Forwards other values, so that the type reports what it expected.
impl<'de, V: Visitor<'de>> Visitor<'de> for SkipManagedFields<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Fields {
            inner: map,
            level: self.level,
            next: Next::Plain,
            seen: [false; 2],
        })
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(SkipManagedFields {
            inner: deserializer,
            level: self.level,
        })
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(SkipManagedFields {
            inner: deserializer,
            level: self.level,
        })
    }
    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }
    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<V::Value, E> {
        self.inner.visit_bool(value)
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<V::Value, E> {
        self.inner.visit_i64(value)
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<V::Value, E> {
        self.inner.visit_u64(value)
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<V::Value, E> {
        self.inner.visit_f64(value)
    }
    fn visit_str<E: Error>(self, value: &str) -> Result<V::Value, E> {
        self.inner.visit_str(value)
    }
    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<V::Value, E> {
        self.inner.visit_borrowed_str(value)
    }
}

struct Fields<'t, A> {
    inner: A,
    level: Level<'t>,
    next: Next<'t>,
    /// Whether `apiVersion` and `kind` were read.
    seen: [bool; 2],
}

/// Type of the value that belongs to the last key.
enum Next<'t> {
    Plain,
    Metadata,
    /// Value that the message does not have.
    Given(&'t str),
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let key = loop {
            match self.inner.next_key::<Text<'de>>()? {
                Some(key) if matches!(self.level, Level::Metadata) && key.0 == "managedFields" => {
                    self.inner.next_value::<IgnoredAny>()?;
                }
                key => break key,
            }
        };
        let Some(Text(key)) = key else {
            return self.left_out(seed);
        };
        self.next = Next::Plain;
        if let Level::Object { managed_fields, .. } = self.level {
            match &*key {
                "metadata" if !managed_fields => self.next = Next::Metadata,
                "apiVersion" => self.seen[0] = true,
                "kind" => self.seen[1] = true,
                _ => {}
            }
        }
        match key {
            Cow::Borrowed(key) => seed.deserialize(BorrowedStrDeserializer::new(key)),
            Cow::Owned(key) => seed.deserialize(StringDeserializer::new(key)),
        }
        .map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        match self.next {
            Next::Plain => self.inner.next_value_seed(seed),
            Next::Metadata => self.inner.next_value_seed(SkipManagedFields {
                inner: seed,
                level: Level::Metadata,
            }),
            Next::Given(text) => seed.deserialize(StrDeserializer::new(text)),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<A> Fields<'_, A> {
    /// Returns the missing keys after the last key of the message.
    fn left_out<'de, S: DeserializeSeed<'de>, E: Error>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, E> {
        let Level::Object { types, .. } = self.level else {
            return Ok(None);
        };
        let (key, value) = match self.seen {
            [false, _] => ("apiVersion", &types.api_version),
            [true, false] => ("kind", &types.kind),
            [true, true] => return Ok(None),
        };
        self.seen[usize::from(key == "kind")] = true;
        self.next = Next::Given(value);
        seed.deserialize(StrDeserializer::new(key)).map(Some)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for SkipManagedFields<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(SkipManagedFields {
            inner: deserializer,
            level: self.level,
        })
    }
}
