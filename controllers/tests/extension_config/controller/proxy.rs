//! Proxy between a manager and the API server, which records requests and can reject writes.

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use tower::service_fn;

/// Recorded request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Body of the request. `Null` if it has none.
    pub(crate) body: Value,
}

/// Handle of the proxy. Clones share the record.
#[derive(Clone, Default)]
pub(crate) struct Proxy(Arc<Shared>);

#[derive(Default)]
struct Shared {
    calls: Mutex<Vec<Call>>,
    rejects_writes: AtomicBool,
}

impl Proxy {
    /// Creates a client whose requests pass the proxy.
    pub(crate) fn client(&self, server: kube::Client) -> kube::Client {
        let this = self.clone();
        let pass = move |request| {
            let (this, server) = (this.clone(), server.clone());
            async move { this.pass(server, request).await }
        };
        kube::Client::new(service_fn(pass), "default")
    }

    /// Sets whether writes are answered with an internal error.
    pub(crate) fn reject_writes(&self, reject: bool) {
        self.0.rejects_writes.store(reject, Relaxed);
    }

    /// Returns all requests.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.0.calls.lock().clone()
    }

    /// Returns the requests that were not reads.
    pub(crate) fn writes(&self) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|call| call.method != Method::GET);
        calls
    }

    async fn pass(
        &self,
        server: kube::Client,
        request: Request<Body>,
    ) -> anyhow::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        self.0.calls.lock().push(Call {
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
        });
        if parts.method != Method::GET && self.0.rejects_writes.load(Relaxed) {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500,
                "reason": "InternalError", "message": "the disk is full",
            });
            let body = Body::from(status.to_string().into_bytes());
            return Ok(Response::builder().status(500).body(body)?);
        }
        let request = Request::from_parts(parts, Body::from(body.to_vec()));
        Ok(server.send(request).await?)
    }
}
