//! Where the endpoint of a control plane comes from: its workspace's outputs, and where those say nothing, the workspace's secret.
//!
//! The secret is read from the server, and only when its metadata, which is all that is kept, says that it changed.

use super::{
    address::Address,
    metrics::{End, Metrics},
    related::apply_of,
    sources::{self, Origin, Said},
    types::{CAPTControlPlane, WorkspaceTemplateApply, workspace_kind},
};
use k8s_openapi::api::core::v1::Secret;
use kube::core::DynamicObject;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use steersman::{client, prelude::*};
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
    /// Somebody has to mend it.
    Invalid {
        origin: Origin,
        message: String,
    },
}

pub(super) struct Retrieval {
    pub(super) client: Client,
    pub(super) secrets: Informer<Metadata<Secret>>,
    pub(super) metrics: Metrics,
    /// What was read of secrets, by control plane.
    pub(super) known: Mutex<HashMap<ObjectKey, (Version, Said)>>,
}

/// Uid and resource version of a secret: it says the same as long as they are the same.
type Version = (String, String);

impl Retrieval {
    /// An error if somebody could not be asked.
    pub(super) async fn of(&self, plane: &CAPTControlPlane) -> client::Result<Retrieved> {
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

    async fn retrieve(&self, plane: &CAPTControlPlane) -> client::Result<Retrieved> {
        let workspace = match self.workspace(plane).await? {
            Ok(workspace) => workspace,
            Err(message) => return Ok(Retrieved::Waiting { reason: "WorkspaceNotReady", message }),
        };
        match sources::outputs(&workspace.data) {
            Said::Nothing => self.in_secret(plane, &workspace).await,
            said => Ok(concluded(said, Origin::Outputs)),
        }
    }

    /// Or what is missing.
    async fn workspace(&self, plane: &CAPTControlPlane) -> client::Result<Result<Arc<DynamicObject>, String>> {
        let (key, kind) = (apply_of(plane), workspace_kind());
        let Some(apply) = self.client.get::<WorkspaceTemplateApply>(&key).await? else {
            return Ok(Err(format!("WorkspaceTemplateApply {key} is not there yet")));
        };
        let name = apply.status.as_ref().and_then(|status| status.workspace_name.as_deref());
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(Err(format!("WorkspaceTemplateApply {key} has no workspace yet")));
        };
        let Some(discovered) = self.client.discover(&kind).await? else {
            return Ok(Err(format!("the server has no {} of {}", kind.kind, kind.api_version())));
        };
        let key = discovered.key(key.namespace(), name);
        let workspace = self.client.dynamic(&kind).get(&key).await?;
        Ok(workspace.ok_or_else(|| format!("Workspace {key} is not there yet")))
    }

    async fn in_secret(&self, plane: &CAPTControlPlane, workspace: &DynamicObject) -> client::Result<Retrieved> {
        let waiting = |message| Ok(Retrieved::Waiting { reason: "EndpointNotReady", message });
        let key = match sources::secret_of(&workspace.data) {
            Ok(Some(key)) => key,
            Ok(None) => return waiting("its workspace has no output cluster_endpoint yet, and names no secret".into()),
            Err(message) => return Ok(Retrieved::Invalid { origin: Origin::Secret, message }),
        };
        let plane = ObjectKey::of(plane);
        if let Some(said) = self.known(&plane, &key) {
            return Ok(concluded(said, Origin::Secret));
        }
        let Some(secret) = self.client.live().get::<Secret>(&key).await? else {
            return waiting(format!("Secret {key} is not there yet"));
        };
        match sources::secret(&secret) {
            Said::Nothing => waiting(format!("Secret {key} has no cluster_endpoint yet")),
            said => {
                if let Some(version) = version(&secret.metadata) {
                    self.known.lock().insert(plane, (version, said.clone()));
                }
                Ok(concluded(said, Origin::Secret))
            }
        }
    }

    /// What the secret said, if it has not changed since. One that is not among those that are watched is read each time.
    fn known(&self, plane: &ObjectKey, secret: &ObjectKey) -> Option<Said> {
        let seen = self.secrets.get(secret).ok().flatten().and_then(|secret| version(&secret.metadata));
        let known =
            self.known.lock().get(plane).filter(|(read, _)| Some(read) == seen.as_ref()).map(|(_, said)| said.clone());
        self.metrics.known(known.is_some());
        known
    }

    /// The control plane is gone.
    pub(super) fn forget(&self, plane: &ObjectKey) {
        self.known.lock().remove(plane);
    }
}

fn version(meta: &kube::core::ObjectMeta) -> Option<Version> {
    Some((meta.uid.clone()?, meta.resource_version.clone()?))
}

fn concluded(said: Said, origin: Origin) -> Retrieved {
    match said {
        Said::Endpoint(address) => Retrieved::Found { address, origin },
        Said::Invalid(message) => Retrieved::Invalid { origin, message: format!("{origin}: {message}") },
        Said::Nothing => {
            Retrieved::Waiting { reason: "EndpointNotReady", message: format!("{origin} say nothing yet") }
        }
    }
}
