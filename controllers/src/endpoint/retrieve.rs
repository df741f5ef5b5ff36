//! Where the endpoint of a control plane comes from: its workspace's outputs, and where those say nothing, the workspace's secret.
//!
//! The secret is read from the server, and only if it is needed and its metadata, which is all that is kept of others, says that it changed. So where the outputs
//! have the endpoint it is not read to be compared: that they differ is said if it was read before, as when outputs come after it.

use super::{
    address::Address,
    failure::Failed,
    memo::{Memo, Read, Version},
    metrics::{End, Metrics},
    related::apply_of,
    sources::{self, Origin, Said},
    types::{CAPTControlPlane, WorkspaceTemplateApply, workspace_kind},
};
use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::core::DynamicObject;
use std::sync::Arc;
use steersman::{cache::CacheError, client, prelude::*};
use tokio::time::Instant;

/// What there is to know of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Retrieved {
    Found {
        address: Address,
        origin: Origin,
    },
    /// Something is not there yet.
    Waiting {
        reason: &'static str,
        message: String,
    },
    /// The source has to be corrected.
    Invalid {
        origin: Origin,
        reason: &'static str,
        message: String,
    },
}

/// Reason and message of a source that has to be corrected.
type Invalid = (&'static str, String);

const INVALID_ENDPOINT: &str = "InvalidEndpoint";

pub(super) struct Retrieval {
    pub(super) client: Client,
    pub(super) secrets: Informer<Metadata<Secret>>,
    pub(super) metrics: Metrics,
    pub(super) memo: Memo,
}

impl Retrieval {
    /// An error if somebody could not be asked.
    pub(super) async fn of(&self, plane: &CAPTControlPlane) -> Result<Retrieved> {
        let begun = Instant::now();
        let retrieved = self.retrieve(plane).await;
        let (origin, end) = match &retrieved {
            Ok(Retrieved::Found { origin, .. }) => (Some(*origin), End::Success),
            Ok(Retrieved::Waiting { .. }) => (None, End::Missing),
            Ok(Retrieved::Invalid { origin, .. }) => (Some(*origin), End::Invalid),
            Err(_) => (None, End::Error),
        };
        self.metrics.retrieved(origin, end, begun.elapsed());
        retrieved
    }

    async fn retrieve(&self, plane: &CAPTControlPlane) -> Result<Retrieved> {
        let workspace = match self.workspace(plane).await? {
            Ok(workspace) => workspace,
            Err(message) => return Ok(Retrieved::Waiting { reason: "WorkspaceNotReady", message }),
        };
        let plane = ObjectKey::of(plane);
        if let Some(retrieved) = concluded(self.in_outputs(&plane, &workspace).endpoint, Origin::Outputs) {
            return Ok(retrieved);
        }
        let waiting = |message| Ok(Retrieved::Waiting { reason: "EndpointNotReady", message });
        let key = match self.connection(&workspace) {
            Ok(Some(key)) => key,
            Ok(None) => return waiting("its workspace has no output cluster_endpoint yet, and names no secret".into()),
            Err((reason, message)) => return Ok(Retrieved::Invalid { origin: Origin::Secret, reason, message }),
        };
        let Some(read) = self.in_secret(&plane, &key).await? else {
            return waiting(format!("Secret {key} is not there yet"));
        };
        let nothing = || waiting(format!("Secret {key} has no cluster_endpoint yet"));
        concluded(read.endpoint, Origin::Secret).map_or_else(nothing, Ok)
    }

    /// By which authority the control plane is known, as it stands; `None` if nobody says.
    pub(super) async fn authority(&self, plane: &CAPTControlPlane) -> Result<Option<Arc<[u8]>>> {
        let Ok(workspace) = self.workspace(plane).await? else { return Ok(None) };
        let plane = ObjectKey::of(plane);
        let authority = self.in_outputs(&plane, &workspace).authority;
        match self.connection(&workspace) {
            Ok(Some(key)) if authority.is_none() => {
                Ok(self.in_secret(&plane, &key).await?.and_then(|read| read.authority))
            }
            _ => Ok(authority),
        }
    }

    /// Or what is missing.
    async fn workspace(&self, plane: &CAPTControlPlane) -> Result<Result<Arc<DynamicObject>, String>> {
        const APPLY: Failed = Failed::Reading("WorkspaceTemplateApply");
        const WORKSPACE: Failed = Failed::Reading("Workspace");
        let (key, kind) = (apply_of(plane), workspace_kind());
        let Some(apply) = if_any(self.client.get::<WorkspaceTemplateApply>(&key).await).context(APPLY)? else {
            return Ok(Err(format!("WorkspaceTemplateApply {key} is not there yet")));
        };
        let name = apply.status.as_ref().and_then(|status| status.workspace_name.as_deref());
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(Err(format!("WorkspaceTemplateApply {key} has no workspace yet")));
        };
        let Some(discovered) = self.client.discover(&kind).await.context(WORKSPACE)? else {
            return Ok(Err(format!("the server has no {} of {}", kind.kind, kind.api_version())));
        };
        let key = discovered.key(key.namespace(), name);
        let workspace = if_any(self.client.dynamic(&kind).get(&key).await).context(WORKSPACE)?;
        Ok(workspace.ok_or_else(|| format!("Workspace {key} is not there yet")))
    }

    /// Returns the key of the connection Secret that a workspace names.
    ///
    /// A Secret outside of the namespaces of the cache is refused, whatever the API server would permit.
    fn connection(&self, workspace: &DynamicObject) -> Result<Option<ObjectKey>, Invalid> {
        let key = sources::secret_of(&workspace.data).map_err(|message| (INVALID_ENDPOINT, message))?;
        match key {
            Some(key) if matches!(self.secrets.get(&key), Err(CacheError::NotKept { .. })) => {
                let message = format!("Secret {key} is not in a namespace of this controller");
                Err(("SecretOutOfScope", format!("{message}; move the Secret or add its namespace")))
            }
            key => Ok(key),
        }
    }

    /// What is worth a word is said once for each version.
    fn in_outputs(&self, plane: &ObjectKey, workspace: &DynamicObject) -> Read {
        let meta = &workspace.metadata;
        if let Some(read) = self.memo.get(plane, Origin::Outputs, Version::of(meta).as_ref()) {
            return read;
        }
        let read = sources::outputs(&workspace.data);
        if sources::is_no_text(&workspace.data) {
            tracing::warn!(%plane, workspace = meta.name, "the output cluster_endpoint is no text, and is taken for absent");
        }
        if let (Said::Endpoint(address), Some(Read { endpoint: Said::Endpoint(other), .. })) =
            (&read.endpoint, self.memo.last(plane, Origin::Secret))
            && *address != other
        {
            tracing::info!(%plane, host = address.host(), "outputs and secret have different endpoints: that of the outputs counts");
        }
        let before = self.memo.put(plane, Origin::Outputs, meta, read.clone());
        let is_same = before.as_ref().is_some_and(|(version, _)| version.is_of(meta));
        if !is_same {
            let (namespace, name) = (plane.namespace(), plane.name());
            tracing::info!(namespace, name, workspace = meta.name, "found workspace");
        }
        log_found(plane, Origin::Outputs, &read, before.filter(|_| is_same));
        read
    }

    /// `None` if there is none. One that is not among those that are watched is read each time.
    async fn in_secret(&self, plane: &ObjectKey, key: &ObjectKey) -> Result<Option<Read>> {
        let seen = self.secrets.get(key).ok().flatten().and_then(|secret| Version::of(&secret.metadata));
        if let Some(read) = self.memo.get(plane, Origin::Secret, seen.as_ref()) {
            return Ok(Some(read));
        }
        let secret = self.client.live().get::<Secret>(key).await.context(Failed::Reading("Secret"))?;
        let Some(secret) = secret else { return Ok(None) };
        let read = sources::secret(&secret);
        let before = self.memo.put(plane, Origin::Secret, &secret.metadata, read.clone());
        log_found(plane, Origin::Secret, &read, before.filter(|(version, _)| version.is_of(&secret.metadata)));
        Ok(Some(read))
    }
}

