//! What makes pods: what the server fills in, and what it refuses. Defaults of pod templates are not here yet.

use super::cells::{items, text};
use super::pods::bad_containers;
use super::prepare::{fill, put, put_key};
use super::validate::{at, immutable, not_negative};
use crate::status::FieldError;
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
    fill(object, "status.replicas", 0);
}

pub(super) fn prepare_replica_set(object: &mut Value, _: Option<&Value>) {
    fill(object, "spec.replicas", 1);
    fill(object, "status.replicas", 0);
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
    fill(object, "status", json!({}));
}

pub(super) fn prepare_stateful_set(object: &mut Value, _: Option<&Value>) {
    fill(object, "spec.replicas", 1);
    fill(object, "spec.podManagementPolicy", "OrderedReady");
    if object["spec"]["updateStrategy"]["type"].is_null() {
        fill(object, "spec.updateStrategy.rollingUpdate.partition", 0);
        fill(object, "spec.updateStrategy.type", "RollingUpdate");
    }
    fill(object, "spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "Retain");
    fill(object, "spec.persistentVolumeClaimRetentionPolicy.whenScaled", "Retain");
    fill(object, "spec.revisionHistoryLimit", 10);
    fill(object, "status.replicas", 0);
    fill(object, "status.availableReplicas", 0);
}

pub(super) fn prepare_daemon_set(object: &mut Value, _: Option<&Value>) {
    fill(object, "spec.updateStrategy.type", "RollingUpdate");
    if object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
        fill(object, "spec.updateStrategy.rollingUpdate.maxUnavailable", 1);
        fill(object, "spec.updateStrategy.rollingUpdate.maxSurge", 0);
    }
    fill(object, "spec.revisionHistoryLimit", 10);
    for count in ["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"] {
        fill(object, &format!("status.{count}"), 0);
    }
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
    fill(object, "status", json!({}));
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
    fill(object, "status", json!({}));
}

pub(super) fn validate_replication_controller(object: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let selector = at(object, "spec.selector");
    let mut errors: Vec<_> = not_negative(object, "spec.replicas").into_iter().collect();
    if selector.as_object().is_none_or(Map::is_empty) {
        errors.push(FieldError::required("spec.selector", ""));
    }
    errors.extend(bad_template(object, &json!({"matchLabels": selector})));
    errors
}

pub(super) fn validate_deployment(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    selecting(object, old, "deployment")
}

pub(super) fn validate_replica_set(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    selecting(object, old, "replicaset")
}

pub(super) fn validate_daemon_set(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    selecting(object, old, "daemonset")
}

pub(super) fn validate_stateful_set(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = selecting(object, old, "statefulset");
    let kept = ["spec.volumeClaimTemplates", "spec.serviceName", "spec.podManagementPolicy"];
    errors.extend(kept.iter().filter_map(|path| immutable(object, old, path)));
    errors
}

/// A workload has a selector that picks the pods of its template, and keeps it.
fn selecting(object: &Value, old: Option<&Value>, kind: &str) -> Vec<FieldError> {
    let selector = at(object, "spec.selector");
    let counts = ["spec.replicas", "spec.minReadySeconds", "spec.revisionHistoryLimit"];
    let mut errors: Vec<_> = counts.iter().filter_map(|path| not_negative(object, path)).collect();
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else if is_empty(selector) {
        let why = format!("empty selector is invalid for {kind}");
        errors.push(FieldError::invalid("spec.selector", selector, why));
    }
    errors.extend(bad_template(object, selector));
    errors.extend(immutable(object, old, "spec.selector"));
    errors
}

fn bad_template(object: &Value, selector: &Value) -> Vec<FieldError> {
    let labels = at(object, "spec.template.metadata.labels");
    let mut errors = Vec::new();
    if !selects(selector, labels) {
        let why = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, why));
    }
    errors.extend(bad_containers(object, "spec.template.spec.containers"));
    errors
}

