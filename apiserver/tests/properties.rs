//! Random sequences of writes against a model of what the rules say: who wins, what counts as a change, who goes when.

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

/// What an object is, as far as the model knows it.
fn shown(object: &Value) -> Value {
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
    server.send(operation.method(), &path, &[("content-type", content_type)], body).await
}

/// Does one thing to both, and compares.
async fn step(server: &Server, model: &mut Model, operation: &Operation) -> Result<(), TestCaseError> {
    let before = server.server.revision();
    let reply = send(server, operation, model).await;
    let Expected { code, reason, writes } = model.apply(operation, before + 1);
    prop_assert_eq!(reply.code, code, "{:?}: {}", operation, reply.text);
    prop_assert_eq!(reply.reason(), reason, "{:?}: {}", operation, reply.text);
    prop_assert_eq!(server.server.revision(), before + u64::from(writes), "{:?}", operation);
    let found = server.get(&operation.slot.path()).await;
    match model.get(&operation.slot) {
        None => prop_assert_eq!(found.code, 404),
        Some(object) => prop_assert_eq!(shown(&found.json), shown(object), "{:?}", operation),
    }
    Ok(())
}

/// Lists agree with the model, and whoever watched from the start knows the same.
async fn settle(server: &Server, model: &Model, from: u64) -> Result<(), TestCaseError> {
    for path in ["/api/v1/configmaps", "/apis/example.com/v1/widgets"] {
        let list = server.get(path).await.expect(200);
        let key = |object: &Value| {
            let meta = &object["metadata"];
            format!("{}/{}", meta["namespace"].as_str().unwrap_or_default(), meta["name"].as_str().unwrap_or_default())
        };
        let listed: BTreeMap<_, _> =
            list.json["items"].as_array().unwrap().iter().map(|item| (key(item), shown(item))).collect();
        prop_assert_eq!(&listed, &model.all(path).map(|object| (key(object), shown(object))).collect());
        // Its own last event says that nothing more is to come.
        let mut watch = server
            .watch(&format!("{path}?watch=1&resourceVersion={from}&allowWatchBookmarks=1&timeoutSeconds=3"))
            .await;
        let (mut known, mut last) = (BTreeMap::new(), from);
        while let Some((kind, object)) = watch.next().await {
            if kind == "BOOKMARK" {
                continue;
            }
            prop_assert!(rv(&object) > last, "revisions grow");
            last = rv(&object);
            let before = match kind.as_str() {
                "DELETED" => known.remove(&key(&object)),
                _ => known.insert(key(&object), shown(&object)),
            };
            prop_assert_eq!(before.is_none(), kind == "ADDED");
        }
        prop_assert_eq!(&known, &listed);
    }
    Ok(())
}

#[test]
fn soak_writes_do_what_the_model_says() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let base = runtime.block_on(async {
        // Finalizers of the garbage collector stay, so that the model sees them.
        let server = Server::with(Options { controllers: false, ..Options::default() });
        server.install(widgets()).await;
        server.post("/api/v1/namespaces", json!({"metadata": {"name": "other"}})).await.expect(201);
        server
    });
    check_property(this_test!(), 80, |config| {
        let sequence = prop::collection::vec(operation(), 1..40);
        let result = TestRunner::new(config).run(&sequence, |operations| {
            runtime.block_on(async {
                let server = Server::of(base.server.fork());
                server.server.wait_idle().await;
                let (mut model, from) = (Model::default(), server.server.revision());
                for operation in &operations {
                    step(&server, &mut model, operation).await?;
                }
                settle(&server, &model, from).await
            })
        });
        if let Err(error) = result {
            panic!("{error}");
        }
    });
}
