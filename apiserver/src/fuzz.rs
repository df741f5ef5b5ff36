//! Bodies of the fuzz targets in `fuzz/`. Each takes any bytes and panics if an invariant breaks.
//!
//! Feature `__internals`; not part of the API. A test runs each on its corpus, without libFuzzer.

use crate::{
    ApiServer, Options,
    schema::{Schema, quantity},
    selector::{FieldSelector, LabelSelector},
};
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::{
    runtime::{self, Runtime},
    task::yield_now,
    time::timeout,
};
use tower_service::Service as _;

/// Longest wait for a response. Watches and reads at a future revision do not respond at once.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(50);

/// Longest time to compile and evaluate one rule. Builds without optimisation take a tenth of it.
const RULE_TIMEOUT: Duration = Duration::from_secs(20);

/// Upper bound of the number of tasks of one server.
const TASKS: usize = 32;

/// Methods of [`requests`].
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// Requests that [`bodies`] sends: method, path and content type.
const WRITES: [(&str, &str, &str); 8] = [
    (
        "POST",
        "/api/v1/namespaces/default/configmaps",
        "application/json",
    ),
    (
        "POST",
        "/api/v1/namespaces/default/configmaps",
        "application/yaml",
    ),
    (
        "POST",
        "/api/v1/namespaces/default/pods",
        "application/json",
    ),
    (
        "POST",
        "/apis/apps/v1/namespaces/default/deployments",
        "application/json",
    ),
    (
        "POST",
        "/apis/example.com/v1/namespaces/default/widgets",
        "application/json",
    ),
    (
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "application/json",
    ),
    (
        "PUT",
        "/apis/example.com/v1/namespaces/default/widgets/a",
        "application/json",
    ),
    (
        "DELETE",
        "/api/v1/namespaces/default/configmaps/a",
        "application/json",
    ),
];

/// Requests that [`patches`] sends: path and content type.
const PATCHES: [(&str, &str); 5] = [
    (
        "/api/v1/namespaces/default/configmaps/a",
        "application/json-patch+json",
    ),
    (
        "/api/v1/namespaces/default/configmaps/a",
        "application/merge-patch+json",
    ),
    (
        "/apis/example.com/v1/namespaces/default/widgets/a",
        "application/json-patch+json",
    ),
    (
        "/apis/example.com/v1/namespaces/default/widgets/a",
        "application/merge-patch+json",
    ),
    (
        "/apis/example.com/v1/namespaces/default/widgets/a/status",
        "application/merge-patch+json",
    ),
];

/// Sends a request with any path and query. The first byte chooses the method.
pub fn requests(data: &[u8]) {
    let Some((choice, uri)) = data.split_first() else {
        return;
    };
    let Ok(uri) = Uri::try_from(uri) else { return };
    if uri.path().starts_with('/') {
        send(
            METHODS[usize::from(*choice) % METHODS.len()],
            &uri,
            "application/json",
            &[],
        );
    }
}

/// Sends a write with any body. The first byte chooses the request.
pub fn bodies(data: &[u8]) {
    let Some((choice, body)) = data.split_first() else {
        return;
    };
    let (method, path, content_type) = WRITES[usize::from(*choice) % WRITES.len()];
    send(method, &Uri::from_static(path), content_type, body);
}

/// Sends any patch. The first byte chooses its type and the object.
pub fn patches(data: &[u8]) {
    let Some((choice, body)) = data.split_first() else {
        return;
    };
    let (path, content_type) = PATCHES[usize::from(*choice) % PATCHES.len()];
    send("PATCH", &Uri::from_static(path), content_type, body);
}