/// Logs the endpoint of a source, unless it is the one that was read before. An invalid value is not logged.
fn log_found(plane: &ObjectKey, source: Origin, read: &Read, before: Option<(Version, Read)>) {
    if before.is_some_and(|(_, before)| before.endpoint == read.endpoint) {
        return;
    }
    let (namespace, name, source) = (plane.namespace(), plane.name(), source.label());
    match &read.endpoint {
        Said::Nothing => {}
        Said::Endpoint(address) => {
            let (host, port) = (address.host(), address.port());
            tracing::info!(namespace, name, source, host, port, "found cluster_endpoint");
        }
        Said::Invalid(error) => tracing::warn!(namespace, name, source, error, "found invalid cluster_endpoint"),
    }
}

/// Of a kind that the server does not have, there is nothing yet.
pub(super) fn if_any<T>(read: client::Result<Option<T>>) -> client::Result<Option<T>> {
    match read {
        Err(error) if error.is_absent() => Ok(None),
        read => read,
    }
}

/// `None` if another one is to be asked.
fn concluded(said: Said, origin: Origin) -> Option<Retrieved> {
    match said {
        Said::Nothing => None,
        Said::Endpoint(address) => Some(Retrieved::Found { address, origin }),
        Said::Invalid(message) => {
            let message = format!("{origin}: {message}");
            Some(Retrieved::Invalid { origin, reason: INVALID_ENDPOINT, message })
        }
    }
}
