//! What to keep in memory, and how: what an informer is declared with.

use super::{CacheError, selector::Selector};
use crate::object::{KubeObject, Metadata, StaticKind};
use kube_core::{ApiResource, DynamicObject, GroupVersionKind};
use std::{fmt, marker::PhantomData};

/// Objects in a page of a list, if nothing else is said: client-go's.
const PAGE_SIZE: u32 = 500;

/// Which objects of which kind to keep, and in what form. What is not said is the cache's default.
///
/// Kind, namespaces and selectors together name an informer: who declares the same gets the same one. Selectors are the server's work: what they
/// leave out is neither sent nor kept.
///
/// ```
/// use k8s_openapi::api::core::v1::Secret;
/// use steersman::{cache::{Namespaces, Select}, object::Metadata};
///
/// // Every secret's name, labels and owners; of one team's secrets all, but as text until somebody reads them.
/// let all = Select::<Metadata<Secret>>::new();
/// let ours = Select::<Secret>::new().namespaces(Namespaces::These(vec!["shop".into()])).labels("team=web").compact();
/// ```
#[derive(Debug)]
#[must_use = "declare it with `Cache::informer_of`"]
pub struct Select<K> {
    pub(super) gvk: GroupVersionKind,
    /// Of a type; others are looked for on the server.
    pub(super) resource: Option<Resource>,
    representation: Option<Representation>,
    namespaces: Option<Namespaces>,
    labels: Option<String>,
    fields: Option<String>,
    pub(super) page_size: u32,
    pub(super) managed_fields: bool,
    kind: PhantomData<fn() -> K>,
}

/// Where a kind is on the server.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) api: ApiResource,
    pub(super) namespaced: bool,
}

/// How an informer keeps objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Representation {
    /// Decoded: the default for a typed kind. Reads share what is there. Serves the type and its metadata.
    Typed,
    /// Bytes and metadata, decoded when read: a fraction of the memory, and serves typed, dynamic and metadata reads. The only one for dynamic objects.
    Compact,
    /// Nothing but metadata, nor is anything else sent. Chosen by the kind [`Metadata`].
    Metadata,
}

impl fmt::Display for Representation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Typed => "typed objects",
            Self::Compact => "compact text",
            Self::Metadata => "metadata only",
        })
    }
}

/// Where to keep objects of. Of a kind that has no namespaces all are kept, whatever this says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Namespaces {
    /// Everywhere: one watch, and the right to watch in the whole cluster.
    #[default]
    All,
    /// Only in these: a watch for each, and rights only there.
    These(Vec<String>),
}

/// What tells informers of one kind apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    /// Sorted; all if there are none.
    pub(super) namespaces: Vec<String>,
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
}

impl<K: StaticKind> Select<K> {
    /// All objects of a kind that its type names, in the form that the type says: [`Metadata`] only as metadata.
    #[expect(clippy::new_without_default, reason = "a default says nothing here")]
    pub fn new() -> Self {
        let resource = Resource { api: ApiResource::erase::<K>(&()), namespaced: K::NAMESPACED };
        Self { resource: Some(resource), ..Self::of(K::static_gvk()) }
    }
}

impl Select<DynamicObject> {
    /// A kind named at run time; its resource and scope are discovered when the informer starts, never guessed. Kept compact.
    pub fn dynamic(kind: GroupVersionKind) -> Self {
        Self::of(kind).compact()
    }
}

impl Select<Metadata> {
    /// Only the metadata of a kind named at run time.
    pub fn dynamic_metadata(kind: GroupVersionKind) -> Self {
        Self::of(kind)
    }
}

impl<K: KubeObject> Select<K> {
    /// Keep text instead of decoded objects: less memory, and every form of read is served.
    pub fn compact(self) -> Self {
        Self { representation: Some(Representation::Compact), ..self }
    }

    /// In these namespaces instead of the cache's.
    pub fn namespaces(self, namespaces: Namespaces) -> Self {
        Self { namespaces: Some(namespaces), ..self }
    }

    /// Only objects with such labels, as in `kubectl -l`; checked when the informer is declared.
    pub fn labels(self, selector: &str) -> Self {
        Self { labels: Some(selector.into()), ..self }
    }

    /// Only objects with such fields, as in `kubectl --field-selector`. What a kind can be selected by is known to the server alone: until it
    /// agrees, reads fail with what it says.
    pub fn fields(self, selector: &str) -> Self {
        Self { fields: Some(selector.into()), ..self }
    }

