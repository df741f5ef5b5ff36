//! Test client for the embedded server.
//!
//! [`Server`] sends requests through the service in the same process, [`Reply`] is a response and
//! [`Watch`] reads watch events line by line. The module also holds the objects that most tests
//! use.

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::time::Duration;
use steersman_apiserver::{ApiServer, Body, Options, Service};
use tower_service::Service as _;

/// Limit for every response and watch event. Only a hanging server reaches it.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Embedded server and the service that carries requests to it.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) server: ApiServer,
    service: Service,
}

/// Response of the server.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    /// Parsed body, `Null` if it is not JSON.
    pub(crate) json: Value,
}

impl Reply {
    /// Asserts the status code.
    #[track_caller]
    pub(crate) fn expect(self, code: u16) -> Self {
        assert_eq!(self.code, code, "{}", self.text);
        self
    }

    pub(crate) fn reason(&self) -> &str {
        self.json["reason"].as_str().unwrap_or_default()
    }

    pub(crate) fn message(&self) -> &str {
        self.json["message"].as_str().unwrap_or_default()
    }

    /// Returns the fields in `details.causes`, sorted.
    pub(crate) fn cause_fields(&self) -> Vec<&str> {
        let causes = self.json["details"]["causes"]
            .as_array()
            .into_iter()
            .flatten();
        let mut fields: Vec<_> = causes.filter_map(|cause| cause["field"].as_str()).collect();
        fields.sort_unstable();
        fields
    }

    pub(crate) fn rv(&self) -> u64 {
        rv(&self.json)
    }

    pub(crate) fn warnings(&self) -> Vec<&str> {
        self.headers
            .get_all("warning")
            .iter()
            .filter_map(|warning| warning.to_str().ok())
            .collect()
    }

    /// Returns the names of the items of a list.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.json["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|item| item["metadata"]["name"].as_str())
            .collect()
    }
}

/// Returns the resource version of an object or list as a revision, 0 if it has none.
pub(crate) fn rv(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";

impl Server {
    pub(crate) fn start() -> Self {
        Self::with_options(Options::default())
    }

    pub(crate) fn with_options(options: Options) -> Self {
        Self::new(ApiServer::new(options).expect("a server without data starts"))
    }

    pub(crate) fn new(server: ApiServer) -> Self {
        Self {
            service: server.service(),
            server,
        }
    }

    pub(crate) async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(body))
            .expect("a well-formed request");
        self.service
            .clone()
            .call(request)
            .await
            .expect("a response")
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let response =
            tokio::time::timeout(TIMEOUT, self.raw(method, path, headers, body.into())).await;
        let (parts, body) = response.expect("an answer in time").into_parts();
        let body = tokio::time::timeout(TIMEOUT, body.collect())
            .await
            .expect("a body in time")
            .expect("a whole body");
        let body = body.to_bytes();
        Reply {
            code: parts.status.as_u16(),
            headers: parts.headers,
            text: String::from_utf8_lossy(&body).into_owned(),
            json: serde_json::from_slice(&body).unwrap_or_default(),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.send(
            "POST",
            path,
            &[("content-type", "application/json")],
            body.to_string(),
        )
        .await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Reply {
        self.send(
            "PUT",
            path,
            &[("content-type", "application/json")],
            body.to_string(),
        )
        .await
    }

    pub(crate) async fn merge(&self, path: &str, patch: Value) -> Reply {
        self.send("PATCH", path, &[("content-type", MERGE)], patch.to_string())
            .await
    }

    pub(crate) async fn json_patch(&self, path: &str, patch: Value) -> Reply {
        self.send(
            "PATCH",
            path,
            &[("content-type", JSON_PATCH)],
            patch.to_string(),
        )
        .await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.send("DELETE", path, &[], "").await
    }

    pub(crate) async fn delete_with(&self, path: &str, options: Value) -> Reply {
        self.send(
            "DELETE",
            path,
            &[("content-type", "application/json")],
            options.to_string(),
        )
        .await
    }

    /// Opens a watch. `path` includes `watch=1`.
    pub(crate) async fn watch(&self, path: &str) -> Watch {
        self.watch_as(path, &[]).await
    }

    pub(crate) async fn watch_as(&self, path: &str, headers: &[(&str, &str)]) -> Watch {
        let response = self.raw("GET", path, headers, Bytes::new()).await;
        assert_eq!(response.status(), 200, "{path}");
        Watch {
            body: response.into_body(),
            buffer: Vec::new(),
        }
    }

    /// Creates a CRD and waits until it is established.
    pub(crate) async fn install(&self, crd: Value) {
        let name = crd["metadata"]["name"]
            .as_str()
            .expect("a CRD has a name")
            .to_owned();
        self.post(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            crd,
        )
        .await
        .expect(201);
        self.server.wait_idle().await;
        let crd = self
            .get(&format!(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
            ))
            .await;
        let established = crd.json["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten();
        let established = established.filter(|condition| {
            condition["type"] == "Established" && condition["status"] == "True"
        });
        assert_eq!(established.count(), 1, "{}", crd.text);
    }

    /// Starts a server that serves widgets.
    pub(crate) async fn with_widgets() -> Self {
        let server = Self::start();
        server.install(widgets()).await;
        server
    }
}

/// Body of a watch, read line by line.
pub(crate) struct Watch {
    body: Body,
    buffer: Vec<u8>,
}

impl Watch {
    /// Returns type and object of the next event, `None` at the end of the watch.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).expect("an event is JSON");
                return Some((
                    event["type"].as_str().expect("a type").into(),
                    event["object"].clone(),
                ));
            }
            let frame = tokio::time::timeout(TIMEOUT, self.body.frame())
                .await
                .expect("an event in time")?;
            self.buffer
                .extend_from_slice(frame.expect("a frame").data_ref().expect("data"));
        }
    }

    /// Returns the type of the next event and the name of its object.
    pub(crate) async fn next_name(&mut self) -> (String, String) {
        let (kind, object) = self.next().await.expect("an event");
        (
            kind,
            object["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .into(),
        )
    }

    /// Returns the next `n` events.
    ///
    /// To assert that a request causes no event, make a change after it and expect the event of
    /// that change first.
    pub(crate) async fn take(&mut self, n: usize) -> Vec<(String, Value)> {
        let mut events = Vec::new();
        while events.len() < n {
            events.push(self.next().await.expect("an event"));
        }
        events
    }
}

pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

pub(crate) fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"color": "red"}})
}

/// CRD of widgets: status and scale, a default, an enum, lists of all types, two versions.
pub(crate) fn widgets() -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["color"], "properties": {
            "color": {"type": "string", "enum": ["red", "green", "blue"]},
            "replicas": {"type": "integer", "format": "int32", "default": 1, "minimum": 0, "maximum": 10},
            "note": {"type": "string", "nullable": true, "maxLength": 20},
            "size": {"x-kubernetes-int-or-string": true},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
                "type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"},
                    "port": {"type": "integer"},
                    "protocol": {"type": "string", "default": "TCP"},
                },
            }},
        }},
        "status": {"type": "object", "properties": {
            "replicas": {"type": "integer"},
            "selector": {"type": "string"},
            "phase": {"type": "string"},
        }},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                 "subresources": {"status": {}, "scale": {
                     "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                     "labelSelectorPath": ".status.selector"}},
                 "additionalPrinterColumns": [
                     {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
                     {"name": "Phase", "type": "string", "jsonPath": ".status.phase"}]},
                {"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema},
                 "subresources": {"status": {}}},
            ],
        },
    })
}
