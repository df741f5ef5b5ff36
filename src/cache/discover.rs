//! Discovery of the resource of a kind.
//!
//! Invariant: a kind is reported as missing only if the API server has listed its resources and the
//! kind is not among them. A 404 alone does not count: a proxy without a backend answers all
//! requests with it, and the informers must not drop their objects then.

use super::{Cache, select::Resource};
use crate::client::{CountedClient, served_resources};
use kube_core::{ApiResource, GroupVersionKind};

pub(super) enum Discovery {
    Served(Resource),
    /// The kind is not served, with the message.
    NotFound(String),
}

impl Cache {
    /// Returns whether a kind is namespaced. Sends a request each time.
    ///
    /// The error is a message: the kind is not served, or discovery failed.
    pub(crate) async fn is_namespaced(&self, kind: &GroupVersionKind) -> Result<bool, String> {
        match discover(self.client(), kind).await? {
            Discovery::Served(resource) => Ok(resource.namespaced),
            Discovery::NotFound(message) => Err(message),
        }
    }
}

/// Discovers the resource of a kind. Returns a message if the request failed.
pub(super) async fn discover(
    client: &CountedClient,
    gvk: &GroupVersionKind,
) -> Result<Discovery, String> {
    let served = served_resources(client, gvk)
        .await
        .map_err(|error| error.describe())?
        .unwrap_or_default();
    let mut resources = served.resources.into_iter();
    let Some(found) =
        resources.find(|listed| listed.kind == gvk.kind && !listed.name.contains('/'))
    else {
        return Ok(Discovery::NotFound(format!(
            "the API server does not serve {} in {}",
            gvk.kind,
            gvk.api_version()
        )));
    };
    let api = ApiResource {
        group: gvk.group.clone(),
        version: gvk.version.clone(),
        api_version: gvk.api_version(),
        kind: found.kind,
        plural: found.name,
    };
    Ok(Discovery::Served(Resource {
        api,
        namespaced: found.namespaced,
    }))
}
