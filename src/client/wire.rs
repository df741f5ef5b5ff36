//! Requests and responses in JSON.
//!
//! Not kube's own functions, because those log a body that does not match its type, and bodies may
//! be secret.

use super::{Client, Discovered, Error, Result};
use crate::object::{DecodeError, Decoder, KubeObject, MetadataOnly, ObjectKey, Payload};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use kube_client::client::Body;
use kube_core::{Status, TypeMeta, response::StatusDetails};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{fmt::Write, sync::Arc};

const JSON: &str = "application/json";
/// Accept header for metadata only. Servers without support send the whole object.
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Request before it is sent.
pub(super) struct ApiRequest {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) metadata_only: bool,
    /// Body and content type.
    pub(super) body: Option<(Bytes, HeaderValue)>,
}

impl ApiRequest {
    pub(super) fn get(path: String, metadata_only: bool) -> Self {
        Self {
            method: Method::GET,
            path,
            query: String::new(),
            metadata_only,
            body: None,
        }
    }

    pub(super) fn json(method: Method, path: String, body: Vec<u8>) -> Self {
        Self {
            method,
            path,
            query: String::new(),
            metadata_only: false,
            body: Some((body.into(), HeaderValue::from_static(JSON))),
        }
    }

    fn request(self, list: bool) -> Result<Request<Body>> {
        let accept = match self.metadata_only {
            true if list => METADATA_LIST,
            true => METADATA,
            false => JSON,
        };
        let separator = if self.query.is_empty() { "" } else { "?" };
        let request = Request::builder()
            .method(self.method)
            .uri(format!("{}{separator}{}", self.path, self.query))
            .header(header::ACCEPT, accept);
        let request = match self.body {
            Some((body, content)) => request
                .header(header::CONTENT_TYPE, content)
                .body(Body::from(body)),
            None => request.body(Body::empty()),
        };
        Ok(request.map_err(kube_client::Error::HttpError)?)
    }
}

/// Page of a list response.
#[derive(Deserialize)]
pub(super) struct ListPage<'a> {
    #[serde(default)]
    pub(super) metadata: ListMeta,
    #[serde(borrow, default)]
    pub(super) items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
pub(super) struct ListMeta {
    #[serde(default)]
    pub(super) r#continue: String,
}

impl Client {
    /// Sends a request and returns the body; a status other than success is an error.
    pub(super) async fn send(&self, request: ApiRequest, list: bool) -> Result<Bytes> {
        let response = self.counted().send(request.request(list)?).await?;
        if response.status().is_success() {
            Ok(response.into_body())
        } else {
            Err(error_status(&response).into())
        }
    }
}

/// Returns the `Status` of a rejected request, or one made from a proxy's response.
pub(super) fn error_status(response: &Response<Bytes>) -> Status {
    let code = response.status().as_u16();
    let mut status: Status = serde_json::from_slice(response.body()).unwrap_or_default();
    if status.message.is_empty() {
        let text = String::from_utf8_lossy(response.body());
        status.message = format!(
            "HTTP {code} {}",
            text.trim().chars().take(200).collect::<String>()
        );
    }
    status.code = code;
    let seconds = response
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    if let Some(seconds) = seconds {
        let details = status.details.get_or_insert_with(no_details);
        details.retry_after_seconds = details.retry_after_seconds.max(seconds);
    }
    status
}

