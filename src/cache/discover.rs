//! Asks the server whether it has a kind, and where.
//!
//! What holds: "no" is said only if the server has listed what it has, and the kind is not among it. That nothing is found at a path is no such answer: a proxy
//! that has lost its server says so of everything, and nobody's objects are gone because of it.

use super::{Cache, select::Resource};
use kube_client::{
    Client, Error,
    discovery::{self, pinned_kind},
};
use kube_core::GroupVersionKind;
use std::time::Duration;
use tokio::time::timeout;

/// How long the answer may take.
const ANSWER: Duration = Duration::from_mins(1);

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
pub(super) async fn discover(client: &Client, gvk: &GroupVersionKind) -> Result<Found, String> {
    let asked = timeout(ANSWER, ask(client, gvk)).await;
    asked.unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER.as_secs())))
}

async fn ask(client: &Client, gvk: &GroupVersionKind) -> Result<Found, String> {
    let nowhere = || Ok(Found::Nowhere(format!("the server has no {} in {}", gvk.kind, gvk.api_version())));
    match pinned_kind(client, gvk).await {
        Ok((api, capabilities)) => {
            Ok(Found::At(Resource { api, namespaced: capabilities.scope == discovery::Scope::Namespaced }))
        }
        Err(Error::Discovery(_)) => nowhere(),
        Err(Error::Api(status)) if status.code == 404 && !gvk.group.is_empty() => {
            let listed = client.list_api_groups().await.map_err(|error| error.to_string())?;
            let mut groups = listed.groups.iter().filter(|group| group.name == gvk.group);
            if groups.any(|group| group.versions.iter().any(|version| version.version == gvk.version)) {
                return Err(format!("{} is listed, but not there: {}", gvk.api_version(), status.message));
            }
            nowhere()
        }
        Err(error) => Err(error.to_string()),
    }
}
