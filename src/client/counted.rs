//! kube's client with time and rate limits and counters.
//!
//! Invariant: every request of clients, caches, elections, recorders and admin pages passes through
//! a [`CountedClient`], so each has the limits of [`ConnectionOptions`] and is counted by its
//! result. Only the events of watches are read without a limit. Watches and the requests of leader
//! election have no rate limit.

use super::{ConnectionOptions, Result, inline_connection::unshared, wire::error_status};
use crate::{
    cache::Cache,
    prometheus::{Page, Sample},
    rate_limit::Permits,
};
use bytes::Bytes;
use futures::Stream;
use hashbrown::HashMap;
use http::{Method, Request, Response};
use kube_client::{Client, Error, client::Body};
use kube_core::WatchEvent;
use parking_lot::Mutex;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{fmt, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Wait for the rate limit that is logged, as in client-go.
const LONG_WAIT: Duration = Duration::from_millis(50);

/// Client that limits and counts its requests. Clones share the counters.
#[derive(Clone)]
pub(crate) struct CountedClient {
    kube: Client,
    /// Client for watches whose reader polls the connection itself.
    inline: Option<Client>,
    options: ConnectionOptions,
    /// Rate limit, or `None` if unlimited.
    permits: Option<Arc<Permits>>,
    requests: Requests,
}

/// Number of requests to one API server by result. Clones share the counters.
#[derive(Clone)]
pub(crate) struct Requests(Arc<RequestCounts>);

struct RequestCounts {
    /// Empty if the host is not known.
    host: String,
    counts: Mutex<HashMap<(Method, ResponseCode), u64>>,
}

/// HTTP status, or `None` without a response.
type ResponseCode = Option<u16>;

impl CountedClient {
    pub(super) fn new(
        kube: Client,
        host: String,
        options: ConnectionOptions,
        permits: Option<Arc<Permits>>,
    ) -> Self {
        Self {
            kube,
            inline: None,
            options,
            permits,
            requests: Requests(Arc::new(RequestCounts {
                host,
                counts: Mutex::default(),
            })),
        }
    }

    /// Sets the client for watches.
    pub(super) fn with_inline(self, driven: Option<Client>) -> Self {
        Self {
            inline: driven,
            ..self
        }
    }

    pub(crate) fn kube(&self) -> &Client {
        &self.kube
    }

    pub(crate) fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// Sends a request and reads its whole response, whatever its status.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Bytes>> {
        if let Some(permits) = &self.permits {
            let started = Instant::now();
            permits.acquire().await;
            let waited = started.elapsed();
            if waited >= LONG_WAIT {
                let (method, path) = (request.method(), request.uri().path());
                tracing::debug!(%method, path, ?waited, "request delayed by rate limit of client");
            }
        }
        let (parts, body) = self.send_head(&self.kube, request).await?.into_parts();
        Ok(Response::from_parts(parts, self.read_body(body).await?))
    }

    /// Sends a request and parses its JSON response.
    ///
    /// Unlike kube's client it does not log a response that it cannot parse, which may contain
    /// secrets.
    pub(crate) async fn send_json<T: DeserializeOwned>(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<T> {
        let response = self.send(request.map(Body::from)).await?;
        if !response.status().is_success() {
            return Err(error_status(&response).into());
        }
        Ok(serde_json::from_slice(response.body()).map_err(Error::SerdeError)?)
    }

    /// Gets a path and parses its JSON response.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let request = Request::get(path)
            .body(Vec::new())
            .map_err(Error::HttpError)?;
        // Boxed, because discovery is rare and part of many larger futures.
        Box::pin(self.send_json(request)).await
    }

    /// Opens a watch, whose body has no time limit.
    ///
    /// The caller [polls](super::with_inline_connections) the connection if there is a client for
    /// watches.
    pub(crate) async fn open_watch(&self, request: Request<Body>) -> Result<Response<Body>> {
        match &self.inline {
            Some(driven) => self.send_head(driven, unshared(request)).await,
            None => self.send_head(&self.kube, request).await,
        }
    }

    /// Reads a whole body, such as that of a rejected watch.
    pub(crate) async fn read_body(&self, body: Body) -> Result<Bytes> {
        self.options.body(body).await
    }

    /// Opens a watch and parses its events.
    pub(crate) async fn watch(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<impl Stream<Item = Result<WatchEvent<Value>, Error>> + use<>> {
        let in_flight = self.requests.in_flight(request.method());
        let watch = self
            .options
            .headers(self.kube.request_events(request))
            .await?;
        let ended = match &watch {
            Ok(_) => Some(200),
            Err(Error::Api(status)) => Some(status.code),
            Err(_) => None,
        };
        in_flight.finish(ended);
        Ok(watch?)
    }

    async fn send_head(&self, client: &Client, request: Request<Body>) -> Result<Response<Body>> {
        let in_flight = self.requests.in_flight(request.method());
        let response = self.options.headers(client.send(request)).await?;
        in_flight.finish(
            response
                .as_ref()
                .ok()
                .map(|response| response.status().as_u16()),
        );
        Ok(response?)
    }
}

/// Request in flight. Dropping it counts a request without a response.
struct InFlight<'a> {
    requests: &'a Requests,
    method: Option<Method>,
}

