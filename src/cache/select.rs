//! Declarations of informers: kind, scope, representation and settings.

use super::{
    Namespaces,
    core::Core,
    erased::ErasedCore,
    namespaces::Selectors,
    scope::{Layer, Scope},
    settings::Settings,
};
use crate::object::{AnyKind, Decoder, KubeObject, LabelQuery, Metadata, StaticKind, Transform};
use kube_core::{ApiResource, DynamicObject, GroupVersionKind};
use serde::Serialize;
use std::{any::TypeId, fmt, marker::PhantomData, sync::Arc, time::Duration};

/// Selection of objects of one kind, and their representation in memory.
///
/// Unset parts are taken from [`CacheOptions`](super::CacheOptions): from the entry of the kind,
/// then from the defaults of all kinds.
///
/// Kind, namespaces and selectors identify an informer. Declarations that agree in these share one
/// informer, in any representation that it serves. For a cluster-scoped kind the namespaces do not
/// count. The API server evaluates the selectors, so objects that do not match are neither sent nor
/// stored.
///
/// ```
/// use k8s_openapi::api::core::v1::Secret;
/// use steersman::{cache::{Namespaces, Select}, object::Metadata};
///
/// // The metadata of all secrets, and the whole secrets of one team, decoded when read.
/// let all = Select::<Metadata<Secret>>::new();
/// let ours = Select::<Secret>::new().namespaces(Namespaces::List(vec!["shop".into()])).labels("team=web").compact();
/// ```
#[must_use = "declare it with `Cache::informer_of`, or in `CacheOptions::kinds`"]
pub struct Select<K> {
    declaration: Declaration,
    kind: PhantomData<fn() -> K>,
}

/// Untyped selection, before defaults are applied.
#[derive(Clone, Debug)]
pub(super) struct Declaration {
    pub(super) gvk: GroupVersionKind,
    /// Resource that the Rust type declares. `None` if discovery has to find it.
    pub(super) resource: Option<Resource>,
    pub(super) stored_type: StoredType,
    pub(super) representation: Option<Representation>,
    pub(super) namespaces: Option<Namespaces>,
    pub(super) selectors: Selectors,
    pub(super) settings: Settings,
    pub(super) managed_fields: bool,
    pub(super) optional: bool,
}

impl Declaration {
    pub(super) fn representation(&self) -> Representation {
        self.representation
            .unwrap_or(self.stored_type.representation)
    }

    pub(super) fn layer(&self) -> Layer<'_> {
        Layer {
            namespaces: self.namespaces.as_ref(),
            selectors: &self.selectors,
            settings: &self.settings,
        }
    }
}

/// Rust type in which objects can be stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredType {
    pub(super) id: TypeId,
    /// Representation if the selection does not set one.
    representation: Representation,
    pub(super) core: fn(Decoder) -> Arc<dyn ErasedCore>,
}

impl StoredType {
    fn of<K: KubeObject>() -> Self {
        let representation = if K::metadata_api() {
            Representation::Metadata
        } else {
            Representation::Typed
        };
        Self {
            id: TypeId::of::<K>(),
            representation,
            core: |decoder| Arc::new(Core::<K>::new(decoder)),
        }
    }
}

/// Resource of a kind on the API server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Resource {
    pub(super) api: ApiResource,
    pub(super) namespaced: bool,
}

/// Representation of the objects of an informer in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Representation {
    /// Decoded objects, shared by all reads. The default of a typed kind.
    ///
    /// Serves reads of the type and of its metadata.
    Typed,
    /// Encoded objects and their metadata, decoded when read.
    ///
    /// Takes a fraction of the memory, and serves typed, dynamic and metadata reads. The only
    /// representation of dynamic objects.
    Compact,
    /// Metadata only. The API server sends nothing else. Chosen by the kind [`Metadata`].
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
    /// Selects all objects of the kind that the type declares.
    ///
    /// The representation is that of the type: [`Metadata`] is stored as metadata only.
    #[expect(clippy::new_without_default, reason = "a default says nothing here")]
    pub fn new() -> Self {
        let resource = Resource {
            api: ApiResource::erase::<K>(&()),
            namespaced: K::NAMESPACED,
        };
        Self::of(K::static_gvk(), Some(resource))
    }
}

