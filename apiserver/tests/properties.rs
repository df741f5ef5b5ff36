//! Random sequences of writes, compared with a model of conflicts, no-op writes, generations and
//! deletion.

mod model;

use crate::support::*;
use model::{Expected, Model, Operation, Write, operation};
use proptest::{
    prelude::*,
    test_runner::{TestCaseError, TestRunner},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use steersman_apiserver::Options;
use steersman_testkit::{check_property, this_test};

/// Returns the fields of an object that the model predicts.
fn modelled_fields(object: &Value) -> Value {
    let meta = &object["metadata"];
    json!({
        "labels": meta["labels"], "finalizers": meta["finalizers"], "generation": meta["generation"],
        "deleting": !meta["deletionTimestamp"].is_null(), "rv": rv(object),
        "content": if object["spec"].is_null() { &object["data"]["k"] } else { &object["spec"]["color"] },
        "phase": object["status"]["phase"],
    })
}

async fn send(server: &Server, operation: &Operation, model: &Model) -> Reply {
    let path = operation.path();
    let body = model.body(operation).to_string();
    let content_type = match &operation.write {
        Write::JsonPatch { .. } => JSON_PATCH,
        Write::Create { .. } | Write::Put { .. } | Write::Delete { .. } => "application/json",
        _ => MERGE,
    };
    server
        .send(
            operation.method(),
            &path,
            &[("content-type", content_type)],
            body,
        )
        .await
}

/// Applies one operation to server and model and compares them.
async fn step(
    server: &Server,
    model: &mut Model,
    operation: &Operation,
) -> Result<(), TestCaseError> {
    let before = server.server.revision();
    let reply = send(server, operation, model).await;
    let Expected {
        code,
        reason,
        writes,
    } = model.apply(operation, before + 1);
    prop_assert_eq!(reply.code, code, "{:?}: {}", operation, reply.text);
    prop_assert_eq!(reply.reason(), reason, "{:?}: {}", operation, reply.text);
    prop_assert_eq!(
        server.server.revision(),
        before + u64::from(writes),
        "{:?}",
        operation
    );
    let found = server.get(&operation.slot.path()).await;
    match model.get(&operation.slot) {
        None => prop_assert_eq!(found.code, 404),
        Some(object) => prop_assert_eq!(
            modelled_fields(&found.json),
            modelled_fields(object),
            "{:?}",
            operation
        ),
    }
    Ok(())
}

/// Checks that lists and the events since `from` agree with the model.
async fn check_end_state(server: &Server, model: &Model, from: u64) -> Result<(), TestCaseError> {
    for path in ["/api/v1/configmaps", "/apis/example.com/v1/widgets"] {
        let list = server.get(path).await.expect(200);
        let key = |object: &Value| {
            let meta = &object["metadata"];
            format!(
                "{}/{}",
                meta["namespace"].as_str().unwrap_or_default(),
                meta["name"].as_str().unwrap_or_default()
            )
        };
        let listed: BTreeMap<_, _> = list.json["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| (key(item), modelled_fields(item)))
            .collect();
        prop_assert_eq!(
            &listed,
            &model
                .all(path)
                .map(|object| (key(object), modelled_fields(object)))
                .collect()
        );
        // The timeout ends the watch.
        let mut watch = server
            .watch(&format!(
                "{path}?watch=1&resourceVersion={from}&allowWatchBookmarks=1&timeoutSeconds=3"
            ))
            .await;
        let mut known = BTreeMap::new();
        let mut last = from;
        while let Some((kind, object)) = watch.next().await {
            if kind == "BOOKMARK" {
                continue;
            }
            prop_assert!(rv(&object) > last, "resource versions increase");
            last = rv(&object);
            let before = match kind.as_str() {
                "DELETED" => known.remove(&key(&object)),
                _ => known.insert(key(&object), modelled_fields(&object)),
            };
            prop_assert_eq!(before.is_none(), kind == "ADDED");
        }
        prop_assert_eq!(&known, &listed);
    }
    Ok(())
}

#[test]
fn soak_writes_agree_with_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let base = runtime.block_on(async {
        // Without controllers the finalizers of the garbage collector stay visible.
        let server = Server::with_options(Options {
            controllers: false,
            ..Options::default()
        });
        server.install(widgets()).await;
        server
            .post("/api/v1/namespaces", json!({"metadata": {"name": "other"}}))
            .await
            .expect(201);
        server
    });
    check_property(this_test!(), 80, |config| {
        let sequence = prop::collection::vec(operation(), 1..40);
        let result = TestRunner::new(config).run(&sequence, |operations| {
            runtime.block_on(async {
                let server = Server::new(base.server.fork());
                server.server.wait_idle().await;
                let mut model = Model::default();
                let from = server.server.revision();
                for operation in &operations {
                    step(&server, &mut model, operation).await?;
                }
                check_end_state(&server, &model, from).await
            })
        });
        if let Err(error) = result {
            panic!("{error}");
        }
    });
}