/// Parses label and field selectors, and matches them.
pub fn selectors(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
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
/// Invariants: parsing the text of a quantity yields the same amount. Rounding is idempotent.
pub fn quantities(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    let read = |text: &str| quantity::from_value(&Value::from(text));
    let Some(quantity) = read(text) else { return };
    // The first text may be rounded, and a binary quantity without a suffix parses as a decimal
    // one, so the second text is compared with the third.
    let shown = read(&quantity.to_string()).expect("its own text is valid");
    let reparsed = read(&shown.to_string()).expect("its own text is valid");
    assert!(
        reparsed.is_equal_amount(shown),
        "{quantity}, {shown} and {reparsed} of {text:?}"
    );
    assert_eq!(reparsed.to_string(), shown.to_string(), "of {text:?}");
    let rounded = quantity.round_up_to_thousandths();
    assert!(
        rounded.round_up_to_thousandths().is_equal_amount(rounded),
        "{rounded} of {text:?}"
    );
}

/// Compiles a rule, and evaluates it on objects that are valid and invalid.
///
/// Invariant: a rule is an error of the CRD, or its evaluation ends within the limit.
pub fn cel_rules(data: &[u8]) {
    let Ok(rule) = str::from_utf8(data) else {
        return;
    };
    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "d": {"type": "number"},
            "s": {"type": "string", "maxLength": 100},
            "b": {"type": "boolean"},
            "namespace": {"type": "string", "maxLength": 20},
            "time": {"type": "string", "format": "date-time"},
            "wait": {"type": "string", "format": "duration"},
            "port": {"x-kubernetes-int-or-string": true, "maxLength": 20},
            "nums": {"type": "array", "maxItems": 20, "items": {"type": "integer"}},
            "set": {"type": "array", "maxItems": 20, "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 20}},
            "list": {
                "type": "array", "maxItems": 20, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string", "maxLength": 20}, "v": {"type": "integer"}}},
            },
            "map": {"type": "object", "maxProperties": 20, "additionalProperties": {"type": "integer"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        },
        "x-kubernetes-validations": [{"rule": rule, "message": "m", "messageExpression": "string(self.n)"}],
    }}});
    let started = Instant::now();
    if let Ok(schema) = Schema::from_crd(&schema, false, "s") {
        let object = json!({"spec": {
            "n": 3, "d": 1.5, "s": "hello", "b": true, "namespace": "x", "time": "2024-05-06T07:08:09Z", "wait": "90s",
            "port": "80%", "nums": [1, 2, 3], "set": ["a", "b"], "list": [{"k": "a", "v": 1}, {"k": "b", "v": 2}],
            "map": {"x": 1, "y": 2}, "free": {"any": 1},
        }});
        let empty = json!({"spec": {}});
        for (object, old) in [
            (&object, None),
            (&empty, None),
            (&object, Some(&empty)),
            (&empty, Some(&object)),
        ] {
            let found = schema.validate(object, old);
            assert!(found.errors.len() <= 1, "{:?}", found.errors);
        }
    }
    assert!(
        started.elapsed() < RULE_TIMEOUT,
        "{rule:?} takes {:?}",
        started.elapsed()
    );
}

thread_local! {
    /// A server with one object of each kind that is written to. Every input runs on a fork.
    static SERVER: (Runtime, ApiServer) = server();
}

fn server() -> (Runtime, ApiServer) {
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let server = runtime.block_on(async {
        let server = ApiServer::new(Options { seed: Some(1), ..Options::default() }).expect("a server");
        let objects = [
            ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widget_crd()),
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

fn widget_crd() -> Value {
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
            // The controllers process the write, too.
            let _ = timeout(RESPONSE_TIMEOUT, server.wait_idle()).await;
            drop(server);
            // Lets the tasks of the server end. The runtime runs tasks only here.
            for _ in 0..TASKS {
                yield_now().await;
            }
        });
    });
}

/// Returns the status of the response, or `None` if it is not complete in time.
///
/// Panics: the server responds with a server error or with invalid JSON.
async fn answer(
    server: &ApiServer,
    method: &str,
    uri: &Uri,
    content_type: &str,
    body: &[u8],
) -> Option<StatusCode> {
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header(header::CONTENT_TYPE, content_type);
    let request = request
        .body(Full::new(Bytes::copy_from_slice(body)))
        .expect("a request");
    let response = timeout(RESPONSE_TIMEOUT, server.service().call(request))
        .await
        .ok()?
        .expect("an answer");
    let (parts, body) = response.into_parts();
    let text = timeout(RESPONSE_TIMEOUT, body.collect())
        .await
        .ok()?
        .expect("a body")
        .to_bytes();
    let shown = String::from_utf8_lossy(&text);
    let status = parts.status;
    assert!(
        !status.is_server_error() || is_expected_error(status, method, &shown),
        "{method} {uri}: {status} {shown}"
    );
    let is_json = parts
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value == "application/json");
    if is_json && !text.is_empty() && uri.query().is_none() {
        assert!(
            serde_json::from_slice::<Value>(&text).is_ok(),
            "{method} {uri}: {shown}"
        );
    }
    Some(status)
}

/// Returns whether kube-apiserver responds to such a request with this status, too.
fn is_expected_error(status: StatusCode, method: &str, text: &str) -> bool {
    let messages: &[&str] = match status {
        StatusCode::INTERNAL_SERVER_ERROR => &[
            "resourceVersion should not be set",
            "strconv.ParseUint",
            "content is not a list",
        ],
        StatusCode::GATEWAY_TIMEOUT => &["Too large resource version"],
        _ => return false,
    };
    // A response to HEAD has no message.
    method == "HEAD" || messages.iter().any(|message| text.contains(message))
}
