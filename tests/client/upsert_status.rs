//! Tests of upserts with a status.

use super::{interceptors::Calls, support::live};
use kube_core::{DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use std::time::Duration;
use steersman::{
    client::{BoxError, Change, Client, Result},
    object::ObjectKey,
    testing::{Env, TestServer},
};

/// Returns an empty order.
fn web(group: &str, namespace: &str) -> DynamicObject {
    let metadata = json!({"namespace": namespace, "name": "web"});
    let order = json!({"apiVersion": format!("{group}/v1"), "kind": "Order", "metadata": metadata});
    serde_json::from_value(order).expect("an order")
}

/// Returns a function that sets these fields. A null removes a field.
fn set_fields(wanted: &Value) -> impl FnMut(&mut DynamicObject) -> Result<(), BoxError> {
    move |order| {
        for (part, fields) in wanted.as_object().expect("parts") {
            for (field, value) in fields.as_object().expect("fields") {
                order.data[part][field] = value.clone();
            }
        }
        Ok(())
    }
}

/// Wanted fields, expected change, expected writes, and expected object.
type Step = (Value, Change, &'static [&'static str], Value);

/// Runs `create_or_patch` for each step.
async fn run_steps(
    client: &Client,
    group: &str,
    namespace: &str,
    steps: impl IntoIterator<Item = Step>,
) -> anyhow::Result<()> {
    let calls = Calls::default();
    let watched = client.intercepted(calls.clone());
    for (wanted, expected_change, writes, then) in steps {
        let (change, object) = watched
            .create_or_patch(web(group, namespace), set_fields(&wanted))
            .await?;
        assert_eq!(change, expected_change, "{wanted}");
        let expected = ["Get"]
            .iter()
            .chain(writes)
            .map(|call| match call.split_once(' ') {
                Some((verb, part)) => format!("{verb} Order {namespace}/web {part}"),
                None => format!("{call} Order {namespace}/web"),
            });
        assert_eq!(calls.take(), expected.collect::<Vec<_>>(), "{wanted}");
        let now = client
            .dynamic(&order(group))
            .get(&ObjectKey::of(&object))
            .await?
            .expect("the object exists");
        assert_eq!(now.data, then, "{wanted}");
        assert_eq!(
            now.metadata.resource_version, object.metadata.resource_version,
            "{wanted}"
        );
        if change != Change::None {
            assert_eq!(
                object.data, then,
                "{wanted}: the result is the written object"
            );
        }
    }
    Ok(())
}

/// Returns a CRD of orders with a status subresource.
fn crd_with_status(group: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("orders.{group}")},
        "spec": {
            "group": group,
            "names": {"plural": "orders", "singular": "order", "kind": "Order", "listKind": "OrderList"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {"type": "object", "properties": {
                            "count": {"type": "integer", "format": "int64"}, "note": {"type": "string"},
                        }},
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    },
                }},
            }],
        },
    })
}

/// Returns a CRD of orders without a status subresource.
fn crd_without_status(group: &str) -> Value {
    let mut definition = crd_with_status(group);
    definition["spec"]["versions"][0]
        .as_object_mut()
        .expect("a version")
        .remove("subresources");
    definition
}

fn order(group: &str) -> GroupVersionKind {
    GroupVersionKind::gvk(group, "v1", "Order")
}

