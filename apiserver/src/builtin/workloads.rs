//! Fields that the server sets on workloads. Their pod templates are in `defaults`, validation is
//! in `workload_checks`.

use super::prepare::{list, set, set_default, set_key};
use serde_json::{Map, Value, json};

/// Sets defaults. The labels and the selector default to the labels of the template.
pub(super) fn prepare_replication_controller(object: &mut Value, _: Option<&Value>) {
    set_default(object, "spec.replicas", 1);
    if let Some(labels @ Value::Object(_)) =
        object.pointer("/spec/template/metadata/labels").cloned()
    {
        if object["spec"]["selector"]
            .as_object()
            .is_none_or(Map::is_empty)
        {
            set(object, "spec.selector", labels.clone());
        }
        if object["metadata"]["labels"]
            .as_object()
            .is_none_or(Map::is_empty)
        {
            set(object, "metadata.labels", labels);
        }
    }
}

pub(super) fn prepare_replica_set(object: &mut Value, _: Option<&Value>) {
    set_default(object, "spec.replicas", 1);
}

pub(super) fn prepare_deployment(object: &mut Value, _: Option<&Value>) {
    set_default(object, "spec.replicas", 1);
    set_default(object, "spec.strategy.type", "RollingUpdate");
    if object["spec"]["strategy"]["type"] == "RollingUpdate" {
        set_default(object, "spec.strategy.rollingUpdate.maxUnavailable", "25%");
        set_default(object, "spec.strategy.rollingUpdate.maxSurge", "25%");
    }
    set_default(object, "spec.revisionHistoryLimit", 10);
    set_default(object, "spec.progressDeadlineSeconds", 600);
}

pub(super) fn prepare_stateful_set(object: &mut Value, _: Option<&Value>) {
    set_default(object, "spec.replicas", 1);
    set_default(object, "spec.podManagementPolicy", "OrderedReady");
    if object["spec"]["updateStrategy"]["type"].is_null() {
        set_default(object, "spec.updateStrategy.rollingUpdate", json!({}));
        set_default(object, "spec.updateStrategy.type", "RollingUpdate");
    }
    if object["spec"]["updateStrategy"]["rollingUpdate"].is_object() {
        set_default(object, "spec.updateStrategy.rollingUpdate.partition", 0);
        set_default(
            object,
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
            1,
        );
    }
    for claim in list(object, "/spec/volumeClaimTemplates") {
        set_default(claim, "apiVersion", "v1");
        set_default(claim, "kind", "PersistentVolumeClaim");
    }
    set_default(
        object,
        "spec.persistentVolumeClaimRetentionPolicy.whenDeleted",
        "Retain",
    );
    set_default(
        object,
        "spec.persistentVolumeClaimRetentionPolicy.whenScaled",
        "Retain",
    );
    set_default(object, "spec.revisionHistoryLimit", 10);
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(super) fn prepare_daemon_set(object: &mut Value, old: Option<&Value>) {
    set_default(object, "spec.updateStrategy.type", "RollingUpdate");
    if object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
        set_default(
            object,
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
            1,
        );
        set_default(object, "spec.updateStrategy.rollingUpdate.maxSurge", 0);
    }
    set_default(object, "spec.revisionHistoryLimit", 10);
    // Number of template changes, from before workloads had a generation.
    let generation = object
        .pointer("/metadata/annotations/deprecated.daemonset.template.generation")
        .cloned();
    let previous = old.map(|old| &old["metadata"]["annotations"][TEMPLATE_GENERATION]);
    let count = |value: &Value| value.as_str().and_then(|text| text.parse::<u64>().ok());
    let number = match (old, previous.and_then(count)) {
        (Some(old), Some(number)) if old["spec"]["template"] == object["spec"]["template"] => {
            number
        }
        (Some(_), Some(number)) => number + 1,
        _ => generation.as_ref().and_then(count).unwrap_or(1),
    };
    set_key(
        object,
        "metadata.annotations",
        TEMPLATE_GENERATION,
        number.to_string(),
    );
}

/// Sets defaults, and the selector unless `manualSelector` is set. The selector contains the uid,
/// which must be set.
pub(super) fn prepare_job(object: &mut Value, old: Option<&Value>) {
    if object["spec"]["parallelism"].is_null() {
        set_default(object, "spec.completions", 1);
    }
    set_default(object, "spec.parallelism", 1);
    set_default(object, "spec.backoffLimit", 6);
    set_default(object, "spec.completionMode", "NonIndexed");
    set_default(object, "spec.suspend", false);
    set_default(object, "spec.podReplacementPolicy", "TerminatingOrFailed");
    set_default(object, "spec.manualSelector", false);
    let uid = object
        .pointer("/metadata/uid")
        .and_then(Value::as_str)
        .map(String::from);
    if let (None, Some(uid), false) = (old, uid, object["spec"]["manualSelector"] == true) {
        let name = object["metadata"]["name"].clone();
        for prefix in ["", "batch.kubernetes.io/"] {
            let labels = "spec.template.metadata.labels";
            set_key(
                object,
                labels,
                &format!("{prefix}controller-uid"),
                uid.as_str(),
            );
            set_key(object, labels, &format!("{prefix}job-name"), name.clone());
        }
        set_key(
            object,
            "spec.selector.matchLabels",
            "batch.kubernetes.io/controller-uid",
            uid,
        );
    }
    if let Some(labels @ Value::Object(_)) =
        object.pointer("/spec/template/metadata/labels").cloned()
        && object["metadata"]["labels"]
            .as_object()
            .is_none_or(Map::is_empty)
    {
        set(object, "metadata.labels", labels);
    }
}

pub(super) fn prepare_cron_job(object: &mut Value, _: Option<&Value>) {
    set_default(object, "spec.concurrencyPolicy", "Allow");
    set_default(object, "spec.suspend", false);
    set_default(object, "spec.successfulJobsHistoryLimit", 3);
    set_default(object, "spec.failedJobsHistoryLimit", 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_gets_a_selector_of_its_own_pods_unless_it_is_manual() {
        let mut object = json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"template": {}}});
        prepare_job(&mut object, None);
        let labels = object.pointer("/spec/template/metadata/labels").unwrap();
        assert_eq!(
            (
                &labels["controller-uid"],
                &labels["batch.kubernetes.io/job-name"]
            ),
            (&json!("u"), &json!("a"))
        );
        let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}});
        assert_eq!(object["spec"]["selector"], selector);
        assert_eq!(object["spec"]["completions"], 1);

        let mut manual =
            json!({"metadata": {"uid": "u"}, "spec": {"manualSelector": true, "parallelism": 2}});
        prepare_job(&mut manual, None);
        assert!(
            manual["spec"].get("selector").is_none() && manual["spec"].get("completions").is_none()
        );
    }
}