impl InFlight<'_> {
    fn finish(mut self, ended: ResponseCode) {
        if let Some(method) = self.method.take() {
            self.requests.count(method, ended);
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some(method) = self.method.take() {
            self.requests.count(method, None);
        }
    }
}

impl Requests {
    fn in_flight(&self, method: &Method) -> InFlight<'_> {
        InFlight {
            requests: self,
            method: Some(method.clone()),
        }
    }

    fn count(&self, method: Method, ended: ResponseCode) {
        *self.0.counts.lock().entry((method, ended)).or_default() += 1;
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Metrics of the requests of clients and their caches, named as in client-go.
///
/// The counter `rest_client_requests_total` has the labels `code`, `method` and `host`. Clones
/// share the clients.
///
/// Reads, writes, lists, watches and discovery are counted once each, regardless of retries in
/// lower layers. Requests of [`Client::kube`](super::Client::kube) are not counted. `code` is
/// `<error>` if there was no response, or if the request was cancelled. `host` is empty if the
/// client was created from an existing one.
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
    /// Creates metrics for a client, all clients derived from it, and its cache.
    pub fn new(client: &super::Client) -> Self {
        let metrics = Self(Arc::default());
        metrics.watch(client);
        metrics
    }

    /// Adds the requests of another client.
    pub fn watch(&self, client: &super::Client) {
        counters_of(client).for_each(|requests| self.watch_requests(requests));
    }

    /// Removes the requests of a client.
    ///
    /// Its counts are added to another client of the same host, if there is one, because a counter
    /// must not decrease.
    pub fn forget(&self, client: &super::Client) {
        let mut known = self.0.lock();
        for removed in counters_of(client) {
            known.retain(|requests| !requests.is_same(&removed));
            if let Some(Requests(other)) = known
                .iter()
                .find(|requests| requests.0.host == removed.0.host)
            {
                for (ended, count) in removed.0.counts.lock().drain() {
                    *other.counts.lock().entry(ended).or_default() += count;
                }
            }
        }
    }

    pub(crate) fn watch_requests(&self, requests: Requests) {
        let mut known = self.0.lock();
        if !known.iter().any(|other| other.is_same(&requests)) {
            known.push(requests);
        }
    }

    fn samples(&self) -> Vec<Sample<u64>> {
        let mut sums: HashMap<_, u64> = HashMap::new();
        for Requests(counts) in &*self.0.lock() {
            for ((method, ended), count) in &*counts.counts.lock() {
                let code = ended.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
                *sums
                    .entry((code, method.to_string(), counts.host.clone()))
                    .or_default() += count;
            }
        }
        let mut sorted: Vec<_> = sums.into_iter().collect();
        sorted.sort();
        let label = |((code, method, host), count)| {
            (
                vec![("code", code), ("method", method), ("host", host)],
                count,
            )
        };
        sorted.into_iter().map(label).collect()
    }
}

/// Returns the counters of a client and of its cache.
fn counters_of(client: &super::Client) -> impl Iterator<Item = Requests> + use<> {
    [client.counted().requests()]
        .into_iter()
        .chain(client.0.cache.as_ref().map(Cache::requests))
}

impl Collector for ClientMetrics {
    fn encode(&self, mut page: DescriptorEncoder) -> fmt::Result {
        let samples = self.samples();
        if samples.is_empty() {
            return Ok(());
        }
        Page(&mut page).counters(
            (
                "rest_client_requests",
                "Number of requests to API servers, by result",
            ),
            samples,
        )
    }
}

impl fmt::Debug for ClientMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientMetrics")
            .field(&self.samples())
            .finish()
    }
}
