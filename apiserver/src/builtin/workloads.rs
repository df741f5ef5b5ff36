//! What makes pods: what the server fills in. Of their templates `defaults` knows; what is refused is in `workload_checks`.

use super::prepare::{fill, list, put, put_key};
use serde_json::{Map, Value, json};

/// Older workloads are labelled and selected by the labels of their template.
pub(super) fn prepare_replication_controller(object: &mut Value, _: Option<&Value>) {
    fill(object, "spec.replicas", 1);
    if let Some(labels @ Value::Object(_)) = object.pointer("/spec/template/metadata/labels").cloned() {
        if object["spec"]["selector"].as_object().is_none_or(Map::is_empty) {
            put(object, "spec.selector", labels.clone());
        }
        if object["metadata"]["labels"].as_object().is_none_or(Map::is_empty) {
            put(object, "metadata.labels", labels);
        }
    }
}

pub(super) fn prepare_replica_set(object: &mut Value, _: Option<&Value>) {
    fill(object, "spec.replicas", 1);
}

pub(super) fn prepare_deployment(object: &mut Value, _: Option<&Value>) {
    fill(object, "spec.replicas", 1);
    fill(object, "spec.strategy.type", "RollingUpdate");
    if object["spec"]["strategy"]["type"] == "RollingUpdate" {
        fill(object, "spec.strategy.rollingUpdate.maxUnavailable", "25%");
        fill(object, "spec.strategy.rollingUpdate.maxSurge", "25%");
    }
    fill(object, "spec.revisionHistoryLimit", 10);
    fill(object, "spec.progressDeadlineSeconds", 600);
}

pub(super) fn prepare_stateful_set(object: &mut Value, _: Option<&Value>) {
    fill(object, "spec.replicas", 1);
    fill(object, "spec.podManagementPolicy", "OrderedReady");
    if object["spec"]["updateStrategy"]["type"].is_null() {
        fill(object, "spec.updateStrategy.rollingUpdate", json!({}));
        fill(object, "spec.updateStrategy.type", "RollingUpdate");
    }
    if object["spec"]["updateStrategy"]["rollingUpdate"].is_object() {
        fill(object, "spec.updateStrategy.rollingUpdate.partition", 0);
        fill(object, "spec.updateStrategy.rollingUpdate.maxUnavailable", 1);
    }
    for claim in list(object, "/spec/volumeClaimTemplates") {
        fill(claim, "apiVersion", "v1");
        fill(claim, "kind", "PersistentVolumeClaim");
    }
    fill(object, "spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "Retain");
    fill(object, "spec.persistentVolumeClaimRetentionPolicy.whenScaled", "Retain");
    fill(object, "spec.revisionHistoryLimit", 10);
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(super) fn prepare_daemon_set(object: &mut Value, old: Option<&Value>) {
    fill(object, "spec.updateStrategy.type", "RollingUpdate");
    if object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
        fill(object, "spec.updateStrategy.rollingUpdate.maxUnavailable", 1);
        fill(object, "spec.updateStrategy.rollingUpdate.maxSurge", 0);
    }
    fill(object, "spec.revisionHistoryLimit", 10);
    // How often its template changed, from before generations were counted.
    let generation = object.pointer("/metadata/annotations/deprecated.daemonset.template.generation").cloned();
    let kept = old.map(|old| &old["metadata"]["annotations"][TEMPLATE_GENERATION]);
    let count = |value: &Value| value.as_str().and_then(|text| text.parse::<u64>().ok());
    let number = match (old, kept.and_then(count)) {
        (Some(old), Some(number)) if old["spec"]["template"] == object["spec"]["template"] => number,
        (Some(_), Some(number)) => number + 1,
        _ => generation.as_ref().and_then(count).unwrap_or(1),
    };
    put_key(object, "metadata.annotations", TEMPLATE_GENERATION, number.to_string());
}

/// Also makes the selector, which a job only brings if it says so. It is made of the uid, so that must be known.
pub(super) fn prepare_job(object: &mut Value, old: Option<&Value>) {
    if object["spec"]["parallelism"].is_null() {
        fill(object, "spec.completions", 1);
    }
    fill(object, "spec.parallelism", 1);
    fill(object, "spec.backoffLimit", 6);
    fill(object, "spec.completionMode", "NonIndexed");
    fill(object, "spec.suspend", false);
    fill(object, "spec.podReplacementPolicy", "TerminatingOrFailed");
    fill(object, "spec.manualSelector", false);
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str).map(String::from);
    if let (None, Some(uid), false) = (old, uid, object["spec"]["manualSelector"] == true) {
        let name = object["metadata"]["name"].clone();
        for prefix in ["", "batch.kubernetes.io/"] {
            let labels = "spec.template.metadata.labels";
            put_key(object, labels, &format!("{prefix}controller-uid"), uid.as_str());
            put_key(object, labels, &format!("{prefix}job-name"), name.clone());
        }
        put_key(object, "spec.selector.matchLabels", "batch.kubernetes.io/controller-uid", uid);
    }
    if let Some(labels @ Value::Object(_)) = object.pointer("/spec/template/metadata/labels").cloned()
        && object["metadata"]["labels"].as_object().is_none_or(Map::is_empty)
    {
        put(object, "metadata.labels", labels);
    }
}

pub(super) fn prepare_cron_job(object: &mut Value, _: Option<&Value>) {
    fill(object, "spec.concurrencyPolicy", "Allow");
    fill(object, "spec.suspend", false);
    fill(object, "spec.successfulJobsHistoryLimit", 3);
    fill(object, "spec.failedJobsHistoryLimit", 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_selects_its_own_pods_unless_it_says_which() {
        let mut object = json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"template": {}}});
        prepare_job(&mut object, None);
        let labels = object.pointer("/spec/template/metadata/labels").unwrap();
        assert_eq!((&labels["controller-uid"], &labels["batch.kubernetes.io/job-name"]), (&json!("u"), &json!("a")));
        let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}});
        assert_eq!(object["spec"]["selector"], selector);
        assert_eq!(object["spec"]["completions"], 1);

        let mut own = json!({"metadata": {"uid": "u"}, "spec": {"manualSelector": true, "parallelism": 2}});
        prepare_job(&mut own, None);
        assert!(own["spec"].get("selector").is_none() && own["spec"].get("completions").is_none());
    }
}
