//! How objects are kept, beside which: what may be said of a namespace, of a kind and of everything, and need not be the same for all who use an informer.
//!
//! Who counts before whom is as for [`scope`](super::scope).

use super::{
    Namespaces,
    namespaces::InNamespace,
    scope::{Layer, namespaces},
};
use crate::object::{ByNamespace, Transform};
use std::time::Duration;

/// As they are said, where `None` leaves it to others; or as they were made out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) transform: Option<Transform>,
    /// Zero for never.
    pub(super) resync: Option<Duration>,
    pub(super) page_size: Option<u32>,
}

impl Settings {
    /// Each by itself: that of the first who says it.
    fn first_said<'a>(said: impl Iterator<Item = &'a Self> + Clone) -> Self {
        Self {
            transform: said.clone().find_map(|said| said.transform.clone()),
            resync: said.clone().find_map(|said| said.resync),
            page_size: said.clone().find_map(|said| said.page_size),
        }
    }

    pub(super) fn made_out(layers: &[Layer<'_>]) -> ByNamespace<Self> {
        let of = |namespace: Option<&str>| {
            Self::first_said(layers.iter().flat_map(|layer| {
                let here = layer.of(namespace).map(|one| &one.settings);
                here.into_iter().chain([layer.settings])
            }))
        };
        let whole = Self::first_said(layers.iter().map(|layer| layer.settings));
        let (these, others): (Vec<&InNamespace>, _) = match namespaces(layers) {
            Namespaces::All => return whole.into(),
            Namespaces::These(these) => (these.iter().collect(), of(None)),
            Namespaces::Labelled(_) => (layers.iter().flat_map(|layer| layer.these()).collect(), whole.clone()),
        };
        let named = these.iter().filter_map(|one| one.name.as_deref());
        let named = named.map(|name| (name.to_owned(), of(Some(name)))).filter(|(_, one)| *one != others);
        ByNamespace { named: named.collect(), others, whole }
    }
}
