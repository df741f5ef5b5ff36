//! kube's client with time limits and counters.
//!
//! Invariant: every request of clients, caches, elections, recorders and admin pages passes through a
//! [`Link`], so each has the limits of [`ConnectionOptions`] and is counted by its result. Only the events
//! of watches are read without a limit.

use super::{ConnectionOptions, Result, drive::alone, wire::refusal};
use crate::{
    cache::Cache,
    page::{Page, Sample},
};
use bytes::Bytes;
use futures_util::Stream;
use hashbrown::HashMap;
use http::{Method, Request, Response};
use kube_client::{Client, Error, client::Body};
use kube_core::WatchEvent;
use parking_lot::Mutex;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{fmt, sync::Arc};

/// Where requests go. A clone counts with it.
#[derive(Clone)]
pub(crate) struct Link {
    kube: Client,
    /// For what is [driven](super::drive) by who asks.
    driven: Option<Client>,
    options: ConnectionOptions,
    requests: Requests,
}

/// How requests to one server ended. A clone shares the numbers.
#[derive(Clone)]
pub(crate) struct Requests(Arc<Counts>);

struct Counts {
    /// Empty if it is not known.
    host: String,
    counts: Mutex<HashMap<(Method, Ended), u64>>,
}

/// With a status, or without an answer.
type Ended = Option<u16>;

impl Link {
    pub(super) fn new(kube: Client, host: String, options: ConnectionOptions) -> Self {
        Self { kube, driven: None, options, requests: Requests(Arc::new(Counts { host, counts: Mutex::default() })) }
    }

    /// With a client for watches.
    pub(super) fn with_driven(self, driven: Option<Client>) -> Self {
        Self { driven, ..self }
    }

    pub(crate) fn kube(&self) -> &Client {
        &self.kube
    }

    pub(crate) fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// Sends a request and reads its whole response, whatever its status.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Bytes>> {
        let (parts, body) = self.headers(&self.kube, request).await?.into_parts();
        Ok(Response::from_parts(parts, self.read(body).await?))
    }

    /// Sends a request and parses its JSON response. Unlike kube's client it does not log a response that
    /// it cannot parse, which may contain secrets.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, request: Request<Vec<u8>>) -> Result<T> {
        let response = self.send(request.map(Body::from)).await?;
        if !response.status().is_success() {
            return Err(refusal(&response).into());
        }
        Ok(serde_json::from_slice(response.body()).map_err(Error::SerdeError)?)
    }

    /// Gets a path and parses its JSON response.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let request = Request::get(path).body(Vec::new()).map_err(Error::HttpError)?;
        // Boxed, because discovery is rare and part of many larger futures.
        Box::pin(self.ask(request)).await
    }

    /// Opens a watch, on a connection that the caller [drives](super::driving) if there is a client for that.
    /// Its body has no limit.
    pub(crate) async fn open(&self, request: Request<Body>) -> Result<Response<Body>> {
        match &self.driven {
            Some(driven) => self.headers(driven, alone(request)).await,
            None => self.headers(&self.kube, request).await,
        }
    }

    /// Reads a body to its end: that of a watch that was rejected.
    pub(crate) async fn read(&self, body: Body) -> Result<Bytes> {
        self.options.body(body).await
    }

    /// Opens a watch and parses its events.
    pub(crate) async fn watch(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<impl Stream<Item = Result<WatchEvent<Value>, Error>> + use<>> {
        let unanswered = self.requests.unanswered(request.method());
        let watch = self.options.headers(self.kube.request_events(request)).await?;
        let ended = match &watch {
            Ok(_) => Some(200),
            Err(Error::Api(status)) => Some(status.code),
            Err(_) => None,
        };
        unanswered.ended(ended);
        Ok(watch?)
    }

    async fn headers(&self, client: &Client, request: Request<Body>) -> Result<Response<Body>> {
        let unanswered = self.requests.unanswered(request.method());
        let response = self.options.headers(client.send(request)).await?;
        unanswered.ended(response.as_ref().ok().map(|response| response.status().as_u16()));
        Ok(response?)
    }
}

