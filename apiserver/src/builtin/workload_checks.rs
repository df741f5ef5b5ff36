//! Validation of workloads.

use super::cells::{items, text};
use super::pod_checks;
use super::prepare::list;
use super::validate::{at, count_or_percentage, immutable, label_selector, not_negative, one_of};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Map, Value, json};

/// Names of the IANA time zones.
const TIME_ZONES: &str = include_str!("time_zones.txt");

pub(super) fn replication_controller(object: &Value, _: Option<&Value>) -> FieldErrors {
    let selector = at(object, "spec.selector");
    let mut errors: FieldErrors = not_negative(object, "spec.replicas").into_iter().collect();
    if selector.as_object().is_none_or(Map::is_empty) {
        errors.push(FieldError::required("spec.selector", ""));
    }
    errors.extend(template(
        object,
        &json!({"matchLabels": selector}),
        "ReplicationController",
    ));
    errors
}

pub(super) fn deployment(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors: FieldErrors = not_negative(object, "spec.replicas").into_iter().collect();
    errors.extend(selector_and_template(object, "deployment", "ReplicaSet"));
    errors.extend(strategy(object));
    let counts = [
        "spec.minReadySeconds",
        "spec.revisionHistoryLimit",
        "spec.progressDeadlineSeconds",
    ];
    errors.extend(counts.iter().filter_map(|path| not_negative(object, path)));
    let deadline = at(object, "spec.progressDeadlineSeconds");
    let ready = at(object, "spec.minReadySeconds");
    if deadline
        .as_i64()
        .is_some_and(|seconds| seconds >= 0 && seconds <= ready.as_i64().unwrap_or_default())
    {
        let why = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid(
            "spec.progressDeadlineSeconds",
            deadline,
            why,
        ));
    }
    errors.extend(immutable(object, old, "spec.selector"));
    errors
}

fn strategy(object: &Value) -> FieldErrors {
    let strategy = at(object, "spec.strategy");
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "/type") {
        "Recreate" if rolling.is_null() => FieldErrors::new(),
        "Recreate" => {
            let why = "may not be specified when strategy `type` is 'Recreate'";
            FieldError::forbidden("spec.strategy.rollingUpdate", why).into()
        }
        "RollingUpdate" => {
            let unavailable = "spec.strategy.rollingUpdate.maxUnavailable";
            let surge = "spec.strategy.rollingUpdate.maxSurge";
            let mut errors: FieldErrors = [unavailable, surge]
                .iter()
                .filter_map(|path| count_or_percentage(object, path))
                .collect();
            let none = |value: &Value| *value == 0 || value == "0%";
            if none(at(object, unavailable)) && none(at(object, surge)) {
                let why = "may not be 0 when `maxSurge` is 0";
                errors.push(FieldError::invalid(
                    unavailable,
                    at(object, unavailable),
                    why,
                ));
            }
            errors
        }
        other => {
            let formatted = format!(r#"{{"Type":{},"RollingUpdate":null}}"#, json!(other));
            FieldError::not_supported_formatted(
                "spec.strategy",
                &formatted,
                &["Recreate", "RollingUpdate"],
            )
            .into()
        }
    }
}

pub(super) fn replica_set(object: &Value, old: Option<&Value>) -> FieldErrors {
    let counts = ["spec.replicas", "spec.minReadySeconds"];
    let mut errors: FieldErrors = counts
        .iter()
        .filter_map(|path| not_negative(object, path))
        .collect();
    errors.extend(selector_and_template(object, "replicaset", "ReplicaSet"));
    errors.extend(immutable(object, old, "spec.selector"));
    errors
}

pub(super) fn daemon_set(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = selector_and_template(object, "daemonset", "DaemonSet");
    let counts = ["spec.minReadySeconds", "spec.revisionHistoryLimit"];
    errors.extend(counts.iter().filter_map(|path| not_negative(object, path)));
    errors.extend(immutable(object, old, "spec.selector"));
    errors
}

pub(super) fn stateful_set(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let policy = at(object, "spec.podManagementPolicy");
    if !matches!(policy.as_str(), Some("OrderedReady" | "Parallel")) {
        let why = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid("spec.podManagementPolicy", policy, why));
    }
    let kind = at(object, "spec.updateStrategy.type");
    if !matches!(kind.as_str(), Some("RollingUpdate" | "OnDelete")) {
        let formatted = format!(r#"{{"Type":{kind},"RollingUpdate":null}}"#);
        let why = "must be 'RollingUpdate' or 'OnDelete'";
        errors.push(FieldError::invalid_formatted(
            "spec.updateStrategy",
            &formatted,
            why,
        ));
    }
    let counts = [
        "spec.replicas",
        "spec.minReadySeconds",
        "spec.revisionHistoryLimit",
    ];
    errors.extend(counts.iter().filter_map(|path| not_negative(object, path)));
    errors.extend(selector_and_template(object, "statefulset", "StatefulSet"));
    let immutable_paths = [
        "spec.selector",
        "spec.volumeClaimTemplates",
        "spec.serviceName",
        "spec.podManagementPolicy",
    ];
    errors.extend(
        immutable_paths
            .iter()
            .filter_map(|path| immutable(object, old, path)),
    );
    errors
}

