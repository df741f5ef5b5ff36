//! Typed call of a hook: JSON around the HTTP step.

use super::{
    RuntimeClient,
    error::{HttpError, ResponseError, SetupError},
    http::{MAX_BODY, Post},
    metrics::Observation,
    quote::shorten,
    url::ExtensionUrl,
};
use crate::extension_config::{
    ClientConfig,
    catalog::{GroupVersionHook, Hook, Response, hooks::ResponseStatus},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Deserializer, Value};
use std::time::Duration;

/// Address and hook of a call.
pub(super) struct Target<'a> {
    pub(super) config: &'a ClientConfig,
    /// Hook in the version that the handler serves.
    pub(super) hook: &'a GroupVersionHook,
    /// Name of the handler without that of its `ExtensionConfig`. Empty for discovery.
    pub(super) handler: &'a str,
    pub(super) timeout: Duration,
}

/// Error of a typed call.
pub(super) enum ExchangeError {
    Setup(SetupError),
    Http(HttpError),
}

impl From<SetupError> for ExchangeError {
    fn from(error: SetupError) -> Self {
        Self::Setup(error)
    }
}

/// Request with `apiVersion` and `kind`, as it is sent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a, R> {
    kind: String,
    api_version: String,
    #[serde(flatten)]
    request: &'a R,
}

/// Decodes only the `kind` of a response, which is optional.
#[derive(Default, Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: Option<String>,
}

impl RuntimeClient {
    /// Sends a request to an extension server and decodes its response, whatever its status.
    pub(super) async fn exchange<H: Hook>(
        &self,
        target: Target<'_>,
        request: &H::Request,
    ) -> Result<H::Response, ExchangeError> {
        let url = ExtensionUrl::new(target.config).map_err(SetupError::from)?;
        let ca_bundle = target.config.ca_bundle.as_ref();
        let ca_bundle = ca_bundle.map_or(&[][..], |bundle| &bundle.0);
        let host = self.inner.pool.host(&url, ca_bundle).await;
        let host = host.map_err(SetupError::from)?;
        let mut observation = self.inner.metrics.observe(&url, H::group_version_hook());
        let body = encode(target.hook, request)?;
        let post = Post {
            path_and_query: url.path_and_query(target.hook, target.handler, target.timeout),
            url: &url,
            host: &host,
            resolver: &self.inner.resolver,
            timeout: target.timeout,
            body,
        };
        observation.sent();
        respond::<H>(post, &mut observation)
            .await
            .map_err(ExchangeError::Http)
    }
}

async fn respond<H: Hook>(
    post: Post<'_>,
    observation: &mut Observation<'_>,
) -> Result<H::Response, HttpError> {
    let body = post.send(observation).await?;
    let response: H::Response = decode(&body, H::NAME).map_err(|cause| HttpError::Decode {
        cause: shorten(&cause),
    })?;
    observation.decoded(response.status());
    Ok(response)
}

/// Encodes a request with its `kind` and `apiVersion`.
fn encode<R: Serialize>(hook: &GroupVersionHook, request: &R) -> Result<Bytes, SetupError> {
    let envelope = Envelope {
        kind: format!("{}Request", hook.hook),
        api_version: hook.api_version(),
        request,
    };
    let body = serde_json::to_vec(&envelope);
    let body = body.map_err(|error| SetupError::Encode(error.to_string()))?;
    if body.len() > MAX_BODY {
        return Err(SetupError::RequestTooLarge {
            size: body.len(),
            limit: MAX_BODY,
        });
    }
    Ok(body.into())
}

/// Decodes the first JSON value of a body.
///
/// Unknown fields are ignored. A response without `kind` is accepted, because Cluster API does not
/// require one, but the response of another hook is not.
fn decode<R: DeserializeOwned>(body: &[u8], hook: &str) -> Result<R, String> {
    // serde would decode an array as the fields of the response.
    let start = body.trim_ascii_start().first();
    if start.is_some_and(|&byte| byte != b'{') {
        return Err("the body is not a JSON object".into());
    }
    let kind: ResponseKind = decode_first(body)?;
    let expected = format!("{hook}Response");
    match kind.kind.filter(|kind| !kind.is_empty()) {
        Some(kind) if kind != expected => {
            return Err(format!(
                "got a response of kind {kind:?} instead of {expected}"
            ));
        }
        _ => {}
    }
    match decode_first(body) {
        Ok(response) => Ok(response),
        Err(error) => decode_without_nulls(body).ok_or(error),
    }
}

/// Decodes a response after removing fields that are `null`, as Go writes absent slices and maps.
fn decode_without_nulls<R: DeserializeOwned>(body: &[u8]) -> Option<R> {
    let mut value: Value = decode_first(body).ok()?;
    value.as_object_mut()?.retain(|_, field| !field.is_null());
    serde_json::from_value(value).ok()
}

fn decode_first<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    T::deserialize(&mut Deserializer::from_slice(body)).map_err(|error| error.to_string())
}

/// Returns an error if the status of a response is not `Success`.
pub(super) fn check_status(response: &impl Response) -> Result<(), ResponseError> {
    let message = || shorten(response.message());
    let status = match response.status() {
        ResponseStatus::Success => return Ok(()),
        ResponseStatus::Failure => return Err(ResponseError::Failure { message: message() }),
        ResponseStatus::Other(status) => shorten(status),
        ResponseStatus::Missing => String::new(),
    };
    Err(ResponseError::UnknownStatus {
        status,
        message: message(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extension_config::catalog::hooks::{
        BeforeClusterCreateResponse, Discovery, DiscoveryRequest, DiscoveryResponse,
    };

    #[test]
    fn a_discovery_request_is_its_kind_and_version() {
        let body = encode(&Discovery::group_version_hook(), &DiscoveryRequest {});
        let expected = br#"{"kind":"DiscoveryRequest","apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1"}"#;
        assert_eq!(body.expect("encoded"), expected.as_slice());
    }

    #[test]
    fn only_the_first_value_of_a_body_is_decoded() {
        let body = br#"{"status":"Success","extra":1} {"status":"Failure"} ..."#;
        let response: DiscoveryResponse = decode(body, "Discovery").expect("decoded");
        assert_eq!(response.status, ResponseStatus::Success);
    }

    #[test]
    fn null_is_an_absent_field() {
        let body = br#"{"kind":null,"status":"Success","message":null,"handlers":null}"#;
        let response: DiscoveryResponse = decode(body, "Discovery").expect("decoded");
        assert_eq!(response.handlers, []);
    }

    #[test]
    fn a_response_of_another_hook_is_an_error() {
        let body = br#"{"kind":"BeforeClusterCreateResponse","status":"Success"}"#;
        let error = decode::<DiscoveryResponse>(body, "Discovery").expect_err("another hook");
        assert_eq!(
            error,
            r#"got a response of kind "BeforeClusterCreateResponse" instead of DiscoveryResponse"#
        );
        assert!(decode::<BeforeClusterCreateResponse>(body, "BeforeClusterCreate").is_ok());
    }

    #[test]
    fn an_empty_body_is_an_error() {
        assert!(decode::<DiscoveryResponse>(b"", "Discovery").is_err());
    }
}
