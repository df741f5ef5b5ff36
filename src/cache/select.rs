//! What to keep in memory, and how: what an informer is declared with.

use super::{
    Namespaces,
    core::Core,
    erased::Informing,
    namespaces::Selectors,
    scope::{Layer, Scope},
    settings::Settings,
};
use crate::object::{AnyKind, Decoder, KubeObject, Metadata, StaticKind, Transform};
use kube_core::{ApiResource, DynamicObject, GroupVersionKind};
use serde::Serialize;
use std::{any::TypeId, fmt, marker::PhantomData, sync::Arc, time::Duration};

/// Which objects of which kind to keep, and in what form. What is not said is as [`CacheOptions`](super::CacheOptions) say: for the kind, then for
/// everything.
///
/// Kind, namespaces and selectors together name an informer: who declares the same gets the same one, in whatever form; of a kind that has no namespaces, kind
/// and selectors do. Selectors are the server's work: what they leave out is neither sent nor kept.
///
/// ```
/// use k8s_openapi::api::core::v1::Secret;
/// use steersman::{cache::{Namespaces, Select}, object::Metadata};
///
/// // Every secret's name, labels and owners; of one team's secrets all, but packed until somebody reads them.
/// let all = Select::<Metadata<Secret>>::new();
/// let ours = Select::<Secret>::new().namespaces(Namespaces::These(vec!["shop".into()])).labels("team=web").compact();
/// ```
#[must_use = "declare it with `Cache::informer_of`, or in `CacheOptions::kinds`"]
pub struct Select<K> {
    said: Said,
    kind: PhantomData<fn() -> K>,
}

/// A selection, whatever its kind: what was said, and no more.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) gvk: GroupVersionKind,
    /// Of a type; others are looked for on the server.
    pub(super) resource: Option<Resource>,
    pub(super) form: Form,
    pub(super) representation: Option<Representation>,
    pub(super) namespaces: Option<Namespaces>,
    pub(super) selectors: Selectors,
    pub(super) settings: Settings,
    pub(super) managed_fields: bool,
    pub(super) optional: bool,
}

impl Said {
    pub(super) fn representation(&self) -> Representation {
        self.representation.unwrap_or(self.form.representation)
    }

    pub(super) fn layer(&self) -> Layer<'_> {
        Layer { namespaces: self.namespaces.as_ref(), selectors: &self.selectors, settings: &self.settings }
    }
}

/// A type that objects can be kept as.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) id: TypeId,
    /// Unless another one is said.
    representation: Representation,
    pub(super) core: fn(Decoder) -> Arc<dyn Informing>,
}

impl Form {
    fn of<K: KubeObject>() -> Self {
        let representation = if K::metadata_api() { Representation::Metadata } else { Representation::Typed };
        Self { id: TypeId::of::<K>(), representation, core: |decoder| Arc::new(Core::<K>::new(decoder)) }
    }
}

/// Where a kind is on the server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Resource {
    pub(super) api: ApiResource,
    pub(super) namespaced: bool,
}

/// How an informer keeps objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
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
            Self::Compact => "compact",
            Self::Metadata => "metadata only",
        })
    }
}

impl<K: StaticKind> Select<K> {
    /// All objects of a kind that its type names, in the form that the type says: [`Metadata`] only as metadata.
    #[expect(clippy::new_without_default, reason = "a default says nothing here")]
    pub fn new() -> Self {
        let resource = Resource { api: ApiResource::erase::<K>(&()), namespaced: K::NAMESPACED };
        Self::of(K::static_gvk(), Some(resource))
    }
}

impl Select<DynamicObject> {
    /// A kind named at run time; its resource and scope are discovered when the informer starts, never guessed. Kept compact.
    pub fn dynamic(kind: GroupVersionKind) -> Self {
        Self::of(kind, None).compact()
    }
}

impl Select<Metadata> {
    /// Only the metadata of a kind named at run time.
    pub fn dynamic_metadata(kind: GroupVersionKind) -> Self {
        Self::of(kind, None)
    }
}

impl<K: KubeObject> Select<K> {
    /// Keep objects packed instead of decoded: a fraction of the memory, and every form of read is served, at the price of decoding each object that is read.
    pub fn compact(mut self) -> Self {
        self.said.representation = Some(Representation::Compact);
        self
    }

    /// In these namespaces instead of the cache's. A kind that has none can only be selected as a whole: anything else is an error, or, of a kind that is named at run
    /// time, keeps its informer [`Degraded`](super::InformerState::Degraded) once the server has said so.
    pub fn namespaces(mut self, namespaces: Namespaces) -> Self {
        self.said.namespaces = Some(namespaces);
        self
    }

    /// Only objects with such labels, as in `kubectl -l`; checked when the informer is declared. An empty one selects everything, whatever the cache's
    /// default is.
    pub fn labels(mut self, selector: &str) -> Self {
        self.said.selectors.labels = Some(selector.into());
        self
    }

    /// Only objects with such fields, as in `kubectl --field-selector`; everything with an empty one. What a kind can be selected by is known to the
    /// server alone: until it agrees, reads fail with what it says.
    pub fn fields(mut self, selector: &str) -> Self {
        self.said.selectors.fields = Some(selector.into());
        self
    }

    /// Objects in a page, where the server cannot stream lists; 500 by default, 0 for all at once. Whoever declares the informer first decides.
    pub fn page_size(mut self, objects: u32) -> Self {
        self.said.settings.page_size = Some(objects);
        self
    }

    /// Tell of every object again once in so long, more or less by a tenth, as an update whose `old` is its `new`; zero for never, which is the cache's default.
    /// The server is not asked. It is for the events of this declaration's handles: each user of one informer has a period of its own.
    ///
    /// A resync makes up for what a handler has missed or forgotten: it hides mistakes, and is better used for what time itself changes.
    pub fn resync(mut self, period: Duration) -> Self {
        self.said.settings.resync = Some(period);
        self
    }

