//! CRD of the kind `ExtensionConfig`.

use super::{ExtensionConfig, admission::DEFAULT_PORT};
use crate::cluster_api::{conditions_schema, deprecated_conditions_schema};
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Returns the CRD of the kind `ExtensionConfig`.
///
/// Its schema is that of Cluster API. It also has the defaults that Cluster API sets in a webhook.
/// Install it in a cluster in which Cluster API is not installed.
pub fn definitions() -> Vec<Value> {
    let mut crd = serde_json::to_value(ExtensionConfig::crd()).expect("a CRD serializes to JSON");
    crd["spec"]["names"]["listKind"] = "ExtensionConfigList".into();
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    remove_generated(schema);
    let spec = &mut schema["properties"]["spec"]["properties"];
    spec["clientConfig"]["properties"]["service"]["properties"]["port"]["default"] =
        DEFAULT_PORT.into();
    let selector = &mut spec["namespaceSelector"];
    selector["default"] = json!({});
    selector["x-kubernetes-map-type"] = "atomic".into();
    let expressions = &mut selector["properties"]["matchExpressions"];
    expressions["x-kubernetes-list-type"] = "atomic".into();
    expressions["items"]["properties"]["values"]["x-kubernetes-list-type"] = "atomic".into();
    vec![crd]
}

/// Removes titles, defaults and `nullable` that schemars adds, and writes bounds as integers.
///
/// The API server replaces `null` by a default only in fields that are not nullable.
fn remove_generated(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|key, _| !["nullable", "default", "title"].contains(&&**key));
            if let Some(minimum) = fields.get_mut("minimum")
                && let Some(bound) = minimum.as_f64()
            {
                *minimum = (bound as i64).into();
            }
            fields.values_mut().for_each(remove_generated);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_generated),
        _ => {}
    }
}

/// Returns the schema of conditions.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    Schema::try_from(conditions_schema()).expect("the schema is an object")
}

/// Returns the schema of the deprecated part of the status, which has only conditions.
pub(super) fn deprecated(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "v1beta1": {
                "type": "object",
                "properties": {"conditions": deprecated_conditions_schema()},
            },
        },
    })
}