    /// Objects in a page, where the server cannot stream lists; 500 by default, 0 for all at once. Whoever declares the informer first decides.
    pub fn page_size(self, objects: u32) -> Self {
        Self { page_size: objects, ..self }
    }

    /// Keep `metadata.managedFields`, which is left out otherwise: it is often half of an object, and hardly anybody reads it.
    pub fn managed_fields(self) -> Self {
        Self { managed_fields: true, ..self }
    }

    /// All objects of a kind, as the type declares them, whether it names the kind or not.
    pub(crate) fn all(kind: GroupVersionKind) -> Self {
        let resource = K::static_resource().map(|(api, namespaced)| Resource { api, namespaced });
        let compact = resource.is_none() && !K::metadata_api();
        let all = Self { resource, ..Self::of(kind) };
        if compact { all.compact() } else { all }
    }

    pub(super) fn representation(&self) -> Representation {
        self.representation.unwrap_or(if K::metadata_api() { Representation::Metadata } else { Representation::Typed })
    }

    /// With the cache's default.
    pub(super) fn scope(&self, default: &Namespaces) -> Result<Scope, CacheError> {
        let namespaces = match self.namespaces.as_ref().unwrap_or(default) {
            _ if self.resource.as_ref().is_some_and(|resource| !resource.namespaced) => Vec::new(),
            Namespaces::All => Vec::new(),
            Namespaces::These(these) => {
                let mut these: Vec<_> = these.iter().filter(|name| !name.is_empty()).cloned().collect();
                these.sort();
                these.dedup();
                if these.is_empty() {
                    return Err(CacheError::NoNamespace { kind: self.gvk.kind.clone() });
                }
                these
            }
        };
        let said = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let labels = said(&self.labels).map(|labels| Selector::parse(&labels)).transpose()?;
        Ok(Scope { namespaces, labels: labels.map(|labels| labels.to_string()), fields: said(&self.fields) })
    }
}

impl<K> Select<K> {
    fn of(gvk: GroupVersionKind) -> Self {
        Self {
            gvk,
            resource: None,
            representation: None,
            namespaces: None,
            labels: None,
            fields: None,
            page_size: PAGE_SIZE,
            managed_fields: false,
            kind: PhantomData,
        }
    }
}

/// Whatever the kind.
impl<K> Clone for Select<K> {
    fn clone(&self) -> Self {
        Self {
            gvk: self.gvk.clone(),
            resource: self.resource.clone(),
            namespaces: self.namespaces.clone(),
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Node, Pod};

    fn scope<K: KubeObject>(select: Select<K>) -> Scope {
        select.scope(&Namespaces::These(vec!["b".into(), "a".into(), "b".into()])).expect("a scope")
    }

    #[test]
    fn a_scope_is_the_same_however_it_is_written() {
        let one = scope(Select::<Pod>::new().labels("b=1, a in (y,x)"));
        let other = Select::<Pod>::new().namespaces(Namespaces::These(vec!["a".into(), "b".into()]));
        assert_eq!(one, scope(other.labels("a in (x,y),b==1").fields(" ")));
        assert_ne!(one, scope(Select::<Pod>::new()));
    }

    #[test]
    fn a_kind_without_namespaces_is_kept_whole() {
        assert!(scope(Select::<Node>::new()).namespaces.is_empty());
        assert_eq!(scope(Select::<Pod>::new()).namespaces, ["a", "b"]);
        assert!(scope(Select::<Pod>::new().namespaces(Namespaces::All)).namespaces.is_empty());
    }

    #[test]
    fn what_selects_nothing_or_makes_no_sense_is_refused() {
        let none = Select::<Pod>::new().namespaces(Namespaces::These(vec![String::new()]));
        assert!(matches!(none.scope(&Namespaces::All), Err(CacheError::NoNamespace { .. })));
        let labels = Select::<Pod>::new().labels("a b");
        assert!(matches!(labels.scope(&Namespaces::All), Err(CacheError::Selector { .. })));
    }

    #[test]
    fn the_form_is_the_types_unless_it_is_said() {
        let gvk = || GroupVersionKind::gvk("", "v1", "Pod");
        assert_eq!(Select::<Pod>::new().representation(), Representation::Typed);
        assert_eq!(Select::<Pod>::new().compact().representation(), Representation::Compact);
        assert_eq!(Select::<Metadata<Pod>>::new().representation(), Representation::Metadata);
        assert_eq!(Select::dynamic(gvk()).representation(), Representation::Compact);
        assert_eq!(Select::dynamic_metadata(gvk()).representation(), Representation::Metadata);
    }
}
