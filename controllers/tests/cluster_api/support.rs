//! Objects and CRDs that the tests share.

use k8s_openapi::jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::{Map, Value, json};
use steersman::{
    prelude::*,
    testing::{Env, TestServer},
};
use steersman_controllers::cluster_api::{self, Cluster};

/// Installs the CRDs of Cluster API. Returns a client of a new namespace.
///
/// The client reads and writes without a cache.
pub(crate) async fn client(env: &Env) -> anyhow::Result<Client> {
    env.install(cluster_api::definitions()).await?;
    let namespace = env.namespace("capi").await?;
    Ok(Client::new(env.client()?)?.namespace(&namespace))
}

/// Returns a Cluster with this spec, without a namespace.
pub(crate) fn cluster(name: &str, spec: Value) -> Cluster {
    from(json!({"metadata": {"name": name}, "spec": spec}))
}

/// Returns an object with this content. The type follows from the caller.
pub(crate) fn from<K: serde::de::DeserializeOwned>(content: Value) -> K {
    serde_json::from_value(content).unwrap_or_else(|error| panic!("invalid object: {error}"))
}

/// Returns a dynamic object with this content besides kind and name.
pub(crate) fn dynamic(api_version: &str, kind: &str, name: &str, content: Value) -> DynamicObject {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    merge(&mut object, content);
    from(object)
}

/// Adds the fields of `content` to `object`, recursively.
fn merge(object: &mut Value, content: Value) {
    match (object, content) {
        (Value::Object(object), Value::Object(content)) => {
            for (key, value) in content {
                merge(object.entry(key).or_insert(Value::Null), value);
            }
        }
        (object, content) => *object = content,
    }
}

/// Returns the CRD of a provider, without a schema, with these labels.
///
/// All versions are served. The first one is stored.
pub(crate) fn provider_crd(
    group: &str,
    kind: &str,
    plural: &str,
    versions: &[&str],
    labels: &[(&str, &str)],
) -> Value {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let versions: Vec<_> = versions
        .iter()
        .enumerate()
        .map(|(index, version)| {
            json!({
                "name": version,
                "served": true,
                "storage": index == 0,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"spec": anything, "status": anything},
                }},
            })
        })
        .collect();
    let labels: Map<_, _> = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "labels": labels},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "plural": plural,
                "singular": kind.to_lowercase(),
                "listKind": format!("{kind}List"),
            },
            "versions": versions,
        },
    })
}

/// Returns a time, for conditions.
pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("a valid time")
}
