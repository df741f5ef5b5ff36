//! Objects made as they are wanted, with their status.

use super::{calls::Calls, support::live};
use kube_core::{DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use std::time::Duration;
use steersman::{
    client::{BoxError, Change, Client, Result},
    object::ObjectKey,
    testing::{Env, TestServer},
};

/// An order without anything in it.
fn web(group: &str, namespace: &str) -> DynamicObject {
    let metadata = json!({"namespace": namespace, "name": "web"});
    let order = json!({"apiVersion": format!("{group}/v1"), "kind": "Order", "metadata": metadata});
    serde_json::from_value(order).expect("an order")
}

/// Sets what is wanted; a null takes it away.
fn wants(wanted: &Value) -> impl FnMut(&mut DynamicObject) -> Result<(), BoxError> {
    move |order| {
        for (part, fields) in wanted.as_object().expect("parts") {
            for (field, value) in fields.as_object().expect("fields") {
                order.data[part][field] = value.clone();
            }
        }
        Ok(())
    }
}

/// What is wanted, what is done for it and with which writes, and what there is then.
type Step = (Value, Change, &'static [&'static str], Value);

/// `create_or_patch`, step by step.
async fn walk(
    client: &Client,
    group: &str,
    namespace: &str,
    steps: impl IntoIterator<Item = Step>,
) -> anyhow::Result<()> {
    let calls = Calls::default();
    let watched = client.intercepted(calls.clone());
    for (wanted, change, writes, then) in steps {
        let (done, given) = watched.create_or_patch(web(group, namespace), wants(&wanted)).await?;
        assert_eq!(done, change, "{wanted}");
        let expected = ["Get"].iter().chain(writes).map(|call| match call.split_once(' ') {
            Some((verb, part)) => format!("{verb} Order {namespace}/web {part}"),
            None => format!("{call} Order {namespace}/web"),
        });
        assert_eq!(calls.take(), expected.collect::<Vec<_>>(), "{wanted}");
        let now = client.dynamic(&order(group)).get(&ObjectKey::of(&given)).await?.expect("it was made");
        assert_eq!(now.data, then, "{wanted}");
        assert_eq!(now.metadata.resource_version, given.metadata.resource_version, "{wanted}");
        if done != Change::None {
            assert_eq!(given.data, then, "{wanted}: it is given as it is then");
        }
    }
    Ok(())
}

/// Orders, with a status of its own.
fn apart(group: &str) -> Value {
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

/// Orders, whose status is a part of the whole.
fn whole(group: &str) -> Value {
    let mut definition = apart(group);
    definition["spec"]["versions"][0].as_object_mut().expect("a version").remove("subresources");
    definition
}

fn order(group: &str) -> GroupVersionKind {
    GroupVersionKind::gvk(group, "v1", "Order")
}

steersman::env_test! {
    async fn a_status_is_written_apart_where_the_server_has_it_apart(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let group = "apart.client.example";
        env.install([apart(group)]).await?;
        let new = json!({"spec": {"count": 1}, "status": {"phase": "New"}});
        walk(&client, group, &namespace, [
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

    async fn a_status_is_written_with_the_rest_where_the_server_has_it_so(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let group = "whole.client.example";
        env.install([whole(group)]).await?;
        let new = json!({"spec": {"count": 1}, "status": {"phase": "New"}});
        walk(&client, group, &namespace, [
            (new.clone(), Change::Created, &["Create"][..], new.clone()),
            (new.clone(), Change::None, &[], new),
            (json!({"status": {"phase": "Old"}}), Change::UpdatedStatus, &["Patch"],
                json!({"spec": {"count": 1}, "status": {"phase": "Old"}})),
            (json!({"spec": {"count": 2}, "status": {"phase": null}}), Change::Both, &["Patch"],
                json!({"spec": {"count": 2}, "status": {}})),
        ]).await
    }

    async fn a_definition_may_change_where_the_status_is_written(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let group = "moved.client.example";
        let calls = Calls::default();
        let client = client.intercepted(calls.clone());
        let definitions = [(1, whole(group), false), (2, apart(group), true), (3, whole(group), false)];
        for (step, definition, expected) in definitions {
            env.install([definition]).await?;
            if step == 1 {
                client.create(&web(group, &namespace)).await?;
            }
            // The server takes its time, and until then may deny or ignore it.
            for attempt in 0.. {
                calls.take();
                let wanted = json!({"status": {"step": step, "attempt": attempt}});
                let done = client.create_or_patch(web(group, &namespace), wants(&wanted)).await;
                let apart = calls.take().pop().is_some_and(|write| write.ends_with("status"));
                if matches!(done, Ok((Change::UpdatedStatus, _))) && apart == expected {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    async fn what_a_server_ignores_is_no_change(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let group = "ignored.client.example";
        env.install([apart(group)]).await?;
        let wanted = json!({"spec": {"count": 1}, "status": {"phase": "New"}});
        let (done, made) = client.create_or_update(web(group, &namespace), wants(&wanted)).await?;
        assert_eq!((done, made.data.get("status")), (Change::Created, None), "a status is not made with the rest");
        let (done, same) = client.create_or_update(web(group, &namespace), wants(&wanted)).await?;
        assert_eq!((done, same.metadata.resource_version), (Change::None, made.metadata.resource_version));
        Ok(())
    }

    async fn a_dry_run_says_what_would_be_done(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let group = "dry.client.example";
        env.install([apart(group)]).await?;
        let wanted = |count: i64| json!({"spec": {"count": count}, "status": {"phase": count.to_string()}});
        let (dry, orders, key) = (client.dry_run(), client.dynamic(&order(group)), ObjectKey::new(&namespace, "web"));
        assert_eq!(dry.create_or_patch(web(group, &namespace), wants(&wanted(1))).await?.0, Change::Created);
        assert!(orders.get(&key).await?.is_none());
        client.create_or_patch(web(group, &namespace), wants(&wanted(1))).await?;
        assert_eq!(dry.create_or_patch(web(group, &namespace), wants(&wanted(2))).await?.0, Change::Both);
        assert_eq!(dry.create_or_update(web(group, &namespace), wants(&wanted(2))).await?.0, Change::Updated);
        assert_eq!(orders.get(&key).await?.expect("it was made").data, wanted(1));
        Ok(())
    }
}