steersman::env_test! {
    async fn a_status_subresource_is_written_separately(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let group = "apart.client.example";
        env.install([crd_with_status(group)]).await?;
        let new = json!({"spec": {"count": 1}, "status": {"phase": "New"}});
        run_steps(&client, group, &namespace, [
            (new.clone(), Change::Created, &["Create", "Patch status"][..], new.clone()),
            (new.clone(), Change::None, &[], new),
            (json!({"spec": {"count": 2}}), Change::Updated, &["Patch"],
                json!({"spec": {"count": 2}, "status": {"phase": "New"}})),
            (json!({"status": {"phase": "Old"}}), Change::UpdatedStatus, &["Patch status"],
                json!({"spec": {"count": 2}, "status": {"phase": "Old"}})),
            (json!({"spec": {"note": "a"}, "status": {"at": 3}}), Change::Both, &["Patch", "Patch status"],
                json!({"spec": {"count": 2, "note": "a"}, "status": {"phase": "Old", "at": 3}})),
            (json!({"spec": {"note": null}, "status": {"at": null}}), Change::Both, &["Patch", "Patch status"],
                json!({"spec": {"count": 2}, "status": {"phase": "Old"}})),
            (json!({"spec": {"note": null}, "status": {"at": null}}), Change::None, &[],
                json!({"spec": {"count": 2}, "status": {"phase": "Old"}})),
        ]).await
    }

    async fn a_status_without_a_subresource_is_written_with_the_object(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let group = "whole.client.example";
        env.install([crd_without_status(group)]).await?;
        let new = json!({"spec": {"count": 1}, "status": {"phase": "New"}});
        run_steps(&client, group, &namespace, [
            (new.clone(), Change::Created, &["Create"][..], new.clone()),
            (new.clone(), Change::None, &[], new),
            (json!({"status": {"phase": "Old"}}), Change::UpdatedStatus, &["Patch"],
                json!({"spec": {"count": 1}, "status": {"phase": "Old"}})),
            (json!({"spec": {"count": 2}, "status": {"phase": null}}), Change::Both, &["Patch"],
                json!({"spec": {"count": 2}, "status": {}})),
        ]).await
    }

    async fn an_upsert_follows_a_crd_that_adds_or_removes_the_status_subresource(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let group = "moved.client.example";
        let calls = Calls::default();
        let client = client.intercepted(calls.clone());
        let definitions = [(1, crd_without_status(group), false), (2, crd_with_status(group), true), (3, crd_without_status(group), false)];
        for (step, definition, expected) in definitions {
            env.install([definition]).await?;
            if step == 1 {
                client.create(&web(group, &namespace)).await?;
            }
            // The CRD change takes effect with a delay. Until then, the server may reject or ignore
            // the write.
            for attempt in 0.. {
                calls.take();
                let wanted = json!({"status": {"step": step, "attempt": attempt}});
                let change = client.create_or_patch(web(group, &namespace), set_fields(&wanted)).await;
                let crd_with_status = calls.take().pop().is_some_and(|write| write.ends_with("status"));
                if matches!(change, Ok((Change::UpdatedStatus, _))) && crd_with_status == expected {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    async fn an_ignored_status_is_not_a_change(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let group = "ignored.client.example";
        env.install([crd_with_status(group)]).await?;
        let wanted = json!({"spec": {"count": 1}, "status": {"phase": "New"}});
        let (change, made) = client.create_or_update(web(group, &namespace), set_fields(&wanted)).await?;
        assert_eq!((change, made.data.get("status")), (Change::Created, None), "create ignores a status");
        let (change, same) = client.create_or_update(web(group, &namespace), set_fields(&wanted)).await?;
        assert_eq!((change, same.metadata.resource_version), (Change::None, made.metadata.resource_version));
        Ok(())
    }

    async fn a_dry_run_returns_the_change(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let group = "dry.client.example";
        env.install([crd_with_status(group)]).await?;
        let wanted = |count: i64| json!({"spec": {"count": count}, "status": {"phase": count.to_string()}});
        let (dry, orders, key) = (client.dry_run(), client.dynamic(&order(group)), ObjectKey::new(&namespace, "web"));
        assert_eq!(dry.create_or_patch(web(group, &namespace), set_fields(&wanted(1))).await?.0, Change::Created);
        assert!(orders.get(&key).await?.is_none());
        client.create_or_patch(web(group, &namespace), set_fields(&wanted(1))).await?;
        assert_eq!(dry.create_or_patch(web(group, &namespace), set_fields(&wanted(2))).await?.0, Change::Both);
        assert_eq!(dry.create_or_update(web(group, &namespace), set_fields(&wanted(2))).await?.0, Change::Updated);
        assert_eq!(orders.get(&key).await?.expect("the object exists").data, wanted(1));
        Ok(())
    }
}
