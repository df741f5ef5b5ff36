//! Conversion of autoscalers between `autoscaling/v2`, which is stored, and `autoscaling/v1`.
//!
//! `v1` has one CPU percentage instead of a list of metrics. Other fields of `v2` are in the
//! annotations that the real server uses, so that conversion loses nothing. Unlike there, their
//! JSON is that of `v2`.

use serde_json::{Map, Value, json};

/// Fields that `v1` has in annotations: part, field and annotation.
const ANNOTATED_FIELDS: &[(&str, &str, &str)] = &[
    ("spec", "metrics", "autoscaling.alpha.kubernetes.io/metrics"),
    (
        "spec",
        "behavior",
        "autoscaling.alpha.kubernetes.io/behavior",
    ),
    (
        "status",
        "currentMetrics",
        "autoscaling.alpha.kubernetes.io/current-metrics",
    ),
    (
        "status",
        "conditions",
        "autoscaling.alpha.kubernetes.io/conditions",
    ),
];

/// Lists of metrics: part, field of `v2`, field of `v1` with the CPU percentage, and field of a
/// metric with its value.
const CPU_PERCENTAGES: &[(&str, &str, &str, &str)] = &[
    (
        "spec",
        "metrics",
        "targetCPUUtilizationPercentage",
        "target",
    ),
    (
        "status",
        "currentMetrics",
        "currentCPUUtilizationPercentage",
        "current",
    ),
];

/// Converts a stored autoscaler to `autoscaling/v1`.
pub(super) fn to_view(mut stored: Value) -> Value {
    for (part, list, percentage_field, value_field) in CPU_PERCENTAGES {
        let percentage = |metric: &Value| {
            let is_cpu = metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
            is_cpu
                .then(|| {
                    metric["resource"][*value_field]
                        .get("averageUtilization")
                        .cloned()
                })
                .flatten()
        };
        let Some(part) = stored.get_mut(part).and_then(Value::as_object_mut) else {
            continue;
        };
        let Some(metrics) = part.get_mut(*list).and_then(Value::as_array_mut) else {
            continue;
        };
        let found = metrics
            .iter()
            .enumerate()
            .find_map(|(index, metric)| Some((index, percentage(metric)?)));
        if let Some((index, found)) = found {
            metrics.remove(index);
            part.insert((*percentage_field).into(), found);
        }
    }
    for (part, field, annotation) in ANNOTATED_FIELDS {
        let removed = stored
            .get_mut(part)
            .and_then(Value::as_object_mut)
            .and_then(|part| part.remove(*field));
        let removed =
            removed.filter(|it| !it.is_null() && it.as_array().is_none_or(|list| !list.is_empty()));
        if let Some(removed) = removed
            && let Some(annotations) = stored
                .get_mut("metadata")
                .and_then(|it| map(it, "annotations"))
        {
            annotations.insert((*annotation).into(), removed.to_string().into());
        }
    }
    // Only `v1` includes a zero.
    if let Some(status) = stored.get_mut("status").and_then(Value::as_object_mut) {
        status.entry("currentReplicas").or_insert(json!(0));
    }
    with_version(stored, "autoscaling/v1")
}

/// Converts an autoscaler of `autoscaling/v1` to its stored form.
pub(super) fn from_view(mut served: Value) -> Value {
    for (part, field, annotation) in ANNOTATED_FIELDS {
        let annotations = served
            .pointer_mut("/metadata/annotations")
            .and_then(Value::as_object_mut);
        let restored = annotations.and_then(|annotations| annotations.remove(*annotation));
        let restored = restored.and_then(|text| serde_json::from_str(text.as_str()?).ok());
        if let Some(restored) = restored
            && let Some(part) = map(&mut served, part)
        {
            part.insert((*field).into(), restored);
        }
    }
    for (part, list, percentage_field, value_field) in CPU_PERCENTAGES {
        let found = served
            .get_mut(part)
            .and_then(Value::as_object_mut)
            .and_then(|part| part.remove(*percentage_field));
        if let Some(found) = found
            && let Some(part) = map(&mut served, part)
        {
            let mut value = json!({"averageUtilization": found});
            if *value_field == "target" {
                value["type"] = "Utilization".into();
            }
            let metrics = part.entry(*list).or_insert_with(|| json!([]));
            if let Some(metrics) = metrics.as_array_mut() {
                metrics.insert(
                    0,
                    json!({"type": "Resource", "resource": {"name": "cpu", *value_field: value}}),
                );
            }
        }
    }
    if let Some(status) = served.get_mut("status").and_then(Value::as_object_mut) {
        status.retain(|field, value| field != "currentReplicas" || *value != 0);
        status.entry("currentMetrics").or_insert(Value::Null);
    }
    if served
        .pointer("/metadata/annotations")
        .and_then(Value::as_object)
        .is_some_and(Map::is_empty)
        && let Some(metadata) = map(&mut served, "metadata")
    {
        metadata.remove("annotations");
    }
    with_version(served, "autoscaling/v2")
}

/// Returns the map under a key and creates it if it is missing.
fn map<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    value
        .as_object_mut()?
        .entry(key)
        .or_insert_with(|| json!({}))
        .as_object_mut()
}

/// Sets the apiVersion, which items of lists do not have.
fn with_version(mut object: Value, version: &str) -> Value {
    if let Some(served) = object.get_mut("apiVersion") {
        *served = version.into();
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_metric_is_the_percentage_field_of_v1() {
        let stored = json!({
            "apiVersion": "autoscaling/v2", "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60},
            }}]},
        });
        let served = json!({
            "apiVersion": "autoscaling/v1", "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 60},
        });
        assert_eq!(to_view(stored.clone()), served);
        assert_eq!(from_view(served), stored);
    }

    #[test]
    fn conversion_to_v1_and_back_preserves_all_fields() {
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
        let served = to_view(stored.clone());
        assert_eq!(
            served["spec"],
            json!({"targetCPUUtilizationPercentage": 60})
        );
        assert_eq!(
            served["status"],
            json!({"currentCPUUtilizationPercentage": 5, "currentReplicas": 0})
        );
        assert_eq!(
            served["metadata"]["annotations"].as_object().map(Map::len),
            Some(3)
        );
        assert_eq!(from_view(served), stored);
    }
}
