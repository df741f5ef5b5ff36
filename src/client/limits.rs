//! Time and rate limits of requests to the API server.
//!
//! [`CountedClient`](super::CountedClient) applies them around the call of kube's client, so they
//! also hold for a client that the caller has built.

use super::Error;
use crate::rate_limit::Rate;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use kube_client::client::Body;
use std::time::Duration;
use tokio::time::timeout;

/// Time and rate limits of the requests to one cluster.
///
/// The time limits apply to every request of a client, a manager, a cache and an election: reads,
/// writes, lists and discovery. A watch has the limit for its response headers only, because a
/// quiet watch is normal; the cache has its own limits for silent watches. A request that exceeds a
/// limit fails with [`Error::Timeout`], a write with [`Error::WriteTimeout`].
///
/// Pass the options with the configuration:
///
/// ```
/// # fn example(config: kube_client::Config) -> anyhow::Result<()> {
/// use std::time::Duration;
/// use steersman::{client::{Connection, ConnectionOptions, Rate}, manager::Manager};
///
/// let options = ConnectionOptions {
///     response_timeout: Duration::from_secs(20),
///     rate_limit: Some(Rate::per_second(20, 30)),
///     ..ConnectionOptions::default()
/// };
/// let manager = Manager::builder(Connection::from(config).with_options(options)).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Time from sending a request until its response headers arrive.
    ///
    /// Includes connecting, authentication and the retries of a client that retries. Default: 65 s,
    /// because kube-apiserver ends a request after 60 s itself.
    pub response_timeout: Duration,
    /// Time between two parts of a response body. Default: 30 s.
    ///
    /// A slow body is read to its end as long as parts arrive.
    pub body_timeout: Duration,
    /// QPS and burst, as in client-go. Default: `None`, no limit.
    ///
    /// Requests over the rate wait in the order in which they were made. API Priority and Fairness
    /// of the API server usually limits clients. Set a limit for an API server without it, or to
    /// leave capacity to others.
    ///
    /// All clients and caches that are created from one [`Connection`](super::Connection) and its
    /// clones share the limit, as do the client and the cache of a manager. As in client-go,
    /// watches are exempt. The requests of leader election are exempt too, so that a busy
    /// controller keeps its lease; users of client-go create a second client for that. The time
    /// that a request waits is not part of its `response_timeout`.
    pub rate_limit: Option<Rate>,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            response_timeout: Duration::from_secs(65),
            body_timeout: Duration::from_secs(30),
            rate_limit: None,
        }
    }
}

/// Part of a response that did not arrive in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResponseTimeout {
    /// No response headers within this [`response_timeout`](ConnectionOptions::response_timeout).
    #[error("no response within {0:?}")]
    Headers(Duration),
    /// No further part of the body within this [`body_timeout`](ConnectionOptions::body_timeout).
    #[error("no further part of the response within {0:?}")]
    Body(Duration),
}

impl ConnectionOptions {
    /// Waits for response headers.
    pub(super) async fn headers<T>(
        &self,
        response: impl Future<Output = T>,
    ) -> Result<T, ResponseTimeout> {
        timeout(self.response_timeout, response)
            .await
            .map_err(|_| ResponseTimeout::Headers(self.response_timeout))
    }

    /// Reads a body to its end.
    pub(super) async fn body(&self, mut body: Body) -> Result<Bytes, Error> {
        // Most bodies are one part, which is returned without a copy.
        let Some(first) = self.part(&mut body).await? else {
            return Ok(Bytes::new());
        };
        let Some(second) = self.part(&mut body).await? else {
            return Ok(first);
        };
        let mut all = BytesMut::from(&first[..]);
        drop(first);
        all.extend_from_slice(&second);
        while let Some(part) = self.part(&mut body).await? {
            all.extend_from_slice(&part);
        }
        Ok(all.freeze())
    }

    /// Waits for the next part of a body. Returns `None` at its end.
    async fn part(&self, body: &mut Body) -> Result<Option<Bytes>, Error> {
        loop {
            let frame = timeout(self.body_timeout, body.frame()).await;
            let Some(frame) = frame.map_err(|_| ResponseTimeout::Body(self.body_timeout))? else {
                return Ok(None);
            };
            // Trailers are not part of the content.
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
    }
}