impl Select<DynamicObject> {
    /// Selects all objects of a kind that is known at run time only.
    ///
    /// Discovery finds resource and scope when the informer starts. The representation is compact.
    pub fn dynamic(kind: GroupVersionKind) -> Self {
        Self::of(kind, None).compact()
    }
}

impl Select<Metadata> {
    /// Selects the metadata of a kind that is known at run time only.
    pub fn dynamic_metadata(kind: GroupVersionKind) -> Self {
        Self::of(kind, None)
    }
}

impl<K: KubeObject> Select<K> {
    /// Stores objects encoded instead of decoded.
    ///
    /// Takes a fraction of the memory and serves every type of read, but decodes each object that
    /// is read.
    pub fn compact(mut self) -> Self {
        self.declaration.representation = Some(Representation::Compact);
        self
    }

    /// Selects namespaces. Default: those of the cache.
    ///
    /// Selecting namespaces of a cluster-scoped kind is an error. If the kind is known at run time
    /// only, its informer is [`Degraded`](super::InformerState::Degraded) once discovery reports
    /// its scope.
    pub fn namespaces(mut self, namespaces: Namespaces) -> Self {
        self.declaration.namespaces = Some(namespaces);
        self
    }

    /// Selects objects by labels, as in `kubectl -l`. Default: the selector of the cache.
    ///
    /// The selector is checked when the informer is declared. An empty selector selects all
    /// objects.
    pub fn labels(mut self, selector: impl Into<LabelQuery>) -> Self {
        self.declaration.selectors.labels = Some(selector.into().0);
        self
    }

    /// Selects objects by fields, as in `kubectl --field-selector`. Default: that of the cache.
    ///
    /// An empty selector selects all objects. Only the API server knows which fields a kind
    /// supports. If it rejects the selector, reads fail with its message.
    pub fn fields(mut self, selector: &str) -> Self {
        self.declaration.selectors.fields = Some(selector.into());
        self
    }

    /// Sets the objects per page of a list that the API server cannot stream. Default: 500.
    ///
    /// 0 disables paging. The first declaration of an informer decides.
    pub fn page_size(mut self, objects: u32) -> Self {
        self.declaration.settings.page_size = Some(objects);
        self
    }

    /// Reports every object again once per period, as an update. Default: that of the cache.
    ///
    /// `old` and `new` of such an update are equal. The period varies by 10 %. Zero disables the
    /// resync. No request is sent to the API server. The period applies to the events of this
    /// declaration's handles only: declarations of one informer can have different periods.
    ///
    /// A resync makes up for events that a handler has dropped, so it can hide bugs. Prefer it for
    /// work that depends on time.
    pub fn resync(mut self, period: Duration) -> Self {
        self.declaration.settings.resync = Some(period);
        self
    }

    /// Stores `metadata.managedFields`. Default: dropped, because they are often half of an object.
    pub fn managed_fields(mut self) -> Self {
        self.declaration.managed_fields = true;
        self
    }

    /// Lets managers and controllers start without this informer. Default: required.
    ///
    /// Use it for a kind that may be installed later, or that the program may not be allowed to
    /// read. The start waits until the first list has completed, the API server reports that the
    /// kind is missing, or it rejects the list; at most for the sync timeout. Applies to this
    /// declaration only. Other declarations of the same informer may require it. Has no effect in
    /// [`CacheOptions::kinds`](super::CacheOptions::kinds).
    pub fn optional(mut self) -> Self {
        self.declaration.optional = true;
        self
    }

    pub(crate) fn is_optional(&self) -> bool {
        self.declaration.optional
    }

