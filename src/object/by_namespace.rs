//! Something that may differ from one namespace to another.

use std::collections::BTreeMap;

/// What holds where.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ByNamespace<T> {
    pub(crate) named: BTreeMap<String, T>,
    /// In namespaces that are not named.
    pub(crate) others: T,
    /// Of what is in no namespace.
    pub(crate) whole: T,
}

impl<T> ByNamespace<T> {
    /// Of an object in this namespace, or in none.
    pub(crate) fn of(&self, namespace: Option<&str>) -> &T {
        namespace.map_or(&self.whole, |name| self.named.get(name).unwrap_or(&self.others))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.named.values().chain([&self.others, &self.whole])
    }

    pub(crate) fn map<U>(&self, of: impl Fn(&T) -> U) -> ByNamespace<U> {
        let named = self.named.iter().map(|(name, value)| (name.clone(), of(value))).collect();
        ByNamespace { named, others: of(&self.others), whole: of(&self.whole) }
    }
}

/// The same everywhere.
impl<T: Clone> From<T> for ByNamespace<T> {
    fn from(value: T) -> Self {
        Self { named: BTreeMap::new(), others: value.clone(), whole: value }
    }
}
