//! Values that can differ by namespace.

use std::collections::BTreeMap;

/// Value by namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ByNamespace<T> {
    pub(crate) named: BTreeMap<String, T>,
    /// Value for namespaces that are not in `named`.
    pub(crate) others: T,
    /// Value for objects without a namespace.
    pub(crate) cluster_scoped: T,
}

impl<T> ByNamespace<T> {
    /// Returns the value for an object in this namespace, or in none.
    pub(crate) fn of(&self, namespace: Option<&str>) -> &T {
        namespace.map_or(&self.cluster_scoped, |name| {
            self.named.get(name).unwrap_or(&self.others)
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.named
            .values()
            .chain([&self.others, &self.cluster_scoped])
    }

    /// Maps the values, and keeps only names that differ from `others`.
    ///
    /// Two results that are the same in every namespace are therefore equal.
    pub(crate) fn map<U: PartialEq>(&self, of: impl Fn(&T) -> U) -> ByNamespace<U> {
        let others = of(&self.others);
        let named = self
            .named
            .iter()
            .map(|(name, value)| (name.clone(), of(value)));
        ByNamespace {
            named: named.filter(|(_, value)| *value != others).collect(),
            others,
            cluster_scoped: of(&self.cluster_scoped),
        }
    }
}

/// Uses the same value for every namespace.
impl<T: Clone> From<T> for ByNamespace<T> {
    fn from(value: T) -> Self {
        Self {
            named: BTreeMap::new(),
            others: value.clone(),
            cluster_scoped: value,
        }
    }
}
