//! CRDs of the Cluster API kinds that controllers of this package read or write.

use super::{GROUP, VERSION};
use serde_json::{Map, Value, json};

/// Returns CRDs of `Cluster`, `Machine`, `MachineDeployment`, `MachineSet` and `MachinePool`.
///
/// Install them in a cluster in which Cluster API is not installed. The schema has the rules of
/// Cluster API for the fields that are read or written here, and preserves all other fields.
pub fn definitions() -> Vec<Value> {
    let mut definitions = vec![definition(
        "Cluster",
        "clusters",
        "cl",
        &cluster_spec(),
        &cluster_status(),
    )];
    definitions[0]["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    let kinds = [
        ("Machine", "machines", "ma"),
        ("MachineDeployment", "machinedeployments", "md"),
        ("MachineSet", "machinesets", "ms"),
        ("MachinePool", "machinepools", "mp"),
    ];
    definitions.extend(kinds.map(|(kind, plural, short)| {
        definition(kind, plural, short, &machine_spec(), &open(json!({})))
    }));
    definitions
}

fn definition(kind: &str, plural: &str, short: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": plural,
                "singular": kind.to_lowercase(),
                "shortNames": [short],
                "categories": ["cluster-api"],
            },
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "required": ["spec"],
                    "properties": {"spec": spec, "status": status},
                }},
            }],
        },
    })
}

/// Returns the schema of an object that preserves the fields which are not in `properties`.
fn open(properties: Value) -> Value {
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    schema.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
    schema.insert("properties".into(), properties);
    Value::Object(schema)
}

fn text(min: u32, max: u32) -> Value {
    let mut schema = json!({"type": "string", "maxLength": max});
    if min > 0 {
        schema["minLength"] = min.into();
    }
    schema
}

fn cluster_spec() -> Value {
    let mut topology = open(json!({
        "version": text(1, 256),
        "classRef": open(json!({"name": text(1, 253)})),
    }));
    topology["required"] = json!(["classRef", "version"]);
    topology["properties"]["classRef"]["required"] = json!(["name"]);
    let mut spec = open(json!({
        "paused": {"type": "boolean"},
        "controlPlaneEndpoint": {
            "type": "object",
            "minProperties": 1,
            "properties": {
                "host": text(1, 512),
                "port": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535},
            },
        },
        "controlPlaneRef": reference(),
        "infrastructureRef": reference(),
        "topology": topology,
    }));
    spec["minProperties"] = json!(1);
    spec
}

fn reference() -> Value {
    json!({
        "type": "object",
        "required": ["apiGroup", "kind", "name"],
        "properties": {"apiGroup": text(1, 253), "kind": text(1, 63), "name": text(1, 253)},
    })
}

fn cluster_status() -> Value {
    let flag = json!({"type": "boolean"});
    let mut status = open(json!({
        "conditions": conditions(),
        "initialization": {
            "type": "object",
            "minProperties": 1,
            "properties": {"infrastructureProvisioned": flag, "controlPlaneInitialized": flag},
        },
        "failureDomains": {
            "type": "array",
            "minItems": 1,
            "maxItems": 100,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": text(1, 256),
                    "controlPlane": flag,
                    "attributes": {
                        "type": "object", "additionalProperties": {"type": "string"},
                    },
                },
            },
        },
        "phase": {
            "type": "string",
            "enum": ["Pending", "Provisioning", "Provisioned", "Deleting", "Failed", "Unknown"],
        },
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 1},
        "deprecated": open(json!({"v1beta1": deprecated_status()})),
    }));
    status["minProperties"] = json!(1);
    status
}

/// Label key: a name, after an optional subdomain and a slash.
const CONDITION_TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";

/// Returns the schema of conditions.
pub(crate) fn conditions() -> Value {
    json!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {"type": "string", "maxLength": 316, "pattern": CONDITION_TYPE},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": text(0, 32768),
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            },
        },
    })
}

/// Returns the schema of conditions in the format of v1beta1.
pub(crate) fn deprecated_conditions() -> Value {
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "status", "type"],
            "properties": {
                "type": text(1, 256),
                "status": {"type": "string"},
                "severity": text(0, 32),
                "reason": text(1, 256),
                "message": text(1, 10240),
                "lastTransitionTime": {"type": "string", "format": "date-time"},
            },
        },
    })
}

fn deprecated_status() -> Value {
    open(json!({
        "conditions": deprecated_conditions(),
        "failureReason": {"type": "string"},
        "failureMessage": text(1, 10240),
    }))
}

fn machine_spec() -> Value {
    let mut spec = open(json!({"clusterName": text(1, 63)}));
    spec["required"] = json!(["clusterName"]);
    spec
}
