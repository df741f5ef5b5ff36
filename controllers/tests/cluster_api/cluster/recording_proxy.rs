//! Proxy between a manager and the API server, which records requests and can cut the connection.

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use std::{future::pending, sync::Arc};
use tokio::sync::watch;
use tower::service_fn;

/// Recorded request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Path without `/api/v1` or `/apis/<group>/<version>`, and without the namespace. The whole
    /// path of a discovery.
    pub(crate) path: String,
    is_watch: bool,
    /// Body of the request. `Null` if it has none.
    pub(crate) body: Value,
}

impl Call {
    /// Returns `METHOD path`.
    pub(crate) fn text(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    fn is_write(&self) -> bool {
        self.method != Method::GET
    }
}

/// Handle of the proxy. Clones share the record.
#[derive(Clone)]
pub(crate) struct Proxy(Arc<Shared>);

struct Shared {
    calls: Mutex<Vec<Call>>,
    /// Number of requests that are answered.
    answered: usize,
    is_cut: watch::Sender<bool>,
    /// Group whose discovery is answered with 404.
    hidden: Mutex<Option<String>>,
}

impl Proxy {
    /// Creates a proxy that only records.
    pub(crate) fn recording() -> Self {
        Self::cut_after(usize::MAX)
    }

    /// Creates a proxy that answers this number of requests.
    ///
    /// The server also executes the next one, but its response is lost. No later one is executed.
    pub(crate) fn cut_after(answered: usize) -> Self {
        Self(Arc::new(Shared {
            calls: Mutex::default(),
            answered,
            is_cut: watch::Sender::new(false),
            hidden: Mutex::default(),
        }))
    }

    /// Creates a client whose requests pass the proxy.
    pub(crate) fn client(&self, server: kube::Client) -> kube::Client {
        let this = self.clone();
        let pass = move |request| {
            let (this, server) = (this.clone(), server.clone());
            async move { this.pass(server, request).await }
        };
        kube::Client::new(service_fn(pass), "default")
    }

    /// Waits until the server has executed the request whose response is lost.
    pub(crate) async fn cut(&self) {
        let mut cut = self.0.is_cut.subscribe();
        cut.wait_for(|cut| *cut)
            .await
            .expect("the sender is shared");
    }

    /// Answers as if no resource of this group were served yet.
    pub(crate) fn hide(&self, group: &str) {
        *self.0.hidden.lock() = Some(group.to_owned());
    }

    /// Ends the effect of [`hide`](Self::hide).
    pub(crate) fn show(&self) {
        *self.0.hidden.lock() = None;
    }

    /// Returns the number of requests, including those of watches.
    pub(crate) fn len(&self) -> usize {
        self.0.calls.lock().len()
    }

    /// Returns the requests since `start` that are not watches, as text.
    pub(crate) fn unwatched(&self, start: usize) -> Vec<String> {
        let calls = self.0.calls.lock();
        let calls = calls[start..].iter().filter(|call| !call.is_watch);
        calls.map(Call::text).collect()
    }

    /// Returns the writes since `start`, without Kubernetes events.
    pub(crate) fn writes(&self, start: usize) -> Vec<Call> {
        let calls = self.0.calls.lock();
        let writes = calls[start..].iter().filter(|call| call.is_write());
        writes
            .filter(|call| !call.path.starts_with("events"))
            .cloned()
            .collect()
    }

    async fn pass(
        &self,
        server: kube::Client,
        request: Request<Body>,
    ) -> anyhow::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let query = parts.uri.query().unwrap_or_default();
        let number = {
            let mut calls = self.0.calls.lock();
            calls.push(Call {
                method: parts.method.clone(),
                path: path(parts.uri.path()),
                is_watch: query.contains("watch=true"),
                body: serde_json::from_slice(&body).unwrap_or_default(),
            });
            calls.len()
        };
        if number > self.0.answered.saturating_add(1) {
            return pending().await;
        }
        let path = parts.uri.path().to_owned();
        let hidden = self.0.hidden.lock().clone();
        let request = Request::from_parts(parts, Body::from(body.to_vec()));
        let response = server.send(request).await?;
        let response = match hidden {
            Some(group) => without_group(response, &path, &group).await?,
            None => response,
        };
        if number > self.0.answered {
            self.0.is_cut.send_replace(true);
            return pending().await;
        }
        Ok(response)
    }
}

fn path(path: &str) -> String {
    let skipped = if path.starts_with("/api/") { 3 } else { 4 };
    let parts: Vec<_> = path.split('/').skip(skipped).collect();
    match &parts[..] {
        [] => path.to_owned(),
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest.join("/"),
        all => all.join("/"),
    }
}

/// Returns the response of a server that does not serve a group.
async fn without_group(
    response: Response<Body>,
    path: &str,
    group: &str,
) -> anyhow::Result<Response<Body>> {
    if path.starts_with(&format!("/apis/{group}/")) {
        let mut response = Response::new(Body::from(b"404 page not found".to_vec()));
        *response.status_mut() = StatusCode::NOT_FOUND;
        return Ok(response);
    }
    if path != "/apis" {
        return Ok(response);
    }
    let body = response.into_body().collect().await?.to_bytes();
    let mut groups: Value = serde_json::from_slice(&body)?;
    if let Some(groups) = groups["groups"].as_array_mut() {
        groups.retain(|listed| listed["name"] != group);
    }
    Ok(Response::new(Body::from(serde_json::to_vec(&groups)?)))
}
