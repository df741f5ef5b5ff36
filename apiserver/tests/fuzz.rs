//! Random requests to all endpoints: every response is well-formed, and the state stays consistent.

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

const STATUSES: [u16; 13] = [
    200, 201, 304, 400, 403, 404, 405, 406, 409, 410, 413, 415, 422,
];

/// Returns whether the real server answers this request with a 5xx code as well.
fn is_known_5xx(reply: &Reply) -> bool {
    // Searches the text because the body may be YAML.
    let contains = |text: &str| reply.text.contains(text);
    match reply.code {
        500 => {
            contains("resourceVersion should not be set")
                || contains("strconv.ParseUint")
                || contains("content is not a list")
        }
        504 => contains("Too large resource version"),
        _ => false,
    }
}

/// Sends a request. Reads a watch until it is silent for four seconds.
async fn send(server: &Server, request: &Request) -> Reply {
    let Request {
        method,
        path,
        headers,
        body,
    } = request;
    let (parts, mut body) = server
        .raw(method, path, headers, body.clone().into())
        .await
        .into_parts();
    let mut text = Vec::new();
    while let Ok(Some(frame)) = timeout(Duration::from_secs(4), body.frame()).await {
        text.extend_from_slice(frame.expect("no body fails").data_ref().expect("data"));
    }
    Reply {
        code: parts.status.as_u16(),
        headers: parts.headers,
        json: serde_json::from_slice(&text).unwrap_or_default(),
        text: String::from_utf8(text).expect("bodies are UTF-8"),
    }
}

/// Checks that the status code is expected and that the body is an object, a `Status` or watch
/// events.
fn check_reply(request: &Request, reply: &Reply) -> Result<(), TestCaseError> {
    // A HEAD response has no body with the reason.
    let known_5xx =
        is_known_5xx(reply) || (request.method == "HEAD" && matches!(reply.code, 500 | 504));
    prop_assert!(
        STATUSES.contains(&reply.code) || known_5xx,
        "{:?}: {} {}",
        request,
        reply.code,
        reply.text
    );
    let content_type = reply.headers["content-type"].to_str().unwrap();
    if !content_type.starts_with("application/json")
        || reply.code == 304
        || request.method == "HEAD"
    {
        return Ok(());
    }
    for line in reply.text.lines().filter(|_| reply.json.is_null()) {
        let event: Value = serde_json::from_str(line)
            .map_err(|error| TestCaseError::fail(format!("{request:?} {error}")))?;
        prop_assert!(
            event["type"].is_string() && event["object"]["kind"].is_string(),
            "{:?}: {}",
            request,
            line
        );
    }
    if reply.code >= 400 {
        prop_assert_eq!(
            &reply.json["kind"],
            "Status",
            "{:?}: {}",
            request,
            &reply.text
        );
        prop_assert_eq!(&reply.json["code"], reply.code);
    } else if !reply.json.is_null() {
        // Fields of an object, a watch event, the list of paths and the version.
        let known = ["kind", "type", "paths", "major"];
        prop_assert!(
            known.iter().any(|field| !reply.json[*field].is_null()),
            "{:?}: {}",
            request,
            reply.text
        );
    }
    Ok(())
}

/// Checks that every listed object can be read on its own and decoded by clients.
async fn check_objects(server: &Server) -> Result<(), TestCaseError> {
    let decode_error = |text: &str, path: &str| match path {
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
            // The CRD may be deleted.
            continue;
        }
        let mut last = String::new();
        for item in list.json["items"].as_array().into_iter().flatten() {
            let meta = &item["metadata"];
            let text = |field: &str| meta[field].as_str().unwrap_or_default();
            prop_assert!(
                !text("uid").is_empty() && !text("creationTimestamp").is_empty(),
                "{}",
                item
            );
            prop_assert!(rv(item) <= list.rv());
            let (collection, plural) = path.rsplit_once('/').unwrap_or_default();
            let object_path = match text("namespace") {
                "" => format!("{path}/{}", text("name")),
                namespace => format!(
                    "{collection}/namespaces/{namespace}/{plural}/{}",
                    text("name")
                ),
            };
            prop_assert!(object_path > last, "lists are sorted");
            let mut found = server.get(&object_path).await.expect(200);
            prop_assert_eq!(
                decode_error(&found.text, path).map(|error| error.to_string()),
                None,
                "{}",
                &found.text
            );
            for field in ["kind", "apiVersion"]
                .iter()
                .filter(|field| item[**field].is_null())
            {
                found
                    .json
                    .as_object_mut()
                    .expect("an object")
                    .remove(*field);
            }
            prop_assert_eq!(&found.json, item);
            last = object_path;
        }
    }
    Ok(())
}

