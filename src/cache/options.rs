//! What holds for all informers of a cache, or for those of a kind, unless something else is said.

use super::{Namespaces, Select};
use crate::object::{AnyKind, Metadata, Transform};
use std::time::Duration;

/// How long an informer outlives its last user, if nothing else is said.
const IDLE: Duration = Duration::from_secs(30);

/// Defaults for what a [`Select`] leaves unset.
///
/// What is said first counts: by a `Select` of a [namespace](super::InNamespace), then of all its objects; by [`kinds`](Self::kinds) likewise; by the defaults
/// here likewise. Each of labels, fields, transform, page size and resync period by itself. The namespaces are those of the first who says some; what others say of one of those by
/// name still counts where it is its turn.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use steersman::cache::{CacheOptions, InNamespace, Namespaces, Select};
///
/// let options = CacheOptions {
///     // Of our own namespace everything, elsewhere what is ours.
///     namespaces: Namespaces::These(vec!["shop".into(), InNamespace::others().labels("team=web")]),
///     kinds: vec![
///         // Secrets only here, and without what nobody reads.
///         Select::<Secret>::new()
///             .namespaces(Namespaces::These(vec!["shop".into()]))
///             .transform(|secret| secret.metadata.annotations = None)
///             .into(),
///         // Of all config maps, wherever they are.
///         Select::<ConfigMap>::new().namespaces(Namespaces::All).labels("").compact().into(),
///     ],
///     ..CacheOptions::default()
/// };
/// ```
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Where objects are kept of, and how in each; everywhere by default.
    pub namespaces: Namespaces,
    /// Only objects with such labels, as in `kubectl -l`; all by default.
    pub labels: Option<String>,
    /// Only objects with such fields, as in `kubectl --field-selector`; all by default. Every kind knows `metadata.name` and `metadata.namespace`.
    pub fields: Option<String>,
    /// Changes the metadata of each object before it is stored, where nothing is said of its kind; none by default.
    pub transform: Option<MetadataTransform>,
    /// Objects in a page, where the server cannot stream lists; 500 by default, 0 for all at once.
    pub page_size: u32,
    /// How long an informer outlives its last user; 30 s by default. Who comes back within that time finds it synced.
    pub idle: Duration,
    /// How often events tell of every object again; never by default. See [`Select::resync`].
    pub resync: Option<Duration>,
    /// Whether a client's read of a kind that nobody has declared starts its informer, which then stays; false by default, and such a read an error. Such a
    /// read waits for the first list, at most 10 s, and not at all once the server has refused it.
    pub allow_lazy: bool,
    /// What [`Cache::informer`](super::Cache::informer) means for a kind: which objects, in what form and with which transform. None by default; of two for one
    /// kind the first counts.
    ///
    /// The kind is kept in the form said here, whoever declares it in whatever form it serves; a declaration may still choose `.compact()`.
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

/// A function of the metadata of objects, whatever their kind, for [`CacheOptions::transform`]. A clone is the same one.
///
/// For what no controller of the program reads. `managedFields` need none, as they are left out anyway; what a body has is dropped by
/// [`Select::transform`], which knows the type. Like that one, it can change neither who an object is nor how it ends, and in a compact informer has each object's
/// metadata written and read again.
///
/// ```
/// use steersman::cache::{CacheOptions, MetadataTransform};
///
/// let options = CacheOptions {
///     // As long as the object itself, and nobody's concern but kubectl's.
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
    /// It is told the kind of each object with its metadata.
    pub fn new(change: impl Fn(&mut Metadata) + Send + Sync + 'static) -> Self {
        Self(Transform::new(change))
    }
}
