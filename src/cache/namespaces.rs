//! Namespaces of a scope, and the settings of single namespaces.

use super::settings::Settings;
use crate::object::{KubeObject, LabelQuery, Transform};
use std::time::Duration;

/// Namespaces whose objects are cached.
///
/// Has no effect on cluster-scoped kinds if it is the default of the cache.
///
/// ```
/// use steersman::cache::{NamespaceScope, Namespaces};
///
/// let two = Namespaces::List(vec!["shop".into(), "bank".into()]);
/// // All objects of one namespace, and those of one team elsewhere.
/// let most = Namespaces::List(vec!["shop".into(), NamespaceScope::others().labels("team=web")]);
/// let tenants = Namespaces::Labelled("tenant".into());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Namespaces {
    /// All namespaces. Needs one watch, and permission to watch the whole cluster.
    #[default]
    All,
    /// Only the listed namespaces. Needs one watch each, and permissions in these namespaces only.
    ///
    /// The list has at least one entry. If a name occurs twice, the first entry counts. An empty
    /// name is an error; controller-runtime uses it for all namespaces that are not listed, use
    /// [`NamespaceScope::others`] for these.
    List(Vec<NamespaceScope>),
    /// Namespaces whose labels match the selector, as in `kubectl -l`.
    ///
    /// Namespaces are added and removed as their labels change. Needs one watch for each of them,
    /// and one of the namespaces' metadata, which informers with the same selector share.
    ///
    /// The objects of an added namespace are reported as created. The objects of a removed one are
    /// reported as deleted with `state_unknown`, because they may still exist. The informer is
    /// synced when all matching namespaces are listed.
    Labelled(String),
}

impl Namespaces {
    pub(super) fn is_limited(&self) -> bool {
        *self != Self::All
    }
}

/// Namespace to cache, with settings of its own. See [`Namespaces::List`].
///
/// Selectors, transform, resync period and page size can be set per namespace, and have priority
/// over those of the kind and of the cache. The representation, and whether `managedFields` are
/// stored, are the same for all namespaces of an informer. Declare two selections, which are two
/// informers, if these must differ.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use std::time::Duration;
/// use steersman::cache::{NamespaceScope, Namespaces, Select};
///
/// // Whole objects in `shop`, resynced once per hour. Elsewhere without their data.
/// let names = NamespaceScope::others().transform(|map: &mut ConfigMap| map.data = None);
/// let ours = NamespaceScope::from("shop").resync(Duration::from_hours(1));
/// let maps = Select::<ConfigMap>::new().namespaces(Namespaces::List(vec![ours, names]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceScope {
    /// Name of the namespace. `None` for all that are not listed.
    pub(super) name: Option<String>,
    pub(super) selectors: Selectors,
    pub(super) settings: Settings,
}

impl NamespaceScope {
    /// Creates a scope of all namespaces that are not listed beside it.
    ///
    /// Needs one watch, which excludes the listed namespaces by `metadata.namespace!=…`.
    pub fn others() -> Self {
        Self {
            name: None,
            selectors: Selectors::default(),
            settings: Settings::default(),
        }
    }

    /// Selects objects by labels, as in [`Select::labels`](super::Select::labels).
    #[must_use]
    pub fn labels(mut self, selector: impl Into<LabelQuery>) -> Self {
        self.selectors.labels = Some(selector.into().0);
        self
    }

    /// Selects objects by fields, as in [`Select::fields`](super::Select::fields).
    #[must_use]
    pub fn fields(mut self, selector: &str) -> Self {
        self.selectors.fields = Some(selector.into());
        self
    }

    /// Changes the objects of this namespace before they are stored. Default: no transform.
    ///
    /// The type is that of the `Select` that lists the namespace, or
    /// [`Metadata`](crate::object::Metadata) for any kind. The cache's own
    /// [`namespaces`](super::CacheOptions::namespaces) accept `Metadata` only. Other types are an
    /// error. See [`Select::transform`](super::Select::transform).
    #[must_use]
    pub fn transform<K: KubeObject>(
        mut self,
        change: impl Fn(&mut K) + Send + Sync + 'static,
    ) -> Self {
        self.settings.transform = Some(Transform::new(change));
        self
    }

    /// Reports the objects of this namespace again once per period. Default: that of the kind.
    ///
    /// Zero disables the resync. See [`Select::resync`](super::Select::resync).
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.settings.resync = Some(period);
        self
    }

    /// Sets the objects per page of a list that the API server cannot stream. Default: 500.
    ///
    /// 0 disables paging. See [`Select::page_size`](super::Select::page_size).
    #[must_use]
    pub fn page_size(mut self, objects: u32) -> Self {
        self.settings.page_size = Some(objects);
        self
    }
}

impl From<&str> for NamespaceScope {
    fn from(name: &str) -> Self {
        name.to_owned().into()
    }
}

impl From<String> for NamespaceScope {
    fn from(name: String) -> Self {
        Self {
            name: Some(name),
            ..Self::others()
        }
    }
}

/// Label and field selector.
///
/// In a declaration `None` inherits the selector, and an empty one selects everything. In a
/// resolved scope `None` selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Selectors {
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
}
