//! Defaults of all informers of a cache, or of all informers of a kind.

use super::{Namespaces, Select};
use crate::object::{AnyKind, Metadata, Transform};
use std::time::Duration;

/// Default of [`CacheOptions::idle`].
const IDLE: Duration = Duration::from_secs(30);

/// Defaults for what a [`Select`] leaves unset.
///
/// Labels, fields, transform, page size and resync period are resolved independently. Each of them
/// is taken from the first of these that sets it:
///
/// 1. the [`NamespaceScope`](super::NamespaceScope) of the `Select`, then the `Select` itself
/// 2. the [`NamespaceScope`](super::NamespaceScope) of the entry in [`kinds`](Self::kinds), then
///    that entry
/// 3. the [`NamespaceScope`](super::NamespaceScope) in [`namespaces`](Self::namespaces), then the
///    other options here
///
/// The set of namespaces is taken as a whole from the first of the three that sets one. Settings of
/// a namespace that is in this set still apply if a later one names it.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use steersman::cache::{CacheOptions, NamespaceScope, Namespaces, Select};
///
/// let options = CacheOptions {
///     // All objects in `shop`, elsewhere those of one team.
///     namespaces: Namespaces::List(vec!["shop".into(), NamespaceScope::others().labels("team=web")]),
///     kinds: vec![
///         // Secrets only in `shop`, without their annotations.
///         Select::<Secret>::new()
///             .namespaces(Namespaces::List(vec!["shop".into()]))
///             .transform(|secret| secret.metadata.annotations = None)
///             .into(),
///         // All config maps in all namespaces.
///         Select::<ConfigMap>::new().namespaces(Namespaces::All).labels("").compact().into(),
///     ],
///     ..CacheOptions::default()
/// };
/// ```
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Namespaces to cache, with settings for each of them. Default: all namespaces.
    pub namespaces: Namespaces,
    /// Label selector, as in `kubectl -l`. Default: all objects.
    pub labels: Option<String>,
    /// Field selector, as in `kubectl --field-selector`. Default: all objects.
    ///
    /// Only `metadata.name` and `metadata.namespace` are valid for every kind.
    pub fields: Option<String>,
    /// Transform of the metadata of kinds that have no other transform. Default: none.
    pub transform: Option<MetadataTransform>,
    /// Objects per page of a list that the API server cannot stream. 0 disables paging. Default:
    /// 500.
    pub page_size: u32,
    /// Time that an informer keeps running without a handle. Default: 30 s.
    ///
    /// A declaration within this time finds the informer synced.
    pub idle: Duration,
    /// Resync period of events. See [`Select::resync`]. Default: no resync.
    pub resync: Option<Duration>,
    /// Whether a client's read of an undeclared kind starts an informer. Default: `false`.
    ///
    /// If `false`, such a read is an error. If `true`, the read waits up to 10 s for the first
    /// list, but fails at once if the API server rejects the list. The informer then runs until the
    /// cache is closed.
    pub allow_lazy: bool,
    /// Scope, representation and transform of single kinds. Default: none.
    ///
    /// The first entry of a kind counts. It applies to [`Cache::informer`](super::Cache::informer)
    /// and to every other declaration of the kind. Declarations of any type that this
    /// representation serves share the informer; a declaration can still choose `.compact()`.
    pub kinds: Vec<Select<AnyKind>>,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            namespaces: Namespaces::All,
            labels: None,
            fields: None,
            transform: None,
            page_size: 500,
            idle: IDLE,
            resync: None,
            allow_lazy: false,
            kinds: Vec::new(),
        }
    }
}

/// Function that changes the metadata of objects before they are stored.
///
/// Use it in [`CacheOptions::transform`] to drop metadata that the program never reads.
/// `managedFields` are dropped without a transform. Use [`Select::transform`] to change the body of
/// an object. A clone is the same transform.
///
/// The function cannot change name, namespace, uid, resource version, deletion timestamp or
/// finalizers. In a compact informer the metadata of each received object is encoded again.
///
/// ```
/// use steersman::cache::{CacheOptions, MetadataTransform};
///
/// let options = CacheOptions {
///     // As large as the object itself, and used by kubectl only.
///     transform: Some(MetadataTransform::new(|object| {
///         if let Some(annotations) = &mut object.metadata.annotations {
///             annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
///         }
///     })),
///     ..CacheOptions::default()
/// };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataTransform(pub(super) Transform);

impl MetadataTransform {
    /// Creates a transform from a function of the kind and metadata of each object.
    pub fn new(change: impl Fn(&mut Metadata) + Send + Sync + 'static) -> Self {
        Self(Transform::new(change))
    }
}
