//! A server with a custom resource, and helpers for requests.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use steersman_apiserver::{ApiServer, Body, Options, Service};
use tower_service::Service as _;

pub(crate) const PATH: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// Returns a CRD with a typical schema: types, a default, limits and a status.
fn definition() -> Value {
    let field = |kind: &str| json!({"type": kind});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["color"], "properties": {
                        "color": {"type": "string", "enum": ["red", "green", "blue"]},
                        "replicas": {"type": "integer", "default": 1, "maximum": 1000},
                        "text": {"type": "string", "maxLength": 100_000},
                        "parts": {"type": "array", "maxItems": 100, "items": {"type": "object", "properties": {
                            "name": field("string"), "size": field("integer"), "on": field("boolean"),
                        }}},
                    }},
                    "status": {"type": "object", "properties": {"phase": field("string")}},
                }}},
            }],
        },
    })
}

/// Returns a widget of about `bytes` bytes of JSON.
pub(crate) fn widget(name: &str, bytes: usize) -> Value {
    let parts: Vec<_> = (0..8)
        .map(|n| json!({"name": format!("part-{n}"), "size": n, "on": true}))
        .collect();
    let mut widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": name, "labels": {"app": "bench", "tier": "one"}, "annotations": {"made-by": "the bench"}},
        "spec": {"color": "red", "parts": parts, "text": ""},
    });
    let missing = bytes.saturating_sub(widget.to_string().len());
    widget["spec"]["text"] = "x".repeat(missing).into();
    widget
}

pub(crate) async fn server(history: usize) -> (ApiServer, Service) {
    let server = ApiServer::new(Options {
        history,
        ..Options::default()
    })
    .expect("the server starts");
    server
        .install(definition())
        .await
        .expect("the CRD is valid");
    let service = server.service();
    (server, service)
}

pub(crate) async fn send(
    service: &mut Service,
    method: &str,
    path: &str,
    body: Bytes,
) -> Response<Body> {
    let kind = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let builder = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind);
    let request = builder.body(Full::new(body)).expect("a request");
    service.call(request).await.expect("a response")
}

/// Sends a request and reads the whole response.
pub(crate) async fn request(service: &mut Service, method: &str, path: &str, body: Bytes) -> Bytes {
    let response = send(service, method, path, body).await;
    assert!(
        response.status().is_success(),
        "{method} {path}: {}",
        response.status()
    );
    response
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes()
}

/// Creates `count` widgets of about `bytes` bytes each.
pub(crate) async fn fill(service: &mut Service, count: usize, bytes: usize) {
    for n in 0..count {
        request(
            service,
            "POST",
            PATH,
            widget(&format!("widget-{n:06}"), bytes).to_string().into(),
        )
        .await;
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}
