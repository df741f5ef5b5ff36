//! Where to keep objects of, which of those that are there, and how.

use super::settings::Settings;
use crate::object::{KubeObject, Transform};
use std::time::Duration;

/// Where to keep objects of. Of a kind that has no namespaces all are kept, whatever the cache's default says.
///
/// ```
/// use steersman::cache::{InNamespace, Namespaces};
///
/// let two = Namespaces::These(vec!["shop".into(), "bank".into()]);
/// // All of one namespace, and elsewhere what is ours.
/// let most = Namespaces::These(vec!["shop".into(), InNamespace::others().labels("team=web")]);
/// let tenants = Namespaces::Labelled("tenant".into());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Namespaces {
    /// Everywhere: one watch, and the right to watch in the whole cluster.
    #[default]
    All,
    /// Only in these: a watch for each, and rights only there. At least one; of one that is named twice the first counts. The empty name is that of none, and refused: all
    /// namespaces that are not named, for which it stands in controller-runtime, are [`InNamespace::others`].
    These(Vec<InNamespace>),
    /// In those whose labels match, as in `kubectl -l`, as they come and go: a watch for each, and one of the namespaces' metadata, which everybody with
    /// the same selector shares.
    ///
    /// Objects of a namespace that joins are told as created; those of one that leaves as deleted with `state_unknown`, since they may well be there. It is
    /// synced when the namespaces are known, and each of them was listed.
    Labelled(String),
}

impl Namespaces {
    pub(super) fn is_some(&self) -> bool {
        *self != Self::All
    }
}

/// A namespace to keep objects of: all of them if nothing else is said, for the kind or for the cache. See [`Namespaces::These`].
///
/// What is said here counts before what is said of the kind.
///
/// Which objects there are may differ from one namespace to another, and so may transform, resync period and page size. The form in which they are kept may not,
/// nor whether `managedFields` are: where those must differ, declare two selections, which are two informers.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use std::time::Duration;
/// use steersman::cache::{InNamespace, Namespaces, Select};
///
/// // Of our own namespace everything, told again once in an hour; elsewhere the names are enough.
/// let names = InNamespace::others().transform(|map: &mut ConfigMap| map.data = None);
/// let ours = InNamespace::from("shop").resync(Duration::from_hours(1));
/// let maps = Select::<ConfigMap>::new().namespaces(Namespaces::These(vec![ours, names]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InNamespace {
    /// None: all that are not named.
    pub(super) name: Option<String>,
    pub(super) selectors: Selectors,
    pub(super) settings: Settings,
}

impl InNamespace {
    /// All namespaces that are not named beside it: one watch, which leaves the others out by `metadata.namespace!=…`.
    pub fn others() -> Self {
        Self { name: None, selectors: Selectors::default(), settings: Settings::default() }
    }

    /// Only objects with such labels, as in [`Select::labels`](super::Select::labels).
    #[must_use]
    pub fn labels(mut self, selector: &str) -> Self {
        self.selectors.labels = Some(selector.into());
        self
    }

    /// Only objects with such fields, as in [`Select::fields`](super::Select::fields).
    #[must_use]
    pub fn fields(mut self, selector: &str) -> Self {
        self.selectors.fields = Some(selector.into());
        self
    }

    /// Change the objects that are here before they are stored, as in [`Select::transform`](super::Select::transform); none by default. It must be for the type
    /// of the `Select` that names the namespace, or for [`Metadata`](crate::object::Metadata) of whatever kind, which is the only one that the cache's own
    /// [`namespaces`](super::CacheOptions::namespaces) can have; anything else is an error.
    #[must_use]
    pub fn transform<K: KubeObject>(mut self, change: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.settings.transform = Some(Transform::new(change));
        self
    }

    /// Tell of the objects that are here, and of no others, again once in so long, as in [`Select::resync`](super::Select::resync); zero for never, which is the
    /// cache's default.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.settings.resync = Some(period);
        self
    }

    /// Objects in a page, where the server cannot stream lists; 500 by default, 0 for all at once. See [`Select::page_size`](super::Select::page_size).
    #[must_use]
    pub fn page_size(mut self, objects: u32) -> Self {
        self.settings.page_size = Some(objects);
        self
    }
}

impl From<&str> for InNamespace {
    fn from(name: &str) -> Self {
        name.to_owned().into()
    }
}

impl From<String> for InNamespace {
    fn from(name: String) -> Self {
        Self { name: Some(name), ..Self::others() }
    }
}

/// As they are said, where `None` leaves it to others and an empty one selects everything; or as they were made out, where `None` does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Selectors {
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
}
