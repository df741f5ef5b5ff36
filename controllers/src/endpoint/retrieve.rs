//! Retrieves the endpoint of a control plane from its workspace.
//!
//! The sources are the outputs of the workspace, then its connection Secret. The Secret is read
//! from the API server only if it is needed and its cached metadata has changed. If the outputs
//! have the endpoint, the Secret is not read for comparison. A difference is logged only if the
//! Secret was read before.

use super::{
    address::Address,
    dependents::apply_of,
    failure::FailedOperation,
    metrics::{Metrics, RetrievalResult},
    source_cache::{ObjectVersion, SourceCache, SourceValues},
    sources::{self, EndpointValue, Origin},
    types::{CAPTControlPlane, WorkspaceTemplateApply, workspace_kind},
};
use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::core::DynamicObject;
use std::sync::Arc;
use steersman::{cache::CacheError, client, prelude::*, reconcile::Result};
use tokio::time::Instant;

/// Result of a retrieval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Retrieved {
    Found {
        address: Address,
        origin: Origin,
    },
    /// A source does not exist yet.
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
    pub(super) source_cache: SourceCache,
}

impl Retrieval {
    /// Retrieves the endpoint and records metrics. Returns an error if a read fails.
    pub(super) async fn of(&self, plane: &CAPTControlPlane) -> Result<Retrieved> {
        let started = Instant::now();
        let retrieved = self.retrieve(plane).await;
        let (origin, result) = match &retrieved {
            Ok(Retrieved::Found { origin, .. }) => (Some(*origin), RetrievalResult::Success),
            Ok(Retrieved::Waiting { .. }) => (None, RetrievalResult::Missing),
            Ok(Retrieved::Invalid { origin, .. }) => (Some(*origin), RetrievalResult::Invalid),
            Err(_) => (None, RetrievalResult::Error),
        };
        self.metrics.retrieved(origin, result, started.elapsed());
        retrieved
    }

    async fn retrieve(&self, plane: &CAPTControlPlane) -> Result<Retrieved> {
        let workspace = match self.workspace(plane).await? {
            Ok(workspace) => workspace,
            Err(message) => {
                return Ok(Retrieved::Waiting {
                    reason: "WorkspaceNotReady",
                    message,
                });
            }
        };
        let plane = ObjectKey::of(plane);
        if let Some(retrieved) = to_retrieved(
            self.read_outputs(&plane, &workspace).endpoint,
            Origin::Outputs,
        ) {
            return Ok(retrieved);
        }
        let waiting = |message| {
            Ok(Retrieved::Waiting {
                reason: "EndpointNotReady",
                message,
            })
        };
        let key = match self.connection(&workspace) {
            Ok(Some(key)) => key,
            Ok(None) => {
                return waiting(
                    "the workspace has no output cluster_endpoint yet, and names no Secret".into(),
                );
            }
            Err((reason, message)) => {
                return Ok(Retrieved::Invalid {
                    origin: Origin::Secret,
                    reason,
                    message,
                });
            }
        };
        let Some(read) = self.read_secret(&plane, &key).await? else {
            return waiting(format!("Secret {key} does not exist yet"));
        };
        let missing = || waiting(format!("Secret {key} has no cluster_endpoint yet"));
        to_retrieved(read.endpoint, Origin::Secret).map_or_else(missing, Ok)
    }

    /// Returns the CA certificate of the control plane, still encoded.
    ///
    /// Returns `None` if no source has one.
    pub(super) async fn authority(&self, plane: &CAPTControlPlane) -> Result<Option<Arc<[u8]>>> {
        let Ok(workspace) = self.workspace(plane).await? else {
            return Ok(None);
        };
        let plane = ObjectKey::of(plane);
        let authority = self.read_outputs(&plane, &workspace).authority;
        match self.connection(&workspace) {
            Ok(Some(key)) if authority.is_none() => Ok(self
                .read_secret(&plane, &key)
                .await?
                .and_then(|read| read.authority)),
            _ => Ok(authority),
        }
    }

