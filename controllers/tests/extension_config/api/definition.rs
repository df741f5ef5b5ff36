//! Tests of the CRD.

use super::from;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use steersman::{
    client::Patch,
    prelude::*,
    testing::{Env, TestServer},
};
use steersman_controllers::extension_config::{
    ExtensionConfig, catalog::HOOKS_API_VERSION, definitions,
};

const UPSTREAM: &str = include_str!("../../cluster_api/cluster/upstream/crds-v1.14.2.jsonl");

/// Returns the `spec` of Cluster API's CRD, with only the version `v1beta2`.
fn upstream() -> Value {
    let mut crds = UPSTREAM
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let crd = crds.find(|crd| crd["spec"]["names"]["kind"] == "ExtensionConfig");
    let mut spec = crd.expect("the CRD")["spec"].clone();
    let versions = spec["versions"].as_array_mut().expect("versions");
    versions.retain(|version| version["name"] == "v1beta2");
    let schema = &mut versions[0]["schema"]["openAPIV3Schema"];
    let properties = schema["properties"].as_object_mut().expect("properties");
    properties.retain(|name, _| name == "spec" || name == "status");
    spec
}

/// Removes descriptions, and sorts lists of names.
fn normalized(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, value)| *key != "description" || !value.is_string())
            .map(|(key, value)| (key.clone(), normalized(value)))
            .collect(),
        Value::Array(items) => {
            let mut items: Vec<_> = items.iter().map(normalized).collect();
            if items.iter().all(Value::is_string) {
                items.sort_by_key(Value::to_string);
            }
            items.into()
        }
        value => value.clone(),
    }
}

#[test]
fn the_crd_is_that_of_cluster_api_with_defaults() {
    let [crd] = &*definitions() else {
        panic!("one CRD");
    };
    let mut expected = upstream();
    let schema = &mut expected["versions"][0]["schema"]["openAPIV3Schema"];
    let spec = &mut schema["properties"]["spec"]["properties"];
    spec["namespaceSelector"]["default"] = json!({});
    spec["clientConfig"]["properties"]["service"]["properties"]["port"]["default"] = json!(443);
    let (written, expected) = (normalized(&crd["spec"]), normalized(&expected));
    assert_eq!(written, expected);
    assert_eq!(
        crd["metadata"]["labels"],
        json!({"cluster.x-k8s.io/v1beta2": "v1beta2"})
    );
}

/// Installs the CRD. Returns a client that reads and writes without a cache.
async fn client(env: &Env) -> anyhow::Result<Client> {
    env.install(definitions()).await?;
    Ok(Client::new(env.client()?)?)
}

fn object(name: &str, spec: &Value) -> DynamicObject {
    from(&json!({
        "apiVersion": "runtime.cluster.x-k8s.io/v1beta2",
        "kind": "ExtensionConfig",
        "metadata": {"name": name},
        "spec": spec,
    }))
}

fn service() -> Value {
    json!({"service": {"namespace": "ns", "name": "s"}})
}