    /// Changes objects before they are stored, mostly to drop unused fields. Default: none.
    ///
    /// The function is called once for each version of an object, and must be deterministic. Name,
    /// namespace, uid, resource version, deletion timestamp and finalizers are restored after the
    /// call. An object on which it panics counts as one that does not decode.
    ///
    /// Typed objects and metadata are changed in place. A compact object is decoded, changed and
    /// encoded each time it is received, which costs as much as decoding, and drops fields that the
    /// type does not have. A transform of a [`Metadata`] kind leaves the body unchanged.
    ///
    /// A cached object then differs from the object on the API server. Writing it back with
    /// [`update`](crate::client::Client::update), or a list of it with
    /// [`patch_from`](crate::client::Client::patch_from), removes the dropped fields on the API
    /// server. Read the object with `client.live()` in this case.
    /// [`create_or_patch`](crate::client::Client::create_or_patch) and
    /// [`create_or_update`](crate::client::Client::create_or_update) do so themselves.
    ///
    /// An informer has one transform, or one for each
    /// [namespace](super::NamespaceScope::transform). A declaration with another transform is an
    /// error; only clones of a transform are equal. A declaration without a transform shares the
    /// informer.
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
        self.declaration.settings.transform = Some(Transform::new(change));
        self
    }

    /// Selects all objects of `kind`, for types with and without a static kind.
    pub(crate) fn all(kind: GroupVersionKind) -> Self {
        let resource = K::static_resource().map(|(api, namespaced)| Resource { api, namespaced });
        let compact = resource.is_none() && !K::metadata_api();
        let all = Self::of(kind, resource);
        if compact { all.compact() } else { all }
    }

    fn of(gvk: GroupVersionKind, resource: Option<Resource>) -> Self {
        let declaration = Declaration {
            gvk,
            resource,
            stored_type: StoredType::of::<K>(),
            representation: None,
            namespaces: None,
            selectors: Selectors::default(),
            settings: Settings::default(),
            managed_fields: false,
            optional: false,
        };
        Self {
            declaration,
            kind: PhantomData,
        }
    }
}

impl<K> Select<K> {
    pub(crate) fn gvk(&self) -> &GroupVersionKind {
        &self.declaration.gvk
    }

    /// Returns kind and scope as text for logs and reports.
    pub(crate) fn describe(&self) -> String {
        let Declaration { gvk, resource, .. } = &self.declaration;
        let kind = if resource.is_some() {
            gvk.kind.clone()
        } else {
            format!("{}, {}", gvk.api_version(), gvk.kind)
        };
        // An invalid scope has no text. Its declaration returns the error.
        let scope = Scope::of(&gvk.kind, &[self.declaration.layer()])
            .map(|scope| scope.to_string())
            .unwrap_or_default();
        if scope.is_empty() {
            kind
        } else {
            format!("{kind} {scope}")
        }
    }

    pub(super) fn declaration(&self) -> &Declaration {
        &self.declaration
    }
}

/// Erases the type, for [`CacheOptions::kinds`](super::CacheOptions::kinds).
impl<K: KubeObject> From<Select<K>> for Select<AnyKind> {
    fn from(select: Select<K>) -> Self {
        Self {
            declaration: select.declaration,
            kind: PhantomData,
        }
    }
}

impl<K> Clone for Select<K> {
    fn clone(&self) -> Self {
        Self {
            declaration: self.declaration.clone(),
            kind: PhantomData,
        }
    }
}

impl<K> fmt::Debug for Select<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.declaration.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    #[test]
    fn the_default_representation_is_that_of_the_type() {
        let gvk = || GroupVersionKind::gvk("", "v1", "Pod");
        assert_eq!(
            Select::<Pod>::new().declaration.representation(),
            Representation::Typed
        );
        assert_eq!(
            Select::<Pod>::new().compact().declaration.representation(),
            Representation::Compact
        );
        assert_eq!(
            Select::<Metadata<Pod>>::new().declaration.representation(),
            Representation::Metadata
        );
        assert_eq!(
            Select::dynamic(gvk()).declaration.representation(),
            Representation::Compact
        );
        assert_eq!(
            Select::dynamic_metadata(gvk()).declaration.representation(),
            Representation::Metadata
        );
    }

    #[test]
    fn describe_names_kind_and_scope() {
        assert_eq!(Select::<Pod>::new().describe(), "Pod");
        assert_eq!(Select::<Metadata<Pod>>::new().describe(), "Pod");
        assert_eq!(
            Select::dynamic(GroupVersionKind::gvk("apps", "v1", "Deployment")).describe(),
            "apps/v1, Deployment"
        );
        let narrow = Select::<Pod>::new()
            .namespaces(Namespaces::List(vec!["shop".into()]))
            .labels("app=web");
        assert_eq!(narrow.describe(), "Pod in shop, labelled app=web");
        assert_eq!(Select::<Pod>::new().labels("= =").describe(), "Pod");
    }
}
