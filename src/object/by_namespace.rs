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

    /// Names only what is not as in the others, so that what is the same everywhere is equal, whichever namespaces differed in something else.
    pub(crate) fn map<U: PartialEq>(&self, of: impl Fn(&T) -> U) -> ByNamespace<U> {
        let others = of(&self.others);
        let named = self.named.iter().map(|(name, value)| (name.clone(), of(value)));
        ByNamespace { named: named.filter(|(_, value)| *value != others).collect(), others, whole: of(&self.whole) }
    }
}

/// The same everywhere.
impl<T: Clone> From<T> for ByNamespace<T> {
    fn from(value: T) -> Self {
        Self { named: BTreeMap::new(), others: value.clone(), whole: value }
    }
}