steersman::env_test! {
    async fn the_api_server_sets_the_defaults(env: Env) -> anyhow::Result<()> {
        let client = client(&env).await?;
        let created = client.create::<DynamicObject>(&object("defaults", &json!({"clientConfig": service()}))).await?;
        assert_eq!(created.data["spec"], json!({
            "clientConfig": {"service": {"namespace": "ns", "name": "s", "port": 443}},
            "namespaceSelector": {},
        }));
        let spec = json!({"clientConfig": {"url": "https://a"}, "namespaceSelector": null});
        let created = client.create::<DynamicObject>(&object("defaults-url", &spec)).await?;
        assert_eq!(created.data["spec"], json!({
            "clientConfig": {"url": "https://a"}, "namespaceSelector": {},
        }), "`null` is the default, too");
        let spec = json!({
            "clientConfig": {"service": {"namespace": "ns", "name": "s", "port": 8443, "path": "/p"}},
            "namespaceSelector": {"matchLabels": {"a": "b"}},
            "settings": {"k": "v"},
        });
        let created = client.create::<DynamicObject>(&object("defaults-set", &spec)).await?;
        assert_eq!(created.data["spec"], spec, "values that are set are kept");
        Ok(())
    }

    async fn specs_outside_of_the_bounds_are_rejected(env: Env) -> anyhow::Result<()> {
        let client = client(&env).await?;
        let with_service = |field: &str, value: Value| {
            let mut config = service();
            config["service"][field] = value;
            json!({"clientConfig": config})
        };
        let rejected = [
            json!({}),
            json!({"clientConfig": {}}),
            json!({"clientConfig": {"url": ""}}),
            json!({"clientConfig": {"url": "u".repeat(513)}}),
            json!({"clientConfig": {"url": "https://a", "caBundle": ""}}),
            json!({"clientConfig": {"url": "https://a", "caBundle": "YWFh".repeat(12_801)}}),
            json!({"clientConfig": {"service": {"name": "s"}}}),
            json!({"clientConfig": {"service": {"namespace": "ns"}}}),
            with_service("name", json!("")),
            with_service("name", json!("s".repeat(64))),
            with_service("namespace", json!("n".repeat(64))),
            with_service("path", json!("")),
            with_service("path", json!("p".repeat(513))),
            with_service("port", json!("443")),
            json!({"clientConfig": service(), "settings": {"k": 1}}),
        ];
        for spec in rejected {
            let result = client.create::<DynamicObject>(&object("bounds", &spec)).await;
            let error = result.expect_err("an invalid spec");
            assert!(error.is_invalid(), "{spec}: {error}");
        }
        let spec = json!({"clientConfig": {"url": "u".repeat(512), "caBundle": "YWFh".repeat(12_800)}});
        client.create::<DynamicObject>(&object("bounds", &spec)).await?;
        Ok(())
    }

    async fn the_status_is_validated_as_by_cluster_api(env: Env) -> anyhow::Result<()> {
        let client = client(&env).await?;
        let created = client.create::<DynamicObject>(&object("status", &json!({"clientConfig": service()}))).await?;
        let key = ObjectKey::of(&created);
        let patch = async |status: &Value| {
            let patch = Patch::Merge(json!({"status": status}));
            client.status().patch::<ExtensionConfig>(&key, &patch).await
        };
        let handler = |name: &str| json!({
            "name": name,
            "requestHook": {"apiVersion": HOOKS_API_VERSION, "hook": "BeforeClusterCreate"},
            "timeoutSeconds": 5,
            "failurePolicy": "Ignore",
        });
        let time = "2026-01-01T00:00:00Z";
        let condition = json!({
            "type": "Discovered", "status": "True", "reason": "Discovered", "message": "",
            "lastTransitionTime": time, "observedGeneration": 1,
        });
        let deprecated = json!({"type": "Discovered", "status": "True", "lastTransitionTime": time});
        let status = json!({
            "conditions": [condition],
            "handlers": [handler("a.status"), handler("b.status")],
            "deprecated": {"v1beta1": {"conditions": [deprecated]}},
        });
        let written = patch(&status).await?;
        assert_eq!(serde_json::to_value(&written.status)?, status, "every field is known");

        let with = |field: &str, value: Value| {
            let mut handler = handler("a.status");
            handler[field] = value;
            json!({"handlers": [handler]})
        };
        let rejected = [
            json!({"handlers": [handler("a"), handler("a")]}),
            with("name", json!("")),
            with("name", json!("n".repeat(513))),
            with("requestHook", json!({"apiVersion": "", "hook": "H"})),
            with("requestHook", json!({"apiVersion": "g/v", "hook": "H".repeat(257)})),
            with("requestHook", json!({"apiVersion": "g/v", "hook": null})),
            with("timeoutSeconds", json!(0)),
            with("failurePolicy", json!("Maybe")),
            json!({"handlers": (0..513).map(|index| handler(&index.to_string())).collect::<Vec<_>>()}),
            json!({"conditions": [condition, condition]}),
        ];
        for status in rejected {
            let error = patch(&status).await.expect_err("an invalid status");
            assert!(error.is_invalid(), "{status}: {error}");
        }
        let all = json!({"handlers": (0..512).map(|index| handler(&index.to_string())).collect::<Vec<_>>()});
        patch(&all).await?;
        Ok(())
    }

    async fn unknown_fields_are_pruned(env: Env) -> anyhow::Result<()> {
        let client = client(&env).await?;
        let spec = json!({"clientConfig": {"url": "https://a", "x": 1}, "x": {"y": 1}});
        let created = client.create::<DynamicObject>(&object("pruned", &spec)).await?;
        assert_eq!(created.data["spec"], json!({
            "clientConfig": {"url": "https://a"}, "namespaceSelector": {},
        }));
        let handler = json!({
            "name": "a.pruned", "hookName": "BeforeClusterCreate",
            "requestHook": {"apiVersion": HOOKS_API_VERSION, "hook": "BeforeClusterCreate"},
        });
        let patch = Patch::Merge(json!({"status": {"handlers": [handler], "observedGeneration": 3}}));
        let kind = GroupVersionKind::gvk("runtime.cluster.x-k8s.io", "v1beta2", "ExtensionConfig");
        let key = ObjectKey::of(&created);
        client.status().dynamic(&kind).patch(&key, &patch).await?;
        let read = client.dynamic(&kind).get(&key).await?.expect("created above");
        assert_eq!(read.data["status"], json!({"handlers": [{
            "name": "a.pruned",
            "requestHook": {"apiVersion": HOOKS_API_VERSION, "hook": "BeforeClusterCreate"},
        }]}));
        Ok(())
    }

    async fn a_config_is_cluster_scoped_and_served_in_one_version(env: Env) -> anyhow::Result<()> {
        let client = client(&env).await?;
        let config: ExtensionConfig = from(&json!({
            "metadata": {"name": "scope"}, "spec": {"clientConfig": service()},
        }));
        let created = client.create(&config).await?;
        assert_eq!(created.metadata.namespace, None);
        let service = created.spec.client_config.service.clone().expect("a Service");
        assert_eq!(service.port, Some(443));
        let mut old = object("old", &json!({"clientConfig": {"url": "https://a"}}));
        old.types.as_mut().expect("a type").api_version = "runtime.cluster.x-k8s.io/v1alpha1".into();
        client.create::<DynamicObject>(&old).await.expect_err("a version that is not served");
        Ok(())
    }
}
