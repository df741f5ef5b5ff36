//! Anything at all, sent to the whole surface.

mod request;

use crate::support::*;
use http_body_util::BodyExt;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace, Pod, Secret},
};
use proptest::{
    prelude::*,
    test_runner::{TestCaseError, TestRunner},
};
use request::{Request, request};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};
use steersman_testkit::{check_property, this_test};
use tokio::time::timeout;

const COLLECTIONS: [&str; 7] = [
    "/api/v1/configmaps",
    "/api/v1/pods",
    "/api/v1/secrets",
    "/api/v1/namespaces",
    "/apis/apps/v1/deployments",
    "/apis/example.com/v1/widgets",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
];

const STATUSES: [u16; 13] = [200, 201, 304, 400, 403, 404, 405, 406, 409, 410, 413, 415, 422];

/// What the real server has no better status for.
fn is_excused(reply: &Reply) -> bool {
    // The text, as it may be YAML.
    let says = |words: &str| reply.text.contains(words);
    match reply.code {
        500 => says("resourceVersion should not be set") || says("strconv.ParseUint") || says("content is not a list"),
        504 => says("Too large resource version"),
        _ => false,
    }
}

/// Sends a request. A watch is left after a while.
async fn send(server: &Server, request: &Request) -> Reply {
    let Request { method, path, headers, body } = request;
    let (parts, mut body) = server.raw(method, path, headers, body.clone().into()).await.into_parts();
    let mut text = Vec::new();
    while let Ok(Some(frame)) = timeout(Duration::from_secs(4), body.frame()).await {
        text.extend_from_slice(frame.expect("no rule breaks it").data_ref().expect("data"));
    }
    Reply {
        code: parts.status.as_u16(),
        headers: parts.headers,
        json: serde_json::from_slice(&text).unwrap_or_default(),
        text: String::from_utf8(text).expect("only texts are sent"),
    }
}

/// The answer is one, whatever was asked.
fn check_reply(request: &Request, reply: &Reply) -> Result<(), TestCaseError> {
    // A head does not say why.
    let excused = is_excused(reply) || (request.method == "HEAD" && matches!(reply.code, 500 | 504));
    prop_assert!(STATUSES.contains(&reply.code) || excused, "{:?}: {} {}", request, reply.code, reply.text);
    let content_type = reply.headers["content-type"].to_str().unwrap();
    if !content_type.starts_with("application/json") || reply.code == 304 || request.method == "HEAD" {
        return Ok(());
    }
    for line in reply.text.lines().filter(|_| reply.json.is_null()) {
        let event: Value =
            serde_json::from_str(line).map_err(|error| TestCaseError::fail(format!("{request:?} {error}")))?;
        prop_assert!(event["type"].is_string() && event["object"]["kind"].is_string(), "{:?}: {}", request, line);
    }
    if reply.code >= 400 {
        prop_assert_eq!(&reply.json["kind"], "Status", "{:?}: {}", request, &reply.text);
        prop_assert_eq!(&reply.json["code"], reply.code);
    } else if !reply.json.is_null() {
        // An object, an event, the paths, the version.
        let known = ["kind", "type", "paths", "major"];
        prop_assert!(known.iter().any(|field| !reply.json[*field].is_null()), "{:?}: {}", request, reply.text);
    }
    Ok(())
}

/// What is listed can be had one by one, and clients can read it.
async fn check_objects(server: &Server) -> Result<(), TestCaseError> {
    let reads = |text: &str, path: &str| match path {
        "/api/v1/configmaps" => serde_json::from_str::<ConfigMap>(text).err(),
        "/api/v1/pods" => serde_json::from_str::<Pod>(text).err(),
        "/api/v1/secrets" => serde_json::from_str::<Secret>(text).err(),
        "/api/v1/namespaces" => serde_json::from_str::<Namespace>(text).err(),
        "/apis/apps/v1/deployments" => serde_json::from_str::<Deployment>(text).err(),
        _ => None,
    };
    for path in COLLECTIONS {
        let list = server.get(path).await;
        if list.code == 404 {
            // The definition may be gone.
            continue;
        }
        let mut last = String::new();
        for item in list.json["items"].as_array().into_iter().flatten() {
            let meta = &item["metadata"];
            let text = |field: &str| meta[field].as_str().unwrap_or_default();
            prop_assert!(!text("uid").is_empty() && !text("creationTimestamp").is_empty(), "{}", item);
            prop_assert!(rv(item) <= list.rv());
            let (collection, plural) = path.rsplit_once('/').unwrap_or_default();
            let place = match text("namespace") {
                "" => format!("{path}/{}", text("name")),
                namespace => format!("{collection}/namespaces/{namespace}/{plural}/{}", text("name")),
            };
            prop_assert!(place > last, "in order");
            let mut found = server.get(&place).await.expect(200);
            prop_assert_eq!(reads(&found.text, path).map(|error| error.to_string()), None, "{}", &found.text);
            for field in ["kind", "apiVersion"].iter().filter(|field| item[**field].is_null()) {
                found.json.as_object_mut().expect("an object").remove(*field);
            }
            prop_assert_eq!(&found.json, item);
            last = place;
        }
    }
    Ok(())
}