/// A request on its way: one that nobody waits for any more has had no answer.
struct Unanswered<'a> {
    requests: &'a Requests,
    method: Option<Method>,
}

impl Unanswered<'_> {
    fn ended(mut self, ended: Ended) {
        if let Some(method) = self.method.take() {
            self.requests.count(method, ended);
        }
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(method) = self.method.take() {
            self.requests.count(method, None);
        }
    }
}

impl Requests {
    fn unanswered(&self, method: &Method) -> Unanswered<'_> {
        Unanswered { requests: self, method: Some(method.clone()) }
    }

    fn count(&self, method: Method, ended: Ended) {
        *self.0.counts.lock().entry((method, ended)).or_default() += 1;
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The requests of clients and of the caches that they read from, under client-go's name: `rest_client_requests_total` with `code`, `method` and `host`. A clone
/// shares the clients.
///
/// Counted are reads, writes, lists, watches and discovery, each once, whatever retries lie below; not requests made with [`Client::kube`](super::Client::kube).
/// `code` is `<error>` where there was no answer, or nobody waited for it any more; `host` is empty, which to Prometheus is no label at all, if the client was made from a ready one.
///
/// ```
/// # fn example(client: steersman::client::Client) {
/// use prometheus_client::registry::Registry;
/// use steersman::client::ClientMetrics;
///
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(ClientMetrics::new(&client)));
/// # }
/// ```
#[derive(Clone)]
pub struct ClientMetrics(Arc<Mutex<Vec<Requests>>>);

impl ClientMetrics {
    /// Of this client and all that were made from it, and its cache.
    pub fn new(client: &super::Client) -> Self {
        let metrics = Self(Arc::default());
        metrics.watch(client);
        metrics
    }

    /// Count those of another client, too.
    pub fn watch(&self, client: &super::Client) {
        of(client).for_each(|requests| self.watch_requests(requests));
    }

    /// Count them no longer. What they were is kept for as long as others ask the same server: a counter does not go back.
    pub fn forget(&self, client: &super::Client) {
        let mut known = self.0.lock();
        for gone in of(client) {
            known.retain(|requests| !requests.is(&gone));
            if let Some(Requests(heir)) = known.iter().find(|requests| requests.0.host == gone.0.host) {
                for (ended, many) in gone.0.counts.lock().drain() {
                    *heir.counts.lock().entry(ended).or_default() += many;
                }
            }
        }
    }

    pub(crate) fn watch_requests(&self, requests: Requests) {
        let mut known = self.0.lock();
        if !known.iter().any(|other| other.is(&requests)) {
            known.push(requests);
        }
    }

    fn samples(&self) -> Vec<Sample<u64>> {
        let mut sums: HashMap<_, u64> = HashMap::new();
        for Requests(counts) in &*self.0.lock() {
            for ((method, ended), many) in &*counts.counts.lock() {
                let code = ended.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
                *sums.entry((code, method.to_string(), counts.host.clone())).or_default() += many;
            }
        }
        let mut sorted: Vec<_> = sums.into_iter().collect();
        sorted.sort();
        let label = |((code, method, host), many)| (vec![("code", code), ("method", method), ("host", host)], many);
        sorted.into_iter().map(label).collect()
    }
}

/// A client's own, and its cache's.
fn of(client: &super::Client) -> impl Iterator<Item = Requests> + use<> {
    [client.link().requests()].into_iter().chain(client.0.cache.as_ref().map(Cache::requests))
}

impl Collector for ClientMetrics {
    fn encode(&self, mut page: DescriptorEncoder) -> fmt::Result {
        let samples = self.samples();
        if samples.is_empty() {
            return Ok(());
        }
        Page(&mut page).counters(("rest_client_requests", "Requests to servers, by how they ended"), samples)
    }
}

impl fmt::Debug for ClientMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientMetrics").field(&self.samples()).finish()
    }
}
