//! Copies the state of a referenced object to its Cluster.
//!
//! Invariants:
//! - The flags in `status.initialization` are never reset.
//! - `spec.controlPlaneEndpoint` changes only while host or port is missing, and a half-set
//!   endpoint is replaced only by a complete one.

use super::role::{Provider, Role, is_deleting};
use crate::{
    cluster_api::{
        ApiEndpoint, Cluster, Severity,
        conditions::CONTROL_PLANE_INITIALIZED,
        deprecated::{self, DeprecatedCondition},
    },
    external::{
        self, FieldError,
        contract::{control_plane, infrastructure_cluster},
    },
};
use k8s_openapi::jiff::Timestamp;
use kube::core::DynamicObject;
use steersman::object::{KubeObject, ObjectKey};

/// Longest `failureMessage` that the API server accepts, in characters.
const LONGEST_MESSAGE: usize = 10_240;

/// Error of an object whose fields do not follow its contract.
#[derive(Debug, thiserror::Error)]
pub(super) enum StateError {
    /// The field that reports whether the object is ready has another type.
    #[error(transparent)]
    Ready(FieldError),
    /// A field that is copied has another type.
    #[error(
        "failed to retrieve {field} from {provider} provider for Cluster {:?} in namespace {:?}",
        cluster.name(), cluster.namespace().unwrap_or_default()
    )]
    Copied {
        field: &'static str,
        provider: &'static str,
        cluster: ObjectKey,
        #[source]
        error: Box<FieldError>,
    },
}

/// Copies the state of an object. Returns whether the object became ready for the first time.
///
/// An object that is not ready, or that is being deleted, changes only deprecated conditions.
pub(super) fn copy_state(
    role: Role,
    cluster: &mut Cluster,
    provider: &Provider,
    now: Timestamp,
) -> Result<bool, StateError> {
    let Provider { object, contract } = provider;
    let ready = match role {
        Role::Infrastructure => infrastructure_cluster::provisioned(contract, object),
        Role::ControlPlane => control_plane::initialized(contract, object),
    };
    let is_ready = ready.map_err(StateError::Ready)?.unwrap_or_default();
    mirror_deprecated(role, cluster, object, is_ready, now);
    if provider.is_deleting() {
        return Ok(false);
    }
    if role == Role::ControlPlane {
        set_deprecated_initialized(cluster, is_ready, now);
    }
    let was_ready = role.was_ready(cluster);
    if !is_ready && !was_ready {
        return Ok(false);
    }
    copy_endpoint(role, cluster, provider)?;
    if role == Role::Infrastructure {
        copy_failure_domains(cluster, provider)?;
    }
    role.set_ready(cluster);
    Ok(!was_ready)
}

/// Copies the endpoint of an object to a Cluster without a valid one.
fn copy_endpoint(role: Role, cluster: &mut Cluster, provider: &Provider) -> Result<(), StateError> {
    let current = cluster.spec.control_plane_endpoint.as_ref();
    if current.is_some_and(ApiEndpoint::is_valid) {
        return Ok(());
    }
    // The field is the same for both references.
    let endpoint = control_plane::control_plane_endpoint(&provider.object)
        .map_err(|error| copied("spec.controlPlaneEndpoint", role, cluster, error))?;
    let is_empty = current.is_none_or(ApiEndpoint::is_empty);
    let better = endpoint.filter(|it| it.is_valid() || is_empty && !it.is_empty());
    if let Some(endpoint) = better {
        // The API server rejects an empty host and port 0.
        cluster.spec.control_plane_endpoint = Some(ApiEndpoint {
            host: endpoint.host().map(Into::into),
            port: endpoint.port(),
        });
    }
    Ok(())
}

/// Replaces the failure domains of a Cluster, or removes them if the object has none.
fn copy_failure_domains(cluster: &mut Cluster, provider: &Provider) -> Result<(), StateError> {
    let Provider { object, contract } = provider;
    let role = Role::Infrastructure;
    let domains = infrastructure_cluster::failure_domains(contract, object)
        .map_err(|error| copied("status.failureDomains", role, cluster, error))?;
    let status = cluster.status.get_or_insert_default();
    status.failure_domains = domains.unwrap_or_default();
    Ok(())
}

fn copied(field: &'static str, role: Role, cluster: &Cluster, error: FieldError) -> StateError {
    StateError::Copied {
        field,
        provider: role.provider(),
        cluster: ObjectKey::of(cluster),
        error: Box::new(error),
    }
}

/// Copies failure reason and message of an object. They are never removed.
pub(super) fn copy_failures(
    cluster: &mut Cluster,
    object: &DynamicObject,
) -> Result<(), external::Error> {
    let (reason, message) = external::failures_from(object)?;
    if reason.is_empty() && message.is_empty() {
        return Ok(());
    }
    let status = cluster.status.get_or_insert_default();
    let deprecated = status.deprecated.get_or_insert_default();
    let deprecated = deprecated.v1beta1.get_or_insert_default();
    if !reason.is_empty() {
        deprecated.failure_reason = Some(reason);
    }
    if !message.is_empty() {
        deprecated.failure_message = Some(failure_message(object, &message));
    }
    Ok(())
}

/// Returns the message that names the object, cut to the length that the API server accepts.
fn failure_message(object: &DynamicObject, message: &str) -> String {
    let (api_version, kind) = object
        .gvk()
        .map(|gvk| (gvk.api_version(), gvk.kind))
        .unwrap_or_default();
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let mut text = format!(
        "Failure detected from referenced resource {api_version}, Kind={kind} with name \
         \"{name}\": {message}"
    );
    if let Some((end, _)) = text.char_indices().nth(LONGEST_MESSAGE) {
        text.truncate(end);
    }
    text
}

