//! The HTTP step of a call: one POST request within a time limit.

use super::{
    connection::{self, Connection},
    error::HttpError,
    metrics::Observation,
    pool::Host,
    quote::quote_body,
    resolver::SharedResolver,
    url::ExtensionUrl,
};
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use std::time::Duration;
use tokio::time::timeout;

/// Maximum size of the body of a request or response, as in Cluster API.
pub(super) const MAX_BODY: usize = 20 << 20;

/// Bytes of the body of an error response that are kept.
const MAX_ERROR_BODY: usize = 1024;

/// Request to an extension server.
pub(super) struct Post<'a> {
    pub(super) url: &'a ExtensionUrl,
    pub(super) host: &'a Host,
    pub(super) resolver: &'a SharedResolver,
    pub(super) path_and_query: String,
    pub(super) timeout: Duration,
    pub(super) body: Bytes,
}

/// Error of reading the body of a response.
enum BodyError {
    TooLarge,
    Failed(String),
}

impl Post<'_> {
    /// Sends the request and returns the body of a response with status 200.
    ///
    /// Redirects are not followed: they are errors like each status other than 200.
    ///
    /// Cancel safety: dropping the future closes the connection.
    pub(super) async fn send(self, observation: &mut Observation<'_>) -> Result<Bytes, HttpError> {
        match timeout(self.timeout, self.exchange(observation)).await {
            Ok(result) => result,
            Err(_) => Err(HttpError::Timeout {
                url: self.url(),
                timeout: self.timeout,
            }),
        }
    }

    async fn exchange(&self, observation: &mut Observation<'_>) -> Result<Bytes, HttpError> {
        let (connection, response) = self.respond().await?;
        let status = response.status();
        observation.answered(status);
        let body = response.into_body();
        if status == StatusCode::OK {
            let body = read_body(body, MAX_BODY).await;
            let body = body.map_err(|error| HttpError::Decode {
                cause: match error {
                    BodyError::TooLarge => {
                        format!("response body is larger than {MAX_BODY} bytes")
                    }
                    BodyError::Failed(cause) => cause,
                },
            })?;
            self.host.put(connection);
            return Ok(body);
        }
        let code = status.as_u16();
        match read_body(body, MAX_ERROR_BODY).await {
            Ok(body) => {
                // After status 101, the connection has another protocol than HTTP.
                if !status.is_informational() {
                    self.host.put(connection);
                }
                let body = quote_body(&body);
                Err(HttpError::Status { code, body })
            }
            Err(_) => Err(HttpError::StatusBody { code }),
        }
    }

    /// Sends the request on the pooled connection or a new one, and returns the response's head.
    ///
    /// An idle connection can be closed by the server at any time. If that happens before the
    /// server has sent a byte, the request is sent once more, on a new connection.
    async fn respond(&self) -> Result<(Connection, http::Response<Incoming>), HttpError> {
        if let Some(mut pooled) = self.host.take() {
            match pooled.send(self.request()?).await {
                Ok(response) => return Ok((pooled, response)),
                Err(error) if error.unanswered => {}
                Err(error) => return Err(self.failed(error.cause)),
            }
        }
        let opened = Connection::open(self.url, self.host.tls.clone(), self.resolver).await;
        let mut connection = opened.map_err(|cause| self.failed(cause))?;
        match connection.send(self.request()?).await {
            Ok(response) => Ok((connection, response)),
            Err(error) => Err(self.failed(error.cause)),
        }
    }

    fn request(&self) -> Result<Request<Full<Bytes>>, HttpError> {
        let json = HeaderValue::from_static("application/json");
        Request::post(&self.path_and_query)
            .header(header::HOST, self.url.authority())
            .header(header::CONTENT_TYPE, json.clone())
            .header(header::ACCEPT, json)
            .body(Full::new(self.body.clone()))
            .map_err(|error| self.failed(error.to_string()))
    }

    fn failed(&self, cause: String) -> HttpError {
        HttpError::Connection {
            url: self.url(),
            cause,
        }
    }

    fn url(&self) -> String {
        format!("https://{}{}", self.url.authority(), self.path_and_query)
    }
}

/// Reads a body of at most [`MAX_BODY`] bytes and returns its first `keep` bytes.
async fn read_body(mut body: Incoming, keep: usize) -> Result<Bytes, BodyError> {
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(BodyError::TooLarge);
    }
    let mut kept = BytesMut::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| BodyError::Failed(connection::describe(&error)))?;
        // Ignore trailers.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        length += data.len();
        if length > MAX_BODY {
            return Err(BodyError::TooLarge);
        }
        let missing = keep.saturating_sub(kept.len());
        kept.extend_from_slice(&data[..data.len().min(missing)]);
    }
    Ok(kept.freeze())
}
