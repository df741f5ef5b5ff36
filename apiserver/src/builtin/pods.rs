//! Pods: fields that the server sets, and validation of updates. `pod_checks` validates the spec.

use super::cells::{items, text};
use super::pod_checks;
use super::prepare::{list, set, set_default};
use super::validate::at;
use crate::schema::quantity::{self, Quantity};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Value, json};
use std::collections::HashSet;

/// Built-in priority classes.
const SYSTEM_CLASSES: &[(&str, i64)] = &[
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];

pub(super) fn prepare(object: &mut Value, old: Option<&Value>) {
    set_default(object, "spec.enableServiceLinks", true);
    if object["spec"]["terminationGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds < 0)
    {
        set(object, "spec.terminationGracePeriodSeconds", 1);
    }
    let on_host = object["spec"]["hostNetwork"] == true;
    for containers in ["/spec/containers", "/spec/initContainers"] {
        for container in list(object, containers) {
            default_requests_to_limits(container);
            for port in list(container, "/ports").filter(|_| on_host) {
                let number = port["containerPort"].clone();
                set_default(port, "hostPort", number);
            }
        }
    }
    add_default_tolerations(object);
    for field in ["spec.priority", "spec.preemptionPolicy"] {
        if let Some(before) = old
            .map(|old| at(old, field))
            .filter(|before| !before.is_null())
        {
            set_default(object, field, before.clone());
        }
    }
    if old.is_none() {
        set_default(object, "status.phase", "Pending");
        let class = qos_class(object);
        set_default(object, "status.qosClass", class);
    }
}

/// Sets missing requests to the limits.
fn default_requests_to_limits(container: &mut Value) {
    let Some(Value::Object(limits)) = container.pointer("/resources/limits").cloned() else {
        return;
    };
    set_default(container, "resources.requests", json!({}));
    if let Some(requests) = container
        .pointer_mut("/resources/requests")
        .and_then(Value::as_object_mut)
    {
        for (resource, amount) in limits {
            requests.entry(resource).or_insert(amount);
        }
    }
}

/// Adds tolerations that keep a pod on a lost node for five minutes, unless it has its own.
fn add_default_tolerations(pod: &mut Value) {
    if !pod["spec"].is_object() {
        return;
    }
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let tolerates = |it: &Value| {
            matches!(
                text(it, "/key"),
                "" | "node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable"
            ) && (text(it, "/key") == key || text(it, "/key").is_empty())
                && matches!(text(it, "/effect"), "" | "NoExecute")
        };
        if !items(pod, "/spec/tolerations").iter().any(tolerates) {
            let added = json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
            set_default(pod, "spec.tolerations", json!([]));
            if let Some(all) = pod
                .pointer_mut("/spec/tolerations")
                .and_then(Value::as_array_mut)
            {
                all.push(added);
            }
        }
    }
}

/// Sets the priority of a new pod from its priority class.
pub(super) fn set_priority(pod: &mut Value, classes: &[Value]) -> Result<(), String> {
    let named = text(pod, "/spec/priorityClassName").to_owned();
    let class = match named.as_str() {
        "" => classes
            .iter()
            .find(|class| class["globalDefault"] == true)
            .cloned(),
        name => {
            let system = SYSTEM_CLASSES.iter().find(|(system, _)| *system == name);
            let system =
                || system.map(|(name, value)| json!({"metadata": {"name": name}, "value": value}));
            let class = classes
                .iter()
                .find(|class| text(class, "/metadata/name") == name)
                .cloned()
                .or_else(system);
            Some(class.ok_or_else(|| format!("no PriorityClass with name {name} was found"))?)
        }
    };
    let value = class
        .as_ref()
        .map_or(json!(0), |class| class["value"].clone());
    let given = &pod["spec"]["priority"];
    if !given.is_null() && *given != value {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; \
             priority admission controller computed {value} from the given PriorityClass name"
        ));
    }
    set(pod, "spec.priority", value);
    if let Some(class) = &class {
        set(pod, "spec.priorityClassName", text(class, "/metadata/name"));
    }
    let policy = class
        .as_ref()
        .map_or("", |class| text(class, "/preemptionPolicy"));
    set_default(
        pod,
        "spec.preemptionPolicy",
        if policy.is_empty() {
            "PreemptLowerPriority"
        } else {
            policy
        },
    );
    Ok(())
}

