//! Asks the server whether it has a kind, and where.
//!
//! What holds: "no" is said only if the server has listed what it has, and the kind is not among it. That nothing is found at a path is no such answer: a proxy
//! that has lost its server says so of everything, and nobody's objects are gone because of it.

use super::{Cache, select::Resource};
use crate::client::{Link, served_resources};
use kube_core::{ApiResource, GroupVersionKind};

pub(super) enum Found {
    At(Resource),
    /// In words.
    Nowhere(String),
}

impl Cache {
    /// Whether objects of a kind live in namespaces. The server is asked each time; the error says that it has no such kind, or what else it said.
    pub(crate) async fn is_namespaced(&self, kind: &GroupVersionKind) -> Result<bool, String> {
        match discover(self.client(), kind).await? {
            Found::At(resource) => Ok(resource.namespaced),
            Found::Nowhere(words) => Err(words),
        }
    }
}

/// An error if the server did not say, in its words.
pub(super) async fn discover(link: &Link, gvk: &GroupVersionKind) -> Result<Found, String> {
    let served = served_resources(link, gvk).await.map_err(|error| error.describe())?.unwrap_or_default();
    let mut resources = served.resources.into_iter();
    let Some(found) = resources.find(|listed| listed.kind == gvk.kind && !listed.name.contains('/')) else {
        return Ok(Found::Nowhere(format!("the server has no {} in {}", gvk.kind, gvk.api_version())));
    };
    let api = ApiResource {
        group: gvk.group.clone(),
        version: gvk.version.clone(),
        api_version: gvk.api_version(),
        kind: found.kind,
        plural: found.name,
    };
    Ok(Found::At(Resource { api, namespaced: found.namespaced }))
}
