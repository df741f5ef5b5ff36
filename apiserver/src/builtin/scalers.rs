//! Autoscalers: stored as `autoscaling/v2`, whose list of metrics `v1` shows as one share of the CPU.
//!
//! What `v1` has no field for it carries in the annotations that the real server uses, so that nothing is lost on the
//! way there and back. Unlike there, their JSON is that of `v2`.

use serde_json::{Map, Value, json};

/// What `v1` carries in annotations: where it is stored, and under which name.
const CARRIED: &[(&str, &str, &str)] = &[
    ("spec", "metrics", "autoscaling.alpha.kubernetes.io/metrics"),
    ("spec", "behavior", "autoscaling.alpha.kubernetes.io/behavior"),
    ("status", "currentMetrics", "autoscaling.alpha.kubernetes.io/current-metrics"),
    ("status", "conditions", "autoscaling.alpha.kubernetes.io/conditions"),
];

/// Lists of metrics: where they are, the field of `v1` for the CPU's, and the field of a metric that holds its share.
const SHARES: &[(&str, &str, &str, &str)] = &[
    ("spec", "metrics", "targetCPUUtilizationPercentage", "target"),
    ("status", "currentMetrics", "currentCPUUtilizationPercentage", "current"),
];

/// A stored autoscaler as `autoscaling/v1` shows it.
pub(super) fn to_view(mut stored: Value) -> Value {
    for (part, list, share, within) in SHARES {
        let percentage = |metric: &Value| {
            let is_cpu = metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
            is_cpu.then(|| metric["resource"][*within].get("averageUtilization").cloned()).flatten()
        };
        let Some(part) = stored.get_mut(part).and_then(Value::as_object_mut) else { continue };
        let Some(metrics) = part.get_mut(*list).and_then(Value::as_array_mut) else { continue };
        let found = metrics.iter().enumerate().find_map(|(place, metric)| Some((place, percentage(metric)?)));
        if let Some((place, found)) = found {
            metrics.remove(place);
            part.insert((*share).into(), found);
        }
    }
    for (part, field, annotation) in CARRIED {
        let taken = stored.get_mut(part).and_then(Value::as_object_mut).and_then(|part| part.remove(*field));
        let taken = taken.filter(|it| !it.is_null() && it.as_array().is_none_or(|list| !list.is_empty()));
        if let Some(taken) = taken
            && let Some(annotations) = stored.get_mut("metadata").and_then(|it| map(it, "annotations"))
        {
            annotations.insert((*annotation).into(), taken.to_string().into());
        }
    }
    // Only this version shows it when it is zero.
    if let Some(status) = stored.get_mut("status").and_then(Value::as_object_mut) {
        status.entry("currentReplicas").or_insert(json!(0));
    }
    with_version(stored, "autoscaling/v1")
}

/// An autoscaler of `autoscaling/v1` as it is stored.
pub(super) fn from_view(mut shown: Value) -> Value {
    for (part, field, annotation) in CARRIED {
        let annotations = shown.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
        let carried = annotations.and_then(|annotations| annotations.remove(*annotation));
        let carried = carried.and_then(|text| serde_json::from_str(text.as_str()?).ok());
        if let Some(carried) = carried
            && let Some(part) = map(&mut shown, part)
        {
            part.insert((*field).into(), carried);
        }
    }
    for (part, list, share, within) in SHARES {
        let found = shown.get_mut(part).and_then(Value::as_object_mut).and_then(|part| part.remove(*share));
        if let Some(found) = found
            && let Some(part) = map(&mut shown, part)
        {
            let mut held = json!({"averageUtilization": found});
            if *within == "target" {
                held["type"] = "Utilization".into();
            }
            let metrics = part.entry(*list).or_insert_with(|| json!([]));
            if let Some(metrics) = metrics.as_array_mut() {
                metrics.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", *within: held}}));
            }
        }
    }
    if let Some(status) = shown.get_mut("status").and_then(Value::as_object_mut) {
        status.retain(|field, value| field != "currentReplicas" || *value != 0);
        status.entry("currentMetrics").or_insert(Value::Null);
    }
    if shown.pointer("/metadata/annotations").and_then(Value::as_object).is_some_and(Map::is_empty)
        && let Some(metadata) = map(&mut shown, "metadata")
    {
        metadata.remove("annotations");
    }
    with_version(shown, "autoscaling/v2")
}

/// The map under a key, made if it is not there.
fn map<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    value.as_object_mut()?.entry(key).or_insert_with(|| json!({})).as_object_mut()
}

/// Items of a list have no version.
fn with_version(mut object: Value, version: &str) -> Value {
    if let Some(shown) = object.get_mut("apiVersion") {
        *shown = version.into();
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_the_cpu_is_a_field_of_its_own() {
        let stored = json!({
            "apiVersion": "autoscaling/v2", "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60},
            }}]},
        });
        let shown = json!({
            "apiVersion": "autoscaling/v1", "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 60},
        });
        assert_eq!(to_view(stored.clone()), shown);
        assert_eq!(from_view(shown), stored);
    }

    #[test]
    fn what_the_older_version_cannot_say_comes_back() {
        let stored = json!({
            "metadata": {"name": "a"},
            "spec": {"metrics": [
                {"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60},
                }},
                {"type": "Pods", "pods": {"metric": {"name": "m"}}},
            ], "behavior": {"scaleDown": {}}},
            "status": {"currentMetrics": [{"type": "Resource", "resource": {
                "name": "cpu", "current": {"averageUtilization": 5},
            }}], "conditions": [{"type": "AbleToScale"}]},
        });
        let shown = to_view(stored.clone());
        assert_eq!(shown["spec"], json!({"targetCPUUtilizationPercentage": 60}));
        assert_eq!(shown["status"], json!({"currentCPUUtilizationPercentage": 5, "currentReplicas": 0}));
        assert_eq!(shown["metadata"]["annotations"].as_object().map(Map::len), Some(3));
        assert_eq!(from_view(shown), stored);
    }
}