/// Whoever watched all the time knows what a list says.
async fn check_watches(server: &Server, from: u64, before: &BTreeMap<&str, Vec<Value>>) -> Result<(), TestCaseError> {
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    for (path, items) in before {
        let list = server.get(path).await;
        let mut known: BTreeMap<_, _> = items.iter().map(|item| (uid(item), rv(item))).collect();
        let watch = format!("{path}?watch=1&timeoutSeconds=2&resourceVersion={from}");
        if list.code == 404 || server.get(&watch).await.text.contains("\"Expired\"") {
            // The definition is gone, or another one of the same name, which has no such past.
            continue;
        }
        let mut watch = server.watch(&watch).await;
        let mut last = from;
        while let Some((kind, object)) = watch.next().await {
            prop_assert!(rv(&object) > last);
            last = rv(&object);
            let was = match kind.as_str() {
                "DELETED" => known.remove(&uid(&object)),
                _ => known.insert(uid(&object), last),
            };
            prop_assert_eq!(was.is_none(), kind == "ADDED", "{} {}", kind, object);
        }
        let items = list.json["items"].as_array().into_iter().flatten();
        prop_assert_eq!(known, items.map(|item| (uid(item), rv(item))).collect());
    }
    Ok(())
}

/// The controllers are still at work: a namespace goes.
async fn check_controllers(server: &Server) {
    server.post("/api/v1/namespaces", json!({"metadata": {"name": "last"}})).await.expect(201);
    server.delete("/api/v1/namespaces/last").await.expect(200);
    server.server.wait_idle().await;
    server.get("/api/v1/namespaces/last").await.expect(404);
}

async fn check_sequence(server: &Server, requests: &[Request]) -> Result<(), TestCaseError> {
    let from = server.server.revision();
    let mut before = BTreeMap::new();
    for path in COLLECTIONS {
        before.insert(path, server.get(path).await.expect(200).json["items"].as_array().cloned().unwrap_or_default());
    }
    for request in requests {
        let revision = server.server.revision();
        let reply = send(server, request).await;
        check_reply(request, &reply)?;
        timeout(Duration::from_mins(1), server.server.wait_idle())
            .await
            .map_err(|_| TestCaseError::fail(format!("never idle after {request:?}")))?;
        let now = server.server.revision();
        // A deletion with a body looks for options only there.
        let looks_at_query = request.method != "DELETE" || request.body.is_empty();
        let pretends = looks_at_query && request.path.contains("dryRun=All");
        // The real server sees only when a write is done that its answer cannot have the form that was asked for.
        let says = |words: &str| reply.text.contains(words);
        let too_late = says("you requested Partial") || says("content is not a list");
        let harmless = (reply.code >= 400 && !too_late) || matches!(request.method, "GET" | "HEAD") || pretends;
        prop_assert!(now >= revision && (now == revision || !harmless), "{:?}: {}", request, reply.text);
        if now > revision {
            check_objects(server).await?;
        }
    }
    check_watches(server, from, &before).await?;
    check_controllers(server).await;
    Ok(())
}

#[test]
fn soak_anything_is_answered_and_nothing_breaks() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let base = runtime.block_on(async {
        let server = Server::with_widgets().await;
        server.post("/api/v1/namespaces", json!({"metadata": {"name": "other"}})).await.expect(201);
        server.post(WIDGETS, widget("a")).await.expect(201);
        server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
        server
    });
    check_property(this_test!(), 150, |config| {
        let result = TestRunner::new(config).run(&prop::collection::vec(request(), 1..30), |requests| {
            runtime.block_on(async { check_sequence(&Server::of(base.server.fork()), &requests).await })
        });
        if let Err(error) = result {
            panic!("{error}");
        }
    });
}
