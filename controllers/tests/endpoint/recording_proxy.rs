//! Proxy in front of either server that records requests.
//!
//! It can change responses.

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;
use tower::service_fn;

/// Recorded request. Lists and watches are not recorded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordedRequest {
    pub(crate) method: Method,
    /// Path from the resource on: `captcontrolplanes/plane/status`.
    pub(crate) path: String,
    /// Body of the request. `Null` if it has none.
    pub(crate) body: Value,
}

impl RecordedRequest {
    pub(crate) fn is(&self, method: &Method, path: &str) -> bool {
        self.method == method && self.path == path
    }
}

/// Treatment of a request by the proxy.
pub(crate) enum Treatment {
    Pass,
    /// Returns this response without calling the server.
    Respond(StatusCode, Value),
    /// Calls the server and changes its response.
    ChangeResponse(fn(&mut Value)),
}

type ChooseTreatment = dyn Fn(&RecordedRequest) -> Treatment + Send + Sync;

/// Recording proxy. Clones share the record.
#[derive(Clone)]
pub(crate) struct RecordingProxy {
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
    choose: Arc<ChooseTreatment>,
}

impl RecordingProxy {
    pub(crate) fn new(
        choose: impl Fn(&RecordedRequest) -> Treatment + Send + Sync + 'static,
    ) -> Self {
        Self {
            requests: Arc::default(),
            choose: Arc::new(choose),
        }
    }

    /// Creates a proxy that only records.
    pub(crate) fn recording() -> Self {
        Self::new(|_| Treatment::Pass)
    }

    /// Creates a client whose requests pass this proxy.
    pub(crate) fn client(&self, inner: kube::Client) -> kube::Client {
        let this = self.clone();
        let service = service_fn(move |request| {
            let (this, inner) = (this.clone(), inner.clone());
            async move { this.pass(inner, request).await }
        });
        kube::Client::new(service, "default")
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().clone()
    }

    /// Counts the requests with this method and path.
    pub(crate) fn count(&self, method: &Method, path: &str) -> usize {
        self.requests
            .lock()
            .iter()
            .filter(|request| request.is(method, path))
            .count()
    }

    async fn pass(
        &self,
        inner: kube::Client,
        request: Request<Body>,
    ) -> anyhow::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let Some(path) = object_path(parts.uri.path(), &parts.method) else {
            return Ok(inner.send(Request::from_parts(parts, body)).await?);
        };
        let body = body.collect().await?.to_bytes();
        let request = RecordedRequest {
            method: parts.method.clone(),
            path,
            body: serde_json::from_slice(&body).unwrap_or_default(),
        };
        let twist = (self.choose)(&request);
        self.requests.lock().push(request);
        if let Treatment::Respond(status, answer) = &twist {
            let response = Response::builder()
                .status(status)
                .header("content-type", "application/json");
            return Ok(response.body(Body::from(serde_json::to_vec(answer)?))?);
        }
        let response = inner
            .send(Request::from_parts(parts, Body::from(body.to_vec())))
            .await?;
        let Treatment::ChangeResponse(change) = twist else {
            return Ok(response);
        };
        let (mut parts, body) = response.into_parts();
        let mut answer = serde_json::from_slice(&body.collect().await?.to_bytes())?;
        change(&mut answer);
        parts.headers.remove("content-length");
        Ok(Response::from_parts(
            parts,
            Body::from(serde_json::to_vec(&answer)?),
        ))
    }
}

/// Returns the path from the resource on.
///
/// Returns `None` for lists, watches and paths without a namespace.
fn object_path(path: &str, method: &Method) -> Option<String> {
    let (_, rest) = path.split_once("/namespaces/")?;
    let (_, rest) = rest.split_once('/')?;
    (rest.contains('/') || method != Method::GET).then(|| rest.to_owned())
}
