//! Somebody between the controller and either server, who sees what is asked and may twist what is answered.

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;
use tower::service_fn;

/// What was asked: everything but reads of many and watches.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    /// From the resource on: `captcontrolplanes/plane/status`.
    pub(crate) path: String,
    /// `Null` if there is none.
    pub(crate) body: Value,
}

impl Asked {
    pub(crate) fn is(&self, method: &Method, path: &str) -> bool {
        self.method == method && self.path == path
    }
}

/// What becomes of it.
pub(crate) enum Twist {
    Nothing,
    /// This is answered, and the server does not hear of it.
    Instead(StatusCode, Value),
    /// The server does it, and the answer is changed.
    Changed(fn(&mut Value)),
}

type Twisting = dyn Fn(&Asked) -> Twist + Send + Sync;

/// Clones are the same.
#[derive(Clone)]
pub(crate) struct Between {
    asked: Arc<Mutex<Vec<Asked>>>,
    twisting: Arc<Twisting>,
}

impl Between {
    pub(crate) fn new(twisting: impl Fn(&Asked) -> Twist + Send + Sync + 'static) -> Self {
        Self { asked: Arc::default(), twisting: Arc::new(twisting) }
    }

    /// One who only looks.
    pub(crate) fn seeing() -> Self {
        Self::new(|_| Twist::Nothing)
    }

    /// A client that goes through here.
    pub(crate) fn client(&self, inner: kube::Client) -> kube::Client {
        let this = self.clone();
        let service = service_fn(move |request| {
            let (this, inner) = (this.clone(), inner.clone());
            async move { this.pass(inner, request).await }
        });
        kube::Client::new(service, "default")
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }

    /// How often.
    pub(crate) fn count(&self, method: &Method, path: &str) -> usize {
        self.asked.lock().iter().filter(|asked| asked.is(method, path)).count()
    }

    async fn pass(&self, inner: kube::Client, request: Request<Body>) -> anyhow::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let Some(path) = of_one(parts.uri.path(), &parts.method) else {
            return Ok(inner.send(Request::from_parts(parts, body)).await?);
        };
        let body = body.collect().await?.to_bytes();
        let asked =
            Asked { method: parts.method.clone(), path, body: serde_json::from_slice(&body).unwrap_or_default() };
        let twist = (self.twisting)(&asked);
        self.asked.lock().push(asked);
        if let Twist::Instead(status, answer) = &twist {
            let response = Response::builder().status(status).header("content-type", "application/json");
            return Ok(response.body(Body::from(serde_json::to_vec(answer)?))?);
        }
        let response = inner.send(Request::from_parts(parts, Body::from(body.to_vec()))).await?;
        let Twist::Changed(change) = twist else { return Ok(response) };
        let (mut parts, body) = response.into_parts();
        let mut answer = serde_json::from_slice(&body.collect().await?.to_bytes())?;
        change(&mut answer);
        parts.headers.remove("content-length");
        Ok(Response::from_parts(parts, Body::from(serde_json::to_vec(&answer)?)))
    }
}

/// The resource and what follows, if there is a name or something is made.
fn of_one(path: &str, method: &Method) -> Option<String> {
    let (_, rest) = path.split_once("/namespaces/")?;
    let (_, rest) = rest.split_once('/')?;
    (rest.contains('/') || method != Method::GET).then(|| rest.to_owned())
}