/// Checks that a workload has a selector that matches its template.
fn selector_and_template(object: &Value, kind: &str, workload: &str) -> FieldErrors {
    let selector = at(object, "spec.selector");
    let mut errors = FieldErrors::new();
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else if is_empty(selector) {
        let why = format!("empty selector is invalid for {kind}");
        errors.push(FieldError::invalid("spec.selector", selector, why));
    }
    let selector_errors = label_selector(selector, "spec.selector");
    if selector_errors.is_empty() {
        errors.extend(template(object, selector, workload));
    } else {
        errors.extend(selector_errors);
        errors.push(FieldError::invalid(
            "spec.selector",
            selector,
            "invalid label selector",
        ));
    }
    errors
}

/// Validates a pod template. The selector matches it and its pods always restart.
fn template(object: &Value, selector: &Value, workload: &str) -> FieldErrors {
    let labels = at(object, "spec.template.metadata.labels");
    let mut errors = FieldErrors::new();
    if !matches(selector, labels) {
        let why = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            labels,
            why,
        ));
    }
    errors.extend(pod_checks::spec(object, "spec.template.spec"));
    let policy = at(object, "spec.template.spec.restartPolicy");
    if matches!(policy.as_str(), Some("OnFailure" | "Never")) {
        errors.push(FieldError::not_supported(
            "spec.template.spec.restartPolicy",
            policy,
            ["Always"],
        ));
    }
    if !at(object, "spec.template.spec.activeDeadlineSeconds").is_null() {
        let why = format!("activeDeadlineSeconds in {workload} is not Supported");
        errors.push(FieldError::forbidden(
            "spec.template.spec.activeDeadlineSeconds",
            why,
        ));
    }
    errors
}

pub(super) fn job(object: &Value, old: Option<&Value>) -> FieldErrors {
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
    ];
    let mut errors: FieldErrors = counts
        .iter()
        .filter_map(|count| not_negative(object, &format!("spec.{count}")))
        .collect();
    if text(object, "/spec/completionMode") == "Indexed" && at(object, "spec.completions").is_null()
    {
        errors.push(FieldError::required(
            "spec.completions",
            "when completion mode is Indexed",
        ));
    }
    let generated =
        json!({"matchLabels": {"batch.kubernetes.io/controller-uid": object["metadata"]["uid"]}});
    let selector = at(object, "spec.selector");
    if old.is_none() && object["spec"]["manualSelector"] != true && *selector != generated {
        errors.push(FieldError::invalid(
            "spec.selector",
            selector,
            "`selector` not auto-generated",
        ));
    }
    errors.extend(job_template(object, "spec.template"));
    if text(object, "/spec/completionMode") != "Indexed" {
        errors.extend(immutable(object, old, "spec.completions"));
    }
    let immutable_paths = [
        "spec.selector",
        "spec.completionMode",
        "spec.podFailurePolicy",
        "spec.backoffLimitPerIndex",
    ];
    errors.extend(
        immutable_paths
            .iter()
            .filter_map(|path| immutable(object, old, path)),
    );
    // The scheduling of a suspended job can change.
    if object["spec"]["suspend"] == true {
        let spec = at(object, "spec.template.spec");
        if old.is_some_and(|old| {
            without_scheduling(at(old, "spec.template.spec")) != without_scheduling(spec)
        }) {
            errors.push(FieldError::invalid(
                "spec.template.spec",
                spec,
                "field is immutable",
            ));
        }
    } else {
        errors.extend(immutable(object, old, "spec.template"));
    }
    errors
}

/// Returns a pod spec without the fields about scheduling and resources.
fn without_scheduling(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(spec) = spec.as_object_mut() {
        let mutable = ["affinity", "nodeSelector", "schedulingGates", "tolerations"];
        spec.retain(|field, _| !mutable.contains(&field.as_str()));
    }
    for container in list(&mut spec, "/containers").filter_map(Value::as_object_mut) {
        container.remove("resources");
    }
    spec
}

pub(super) fn cron_job(object: &Value, _: Option<&Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if text(object, "/metadata/name").len() > 52 {
        let name = at(object, "metadata.name");
        errors.push(FieldError::invalid(
            "metadata.name",
            name,
            "must be no more than 52 characters",
        ));
    }
    if text(object, "/spec/schedule").is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    }
    let zone = at(object, "spec.timeZone");
    let why = match zone.as_str() {
        None => None,
        Some("") => Some("timeZone must be nil or non-empty string".into()),
        Some(name) => (!TIME_ZONES.lines().any(|known| known == name))
            .then(|| format!("unknown time zone {name}")),
    };
    errors.extend(why.map(|why: String| FieldError::invalid("spec.timeZone", zone, why)));
    errors.extend(not_negative(object, "spec.startingDeadlineSeconds"));
    errors.extend(one_of(
        object,
        "spec.concurrencyPolicy",
        &["Allow", "Forbid", "Replace"],
    ));
    errors.extend(job_template(object, "spec.jobTemplate.spec.template"));
    let limits = [
        "spec.successfulJobsHistoryLimit",
        "spec.failedJobsHistoryLimit",
    ];
    errors.extend(limits.iter().filter_map(|path| not_negative(object, path)));
    errors
}