fn no_details() -> StatusDetails {
    let (name, group, kind, uid) = Default::default();
    StatusDetails {
        name,
        group,
        kind,
        uid,
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}

/// Decodes a response with an object of this kind.
pub(super) fn decode<K: KubeObject>(
    kind: &Discovered,
    key: &ObjectKey,
    json: &[u8],
) -> Result<Arc<K>> {
    let types = TypeMeta {
        api_version: kind.resource.api_version.clone(),
        kind: kind.resource.kind.clone(),
    };
    let decoder = Decoder::new(types).managed_fields(true);
    let decoded = if K::metadata_api() {
        decoder
            .decode::<MetadataOnly>(json)
            .map(|object| Arc::new(object).decode::<K>())
    } else {
        decoder.decode::<K>(json).map(|object| Ok(Arc::new(object)))
    };
    let mismatch = |unread: crate::object::Undecodable| DecodeError::Mismatch {
        kind: unread.kind,
        key: unread.key.unwrap_or_else(|| key.clone()),
        error: unread.error,
    };
    Ok(decoded.map_err(mismatch)??)
}

pub(super) fn encode(kind: &Discovered, key: &ObjectKey, body: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(body).map_err(encode_error(kind, key))
}

/// Converts the error of encoding a request.
pub(super) fn encode_error(
    kind: &Discovered,
    key: &ObjectKey,
) -> impl FnOnce(serde_json::Error) -> Error {
    move |error| Error::Encode {
        kind: kind.resource.kind.clone(),
        key: key.clone(),
        error,
    }
}

/// Converts the error of decoding a response.
pub(super) fn decode_error(
    kind: &Discovered,
    key: &ObjectKey,
) -> impl FnOnce(serde_json::Error) -> DecodeError {
    move |error| DecodeError::Mismatch {
        kind: kind.resource.kind.clone(),
        key: key.clone(),
        error,
    }
}

/// Encodes a name as a path segment. Names such as `system:node` stay readable.
pub(super) fn path_segment(name: &str) -> String {
    name.bytes()
        .fold(String::with_capacity(name.len()), |mut segment, byte| {
            if byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte) {
                segment.push(byte.into());
            } else {
                let _ = write!(segment, "%{byte:02X}");
            }
            segment
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn rejection(code: u16, retry_after: Option<&str>, body: &'static str) -> Error {
        let mut response = Response::builder().status(code);
        if let Some(seconds) = retry_after {
            response = response.header(header::RETRY_AFTER, seconds);
        }
        error_status(
            &response
                .body(Bytes::from_static(body.as_bytes()))
                .expect("a response"),
        )
        .into()
    }

    #[test]
    fn an_error_has_the_message_of_the_status_or_of_the_proxy() {
        let error = rejection(
            403,
            None,
            r#"{"kind":"Status","message":"secrets is forbidden","reason":"Forbidden"}"#,
        );
        assert_eq!(error.to_string(), "secrets is forbidden");
        assert_eq!(error.status().map(|status| status.code), Some(403));
        let proxy = rejection(502, None, "<html>bad gateway</html>\n");
        assert_eq!(proxy.to_string(), "HTTP 502 <html>bad gateway</html>");
    }

    #[test]
    fn a_retry_after_is_read_from_header_and_status() {
        let after = |error: Error| error.retry_after().map(|after| after.as_secs());
        assert_eq!(after(rejection(429, Some("5"), "a proxy")), Some(5));
        assert_eq!(
            after(rejection(
                429,
                None,
                r#"{"message":"slow down","details":{"retryAfterSeconds":3}}"#
            )),
            Some(3)
        );
        assert_eq!(
            after(rejection(429, Some("Wed, 21 Oct 2026 07:28:00 GMT"), "{}")),
            None
        );
        assert_eq!(
            rejection(503, Some("1"), "{}").retry_after(),
            Some(Duration::from_secs(1))
        );
    }

    #[test]
    fn only_a_404_with_a_status_means_a_missing_object() {
        let proxy = rejection(404, None, "<html>no backend</html>");
        assert!(!proxy.is_not_found() && proxy.is_nameless_404());
        let other = rejection(404, None, r#"{"error":"no route"}"#);
        assert!(!other.is_not_found() && other.is_nameless_404());
        let kind = rejection(
            404,
            None,
            r#"{"kind":"Status","reason":"NotFound","details":{}}"#,
        );
        assert!(kind.is_not_found() && kind.is_nameless_404());
        let object = rejection(
            404,
            None,
            r#"{"kind":"Status","reason":"NotFound","details":{"name":"web"}}"#,
        );
        assert!(object.is_not_found() && !object.is_nameless_404());
    }

    #[test]
    fn a_name_is_encoded_as_one_path_segment() {
        assert_eq!(
            path_segment("system:node-1.example"),
            "system:node-1.example"
        );
        assert_eq!(path_segment("a?b #ö"), "a%3Fb%20%23%C3%B6");
    }
}
