//! Deserializer that reads an object from its parts.
//!
//! It reads `apiVersion`, `kind` and `metadata` from memory and everything else from the packed
//! body, without an intermediate message.

use super::{
    compact_meta::CompactMeta,
    meta::{Owner, PairKind, Timestamp},
    packed::Packed,
};
use kube_core::TypeMeta;
use serde::{
    Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor,
        value::{MapDeserializer, SeqDeserializer, StrDeserializer},
    },
    forward_to_deserialize_any,
};
use std::{array, fmt, marker::PhantomData};

/// Deserializes an object. `body` contains all fields but the type and the metadata.
pub(super) fn assemble<'a, K: DeserializeOwned>(
    types: &'a TypeMeta,
    meta: &'a CompactMeta,
    mut body: Packed<'a>,
) -> Result<K, serde_json::Error> {
    let head = [
        ("apiVersion", Part::Text(&types.api_version)),
        ("kind", Part::Text(&types.kind)),
        ("metadata", Part::Metadata(meta)),
    ];
    let object = K::deserialize(ObjectDeserializer {
        head,
        body: &mut body,
    })?;
    body.end()?;
    Ok(object)
}

type Head<'a> = [(&'static str, Part<'a>); 3];

/// Deserializer of the fields of the head, followed by those of the body.
struct ObjectDeserializer<'de, D> {
    head: Head<'de>,
    body: D,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ObjectDeserializer<'de, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.body.deserialize_map(Prepend {
            head: self.head,
            visitor,
        })
    }
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        visitor.visit_some(self)
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        visitor.visit_newtype_struct(self)
    }
    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

struct Prepend<'de, V> {
    head: Head<'de>,
    visitor: V,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Prepend<'de, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }
    fn visit_map<A: MapAccess<'de>>(self, body: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Fields {
            head: self.head.into_iter(),
            value: None,
            body,
        })
    }
}

struct Fields<'de, A> {
    head: array::IntoIter<(&'static str, Part<'de>), 3>,
    value: Option<Part<'de>>,
    body: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<'de, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let Some((name, value)) = self.head.next() else {
            return self.body.next_key_seed(seed);
        };
        self.value = Some(value);
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        match self.value.take() {
            Some(value) => seed.deserialize(value.into_deserializer()),
            None => self.body.next_value_seed(seed),
        }
    }
}

/// Value in memory.
#[derive(Clone, Copy)]
enum Part<'a> {
    Text(&'a str),
    Number(i64),
    Flag(bool),
    Time(Timestamp),
    /// JSON text.
    Raw(&'a str),
    Metadata(&'a CompactMeta),
    Pairs(&'a CompactMeta, PairKind),
    Finalizers(&'a CompactMeta),
    Owners(&'a CompactMeta),
    Owner(Owner<'a>),
}

struct PartDeserializer<'a, E>(Part<'a>, PhantomData<E>);

impl<'de, E: Error> IntoDeserializer<'de, E> for Part<'de> {
    type Deserializer = PartDeserializer<'de, E>;

    fn into_deserializer(self) -> Self::Deserializer {
        PartDeserializer(self, PhantomData)
    }
}

impl<'de, E: Error> Deserializer<'de> for PartDeserializer<'de, E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        match self.0 {
            Part::Text(text) => visitor.visit_borrowed_str(text),
            Part::Number(number) => visitor.visit_i64(number),
            Part::Flag(flag) => visitor.visit_bool(flag),
            Part::Time(time) => visitor.visit_string(time.to_string()),
            Part::Raw(json) => serde_json::Deserializer::from_str(json)
                .deserialize_any(visitor)
                .map_err(E::custom),
            Part::Metadata(meta) => visitor.visit_map(MapDeserializer::new(fields(meta))),
            Part::Pairs(meta, which) => {
                let pairs = meta
                    .pairs(which)
                    .map(|(key, value)| (Part::Text(key), Part::Text(value)));
                visitor.visit_map(MapDeserializer::new(pairs))
            }
            Part::Finalizers(meta) => {
                visitor.visit_seq(SeqDeserializer::new(meta.finalizers().map(Part::Text)))
            }
            Part::Owners(meta) => {
                visitor.visit_seq(SeqDeserializer::new(meta.owners().map(Part::Owner)))
            }
            Part::Owner(owner) => visitor.visit_map(MapDeserializer::new(owner_fields(owner))),
        }
    }
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_some(self)
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, E> {
        visitor.visit_newtype_struct(self)
    }
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_unit()
    }
    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum identifier
    }
}

fn fields(meta: &CompactMeta) -> impl Iterator<Item = (&'static str, Part<'_>)> {
    let pairs = |which| meta.has_pairs(which).then_some(Part::Pairs(meta, which));
    [
        ("name", Some(Part::Text(meta.key().name()))),
        ("namespace", meta.namespace().map(Part::Text)),
        ("uid", meta.uid().map(Part::Text)),
        ("resourceVersion", meta.resource_version().map(Part::Text)),
        ("generateName", meta.generate_name().map(Part::Text)),
        ("generation", meta.generation().map(Part::Number)),
        ("creationTimestamp", meta.created().map(Part::Time)),
        ("deletionTimestamp", meta.deletion().map(Part::Time)),
        ("deletionGracePeriodSeconds", meta.grace().map(Part::Number)),
        ("selfLink", meta.self_link().map(Part::Text)),
        ("labels", pairs(PairKind::Labels)),
        ("annotations", pairs(PairKind::Annotations)),
        (
            "finalizers",
            meta.has_finalizers().then_some(Part::Finalizers(meta)),
        ),
        (
            "ownerReferences",
            meta.has_owners().then_some(Part::Owners(meta)),
        ),
        ("managedFields", meta.managed_fields().map(Part::Raw)),
    ]
    .into_iter()
    .filter_map(|(name, part)| Some((name, part?)))
}

fn owner_fields(owner: Owner<'_>) -> impl Iterator<Item = (&'static str, Part<'_>)> {
    [
        ("apiVersion", Some(Part::Text(owner.api_version))),
        ("kind", Some(Part::Text(owner.kind))),
        ("name", Some(Part::Text(owner.name))),
        ("uid", Some(Part::Text(owner.uid))),
        ("controller", owner.controller.map(Part::Flag)),
        (
            "blockOwnerDeletion",
            owner.block_owner_deletion.map(Part::Flag),
        ),
    ]
    .into_iter()
    .filter_map(|(name, part)| Some((name, part?)))
}