/// Checks that the events since `from` lead from the objects in `before` to the current lists.
async fn check_watches(
    server: &Server,
    from: u64,
    before: &BTreeMap<&str, Vec<Value>>,
) -> Result<(), TestCaseError> {
    let uid = |object: &Value| {
        object["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    for (path, items) in before {
        let list = server.get(path).await;
        let mut known: BTreeMap<_, _> = items.iter().map(|item| (uid(item), rv(item))).collect();
        let watch = format!("{path}?watch=1&timeoutSeconds=2&resourceVersion={from}");
        if list.code == 404 || server.get(&watch).await.text.contains("\"Expired\"") {
            // The CRD is deleted, or created again without the history of the first.
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

/// Checks that the controllers still run by deleting a namespace.
async fn check_controllers(server: &Server) {
    server
        .post("/api/v1/namespaces", json!({"metadata": {"name": "last"}}))
        .await
        .expect(201);
    server.delete("/api/v1/namespaces/last").await.expect(200);
    server.server.wait_idle().await;
    server.get("/api/v1/namespaces/last").await.expect(404);
}

async fn check_sequence(server: &Server, requests: &[Request]) -> Result<(), TestCaseError> {
    let from = server.server.revision();
    let mut before = BTreeMap::new();
    for path in COLLECTIONS {
        before.insert(
            path,
            server.get(path).await.expect(200).json["items"]
                .as_array()
                .cloned()
                .unwrap_or_default(),
        );
    }
    for request in requests {
        let revision = server.server.revision();
        let reply = send(server, request).await;
        check_reply(request, &reply)?;
        timeout(Duration::from_mins(1), server.server.wait_idle())
            .await
            .map_err(|_| TestCaseError::fail(format!("never idle after {request:?}")))?;
        let now = server.server.revision();
        // DELETE ignores the query if it has a body.
        let query_applies = request.method != "DELETE" || request.body.is_empty();
        let dry_run = query_applies && request.path.contains("dryRun=All");
        // The real server rejects these representations only after the write.
        let contains = |text: &str| reply.text.contains(text);
        let failed_after_write =
            contains("you requested Partial") || contains("content is not a list");
        let must_not_write = (reply.code >= 400 && !failed_after_write)
            || matches!(request.method, "GET" | "HEAD")
            || dry_run;
        prop_assert!(
            now >= revision && (now == revision || !must_not_write),
            "{:?}: {}",
            request,
            reply.text
        );
        if now > revision {
            check_objects(server).await?;
        }
    }
    check_watches(server, from, &before).await?;
    check_controllers(server).await;
    Ok(())
}

#[test]
fn soak_random_requests_get_valid_responses_and_keep_the_state_consistent() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let base = runtime.block_on(async {
        let server = Server::with_widgets().await;
        server
            .post("/api/v1/namespaces", json!({"metadata": {"name": "other"}}))
            .await
            .expect(201);
        server.post(WIDGETS, widget("a")).await.expect(201);
        server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
        server
    });
    check_property(this_test!(), 150, |config| {
        let result =
            TestRunner::new(config).run(&prop::collection::vec(request(), 1..30), |requests| {
                runtime.block_on(async {
                    check_sequence(&Server::new(base.server.fork()), &requests).await
                })
            });
        if let Err(error) = result {
            panic!("{error}");
        }
    });
}
