//! Where to keep objects of, and which of those that are there.

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
    /// Only in these: a watch for each, and rights only there. At least one; of one that is named twice the first counts.
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
/// Only which objects there are can differ from one namespace to another. A transform cannot, because who reads the kind finds one form of it, wherever the
/// object is; nor a resync period, which is that of whoever listens; nor a page size, which is about the server. Where they must differ, declare two selections:
/// those are two informers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InNamespace {
    /// None: all that are not named.
    pub(super) name: Option<String>,
    pub(super) selectors: Selectors,
}

impl InNamespace {
    /// All namespaces that are not named beside it: one watch, which leaves the others out by `metadata.namespace!=…`.
    pub fn others() -> Self {
        Self { name: None, selectors: Selectors::default() }
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
}

impl From<&str> for InNamespace {
    fn from(name: &str) -> Self {
        name.to_owned().into()
    }
}

impl From<String> for InNamespace {
    fn from(name: String) -> Self {
        Self { name: Some(name), selectors: Selectors::default() }
    }
}

/// As they are said, where `None` leaves it to others and an empty one selects everything; or as they were made out, where `None` does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Selectors {
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
}