    /// Returns the workspace, or a message about the missing object.
    async fn workspace(
        &self,
        plane: &CAPTControlPlane,
    ) -> Result<Result<Arc<DynamicObject>, String>> {
        const APPLY: FailedOperation = FailedOperation::Reading("WorkspaceTemplateApply");
        const WORKSPACE: FailedOperation = FailedOperation::Reading("Workspace");
        let (key, kind) = (apply_of(plane), workspace_kind());
        let Some(apply) =
            missing_kind_as_none(self.client.get::<WorkspaceTemplateApply>(&key).await)
                .context(APPLY)?
        else {
            return Ok(Err(format!(
                "WorkspaceTemplateApply {key} does not exist yet"
            )));
        };
        let name = apply
            .status
            .as_ref()
            .and_then(|status| status.workspace_name.as_deref());
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(Err(format!(
                "WorkspaceTemplateApply {key} has no workspace yet"
            )));
        };
        let Some(discovered) = self.client.discover(&kind).await.context(WORKSPACE)? else {
            return Ok(Err(format!(
                "the API server does not serve {} of {}",
                kind.kind,
                kind.api_version()
            )));
        };
        let key = discovered.key(key.namespace(), name);
        let workspace =
            missing_kind_as_none(self.client.dynamic(&kind).get(&key).await).context(WORKSPACE)?;
        Ok(workspace.ok_or_else(|| format!("Workspace {key} does not exist yet")))
    }

    /// Returns the key of the connection Secret that a workspace names.
    ///
    /// A Secret outside of the namespaces of the cache is rejected, even if the API server permits
    /// the read.
    fn connection(&self, workspace: &DynamicObject) -> Result<Option<ObjectKey>, Invalid> {
        let key =
            sources::secret_of(&workspace.data).map_err(|message| (INVALID_ENDPOINT, message))?;
        match key {
            Some(key)
                if matches!(
                    self.secrets.get(&key),
                    Err(CacheError::NamespaceNotCached { .. })
                ) =>
            {
                let message = format!("Secret {key} is not in a namespace of this controller");
                Err((
                    "SecretOutOfScope",
                    format!("{message}; move the Secret or add its namespace"),
                ))
            }
            key => Ok(key),
        }
    }

    /// Reads the outputs of a workspace. Logs once per resource version.
    fn read_outputs(&self, plane: &ObjectKey, workspace: &DynamicObject) -> SourceValues {
        let meta = &workspace.metadata;
        if let Some(read) =
            self.source_cache
                .get(plane, Origin::Outputs, ObjectVersion::of(meta).as_ref())
        {
            return read;
        }
        let (namespace, name) = (plane.namespace(), plane.name());
        let read = sources::outputs(&workspace.data);
        if sources::is_not_a_string(&workspace.data) {
            tracing::warn!(
                namespace,
                name,
                workspace = meta.name,
                "output cluster_endpoint is not a string, ignoring it"
            );
        }
        if let (
            EndpointValue::Endpoint(address),
            Some(SourceValues {
                endpoint: EndpointValue::Endpoint(other),
                ..
            }),
        ) = (
            &read.endpoint,
            self.source_cache.last(plane, Origin::Secret),
        ) && *address != other
        {
            tracing::info!(
                namespace,
                name,
                host = address.host(),
                "outputs and secret have different endpoints, using outputs"
            );
        }
        let previous = self
            .source_cache
            .insert(plane, Origin::Outputs, meta, read.clone());
        let is_same = previous
            .as_ref()
            .is_some_and(|(version, _)| version.belongs_to(meta));
        if !is_same {
            tracing::info!(namespace, name, workspace = meta.name, "found workspace");
        }
        log_found(plane, Origin::Outputs, &read, previous.filter(|_| is_same));
        read
    }

    /// Reads the Secret; `None` if it does not exist.
    ///
    /// A Secret that is not watched is read on every call.
    async fn read_secret(
        &self,
        plane: &ObjectKey,
        key: &ObjectKey,
    ) -> Result<Option<SourceValues>> {
        let watched = self
            .secrets
            .get(key)
            .ok()
            .flatten()
            .and_then(|secret| ObjectVersion::of(&secret.metadata));
        if let Some(read) = self
            .source_cache
            .get(plane, Origin::Secret, watched.as_ref())
        {
            return Ok(Some(read));
        }
        let secret = self
            .client
            .live()
            .get::<Secret>(key)
            .await
            .context(FailedOperation::Reading("Secret"))?;
        let Some(secret) = secret else {
            return Ok(None);
        };
        let read = sources::secret(&secret);
        let previous =
            self.source_cache
                .insert(plane, Origin::Secret, &secret.metadata, read.clone());
        log_found(
            plane,
            Origin::Secret,
            &read,
            previous.filter(|(version, _)| version.belongs_to(&secret.metadata)),
        );
        Ok(Some(read))
    }
}

/// Logs the endpoint of a source, unless it was logged before.
///
/// An invalid value is not logged.
fn log_found(
    plane: &ObjectKey,
    source: Origin,
    read: &SourceValues,
    previous: Option<(ObjectVersion, SourceValues)>,
) {
    if previous.is_some_and(|(_, previous)| previous.endpoint == read.endpoint) {
        return;
    }
    let (namespace, name, source) = (plane.namespace(), plane.name(), source.label());
    match &read.endpoint {
        EndpointValue::Missing => {}
        EndpointValue::Endpoint(address) => {
            let (host, port) = (address.host(), address.port());
            tracing::info!(
                namespace,
                name,
                source,
                host,
                port,
                "found cluster_endpoint"
            );
        }
        EndpointValue::Invalid(error) => tracing::warn!(
            namespace,
            name,
            source,
            error,
            "found invalid cluster_endpoint"
        ),
    }
}

/// Treats a missing kind like a missing object.
pub(super) fn missing_kind_as_none<T>(
    read: client::Result<Option<T>>,
) -> client::Result<Option<T>> {
    match read {
        Err(error) if error.is_kind_not_found() => Ok(None),
        read => read,
    }
}

/// Returns the result of a source; `None` if the next source must be read.
fn to_retrieved(value: EndpointValue, origin: Origin) -> Option<Retrieved> {
    match value {
        EndpointValue::Missing => None,
        EndpointValue::Endpoint(address) => Some(Retrieved::Found { address, origin }),
        EndpointValue::Invalid(message) => {
            let message = format!("{origin}: {message}");
            Some(Retrieved::Invalid {
                origin,
                reason: INVALID_ENDPOINT,
                message,
            })
        }
    }
}