fn job_template(object: &Value, path: &str) -> FieldErrors {
    let mut errors = pod_checks::spec(object, &format!("{path}.spec"));
    let policy = format!("{path}.spec.restartPolicy");
    match at(object, &policy).as_str() {
        None | Some("" | "Always") => {
            errors.push(FieldError::required(
                policy,
                r#"valid values: "OnFailure", "Never""#,
            ));
        }
        Some(_) => {}
    }
    errors
}

/// Checks that no more replicas are ready, updated or available than exist.
pub(super) fn replicas(object: &Value) -> FieldErrors {
    let counts: &[&str] = match object["kind"].as_str() {
        Some("Deployment") => &["updatedReplicas", "readyReplicas", "availableReplicas"],
        _ => &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    };
    let number = |count: &str| object["status"][count].as_i64().unwrap_or_default();
    let all = ["replicas"].iter().chain(counts);
    let mut errors: FieldErrors = all
        .filter_map(|count| not_negative(object, &format!("status.{count}")))
        .collect();
    errors.extend(
        counts
            .iter()
            .filter(|count| number(count) > number("replicas"))
            .map(|count| {
                FieldError::invalid(
                    format!("status.{count}"),
                    &json!(number(count)),
                    "cannot be greater than status.replicas",
                )
            }),
    );
    errors
}

/// Reports whether a label selector matches the labels. A missing selector matches nothing.
fn matches(selector: &Value, labels: &Value) -> bool {
    let pairs = selector["matchLabels"].as_object().into_iter().flatten();
    let holds = |it: &Value| {
        let label = it["key"].as_str().and_then(|key| labels.get(key));
        let listed = label.is_some_and(|label| {
            it["values"]
                .as_array()
                .is_some_and(|values| values.contains(label))
        });
        match text(it, "/operator") {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => label.is_some(),
            _ => label.is_none(),
        }
    };
    selector.is_object()
        && pairs
            .clone()
            .all(|(key, value)| labels.get(key) == Some(value))
        && items(selector, "/matchExpressions").iter().all(holds)
}

/// Reports whether a selector exists and matches everything.
fn is_empty(selector: &Value) -> bool {
    selector.is_object()
        && selector["matchLabels"]
            .as_object()
            .is_none_or(Map::is_empty)
        && selector["matchExpressions"]
            .as_array()
            .is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(errors: FieldErrors) -> Vec<String> {
        errors.into_iter().map(|it| it.field).collect()
    }

    fn pods(restart: &str) -> Value {
        let container = json!({"name": "a", "image": "1", "imagePullPolicy": "Always"});
        json!({"restartPolicy": restart, "dnsPolicy": "Default", "containers": [container]})
    }

    #[test]
    fn a_workload_selects_its_template_and_its_selector_is_immutable() {
        let make = |selector: Value| {
            json!({"spec": {"selector": selector, "strategy": {"type": "Recreate"}, "template": {
                "metadata": {"labels": {"app": "a"}}, "spec": pods("Always"),
            }}})
        };
        let good = make(json!({"matchLabels": {"app": "a"}}));
        assert!(deployment(&good, Some(&good)).is_empty());
        let labels = "spec.template.metadata.labels";
        let other = make(
            json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}),
        );
        assert_eq!(fields(deployment(&other, None)), [labels]);
        assert_eq!(
            fields(deployment(&make(Value::Null), None)),
            ["spec.selector", labels]
        );
        assert_eq!(
            fields(deployment(&make(json!({})), None)),
            ["spec.selector"]
        );
        let wider = make(json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}));
        assert_eq!(fields(replica_set(&wider, Some(&good))), ["spec.selector"]);
    }

    #[test]
    fn the_restart_policy_of_a_job_is_not_always() {
        let made = |policy: &str| json!({"spec": {"manualSelector": true, "template": {"spec": pods(policy)}}});
        assert!(job(&made("Never"), None).is_empty());
        assert_eq!(
            fields(job(&made("Always"), None)),
            ["spec.template.spec.restartPolicy"]
        );
        assert_eq!(
            fields(job(&made("Never"), Some(&made("OnFailure")))),
            ["spec.template"]
        );
    }

    #[test]
    fn the_number_of_ready_replicas_is_limited_by_the_replicas() {
        let status = json!({"kind": "ReplicaSet", "status": {"replicas": 1, "readyReplicas": 2}});
        assert_eq!(fields(replicas(&status)), ["status.readyReplicas"]);
    }
}
