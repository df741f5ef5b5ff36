//! View of metadata, with one interface for all representations.

use super::{compact_meta::CompactMeta, key::ObjectKey, wire_meta::WireMeta};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::ObjectMeta;
use std::{collections::BTreeMap, fmt};

/// Point in time, displayed in the format of the Kubernetes API.
pub use k8s_openapi::jiff::Timestamp;

/// View of an object's metadata. See [`Object::meta`](super::Object::meta).
///
/// Creating and copying it is free for every representation.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use steersman::object::Object;
///
/// let mut pod = Pod::default();
/// pod.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
/// let object = Object::from(pod);
/// assert_eq!(object.meta().labels().get("app"), Some("web"));
/// assert!(!object.meta().is_deleting());
/// ```
#[derive(Clone, Copy)]
pub struct Meta<'a>(MetaRef<'a>);

#[derive(Clone, Copy)]
enum MetaRef<'a> {
    Kube(&'a ObjectMeta),
    Packed(&'a CompactMeta),
}

impl<'a> From<&'a ObjectMeta> for Meta<'a> {
    fn from(meta: &'a ObjectMeta) -> Self {
        Self(MetaRef::Kube(meta))
    }
}

impl<'a> From<&'a CompactMeta> for Meta<'a> {
    fn from(meta: &'a CompactMeta) -> Self {
        Self(MetaRef::Packed(meta))
    }
}

impl<'a> Meta<'a> {
    /// Returns the UID. An object that is recreated under its name has another one.
    pub fn uid(self) -> Option<&'a str> {
        match self.0 {
            MetaRef::Kube(meta) => meta.uid.as_deref(),
            MetaRef::Packed(meta) => meta.uid(),
        }
    }

    /// Returns the resource version, which changes with every write.
    pub fn resource_version(self) -> Option<&'a str> {
        match self.0 {
            MetaRef::Kube(meta) => meta.resource_version.as_deref(),
            MetaRef::Packed(meta) => meta.resource_version(),
        }
    }

    /// Returns the generation, which changes with the spec, but not with the status.
    pub fn generation(self) -> Option<i64> {
        match self.0 {
            MetaRef::Kube(meta) => meta.generation,
            MetaRef::Packed(meta) => meta.generation(),
        }
    }

    /// Returns when the object was created.
    pub fn created(self) -> Option<Timestamp> {
        match self.0 {
            MetaRef::Kube(meta) => meta.creation_timestamp.as_ref().map(|time| time.0),
            MetaRef::Packed(meta) => meta.created(),
        }
    }

    /// Returns by when the object should be deleted, if its deletion was requested.
    pub fn deletion(self) -> Option<Timestamp> {
        match self.0 {
            MetaRef::Kube(meta) => meta.deletion_timestamp.as_ref().map(|time| time.0),
            MetaRef::Packed(meta) => meta.deletion(),
        }
    }

    /// Returns whether the deletion was requested. Finalizers may still delay it.
    pub fn is_deleting(self) -> bool {
        self.deletion().is_some()
    }

    /// Returns the labels.
    pub fn labels(self) -> Pairs<'a> {
        Pairs(match self.0 {
            MetaRef::Kube(meta) => Source::Map(meta.labels.as_ref()),
            MetaRef::Packed(meta) => Source::Packed(meta, PairKind::Labels),
        })
    }

    /// Returns the annotations.
    pub fn annotations(self) -> Pairs<'a> {
        Pairs(match self.0 {
            MetaRef::Kube(meta) => Source::Map(meta.annotations.as_ref()),
            MetaRef::Packed(meta) => Source::Packed(meta, PairKind::Annotations),
        })
    }

    /// Returns the finalizers, which must be removed before the object is deleted.
    pub fn finalizers(self) -> impl Iterator<Item = &'a str> {
        let (kube, packed) = self.as_options();
        let kube = kube
            .and_then(|meta| meta.finalizers.as_ref())
            .into_iter()
            .flatten()
            .map(String::as_str);
        kube.chain(packed.into_iter().flat_map(CompactMeta::finalizers))
    }

    /// Returns the owner references.
    pub fn owners(self) -> impl Iterator<Item = Owner<'a>> {
        let (kube, packed) = self.as_options();
        let kube = kube
            .and_then(|meta| meta.owner_references.as_ref())
            .into_iter()
            .flatten()
            .map(Owner::from);
        kube.chain(packed.into_iter().flat_map(CompactMeta::owners))
    }

    /// Returns the controlling owner. An object has at most one.
    pub fn controller(self) -> Option<Owner<'a>> {
        self.owners().find(Owner::is_controller)
    }

    /// Returns a copy as kube's `ObjectMeta`.
    pub fn to_object_meta(self) -> ObjectMeta {
        match self.0 {
            MetaRef::Kube(meta) => meta.clone(),
            MetaRef::Packed(meta) => meta.to_object_meta(),
        }
    }

    /// Returns a compact copy without `managedFields`. `key` is that of the object.
    pub(super) fn pack(self, key: &ObjectKey) -> CompactMeta {
        match self.0 {
            MetaRef::Kube(meta) => CompactMeta::pack(key.clone(), &mut WireMeta::from(meta)),
            MetaRef::Packed(meta) => meta.without_managed_fields(),
        }
    }

    fn as_options(self) -> (Option<&'a ObjectMeta>, Option<&'a CompactMeta>) {
        match self.0 {
            MetaRef::Kube(meta) => (Some(meta), None),
            MetaRef::Packed(meta) => (None, Some(meta)),
        }
    }
}

