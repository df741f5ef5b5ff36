//! Metadata in two allocations: all text in one string, and the end of each piece.
//!
//! The pieces are: uid, resourceVersion, generateName, labels and annotations (key, value; sorted,
//! without duplicates), finalizers, owners (four pieces each). The ends are followed by a word of
//! flags for each owner. A label costs its text and 8 bytes. Shared strings, with a pointer of 16
//! bytes and a table, would cost more than most keys.

use super::{
    key::ObjectKey,
    meta::{Owner, PairKind, Timestamp},
    wire_meta::{Text, WireMeta, WirePairs},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::ObjectMeta;

/// Number of pieces before the labels.
const FIRST: usize = 3;
/// Number of pieces of an owner.
const OWNER: usize = 4;

#[derive(Debug)]
pub(crate) struct CompactMeta {
    key: ObjectKey,
    text: Box<str>,
    ends: Box<[u32]>,
    created: Option<Timestamp>,
    generation: Option<i64>,
    rare: Option<Box<RareFields>>,
    labels: u32,
    annotations: u32,
    finalizers: u32,
    owners: u32,
    has: Flags,
}

/// Fields that few objects have.
#[derive(Debug, Default, PartialEq)]
struct RareFields {
    deletion: Option<Timestamp>,
    grace: Option<i64>,
    self_link: Option<Box<str>>,
    managed_fields: Option<Box<str>>,
}

/// Set of fields that are present. A missing map differs from an empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Flags(u16);

impl Flags {
    const NAMESPACE: u16 = 1;
    const UID: u16 = 2;
    const RESOURCE_VERSION: u16 = 4;
    const GENERATE_NAME: u16 = 8;
    const LABELS: u16 = 16;
    const ANNOTATIONS: u16 = 32;
    const FINALIZERS: u16 = 64;
    const OWNERS: u16 = 128;

    fn of(self, part: u16) -> bool {
        self.0 & part != 0
    }

    fn set(&mut self, part: u16, there: bool) {
        self.0 |= if there { part } else { 0 };
    }
}

impl CompactMeta {
    /// Creates the metadata of an object of which only the name is known.
    pub(super) fn named(key: ObjectKey) -> Self {
        Self::pack(key, &mut WireMeta::default())
    }

    /// Returns a copy without `managedFields`.
    pub(super) fn without_managed_fields(&self) -> Self {
        let rare = self.rare.as_ref().map(|rare| RareFields {
            deletion: rare.deletion,
            grace: rare.grace,
            self_link: rare.self_link.clone(),
            managed_fields: None,
        });
        Self {
            key: self.key.clone(),
            text: self.text.clone(),
            ends: self.ends.clone(),
            rare: rare
                .filter(|rare| *rare != RareFields::default())
                .map(Box::new),
            ..*self
        }
    }

    /// Packs metadata. `key` is that of the object.
    pub(super) fn pack(key: ObjectKey, wire: &mut WireMeta<'_>) -> Self {
        let mut has = Flags::default();
        has.set(Flags::NAMESPACE, wire.namespace.is_some());
        has.set(Flags::UID, wire.uid.is_some());
        has.set(Flags::RESOURCE_VERSION, wire.resource_version.is_some());
        has.set(Flags::GENERATE_NAME, wire.generate_name.is_some());
        has.set(Flags::LABELS, wire.labels.is_some());
        has.set(Flags::ANNOTATIONS, wire.annotations.is_some());
        has.set(Flags::FINALIZERS, wire.finalizers.is_some());
        has.set(Flags::OWNERS, wire.owner_references.is_some());

        let [labels, annotations] = [&mut wire.labels, &mut wire.annotations].map(|pairs| {
            let pairs = pairs.as_mut().map(WirePairs::sort).unwrap_or_default();
            &*pairs
        });
        let finalizers = wire.finalizers.as_deref().unwrap_or_default();
        let owners = wire.owner_references.as_deref().unwrap_or_default();
        let first = [&wire.uid, &wire.resource_version, &wire.generate_name].map(Option::as_ref);

        let pieces = || {
            let first = first.into_iter().map(text);
            let pairs = labels
                .iter()
                .chain(annotations)
                .flat_map(|(key, value)| [&*key.0, &*value.0]);
            let finalizers = finalizers.iter().map(|it| &*it.0);
            let owners = owners.iter().flat_map(|it| {
                [&it.api_version, &it.kind, &it.name, &it.uid].map(|it| text(it.as_ref()))
            });
            first.chain(pairs).chain(finalizers).chain(owners)
        };
        let mut all = String::with_capacity(pieces().map(str::len).sum());
        let count = FIRST
            + 2 * (labels.len() + annotations.len())
            + finalizers.len()
            + (OWNER + 1) * owners.len();
        let mut ends = Vec::with_capacity(count);
        for piece in pieces() {
            all.push_str(piece);
            ends.push(u32::try_from(all.len()).expect("metadata is shorter than 4 GiB"));
        }
        ends.extend(
            owners
                .iter()
                .map(|owner| flag(owner.controller) * 3 + flag(owner.block_owner_deletion)),
        );

        let rare = RareFields {
            deletion: wire.deletion_timestamp,
            grace: wire.deletion_grace_period_seconds,
            self_link: wire.self_link.as_ref().map(|it| (*it.0).into()),
            managed_fields: wire.managed_fields.map(|it| it.get().into()),
        };
        Self {
            key,
            created: wire.creation_timestamp,
            generation: wire.generation,
            rare: (rare != RareFields::default()).then(|| Box::new(rare)),
            labels: labels.len() as u32,
            annotations: annotations.len() as u32,
            finalizers: finalizers.len() as u32,
            owners: owners.len() as u32,
            has,
            text: all.into_boxed_str(),
            ends: ends.into_boxed_slice(),
        }
    }

    pub(crate) fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Returns the namespace, also if it is present and empty.
    pub(super) fn namespace(&self) -> Option<&str> {
        self.has
            .of(Flags::NAMESPACE)
            .then(|| self.key.namespace().unwrap_or_default())
    }

    pub(super) fn uid(&self) -> Option<&str> {
        self.has.of(Flags::UID).then(|| self.piece(0))
    }

    pub(super) fn resource_version(&self) -> Option<&str> {
        self.has.of(Flags::RESOURCE_VERSION).then(|| self.piece(1))
    }

    pub(super) fn generate_name(&self) -> Option<&str> {
        self.has.of(Flags::GENERATE_NAME).then(|| self.piece(2))
    }

    pub(super) fn generation(&self) -> Option<i64> {
        self.generation
    }

    pub(super) fn created(&self) -> Option<Timestamp> {
        self.created
    }

    pub(super) fn deletion(&self) -> Option<Timestamp> {
        self.rare.as_ref()?.deletion
    }

    pub(super) fn grace(&self) -> Option<i64> {
        self.rare.as_ref()?.grace
    }

    pub(super) fn self_link(&self) -> Option<&str> {
        self.rare.as_ref()?.self_link.as_deref()
    }

    /// Returns `managedFields` as JSON, if they are kept.
    pub(super) fn managed_fields(&self) -> Option<&str> {
        self.rare.as_ref()?.managed_fields.as_deref()
    }

    pub(super) fn has_pairs(&self, which: PairKind) -> bool {
        self.has.of(match which {
            PairKind::Labels => Flags::LABELS,
            PairKind::Annotations => Flags::ANNOTATIONS,
        })
    }

    pub(super) fn has_finalizers(&self) -> bool {
        self.has.of(Flags::FINALIZERS)
    }

    pub(super) fn has_owners(&self) -> bool {
        self.has.of(Flags::OWNERS)
    }

    pub(super) fn pairs(&self, which: PairKind) -> impl ExactSizeIterator<Item = (&str, &str)> {
        let (from, len) = self.range(which);
        (0..len).map(move |at| (self.piece(from + 2 * at), self.piece(from + 2 * at + 1)))
    }

    pub(super) fn pair(&self, which: PairKind, key: &str) -> Option<&str> {
        let (from, mut len) = self.range(which);
        let mut low = 0;
        while len > 0 {
            let middle = low + len / 2;
            match self.piece(from + 2 * middle).cmp(key) {
                std::cmp::Ordering::Equal => return Some(self.piece(from + 2 * middle + 1)),
                std::cmp::Ordering::Less => (low, len) = (middle + 1, len - len / 2 - 1),
                std::cmp::Ordering::Greater => len /= 2,
            }
        }
        None
    }

    pub(super) fn finalizers(&self) -> impl Iterator<Item = &str> {
        let from = self.first_finalizer();
        (from..from + self.finalizers as usize).map(|at| self.piece(at))
    }

    pub(super) fn owners(&self) -> impl Iterator<Item = Owner<'_>> {
        let from = self.first_finalizer() + self.finalizers as usize;
        let flags = &self.ends[from + OWNER * self.owners as usize..];
        flags.iter().enumerate().map(move |(number, flags)| {
            let [api_version, kind, name, uid] =
                [0, 1, 2, 3].map(|piece| self.piece(from + OWNER * number + piece));
            let [controller, block_owner_deletion] = [flags / 3, flags % 3].map(unflag);
            Owner {
                api_version,
                kind,
                name,
                uid,
                controller,
                block_owner_deletion,
            }
        })
    }

    pub(super) fn to_object_meta(&self) -> ObjectMeta {
        let pairs = |which| {
            let pairs = self
                .pairs(which)
                .map(|(key, value)| (key.to_owned(), value.to_owned()));
            self.has_pairs(which).then(|| pairs.collect())
        };
        ObjectMeta {
            annotations: pairs(PairKind::Annotations),
            creation_timestamp: self.created.map(Time),
            deletion_grace_period_seconds: self.grace(),
            deletion_timestamp: self.deletion().map(Time),
            finalizers: self
                .has_finalizers()
                .then(|| self.finalizers().map(str::to_owned).collect()),
            generate_name: self.generate_name().map(str::to_owned),
            generation: self.generation,
            labels: pairs(PairKind::Labels),
            managed_fields: self
                .managed_fields()
                .and_then(|json| serde_json::from_str(json).ok()),
            name: Some(self.key.name().to_owned()),
            namespace: self.namespace().map(str::to_owned),
            owner_references: self
                .has_owners()
                .then(|| self.owners().map(Owner::to_reference).collect()),
            resource_version: self.resource_version().map(str::to_owned),
            self_link: self.self_link().map(str::to_owned),
            uid: self.uid().map(str::to_owned),
        }
    }

    /// Returns the size on the heap, without the key, which the store counts.
    pub(super) fn heap_bytes(&self) -> usize {
        let rare = self.rare.as_ref().map_or(0, |rare| {
            let texts = [&rare.self_link, &rare.managed_fields]
                .map(|text| text.as_ref().map_or(0, |text| text.len()));
            size_of::<RareFields>() + texts.iter().sum::<usize>()
        });
        self.text.len() + size_of_val(&*self.ends) + rare
    }

    fn range(&self, which: PairKind) -> (usize, usize) {
        match which {
            PairKind::Labels => (FIRST, self.labels as usize),
            PairKind::Annotations => (FIRST + 2 * self.labels as usize, self.annotations as usize),
        }
    }

    fn first_finalizer(&self) -> usize {
        FIRST + 2 * (self.labels as usize + self.annotations as usize)
    }

    fn piece(&self, at: usize) -> &str {
        let from = if at == 0 {
            0
        } else {
            self.ends[at - 1] as usize
        };
        &self.text[from..self.ends[at] as usize]
    }
}

fn text<'a>(text: Option<&'a Text<'_>>) -> &'a str {
    text.map_or("", |text| &text.0)
}

/// Encodes a missing value as 0, false as 1 and true as 2.
fn flag(value: Option<bool>) -> u32 {
    value.map_or(0, |value| 1 + u32::from(value))
}

fn unflag(flag: u32) -> Option<bool> {
    (flag > 0).then_some(flag == 2)
}
