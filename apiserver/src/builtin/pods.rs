//! Pods: what the server fills in, and what it refuses. Defaults of containers and volumes are not here yet.

use super::cells::items;
use super::prepare::fill;
use super::validate::at;
use crate::status::FieldError;
use serde_json::{Value, json};

pub(super) fn prepare(object: &mut Value, old: Option<&Value>) {
    fill(object, "spec.restartPolicy", "Always");
    fill(object, "spec.dnsPolicy", "ClusterFirst");
    fill(object, "spec.schedulerName", "default-scheduler");
    fill(object, "spec.terminationGracePeriodSeconds", 30);
    fill(object, "spec.enableServiceLinks", true);
    fill(object, "spec.securityContext", json!({}));
    if old.is_none() {
        fill(object, "status.phase", "Pending");
        let class = quality_of_service(object);
        fill(object, "status.qosClass", class);
    }
}

/// How long a pod is given to end: nothing, if it runs nowhere.
pub(super) fn grace(pod: &Value) -> u64 {
    let text = |pointer| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if text("/spec/nodeName").is_empty() || matches!(text("/status/phase"), "Succeeded" | "Failed") {
        return 0;
    }
    let wanted = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
    // A negative period means as short as can be.
    u64::try_from(wanted).unwrap_or(1)
}

/// `Guaranteed` if every container is limited in both resources and asks for as much; `BestEffort` if none asks.
fn quality_of_service(pod: &Value) -> &'static str {
    let containers = || items(pod, "/spec/containers").iter().chain(items(pod, "/spec/initContainers"));
    let amount = |container: &Value, list: &str, resource: &str| {
        let amount = container.get("resources")?.get(list)?.get(resource)?;
        (!matches!(amount.as_str(), Some("0"))).then(|| amount.clone())
    };
    let each = || containers().flat_map(|it| ["cpu", "memory"].map(|resource| (it, resource)));
    let asked: Vec<_> =
        each().map(|(it, resource)| (amount(it, "requests", resource), amount(it, "limits", resource))).collect();
    let guaranteed = |(requests, limits): &(Option<Value>, Option<Value>)| {
        limits.is_some() && requests.as_ref().is_none_or(|requests| Some(requests) == limits.as_ref())
    };
    match &asked[..] {
        all if all.iter().all(|(requests, limits)| requests.is_none() && limits.is_none()) => "BestEffort",
        all if all.iter().all(guaranteed) => "Guaranteed",
        _ => "Burstable",
    }
}

/// A pod is refused without containers; afterwards little of it may change.
pub(super) fn validate(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = bad_containers(object, "spec.containers");
    let Some(old) = old else { return errors };
    for field in ["containers", "initContainers"] {
        let count = |pod: &Value| pod["spec"][field].as_array().map_or(0, Vec::len);
        if count(object) != count(old) {
            let field = format!("spec.{field}");
            errors.push(FieldError::forbidden(field, "pod updates may not add or remove containers"));
            return errors;
        }
    }
    let tolerations = |pod: &Value| items(pod, "/spec/tolerations").to_vec();
    let added = tolerations(object);
    if !tolerations(old).iter().all(|kept| added.contains(kept)) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", why));
    }
    if fixed(object) != fixed(old) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,\
            `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
            `spec.tolerations` (only additions to existing tolerations),\
            `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        errors.push(FieldError::forbidden("spec", why));
    }
    errors
}

/// What of a pod's spec never changes. What it has or not (`null`, missing) is the same.
fn fixed(pod: &Value) -> Value {
    let mut spec = pod["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        let free = ["activeDeadlineSeconds", "schedulingGates", "tolerations"];
        spec.retain(|key, value| !free.contains(&key.as_str()) && !value.is_null());
    }
    for list in ["/containers", "/initContainers"] {
        let containers = spec.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            container.remove("image");
        }
    }
    spec
}

/// What every container must have, for the list at a dotted path.
pub(super) fn bad_containers(object: &Value, path: &str) -> Vec<FieldError> {
    let containers = at(object, path).as_array().map_or(&[][..], Vec::as_slice);
    if containers.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let missing = |(index, container): (usize, &Value)| {
        let missing =
            ["name", "image"].into_iter().filter(|key| container[key].as_str().unwrap_or_default().is_empty());
        missing.map(|key| FieldError::required(format!("{path}[{index}].{key}"), "")).collect::<Vec<_>>()
    };
    containers.iter().enumerate().flat_map(missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(errors: Vec<FieldError>) -> Vec<String> {
        errors.into_iter().map(|it| it.field).collect()
    }

    #[test]
    fn only_a_pod_that_runs_somewhere_is_given_time() {
        let given = |node: &str, phase: &str, seconds: i64| {
            grace(&json!({
                "spec": {"nodeName": node, "terminationGracePeriodSeconds": seconds}, "status": {"phase": phase},
            }))
        };
        assert_eq!(given("n", "Running", 45), 45);
        assert_eq!(given("", "Pending", 45), 0);
        assert_eq!(given("n", "Succeeded", 45), 0);
        assert_eq!(given("n", "Running", -1), 1);
        assert_eq!(grace(&json!({"spec": {"nodeName": "n"}})), 30);
    }

    #[test]
    fn a_pod_begins_pending_in_the_class_of_its_resources() {
        let class = |containers: Value| {
            let mut object = json!({"spec": {"containers": containers}});
            prepare(&mut object, None);
            assert_eq!(object["status"]["phase"], "Pending");
            object["status"]["qosClass"].take()
        };
        let limits = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(class(json!([{}])), "BestEffort");
        assert_eq!(class(json!([{"resources": {"limits": limits}}])), "Guaranteed");
        assert_eq!(class(json!([{"resources": {"limits": limits, "requests": {"cpu": "0.5"}}}])), "Burstable");
        assert_eq!(class(json!([{"resources": {"limits": limits}}, {}])), "Burstable");
    }

    #[test]
    fn of_a_pod_s_spec_images_may_change_and_little_else() {
        let old = json!({"spec": {"nodeName": "n", "containers": [{"name": "a", "image": "1"}]}});
        let mut new = old.clone();
        new["spec"]["containers"][0]["image"] = json!("2");
        new["spec"]["tolerations"] = json!([{"key": "k"}]);
        assert!(validate(&new, Some(&old)).is_empty());
        assert_eq!(fields(validate(&old, Some(&new))), ["spec.tolerations"]);
        new["spec"]["nodeName"] = json!("m");
        assert_eq!(fields(validate(&new, Some(&old))), ["spec"]);
        new["spec"]["containers"] = json!([{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]);
        assert_eq!(fields(validate(&new, Some(&old))), ["spec.containers"]);
    }

    #[test]
    fn containers_are_there_and_have_names_and_images() {
        assert_eq!(fields(validate(&json!({"spec": {}}), None)), ["spec.containers"]);
        let errors = validate(&json!({"spec": {"containers": [{"name": "a"}]}}), None);
        assert_eq!(fields(errors), ["spec.containers[0].image"]);
    }
}
