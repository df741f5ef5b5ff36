//! Requests for the Lease, with their time limits.

use super::{
    LeaderElection,
    record::{Lease, Record},
};
use crate::client::{CountedClient, Error, Requests, Result};
use futures::Stream;
use http::{Method, Request, header};
use kube_core::{Status, WatchEvent};
use serde_json::Value;
use std::{fmt, time::Duration};
use tokio::time::timeout;

/// Duration after which the API server closes a watch.
const WATCH_SECONDS: u32 = 290;

pub(super) struct LeaseClient {
    client: CountedClient,
    /// Path of the Leases of the namespace.
    path: String,
    name: String,
    timeout: Duration,
}

/// Failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Another process has changed the Lease.
    Conflict(String),
    /// The API server rejected the request with 401 or 403.
    Denied(String),
    /// Any other failure. The request may have taken effect.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Conflict(message) | Self::Denied(message) | Self::Other(message)) = self;
        f.write_str(message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.status() {
            Some(status) if status.code == 409 => Self::Conflict(status.message.clone()),
            Some(status) if matches!(status.code, 401 | 403) => {
                Self::Denied(describe_status(status))
            }
            Some(status) => Self::Other(describe_status(status)),
            None => Self::Other(error.describe()),
        }
    }
}

impl LeaseClient {
    pub(super) fn new(client: CountedClient, options: &LeaderElection) -> Self {
        Self {
            client,
            path: format!(
                "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
                options.namespace
            ),
            name: options.name.clone(),
            timeout: options.request_timeout(),
        }
    }

    pub(super) async fn get(&self) -> Result<Option<Lease>, Failure> {
        match self.send(Method::GET, self.lease_path(), Vec::new()).await {
            Ok(lease) => Ok(Some(lease)),
            Err(RequestFailure::Failed(error))
                if error.status().is_some_and(|status| status.code == 404) =>
            {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn create(
        &self,
        options: &LeaderElection,
        record: &Record,
    ) -> Result<Lease, Failure> {
        let lease = Lease::to_create(options, record);
        Ok(self
            .send(
                Method::POST,
                self.path.clone(),
                lease.to_string().into_bytes(),
            )
            .await?)
    }

    /// Updates the Lease if its resource version is the one that was read.
    pub(super) async fn update(
        &self,
        lease: &Lease,
        options: &LeaderElection,
        record: &Record,
    ) -> Result<Lease, Failure> {
        let lease = lease.with(options, record);
        Ok(self
            .send(
                Method::PUT,
                self.lease_path(),
                lease.to_string().into_bytes(),
            )
            .await?)
    }

    /// Watches the Lease. The first event is its current state.
    pub(super) async fn watch(
        &self,
    ) -> Result<impl Stream<Item = Result<WatchEvent<Value>, kube_client::Error>> + use<>> {
        let query = format!(
            "watch=true&fieldSelector=metadata.name%3D{}&timeoutSeconds={WATCH_SECONDS}",
            self.name
        );
        let request = request(Method::GET, format!("{}?{query}", self.path), Vec::new())?;
        self.client.watch(request).await
    }

    /// Returns the counters of requests.
    pub(super) fn requests(&self) -> Requests {
        self.client.requests()
    }

    fn lease_path(&self) -> String {
        format!("{}/{}", self.path, self.name)
    }

    async fn send(
        &self,
        method: Method,
        path: String,
        body: Vec<u8>,
    ) -> Result<Lease, RequestFailure> {
        let request = request(method, path, body).map_err(RequestFailure::Failed)?;
        let response = timeout(self.timeout, self.client.send_json(request)).await;
        response
            .map_err(|_| RequestFailure::TimedOut(self.timeout))?
            .map(Lease::read)
            .map_err(RequestFailure::Failed)
    }
}

enum RequestFailure {
    Failed(Error),
    TimedOut(Duration),
}

impl From<RequestFailure> for Failure {
    fn from(error: RequestFailure) -> Self {
        match error {
            RequestFailure::Failed(error) => error.into(),
            RequestFailure::TimedOut(timeout) => {
                Self::Other(format!("no response within {timeout:?}"))
            }
        }
    }
}

fn request(method: Method, uri: String, body: Vec<u8>) -> Result<Request<Vec<u8>>> {
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header(header::CONTENT_TYPE, "application/json");
    Ok(request.body(body).map_err(kube_client::Error::HttpError)?)
}

/// Returns the message of the API server, or the HTTP status if it is empty.
pub(super) fn describe_status(status: &Status) -> String {
    if status.message.is_empty() {
        format!("HTTP {} {}", status.code, status.reason)
    } else {
        status.message.clone()
    }
}
