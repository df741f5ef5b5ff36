//! Settings of a namespace, a kind or all kinds that do not identify an informer.
//!
//! The priorities are those of [`scope`](super::scope).

use super::{
    Namespaces,
    namespaces::NamespaceScope,
    scope::{Layer, namespaces},
};
use crate::object::{ByNamespace, Transform};
use std::time::Duration;

/// Transform, resync period and page size. `None` inherits the value from the next layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) transform: Option<Transform>,
    /// Resync period. Zero disables the resync.
    pub(super) resync: Option<Duration>,
    pub(super) page_size: Option<u32>,
}

impl Settings {
    /// Takes each setting from the first layer that has it.
    fn first_set<'a>(layers: impl Iterator<Item = &'a Self> + Clone) -> Self {
        Self {
            transform: layers.clone().find_map(|layers| layers.transform.clone()),
            resync: layers.clone().find_map(|layers| layers.resync),
            page_size: layers.clone().find_map(|layers| layers.page_size),
        }
    }

    pub(super) fn resolve(layers: &[Layer<'_>]) -> ByNamespace<Self> {
        let of = |namespace: Option<&str>| {
            Self::first_set(layers.iter().flat_map(|layer| {
                let here = layer.of(namespace).map(|entry| &entry.settings);
                here.into_iter().chain([layer.settings])
            }))
        };
        let whole = Self::first_set(layers.iter().map(|layer| layer.settings));
        let (these, others): (Vec<&NamespaceScope>, _) = match namespaces(layers) {
            Namespaces::All => return whole.into(),
            Namespaces::List(these) => (these.iter().collect(), of(None)),
            Namespaces::Labelled(_) => (
                layers.iter().flat_map(|layer| layer.listed()).collect(),
                whole.clone(),
            ),
        };
        let named = these.iter().filter_map(|entry| entry.name.as_deref());
        let named = named
            .map(|name| (name.to_owned(), of(Some(name))))
            .filter(|(_, entry)| *entry != others);
        ByNamespace {
            named: named.collect(),
            others,
            cluster_scoped: whole,
        }
    }
}