    /// Keep `metadata.managedFields`, which is left out otherwise: it is often half of an object, and hardly anybody reads it.
    pub fn managed_fields(mut self) -> Self {
        self.said.managed_fields = true;
        self
    }

    /// A manager or a controller starts without it: for a kind that may be installed later, or that it may not read. It waits only until that is known: for the first
    /// list, the server's word that there is no such kind, or its refusal; at most for the sync timeout, and no longer. It is of this declaration: others of the same
    /// informer may need it, and in [`CacheOptions::kinds`](super::CacheOptions::kinds) it says nothing.
    pub fn optional(mut self) -> Self {
        self.said.optional = true;
        self
    }

    pub(crate) fn is_optional(&self) -> bool {
        self.said.optional
    }

    /// Change objects before they are stored, mostly to drop what nobody reads.
    ///
    /// It sees each object once for each of its versions, and must do the same to the same one. Name, namespace, uid, resource version, the time of
    /// deletion and the finalizers cannot be changed: they are put back. An object that it panics on is left out, and counted as one that does not fit the type.
    ///
    /// Typed objects and metadata are changed in place. Compact ones are decoded, changed and written again, each time one comes: that costs what decoding
    /// all of them does, and what the type does not know is dropped too. A [`Metadata`] kind leaves bodies as they came.
    ///
    /// An object that is read here is not the one that the server has. Who writes it back with [`update`](crate::client::Client::update), or a list of it with
    /// [`patch_from`](crate::client::Client::patch_from), takes away on the server what was dropped here: read it with `client.live()` for that.
    /// [`create_or_patch`](crate::client::Client::create_or_patch) and [`create_or_update`](crate::client::Client::create_or_update) do so themselves.
    ///
    /// An informer has one transform, or one for each [namespace](super::InNamespace::transform): who declares it with another one, which is one that is not a
    /// clone of it, gets an error; who says none joins.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Secret;
    /// use steersman::cache::Select;
    ///
    /// let names_of_data = Select::<Secret>::new().transform(|secret| {
    ///     for value in secret.data.iter_mut().flat_map(|data| data.values_mut()) {
    ///         value.0 = Vec::new();
    ///     }
    /// });
    /// ```
    pub fn transform(mut self, change: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.said.settings.transform = Some(Transform::new(change));
        self
    }

    /// All objects of a kind, as the type declares them, whether it names the kind or not.
    pub(crate) fn all(kind: GroupVersionKind) -> Self {
        let resource = K::static_resource().map(|(api, namespaced)| Resource { api, namespaced });
        let compact = resource.is_none() && !K::metadata_api();
        let all = Self::of(kind, resource);
        if compact { all.compact() } else { all }
    }

    fn of(gvk: GroupVersionKind, resource: Option<Resource>) -> Self {
        let said = Said {
            gvk,
            resource,
            form: Form::of::<K>(),
            representation: None,
            namespaces: None,
            selectors: Selectors::default(),
            settings: Settings::default(),
            managed_fields: false,
            optional: false,
        };
        Self { said, kind: PhantomData }
    }
}

impl<K> Select<K> {
    pub(crate) fn gvk(&self) -> &GroupVersionKind {
        &self.said.gvk
    }

    /// For people: the kind, and what is said of its scope here.
    pub(crate) fn words(&self) -> String {
        let Said { gvk, resource, .. } = &self.said;
        let kind = if resource.is_some() { gvk.kind.clone() } else { format!("{}, {}", gvk.api_version(), gvk.kind) };
        // What cannot be selected has no words: who declares it is told.
        let scope = Scope::of(&gvk.kind, &[self.said.layer()]).map(|scope| scope.to_string()).unwrap_or_default();
        if scope.is_empty() { kind } else { format!("{kind} {scope}") }
    }

    pub(super) fn said(&self) -> &Said {
        &self.said
    }
}

/// For [`CacheOptions::kinds`](super::CacheOptions::kinds).
impl<K: KubeObject> From<Select<K>> for Select<AnyKind> {
    fn from(select: Select<K>) -> Self {
        Self { said: select.said, kind: PhantomData }
    }
}

impl<K> Clone for Select<K> {
    fn clone(&self) -> Self {
        Self { said: self.said.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for Select<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.said.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    #[test]
    fn the_form_is_the_types_unless_it_is_said() {
        let gvk = || GroupVersionKind::gvk("", "v1", "Pod");
        assert_eq!(Select::<Pod>::new().said.representation(), Representation::Typed);
        assert_eq!(Select::<Pod>::new().compact().said.representation(), Representation::Compact);
        assert_eq!(Select::<Metadata<Pod>>::new().said.representation(), Representation::Metadata);
        assert_eq!(Select::dynamic(gvk()).said.representation(), Representation::Compact);
        assert_eq!(Select::dynamic_metadata(gvk()).said.representation(), Representation::Metadata);
    }

    #[test]
    fn words_name_the_kind_and_what_it_is_narrowed_to() {
        assert_eq!(Select::<Pod>::new().words(), "Pod");
        assert_eq!(Select::<Metadata<Pod>>::new().words(), "Pod");
        assert_eq!(Select::dynamic(GroupVersionKind::gvk("apps", "v1", "Deployment")).words(), "apps/v1, Deployment");
        let narrow = Select::<Pod>::new().namespaces(Namespaces::These(vec!["shop".into()])).labels("app=web");
        assert_eq!(narrow.words(), "Pod in shop, labelled app=web");
        assert_eq!(Select::<Pod>::new().labels("= =").words(), "Pod");
    }
}
