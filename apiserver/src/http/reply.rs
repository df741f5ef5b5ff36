//! Responses before they are encoded as HTTP.

use super::{
    accept::{self, Format},
    body::Body,
};
use crate::{
    status::{Failure, Result},
    warnings::Warnings,
};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Body as _;
use serde_json::Value;

/// A response. A [`Failure`] is converted into one at the end.
pub(super) struct Reply {
    pub(super) code: u16,
    pub(super) content_type: &'static str,
    pub(super) body: Body,
    pub(super) warnings: Warnings,
    pub(super) etag: Option<String>,
    pub(super) retry_after: Option<u32>,
}

impl Reply {
    pub(super) fn new(code: u16, content_type: &'static str, body: impl Into<Body>) -> Self {
        Self {
            code,
            content_type,
            body: body.into(),
            warnings: Warnings::default(),
            etag: None,
            retry_after: None,
        }
    }

    pub(super) fn text(code: u16, text: &'static str) -> Self {
        Self::new(
            code,
            "text/plain; charset=utf-8",
            Bytes::from_static(text.as_bytes()),
        )
    }

    /// Returns the plain text 404 of paths outside of built-in groups.
    pub(super) fn page_not_found() -> Self {
        Self::text(404, "404 page not found\n")
    }

    /// Returns the plain text 504 of a request that exceeded its time limit.
    pub(super) fn timed_out() -> Self {
        Self::text(
            504,
            r#"{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout","reason":"Timeout","details":{},"code":504}"#,
        )
    }

    /// Encodes a value in the format that the client accepts.
    pub(super) fn value(code: u16, value: &Value, format: Format, pretty: bool) -> Result<Self> {
        Ok(match format {
            Format::Json if pretty => {
                let text = serde_json::to_string_pretty(value).map_err(Failure::internal)?;
                Self::new(code, accept::JSON, Bytes::from(text + "\n"))
            }
            Format::Json => Self::new(code, accept::JSON, Bytes::from(value.to_string())),
            Format::Yaml => {
                let text = serde_saphyr::to_string(value).map_err(Failure::internal)?;
                Self::new(code, accept::YAML, Bytes::from(text))
            }
        })
    }
}

/// How the client wants a response to be encoded. Used for failures.
#[derive(Clone, Copy)]
pub(super) struct ResponseFormat<'a> {
    pub(super) accept: Option<&'a str>,
    pub(super) pretty: bool,
    /// The request is a HEAD request.
    pub(super) head: bool,
}

impl ResponseFormat<'_> {
    pub(super) fn failure(self, failure: &Failure) -> Reply {
        let format = accept::failure_format(self.accept);
        let pretty = self.pretty || format.is_none();
        let plain = !pretty && format == Some(Format::Json);
        let value = if plain {
            None
        } else {
            serde_json::to_value(failure).ok()
        };
        let encoded = value.and_then(|value| {
            Reply::value(failure.code, &value, format.unwrap_or(Format::Json), pretty).ok()
        });
        let reply = encoded.unwrap_or_else(|| {
            Reply::new(failure.code, accept::JSON, Bytes::from(failure.to_json()))
        });
        Reply {
            retry_after: failure
                .details
                .as_ref()
                .and_then(|details| details.retry_after_seconds),
            ..reply
        }
    }
}

/// Converts a reply into an HTTP response.
pub(super) fn respond(reply: Result<Reply>, response_format: ResponseFormat<'_>) -> Response<Body> {
    let mut reply = reply.unwrap_or_else(|failure| response_format.failure(&failure));
    let length = response_format
        .head
        .then(|| std::mem::take(&mut reply.body).size_hint().exact())
        .flatten();
    let mut response = Response::new(reply.body);
    *response.status_mut() =
        StatusCode::from_u16(reply.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(reply.content_type),
    );
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    for warning in reply.warnings.sent() {
        let text = format!(
            "299 - \"{}\"",
            warning.replace('\\', "\\\\").replace('"', "\\\"")
        );
        if let Ok(text) = HeaderValue::from_str(&text) {
            headers.append(header::WARNING, text);
        }
    }
    if let Some(seconds) = reply.retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if let Some(etag) = reply
        .etag
        .and_then(|etag| HeaderValue::from_str(&etag).ok())
    {
        headers.insert(header::ETAG, etag);
    }
    response
}