impl fmt::Debug for Meta<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meta")
            .field("uid", &self.uid())
            .field("resource_version", &self.resource_version())
            .field("generation", &self.generation())
            .field("created", &self.created())
            .field("deletion", &self.deletion())
            .field("labels", &self.labels())
            .field("annotations", &self.annotations())
            .field("finalizers", &self.finalizers().collect::<Vec<_>>())
            .field("owners", &self.owners().collect::<Vec<_>>())
            .finish()
    }
}

/// Labels or annotations, sorted by key.
#[derive(Clone, Copy)]
pub struct Pairs<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    Map(Option<&'a BTreeMap<String, String>>),
    Packed(&'a CompactMeta, PairKind),
}

/// Selects labels or annotations.
#[derive(Clone, Copy)]
pub(super) enum PairKind {
    Labels,
    Annotations,
}

impl<'a> Pairs<'a> {
    /// Returns the value of a key.
    pub fn get(self, key: &str) -> Option<&'a str> {
        match self.0 {
            Source::Map(map) => map?.get(key).map(String::as_str),
            Source::Packed(meta, which) => meta.pair(which, key),
        }
    }

    /// Returns whether there is a key, with any value.
    pub fn contains(self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Returns keys and values, sorted by key.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let (map, packed) = match self.0 {
            Source::Map(map) => (map, None),
            Source::Packed(meta, which) => (None, Some((meta, which))),
        };
        let map = map
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        map.chain(
            packed
                .into_iter()
                .flat_map(|(meta, which)| meta.pairs(which)),
        )
    }

    /// Returns the number of pairs.
    pub fn len(self) -> usize {
        match self.0 {
            Source::Map(map) => map.map_or(0, BTreeMap::len),
            Source::Packed(meta, which) => meta.pairs(which).len(),
        }
    }

    /// Returns whether there are no pairs.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Pairs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl PartialEq for Pairs<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}
impl Eq for Pairs<'_> {}

/// Reference to an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner<'a> {
    /// Group and version of the owner.
    pub api_version: &'a str,
    /// Kind of the owner.
    pub kind: &'a str,
    /// Name of the owner, in the namespace of the object unless cluster-scoped.
    pub name: &'a str,
    /// UID of the owner.
    pub uid: &'a str,
    /// Whether the owner is the controller. See [`Owner::is_controller`].
    pub controller: Option<bool>,
    /// Whether a foreground deletion of the owner waits for the object.
    pub block_owner_deletion: Option<bool>,
}

impl Owner<'_> {
    /// Returns whether the owner is the controller of the object.
    pub fn is_controller(&self) -> bool {
        self.controller == Some(true)
    }

    pub(super) fn to_reference(self) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version.into(),
            kind: self.kind.into(),
            name: self.name.into(),
            uid: self.uid.into(),
            controller: self.controller,
            block_owner_deletion: self.block_owner_deletion,
        }
    }
}

impl<'a> From<&'a OwnerReference> for Owner<'a> {
    fn from(owner: &'a OwnerReference) -> Self {
        Self {
            api_version: &owner.api_version,
            kind: &owner.kind,
            name: &owner.name,
            uid: &owner.uid,
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        }
    }
}
