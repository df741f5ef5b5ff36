//! Phase of a Cluster, for display.

use super::role::{Role, is_deleting};
use crate::cluster_api::{ApiEndpoint, Cluster};

/// Updates `status.phase`. Returns the new phase if it has changed.
///
/// Nothing depends on the phase.
pub(super) fn update(cluster: &mut Cluster) -> Option<&'static str> {
    let current = cluster
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let phase = phase(cluster, current)?;
    if current == Some(phase) {
        return None;
    }
    cluster.status.get_or_insert_default().phase = Some(phase.into());
    Some(phase)
}

/// Returns the phase; `None` if the current one stays.
fn phase(cluster: &Cluster, current: Option<&str>) -> Option<&'static str> {
    let endpoint = cluster.spec.control_plane_endpoint.as_ref();
    let has_endpoint = endpoint.is_some_and(ApiEndpoint::is_valid);
    let has_reference = || {
        let mut roles = Role::ALL.into_iter();
        roles.any(|role| role.reference(cluster).is_some())
    };
    if is_deleting(cluster) {
        Some("Deleting")
    } else if has_endpoint && Role::Infrastructure.was_ready(cluster) {
        Some("Provisioned")
    } else if has_reference() {
        Some("Provisioning")
    } else if current.is_none_or(str::is_empty) {
        Some("Pending")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn next(spec: Value, status: Value, deleted: Option<&str>) -> Option<&'static str> {
        let cluster = json!({
            "metadata": {"name": "shop", "deletionTimestamp": deleted}, "spec": spec, "status": status,
        });
        update(&mut serde_json::from_value(cluster).expect("a Cluster"))
    }

    #[test]
    fn the_phase_follows_references_endpoint_and_deletion() {
        let reference = json!({"apiGroup": "a", "kind": "B", "name": "c"});
        let provisioned = json!({"initialization": {"infrastructureProvisioned": true}});
        let complete = json!({"host": "a.example.com", "port": 443});
        let half_set = json!({"host": "a.example.com"});
        assert_eq!(next(json!({}), json!({}), None), Some("Pending"));
        for field in ["infrastructureRef", "controlPlaneRef"] {
            assert_eq!(
                next(json!({field: reference}), json!({}), None),
                Some("Provisioning")
            );
        }
        let spec =
            |endpoint| json!({"infrastructureRef": reference, "controlPlaneEndpoint": endpoint});
        assert_eq!(
            next(spec(&complete), provisioned.clone(), None),
            Some("Provisioned")
        );
        assert_eq!(next(spec(&complete), json!({}), None), Some("Provisioning"));
        assert_eq!(
            next(spec(&half_set), provisioned.clone(), None),
            Some("Provisioning")
        );
        let deleted = Some("2024-05-06T07:08:09Z");
        assert_eq!(
            next(spec(&complete), provisioned, deleted),
            Some("Deleting")
        );
    }

    #[test]
    fn an_unchanged_phase_is_not_reported() {
        assert_eq!(next(json!({}), json!({"phase": "Pending"}), None), None);
        assert_eq!(next(json!({}), json!({"phase": "Failed"}), None), None);
        assert_eq!(next(json!({}), json!({"phase": ""}), None), Some("Pending"));
    }
}
