//! The Lease on the server: what is asked, and for how long an answer is waited for.

use super::{
    LeaderElection,
    record::{Lease, Record},
};
use crate::client::{Error, Link, Requests, Result};
use futures_util::Stream;
use http::{Method, Request, header};
use kube_core::{Status, WatchEvent};
use serde_json::Value;
use std::{fmt, time::Duration};
use tokio::time::timeout;

/// How long the server lets a watch go on.
const WATCH_SECONDS: u32 = 290;

pub(super) struct Door {
    link: Link,
    /// Of all Leases of the namespace.
    path: String,
    name: String,
    timeout: Duration,
}

/// A request has not done what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Somebody else was faster.
    Conflict(String),
    /// Or it is not known whether it has.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Conflict(words) | Self::Other(words)) = self;
        f.write_str(words)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.status() {
            Some(status) if status.code == 409 => Self::Conflict(status.message.clone()),
            Some(status) => Self::Other(words(status)),
            None => Self::Other(error.describe()),
        }
    }
}

impl Door {
    pub(super) fn new(link: Link, options: &LeaderElection) -> Self {
        Self {
            link,
            path: format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", options.namespace),
            name: options.name.clone(),
            timeout: options.request_timeout(),
        }
    }

    pub(super) async fn get(&self) -> Result<Option<Lease>, Failure> {
        match self.ask(Method::GET, self.of_one(), Vec::new()).await {
            Ok(lease) => Ok(Some(lease)),
            Err(Unanswered::Refused(error)) if error.status().is_some_and(|status| status.code == 404) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn create(&self, options: &LeaderElection, record: &Record) -> Result<Lease, Failure> {
        let lease = Lease::to_make(options, record);
        Ok(self.ask(Method::POST, self.path.clone(), lease.to_string().into_bytes()).await?)
    }

    /// If it is still as it was read.
    pub(super) async fn update(
        &self,
        lease: &Lease,
        options: &LeaderElection,
        record: &Record,
    ) -> Result<Lease, Failure> {
        let lease = lease.with(options, record);
        Ok(self.ask(Method::PUT, self.of_one(), lease.to_string().into_bytes()).await?)
    }

    /// Begins with what there is.
    pub(super) async fn watch(
        &self,
    ) -> Result<impl Stream<Item = Result<WatchEvent<Value>, kube_client::Error>> + use<>> {
        let query = format!("watch=true&fieldSelector=metadata.name%3D{}&timeoutSeconds={WATCH_SECONDS}", self.name);
        let request = request(Method::GET, format!("{}?{query}", self.path), Vec::new())?;
        self.link.watch(request).await
    }

    /// What it was asked.
    pub(super) fn requests(&self) -> Requests {
        self.link.requests()
    }

    fn of_one(&self) -> String {
        format!("{}/{}", self.path, self.name)
    }

    async fn ask(&self, method: Method, path: String, body: Vec<u8>) -> Result<Lease, Unanswered> {
        let request = request(method, path, body).map_err(Unanswered::Refused)?;
        let answer = timeout(self.timeout, self.link.ask(request)).await;
        answer.map_err(|_| Unanswered::Silent(self.timeout))?.map(Lease::read).map_err(Unanswered::Refused)
    }
}

enum Unanswered {
    Refused(Error),
    Silent(Duration),
}

impl From<Unanswered> for Failure {
    fn from(error: Unanswered) -> Self {
        match error {
            Unanswered::Refused(error) => error.into(),
            Unanswered::Silent(timeout) => Self::Other(format!("no answer within {timeout:?}")),
        }
    }
}

fn request(method: Method, uri: String, body: Vec<u8>) -> Result<Request<Vec<u8>>> {
    let request = Request::builder().method(method).uri(uri).header(header::CONTENT_TYPE, "application/json");
    Ok(request.body(body).map_err(kube_client::Error::HttpError)?)
}

/// The server's, if it has any.
pub(super) fn words(status: &Status) -> String {
    if status.message.is_empty() { format!("HTTP {} {}", status.code, status.reason) } else { status.message.clone() }
}
