//! Wire format of watch events and of error responses.
//!
//! Objects are not decoded here, so that one that does not decode does not affect others.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::{borrow::Cow, time::Duration};

/// Annotation of the bookmark that ends the initial events of a streamed list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Maximum of a `Retry-After` that is honored. A longer one is probably an error.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// One line of a watch.
#[derive(Debug)]
pub(super) enum Line<'a> {
    /// Added or modified. The store decides which of the two.
    Put(&'a RawValue),
    Deleted(&'a RawValue),
    /// No changes up to this resource version. `initial` ends the streamed list.
    Bookmark {
        version: String,
        initial: bool,
    },
    Error(ErrorResponse),
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BookmarkMeta {
    resource_version: String,
    annotations: std::collections::BTreeMap<String, String>,
}

/// Error response of the API server, as a `Status`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ErrorResponse {
    pub(super) code: u16,
    pub(super) reason: String,
    pub(super) message: String,
    details: Details,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    retry_after_seconds: u64,
    causes: Vec<Cause>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
}

impl ErrorResponse {
    /// Creates it from status code, `Retry-After` in seconds, and body.
    ///
    /// The body may be text instead of a `Status`, because proxies also respond with errors.
    pub(super) fn of(code: u16, retry_after: Option<u64>, body: &[u8]) -> Self {
        let mut rejection: Self = serde_json::from_slice(body).unwrap_or_default();
        if rejection.message.is_empty() {
            let text = String::from_utf8_lossy(body);
            rejection.message = format!(
                "HTTP {code} {}",
                text.trim().chars().take(200).collect::<String>()
            );
        }
        rejection.code = code;
        rejection.details.retry_after_seconds = rejection
            .details
            .retry_after_seconds
            .max(retry_after.unwrap_or_default());
        rejection
    }

    /// Returns whether the resource version is gone or too large. Only a list helps.
    ///
    /// A server that was restored from a backup reports resource versions that it has assigned
    /// before as too large.
    pub(super) fn needs_relist(&self) -> bool {
        let too_large = || {
            self.details
                .causes
                .iter()
                .any(|cause| cause.reason == "ResourceVersionTooLarge")
        };
        self.code == 410
            || self.reason == "Expired"
            || self.reason == "Gone"
            || (self.code == 504 && too_large())
    }

    /// Returns the delay that the server requests, at most five minutes.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let seconds = self.details.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
    }
}

/// Returns the object of an added or modified event, without parsing the line.
///
/// Accepts only lines in the exact layout that API servers send. The object is not validated: if it
/// does not decode, parse the line with [`parse_line`].
///
/// Parsing a line only to find the end of its object takes more than a tenth of the time of an
/// event in a compact informer.
pub(super) fn parse_put(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(br#"{"type":""#)?;
    let rest = rest
        .strip_prefix(b"MODIFIED")
        .or_else(|| rest.strip_prefix(b"ADDED"))?;
    rest.strip_prefix(br#"","object":"#)?.strip_suffix(b"}")
}

/// Parses a line of a watch.
pub(super) fn parse_line(text: &[u8]) -> Result<Line<'_>, serde_json::Error> {
    let envelope: Envelope<'_> = serde_json::from_slice(text)?;
    Ok(match &*envelope.kind {
        "DELETED" => Line::Deleted(envelope.object),
        "BOOKMARK" => {
            let Bookmark { metadata } = serde_json::from_str(envelope.object.get())?;
            let initial = metadata
                .annotations
                .get(INITIAL_EVENTS_END)
                .is_some_and(|value| value == "true");
            Line::Bookmark {
                version: metadata.resource_version,
                initial,
            }
        }
        "ERROR" => {
            let rejection: ErrorResponse = serde_json::from_str(envelope.object.get())?;
            Line::Error(ErrorResponse::of(
                rejection.code,
                None,
                envelope.object.get().as_bytes(),
            ))
        }
        _ => Line::Put(envelope.object),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_of_watch_events_are_parsed() {
        let parse = |text: &'static str| parse_line(text.as_bytes()).expect("a line");
        assert!(
            matches!(parse(r#"{"type":"ADDED","object":{"a":1}}"#), Line::Put(object) if object.get() == r#"{"a":1}"#)
        );
        assert!(matches!(
            parse(r#"{"type":"MODIFIED","object":{}}"#),
            Line::Put(_)
        ));
        assert!(matches!(
            parse(r#"{"type":"DELETED","object":{}}"#),
            Line::Deleted(_)
        ));
        let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","creationTimestamp":null}}}"#;
        assert!(
            matches!(parse(bookmark), Line::Bookmark { version, initial: false } if version == "7")
        );
        let last = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
        assert!(matches!(parse(last), Line::Bookmark { initial: true, .. }));
        assert!(parse_line(b"{").is_err());
    }

    #[test]
    fn an_object_in_the_servers_layout_is_found_without_parsing() {
        assert_eq!(
            parse_put(br#"{"type":"ADDED","object":{"a":1}}"#),
            Some(&br#"{"a":1}"#[..])
        );
        assert_eq!(
            parse_put(br#"{"type":"MODIFIED","object":{"a":1}}"#),
            Some(&br#"{"a":1}"#[..])
        );
        for other in [
            r#"{"type":"DELETED","object":{}}"#,
            r#"{"type":"BOOKMARK","object":{}}"#,
            r#"{"type":"ADDED", "object":{}}"#,
            r#"{"object":{},"type":"ADDED"}"#,
            r#"{"type":"ADDED","object":{}} "#,
            "",
        ] {
            assert_eq!(parse_put(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn expired_and_future_resource_versions_need_a_relist() {
        let expired =
            br#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;
        assert!(
            matches!(parse_line(expired).expect("a line"), Line::Error(rejection) if rejection.needs_relist())
        );
        let large = br#"{"code":504,"reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;
        assert!(ErrorResponse::of(504, None, large).needs_relist());
        assert!(!ErrorResponse::of(504, None, b"gateway").needs_relist());
        assert!(!ErrorResponse::of(403, None, b"{}").needs_relist());
    }

    #[test]
    fn an_error_has_the_message_of_the_status_or_of_the_proxy() {
        let forbidden = br#"{"kind":"Status","code":403,"message":"secrets is forbidden: User \"a\" cannot list"}"#;
        assert_eq!(
            ErrorResponse::of(403, None, forbidden).message,
            "secrets is forbidden: User \"a\" cannot list"
        );
        assert_eq!(
            ErrorResponse::of(502, None, b"<html>bad gateway</html>\n").message,
            "HTTP 502 <html>bad gateway</html>"
        );
    }

    #[test]
    fn a_retry_after_of_the_server_is_returned() {
        let busy = ErrorResponse::of(
            429,
            None,
            br#"{"message":"slow down","details":{"retryAfterSeconds":3}}"#,
        );
        assert_eq!(busy.retry_after(), Some(Duration::from_secs(3)));
        assert_eq!(ErrorResponse::of(429, None, b"{}").retry_after(), None);
        assert_eq!(
            ErrorResponse::of(503, Some(5), b"a proxy").retry_after(),
            Some(Duration::from_secs(5))
        );
        assert_eq!(
            ErrorResponse::of(503, Some(u64::MAX), b"a proxy").retry_after(),
            Some(MAX_RETRY_AFTER)
        );
    }
}
