//! A client of kube's, and what it was asked: every request that goes through [`Link::send`] is counted by how it ended.

use crate::{
    cache::Cache,
    page::{Page, Sample},
};
use hashbrown::HashMap;
use http::{Method, Request, Response};
use kube_client::{Client, client::Body};
use parking_lot::Mutex;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use std::{fmt, ops::Deref, sync::Arc};

/// Where requests go. A clone counts with it.
#[derive(Clone)]
pub(crate) struct Link {
    kube: Client,
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
    pub(super) fn new(kube: Client, host: String) -> Self {
        Self { kube, requests: Requests(Arc::new(Counts { host, counts: Mutex::default() })) }
    }

    pub(crate) fn kube(&self) -> &Client {
        &self.kube
    }

    pub(crate) fn requests(&self) -> Requests {
        self.requests.clone()
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, kube_client::Error> {
        let method = request.method().clone();
        let answer = self.kube.send(request).await;
        let ended = answer.as_ref().ok().map(|response| response.status().as_u16());
        *self.requests.0.counts.lock().entry((method, ended)).or_default() += 1;
        answer
    }
}

/// For what is not counted: discovery.
impl Deref for Link {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.kube
    }
}

/// A client whose server's name is not known.
impl From<Client> for Link {
    fn from(kube: Client) -> Self {
        Self::new(kube, String::new())
    }
}

/// The requests of a client and of the cache that it reads from, under client-go's name: `rest_client_requests_total` with `code`, `method` and `host`.
///
/// Counted are reads, writes, lists and watches, each once, whatever retries lie below; not discovery, nor what is done by [`Client::kube`](super::Client::kube).
/// `code` is `<error>` where there was no answer; `host` is empty, which to Prometheus is no label at all, if the client was made from a ready one.
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
pub struct ClientMetrics(Vec<Requests>);

impl ClientMetrics {
    /// Of this client and all that were made from it, and its cache.
    pub fn new(client: &super::Client) -> Self {
        let cache = client.0.cache.as_ref().map(Cache::requests);
        Self([client.0.family.link.requests()].into_iter().chain(cache).collect())
    }

    fn samples(&self) -> Vec<Sample<u64>> {
        let mut sums: HashMap<_, u64> = HashMap::new();
        for Requests(counts) in &self.0 {
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