/// Returns the grace period of a pod in seconds; 0 if it does not run on a node.
pub(super) fn grace(pod: &Value) -> u64 {
    let text = |pointer| {
        pod.pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    if text("/spec/nodeName").is_empty() || matches!(text("/status/phase"), "Succeeded" | "Failed")
    {
        return 0;
    }
    let seconds = pod
        .pointer("/spec/terminationGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(30);
    // A negative period means the shortest one.
    u64::try_from(seconds).unwrap_or(1)
}

/// Returns the quality-of-service class: `Guaranteed` if every container has limits for both
/// resources and equal requests, `BestEffort` if none has any.
fn qos_class(pod: &Value) -> &'static str {
    let containers = || {
        items(pod, "/spec/containers")
            .iter()
            .chain(items(pod, "/spec/initContainers"))
    };
    let amount = |container: &Value, list: &str, resource: &str| {
        let amount = container.get("resources")?.get(list)?.get(resource)?;
        quantity::from_value(amount).filter(|amount| !amount.is_zero())
    };
    let each = || containers().flat_map(|it| ["cpu", "memory"].map(|resource| (it, resource)));
    let amounts: Vec<_> = each()
        .map(|(it, resource)| {
            (
                amount(it, "requests", resource),
                amount(it, "limits", resource),
            )
        })
        .collect();
    let guaranteed = |(requests, limits): &(Option<Quantity>, Option<Quantity>)| {
        limits.is_some()
            && requests.is_none_or(|it| limits.is_some_and(|limit| it.is_equal_amount(limit)))
    };
    match &amounts[..] {
        all if all
            .iter()
            .all(|(requests, limits)| requests.is_none() && limits.is_none()) =>
        {
            "BestEffort"
        }
        all if all.iter().all(guaranteed) => "Guaranteed",
        _ => "Burstable",
    }
}

/// Validates a pod. Only a few fields can change in an update.
pub(super) fn validate(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = pod_checks::spec(object, "spec");
    let Some(old) = old else {
        errors.extend(pod_checks::tokens(object));
        return errors;
    };
    for field in ["containers", "initContainers"] {
        let count = |pod: &Value| pod["spec"][field].as_array().map_or(0, Vec::len);
        if count(object) != count(old) {
            let field = format!("spec.{field}");
            errors.push(FieldError::forbidden(
                field,
                "pod updates may not add or remove containers",
            ));
            return errors;
        }
    }
    let tolerations = |pod: &Value| -> HashSet<String> {
        items(pod, "/spec/tolerations")
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    if !tolerations(old).is_subset(&tolerations(object)) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", why));
    }
    let deadline = |pod: &Value| pod["spec"]["activeDeadlineSeconds"].as_i64();
    if let (Some(new), Some(before)) = (deadline(object), deadline(old))
        && new > before
    {
        let why = "must be less than or equal to previous value";
        errors.push(FieldError::invalid(
            "spec.activeDeadlineSeconds",
            &json!(new),
            why,
        ));
        return errors;
    }
    if immutable_spec(object) != immutable_spec(old) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,\
            `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
            `spec.tolerations` (only additions to existing tolerations),\
            `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        errors.push(FieldError::forbidden("spec", why));
    }
    errors
}

/// Returns the fields of a pod's spec that are immutable, without nulls.
fn immutable_spec(pod: &Value) -> Value {
    let mut spec = pod["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        let mutable = ["activeDeadlineSeconds", "schedulingGates", "tolerations"];
        spec.retain(|key, value| !mutable.contains(&key.as_str()) && !value.is_null());
    }
    for list in ["/containers", "/initContainers"] {
        let containers = spec
            .pointer_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            container.remove("image");
        }
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(errors: FieldErrors) -> Vec<String> {
        errors.into_iter().map(|it| it.field).collect()
    }

    #[test]
    fn only_a_running_pod_has_a_grace_period() {
        let period = |node: &str, phase: &str, seconds: i64| {
            grace(&json!({
                "spec": {"nodeName": node, "terminationGracePeriodSeconds": seconds}, "status": {"phase": phase},
            }))
        };
        assert_eq!(period("n", "Running", 45), 45);
        assert_eq!(period("", "Pending", 45), 0);
        assert_eq!(period("n", "Succeeded", 45), 0);
        assert_eq!(period("n", "Running", -1), 1);
        assert_eq!(grace(&json!({"spec": {"nodeName": "n"}})), 30);
    }

    #[test]
    fn a_new_pod_is_pending_and_has_the_qos_class_of_its_resources() {
        let class = |containers: Value| {
            let mut object = json!({"spec": {"containers": containers}});
            prepare(&mut object, None);
            assert_eq!(object["status"]["phase"], "Pending");
            object["status"]["qosClass"].take()
        };
        let limits = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(class(json!([{}])), "BestEffort");
        assert_eq!(
            class(json!([{"resources": {"limits": limits}}])),
            "Guaranteed"
        );
        assert_eq!(
            class(json!([{"resources": {"limits": limits, "requests": {"cpu": "0.5"}}}])),
            "Burstable"
        );
        assert_eq!(
            class(json!([{"resources": {"limits": limits}}, {}])),
            "Burstable"
        );
    }

    #[test]
    fn an_update_of_a_pod_can_change_images_and_add_tolerations() {
        let container =
            |name: &str| json!({"name": name, "image": "1", "imagePullPolicy": "Never"});
        let old = json!({"spec": {
            "nodeName": "n", "restartPolicy": "Always", "dnsPolicy": "Default", "containers": [container("a")],
        }});
        let mut new = old.clone();
        new["spec"]["containers"][0]["image"] = json!("2");
        new["spec"]["tolerations"] = json!([{"key": "k"}]);
        assert!(validate(&new, Some(&old)).is_empty());
        assert_eq!(fields(validate(&old, Some(&new))), ["spec.tolerations"]);
        new["spec"]["nodeName"] = json!("m");
        assert_eq!(fields(validate(&new, Some(&old))), ["spec"]);
        new["spec"]["containers"] = json!([container("a"), container("b")]);
        assert_eq!(fields(validate(&new, Some(&old))), ["spec.containers"]);
    }
}