pub(super) fn validate_job(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let counts = ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"];
    let mut errors: Vec<_> = counts.iter().filter_map(|count| not_negative(object, &format!("spec.{count}"))).collect();
    errors.extend(bad_job_template(object, "spec.template"));
    let kept = ["spec.selector", "spec.completionMode", "spec.podFailurePolicy", "spec.backoffLimitPerIndex"];
    errors.extend(kept.iter().filter_map(|path| immutable(object, old, path)));
    // Until it starts, a job that is suspended may still be placed elsewhere.
    if object["spec"]["suspend"] != true {
        errors.extend(immutable(object, old, "spec.template"));
    }
    errors
}

pub(super) fn validate_cron_job(object: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text(object, "/metadata/name").len() > 52 {
        let name = at(object, "metadata.name");
        errors.push(FieldError::invalid("metadata.name", name, "must be no more than 52 characters"));
    }
    if text(object, "/spec/schedule").is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    }
    errors.extend(bad_job_template(object, "spec.jobTemplate.spec.template"));
    errors
}

fn bad_job_template(object: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = bad_containers(object, &format!("{path}.spec.containers"));
    let policy = format!("{path}.spec.restartPolicy");
    match at(object, &policy).as_str() {
        Some("OnFailure" | "Never") => {}
        None | Some("" | "Always") => {
            errors.push(FieldError::required(policy, r#"valid values: "OnFailure", "Never""#));
        }
        Some(other) => errors.push(FieldError::not_supported(policy, &json!(other), ["OnFailure", "Never"])),
    }
    errors
}

/// Whether a label selector picks these labels; no selector picks none.
fn selects(selector: &Value, labels: &Value) -> bool {
    let pairs = selector["matchLabels"].as_object().into_iter().flatten();
    let one = |it: &Value| {
        let label = it["key"].as_str().and_then(|key| labels.get(key));
        let listed = label.is_some_and(|label| it["values"].as_array().is_some_and(|values| values.contains(label)));
        match text(it, "/operator") {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => label.is_some(),
            _ => label.is_none(),
        }
    };
    selector.is_object()
        && pairs.clone().all(|(key, value)| labels.get(key) == Some(value))
        && items(selector, "/matchExpressions").iter().all(one)
}

/// A selector that is there, but picks everything.
fn is_empty(selector: &Value) -> bool {
    selector.is_object()
        && selector["matchLabels"].as_object().is_none_or(Map::is_empty)
        && selector["matchExpressions"].as_array().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(errors: Vec<FieldError>) -> Vec<String> {
        errors.into_iter().map(|it| it.field).collect()
    }

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

    #[test]
    fn a_workload_selects_the_pods_it_makes_and_keeps_its_selector() {
        let make = |selector: Value| {
            json!({"spec": {"selector": selector, "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "a", "image": "1"}]},
            }}})
        };
        let good = make(json!({"matchLabels": {"app": "a"}}));
        assert!(validate_deployment(&good, Some(&good)).is_empty());
        let labels = "spec.template.metadata.labels";
        let other = make(json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}));
        assert_eq!(fields(validate_deployment(&other, None)), [labels]);
        assert_eq!(fields(validate_deployment(&make(Value::Null), None)), ["spec.selector", labels]);
        assert_eq!(fields(validate_deployment(&make(json!({})), None)), ["spec.selector"]);
        let wider = make(json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}));
        assert_eq!(fields(validate_replica_set(&wider, Some(&good))), ["spec.selector"]);
    }

    #[test]
    fn the_pods_of_a_job_end() {
        let job = |policy: &str| {
            let spec = json!({"restartPolicy": policy, "containers": [{"name": "a", "image": "1"}]});
            json!({"spec": {"template": {"spec": spec}}})
        };
        assert!(validate_job(&job("Never"), None).is_empty());
        assert_eq!(fields(validate_job(&job("Always"), None)), ["spec.template.spec.restartPolicy"]);
        assert_eq!(fields(validate_job(&job("Never"), Some(&job("OnFailure")))), ["spec.template"]);
    }
}
