//! Bodies of the fuzz targets in `fuzz/`: each takes any bytes and panics if an invariant breaks.
//!
//! Feature `bench-internals`; not part of the API. A test runs each on its corpus, without libFuzzer.

use crate::{
    ApiServer, Options,
    schema::quantity,
    selector::{FieldSelector, LabelSelector},
};
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{
    runtime::{self, Runtime},
    task::yield_now,
    time::timeout,
};
use tower_service::Service as _;

/// Longest wait for an answer. Watches and reads at a future revision do not answer at once.
const PATIENCE: Duration = Duration::from_millis(50);

/// More than the tasks of one server.
const TASKS: usize = 32;

/// Methods of [`requests`].
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// Requests that [`bodies`] sends: method, path and content type.
const WRITES: [(&str, &str, &str); 8] = [
    ("POST", "/api/v1/namespaces/default/configmaps", "application/json"),
    ("POST", "/api/v1/namespaces/default/configmaps", "application/yaml"),
    ("POST", "/api/v1/namespaces/default/pods", "application/json"),
    ("POST", "/apis/apps/v1/namespaces/default/deployments", "application/json"),
    ("POST", "/apis/example.com/v1/namespaces/default/widgets", "application/json"),
    ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/json"),
    ("PUT", "/apis/example.com/v1/namespaces/default/widgets/a", "application/json"),
    ("DELETE", "/api/v1/namespaces/default/configmaps/a", "application/json"),
];

/// Requests that [`patches`] sends: path and content type.
const PATCHES: [(&str, &str); 5] = [
    ("/api/v1/namespaces/default/configmaps/a", "application/json-patch+json"),
    ("/api/v1/namespaces/default/configmaps/a", "application/merge-patch+json"),
    ("/apis/example.com/v1/namespaces/default/widgets/a", "application/json-patch+json"),
    ("/apis/example.com/v1/namespaces/default/widgets/a", "application/merge-patch+json"),
    ("/apis/example.com/v1/namespaces/default/widgets/a/status", "application/merge-patch+json"),
];

/// Sends a request with any path and query. The first byte chooses the method.
pub fn requests(data: &[u8]) {
    let Some((choice, uri)) = data.split_first() else { return };
    let Ok(uri) = Uri::try_from(uri) else { return };
    if uri.path().starts_with('/') {
        send(METHODS[usize::from(*choice) % METHODS.len()], &uri, "application/json", &[]);
    }
}

/// Sends a write with any body. The first byte chooses the request.
pub fn bodies(data: &[u8]) {
    let Some((choice, body)) = data.split_first() else { return };
    let (method, path, content_type) = WRITES[usize::from(*choice) % WRITES.len()];
    send(method, &Uri::from_static(path), content_type, body);
}

/// Sends any patch. The first byte chooses its type and the object.
pub fn patches(data: &[u8]) {
    let Some((choice, body)) = data.split_first() else { return };
    let (path, content_type) = PATCHES[usize::from(*choice) % PATCHES.len()];
    send("PATCH", &Uri::from_static(path), content_type, body);
}

/// Parses label and field selectors, and matches them.
pub fn selectors(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    if let Ok(selector) = LabelSelector::parse(text) {
        selector.matches(|_| None);
        selector.matches(|_| Some("7"));
    }
    if let Ok(selector) = FieldSelector::parse(text) {
        selector.matches(|_| "7".into());
    }
}

/// Parses a quantity.
///
/// Invariants: the text of a quantity is read as the amount that it shows. Rounding twice is rounding once.
pub fn quantities(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let read = |text: &str| quantity::of(&Value::from(text));
    let Some(quantity) = read(text) else { return };
    // The text is rounded, and a binary quantity without a suffix is read as a decimal one: the second text is final.
    let shown = read(&quantity.to_string()).expect("its own text is valid");
    let again = read(&shown.to_string()).expect("its own text is valid");
    assert!(again.is_as_much_as(shown), "{quantity}, {shown} and {again} of {text:?}");
    assert_eq!(again.to_string(), shown.to_string(), "of {text:?}");
    let rounded = quantity.in_thousandths();
    assert!(rounded.in_thousandths().is_as_much_as(rounded), "{rounded} of {text:?}");
}

thread_local! {
    /// A server with one object of each kind that is written to. Every input runs on a fork.
    static SERVER: (Runtime, ApiServer) = server();
}

fn server() -> (Runtime, ApiServer) {
    let runtime = runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let server = runtime.block_on(async {
        let server = ApiServer::new(Options { seed: Some(1), ..Options::default() }).expect("a server");
        let objects = [
            ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition()),
            ("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "a"}, "data": {"x": "y"}})),
            (
                "/apis/example.com/v1/namespaces/default/widgets",
                json!({
                    "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"tags": ["x"]},
                }),
            ),
        ];
        for (path, object) in objects {
            let body = object.to_string();
            let status = answer(&server, "POST", &Uri::from_static(path), "application/json", body.as_bytes()).await;
            assert_eq!(status, Some(StatusCode::CREATED), "{path}");
            server.wait_idle().await;
        }
        server
    });
    (runtime, server)
}

fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
            "size": {"x-kubernetes-int-or-string": true},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        }},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }});
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

/// Sends a request to a fork of the server.
fn send(method: &str, uri: &Uri, content_type: &str, body: &[u8]) {
    SERVER.with(|(runtime, server)| {
        runtime.block_on(async {
            let server = server.fork();
            answer(&server, method, uri, content_type, body).await;
            // The controllers see the write, too.
            let _ = timeout(PATIENCE, server.wait_idle()).await;
            drop(server);
            // Lets the tasks of the server end. The runtime runs tasks only here.
            for _ in 0..TASKS {
                yield_now().await;
            }
        });
    });
}

/// Returns the status of the answer, or `None` if there is no complete answer in time.
///
/// Panics if the server fails, or if it answers with invalid JSON.
async fn answer(server: &ApiServer, method: &str, uri: &Uri, content_type: &str, body: &[u8]) -> Option<StatusCode> {
    let request = Request::builder().method(method).uri(uri).header(header::CONTENT_TYPE, content_type);
    let request = request.body(Full::new(Bytes::copy_from_slice(body))).expect("a request");
    let response = timeout(PATIENCE, server.service().call(request)).await.ok()?.expect("an answer");
    let (parts, body) = response.into_parts();
    let text = timeout(PATIENCE, body.collect()).await.ok()?.expect("a body").to_bytes();
    let shown = String::from_utf8_lossy(&text);
    let status = parts.status;
    assert!(!status.is_server_error() || is_excused(status, method, &shown), "{method} {uri}: {status} {shown}");
    let is_json = parts.headers.get(header::CONTENT_TYPE).is_some_and(|value| value == "application/json");
    if is_json && !text.is_empty() && uri.query().is_none() {
        assert!(serde_json::from_slice::<Value>(&text).is_ok(), "{method} {uri}: {shown}");
    }
    Some(status)
}

/// Returns whether the real server answers such a request with this status, too.
fn is_excused(status: StatusCode, method: &str, text: &str) -> bool {
    let messages: &[&str] = match status {
        StatusCode::INTERNAL_SERVER_ERROR => {
            &["resourceVersion should not be set", "strconv.ParseUint", "content is not a list"]
        }
        StatusCode::GATEWAY_TIMEOUT => &["Too large resource version"],
        _ => return false,
    };
    // The answer to HEAD has no message.
    method == "HEAD" || messages.iter().any(|message| text.contains(message))
}