/// Mirrors the deprecated condition `Ready` of an object.
fn mirror_deprecated(
    role: Role,
    cluster: &mut Cluster,
    object: &DynamicObject,
    is_ready: bool,
    now: Timestamp,
) {
    let (fallback, reason) = match role {
        _ if is_deleting(cluster) => (false, "Deleting"),
        Role::Infrastructure => (is_ready, "WaitingForInfrastructure"),
        Role::ControlPlane => (is_ready, "WaitingForControlPlane"),
    };
    let type_ = role.deprecated_condition();
    let fallback = if fallback {
        DeprecatedCondition::met(type_)
    } else {
        DeprecatedCondition::unmet(type_, reason, Severity::Info, "")
    };
    let reported = deprecated::reported(object);
    deprecated::set_mirror(cluster, type_, &reported, Some(fallback), now);
}

/// Sets the deprecated condition `ControlPlaneInitialized`. Once true, it stays true.
fn set_deprecated_initialized(cluster: &mut Cluster, is_initialized: bool, now: Timestamp) {
    if deprecated::is_true(cluster, CONTROL_PLANE_INITIALIZED) {
        return;
    }
    if is_initialized {
        deprecated::mark_true(cluster, CONTROL_PLANE_INITIALIZED, now);
    } else {
        let message = "Waiting for control plane provider to indicate the control plane has been \
                       initialized";
        let reason = "WaitingForControlPlaneProviderInitialized";
        deprecated::mark_false(
            cluster,
            CONTROL_PLANE_INITIALIZED,
            reason,
            Severity::Info,
            message,
            now,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn cluster(endpoint: &Value) -> Cluster {
        serde_json::from_value(json!({
            "metadata": {"namespace": "farm", "name": "shop"},
            "spec": {"controlPlaneEndpoint": endpoint},
        }))
        .expect("a Cluster")
    }

    fn provider(spec: &Value, status: &Value) -> Provider {
        let object = json!({
            "apiVersion": "a/v1", "kind": "Barn", "metadata": {"name": "shop"},
            "spec": spec, "status": status,
        });
        Provider {
            object: serde_json::from_value(object).expect("an object"),
            contract: "v1beta1".into(),
        }
    }

    fn copy(cluster: &mut Cluster, provider: &Provider) -> Result<bool, String> {
        copy_state(
            Role::Infrastructure,
            cluster,
            provider,
            Timestamp::UNIX_EPOCH,
        )
        .map_err(|error| format!("{:#}", anyhow::Error::new(error)))
    }

    #[test]
    fn an_endpoint_is_copied_if_it_makes_that_of_the_cluster_more_complete() {
        let complete = json!({"host": "b.example.com", "port": 443});
        let host = json!({"host": "b.example.com"});
        let zero = json!({"host": "", "port": 0});
        let own_host = json!({"host": "a.example.com"});
        let own = json!({"host": "a.example.com", "port": 6443});
        let cases = [
            (json!(null), &complete, &complete),
            (json!(null), &host, &host),
            (json!(null), &zero, &json!(null)),
            (own_host.clone(), &complete, &complete),
            (own_host.clone(), &host, &own_host),
            (own_host.clone(), &zero, &own_host),
            (own_host.clone(), &json!(null), &own_host),
            (own.clone(), &complete, &own),
        ];
        for (before, endpoint, expected) in cases {
            let mut cluster = cluster(&before);
            let spec = match endpoint {
                Value::Null => json!({}),
                endpoint => json!({"controlPlaneEndpoint": endpoint}),
            };
            copy(&mut cluster, &provider(&spec, &json!({"ready": true}))).expect("valid fields");
            let after = json!(cluster.spec.control_plane_endpoint);
            assert_eq!(after, *expected, "{before} and {endpoint}");
        }
    }

    #[test]
    fn an_object_becomes_ready_once() {
        let mut cluster = cluster(&json!(null));
        assert_eq!(
            copy(&mut cluster, &provider(&json!({}), &json!({}))),
            Ok(false)
        );
        assert!(!Role::Infrastructure.was_ready(&cluster));
        let ready = provider(&json!({}), &json!({"ready": true}));
        assert_eq!(copy(&mut cluster, &ready), Ok(true));
        assert_eq!(copy(&mut cluster, &ready), Ok(false));
        assert_eq!(
            copy(
                &mut cluster,
                &provider(&json!({}), &json!({"ready": false}))
            ),
            Ok(false)
        );
        assert!(Role::Infrastructure.was_ready(&cluster));
    }

    #[test]
    fn a_field_of_another_type_is_an_error_with_the_texts_of_cluster_api() {
        let cases = [
            (
                json!({}),
                json!({"ready": "yes"}),
                "failed to get .status.ready from object: .status.ready accessor error: yes is of the type \
                 string, expected bool",
            ),
            (
                json!({"controlPlaneEndpoint": 1}),
                json!({"ready": true}),
                "failed to retrieve spec.controlPlaneEndpoint from infrastructure provider for Cluster \
                 \"shop\" in namespace \"farm\": failed to get .spec.controlPlaneEndpoint from object: \
                 .spec.controlPlaneEndpoint accessor error: 1 is of the type int64, expected \
                 map[string]interface{}",
            ),
        ];
        for (spec, status, expected) in cases {
            let mut cluster = cluster(&json!(null));
            let error = copy(&mut cluster, &provider(&spec, &status));
            assert_eq!(error.expect_err("an error"), expected);
            assert!(!Role::Infrastructure.was_ready(&cluster));
        }
    }
}
