//! Metadata that borrows its text from the message.
//!
//! It is packed as [`CompactMeta`].
//!
//! [`CompactMeta`]: super::compact_meta::CompactMeta

use super::{key::ObjectKey, meta::Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::ObjectMeta;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeMap, fmt};

/// Metadata in a message. Unknown fields are skipped, as in kube's `ObjectMeta`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireMeta<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) namespace: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) uid: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) resource_version: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) generate_name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) self_link: Option<Text<'a>>,
    pub(super) generation: Option<i64>,
    pub(super) creation_timestamp: Option<Timestamp>,
    pub(super) deletion_timestamp: Option<Timestamp>,
    pub(super) deletion_grace_period_seconds: Option<i64>,
    #[serde(borrow)]
    pub(super) labels: Option<WirePairs<'a>>,
    #[serde(borrow)]
    pub(super) annotations: Option<WirePairs<'a>>,
    #[serde(borrow)]
    pub(super) finalizers: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    pub(super) owner_references: Option<Vec<WireOwner<'a>>>,
    /// Unparsed JSON of `managedFields`.
    #[serde(borrow)]
    pub(super) managed_fields: Option<&'a RawValue>,
}

impl WireMeta<'_> {
    /// Returns the key; `None` without a name.
    pub(super) fn key(&self) -> Option<ObjectKey> {
        let name = self.name.as_ref().filter(|name| !name.0.is_empty())?;
        Some(ObjectKey::new(
            self.namespace.as_ref().map_or("", |namespace| &namespace.0),
            &name.0,
        ))
    }
}

/// Borrows the text of kube's metadata, without `managedFields`.
impl<'a> From<&'a ObjectMeta> for WireMeta<'a> {
    fn from(meta: &'a ObjectMeta) -> Self {
        let text = |text: &'a Option<String>| text.as_deref().map(Text::borrowed);
        let pairs = |pairs: &'a Option<BTreeMap<String, String>>| {
            let pair = |(key, value): (&'a String, &'a String)| {
                (Text::borrowed(key), Text::borrowed(value))
            };
            pairs
                .as_ref()
                .map(|pairs| WirePairs(pairs.iter().map(pair).collect()))
        };
        let owners = meta.owner_references.as_ref().map(|owners| {
            let owner = |owner: &'a OwnerReference| WireOwner {
                api_version: Some(Text::borrowed(&owner.api_version)),
                kind: Some(Text::borrowed(&owner.kind)),
                name: Some(Text::borrowed(&owner.name)),
                uid: Some(Text::borrowed(&owner.uid)),
                controller: owner.controller,
                block_owner_deletion: owner.block_owner_deletion,
            };
            owners.iter().map(owner).collect()
        });
        Self {
            name: text(&meta.name),
            namespace: text(&meta.namespace),
            uid: text(&meta.uid),
            resource_version: text(&meta.resource_version),
            generate_name: text(&meta.generate_name),
            self_link: text(&meta.self_link),
            generation: meta.generation,
            creation_timestamp: meta.creation_timestamp.as_ref().map(|time| time.0),
            deletion_timestamp: meta.deletion_timestamp.as_ref().map(|time| time.0),
            deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
            labels: pairs(&meta.labels),
            annotations: pairs(&meta.annotations),
            finalizers: meta
                .finalizers
                .as_ref()
                .map(|all| all.iter().map(|one| Text::borrowed(one)).collect()),
            owner_references: owners,
            managed_fields: None,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireOwner<'a> {
    #[serde(borrow)]
    pub(super) api_version: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) uid: Option<Text<'a>>,
    pub(super) controller: Option<bool>,
    pub(super) block_owner_deletion: Option<bool>,
}

/// String that is borrowed unless it has escapes.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'a> Text<'a> {
    fn borrowed(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
            fn visit_string<E: Error>(self, text: String) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }
        deserializer.deserialize_str(Any)
    }
}

/// Labels or annotations in the order of the message.
#[derive(Debug, Default)]
pub(super) struct WirePairs<'a>(Vec<(Text<'a>, Text<'a>)>);

impl<'a> WirePairs<'a> {
    /// Sorts the pairs. The last value of a duplicate key wins, as in a map.
    pub(super) fn sort(&mut self) -> &mut [(Text<'a>, Text<'a>)] {
        // API servers sort, so a check is usually sufficient.
        if !self.0.is_sorted_by(|(a, _), (b, _)| a < b) {
            self.0.sort_by(|(a, _), (b, _)| a.cmp(b));
            self.0.dedup_by(|later, earlier| {
                let same = later.0 == earlier.0;
                if same {
                    std::mem::swap(&mut later.1, &mut earlier.1);
                }
                same
            });
        }
        &mut self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for WirePairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = WirePairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::with_capacity(8);
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(WirePairs(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}
