//! What the server says: lines of a watch, refusals. Objects are left as they came; decoding them is another's work, so that one
//! that cannot be decoded harms no other.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::{borrow::Cow, time::Duration};

/// Marks the bookmark that ends the first part of a streamed list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The longest that a server can ask to be left alone for: what asks for more has most likely miscounted, and nobody would see it end.
const LONGEST_REST: Duration = Duration::from_mins(5);

/// One line of a watch.
#[derive(Debug)]
pub(super) enum Line<'a> {
    /// Added or modified: which of the two, only who knows the objects can say.
    Put(&'a RawValue),
    Deleted(&'a RawValue),
    /// Nothing up to this version. `initial` ends the streamed list.
    Bookmark {
        version: String,
        initial: bool,
    },
    Error(Refusal),
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Marked {
    metadata: MarkedMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MarkedMeta {
    resource_version: String,
    annotations: std::collections::BTreeMap<String, String>,
}

/// A `Status` that says no.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Refusal {
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

impl Refusal {
    /// From an answer's code, the seconds it asks to wait for, and its body, which need not be a `Status`: proxies answer too.
    pub(super) fn of(code: u16, retry_after: Option<u64>, body: &[u8]) -> Self {
        let mut refusal: Self = serde_json::from_slice(body).unwrap_or_default();
        if refusal.message.is_empty() {
            let words = String::from_utf8_lossy(body);
            refusal.message = format!("HTTP {code} {}", words.trim().chars().take(200).collect::<String>());
        }
        refusal.code = code;
        refusal.details.retry_after_seconds = refusal.details.retry_after_seconds.max(retry_after.unwrap_or_default());
        refusal
    }

    /// The version is not to be had any more, or not yet: only a new list helps. A server that was restored from a backup says the
    /// latter of versions it gave out before.
    pub(super) fn needs_a_list(&self) -> bool {
        let too_large = || self.details.causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge");
        self.code == 410 || self.reason == "Expired" || self.reason == "Gone" || (self.code == 504 && too_large())
    }

    /// What the server wants to be left alone for, five minutes at most.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let seconds = self.details.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds).min(LONGEST_REST))
    }
}

/// The object of a line that says so in the words that servers use: with nothing between them and nothing after. It was not read, so that it may be anything:
/// if it is no object, [`line`] says what the line is.
///
/// Reading a line only to find where its object ends costs more than a tenth of what an event does that is kept compact.
pub(super) fn put(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(br#"{"type":""#)?;
    let rest = rest.strip_prefix(b"MODIFIED").or_else(|| rest.strip_prefix(b"ADDED"))?;
    rest.strip_prefix(br#"","object":"#)?.strip_suffix(b"}")
}

/// Read a line.
pub(super) fn line(text: &[u8]) -> Result<Line<'_>, serde_json::Error> {
    let envelope: Envelope<'_> = serde_json::from_slice(text)?;
    Ok(match &*envelope.kind {
        "DELETED" => Line::Deleted(envelope.object),
        "BOOKMARK" => {
            let Marked { metadata } = serde_json::from_str(envelope.object.get())?;
            let initial = metadata.annotations.get(INITIAL_EVENTS_END).is_some_and(|value| value == "true");
            Line::Bookmark { version: metadata.resource_version, initial }
        }
        "ERROR" => {
            let refusal: Refusal = serde_json::from_str(envelope.object.get())?;
            Line::Error(Refusal::of(refusal.code, None, envelope.object.get().as_bytes()))
        }
        _ => Line::Put(envelope.object),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_watch_are_told_apart() {
        let said = |text: &'static str| line(text.as_bytes()).expect("a line");
        assert!(
            matches!(said(r#"{"type":"ADDED","object":{"a":1}}"#), Line::Put(object) if object.get() == r#"{"a":1}"#)
        );
        assert!(matches!(said(r#"{"type":"MODIFIED","object":{}}"#), Line::Put(_)));
        assert!(matches!(said(r#"{"type":"DELETED","object":{}}"#), Line::Deleted(_)));
        let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","creationTimestamp":null}}}"#;
        assert!(matches!(said(bookmark), Line::Bookmark { version, initial: false } if version == "7"));
        let last = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
        assert!(matches!(said(last), Line::Bookmark { initial: true, .. }));
        assert!(line(b"{").is_err());
    }

    #[test]
    fn an_object_in_a_servers_own_words_is_found_without_reading_it() {
        assert_eq!(put(br#"{"type":"ADDED","object":{"a":1}}"#), Some(&br#"{"a":1}"#[..]));
        assert_eq!(put(br#"{"type":"MODIFIED","object":{"a":1}}"#), Some(&br#"{"a":1}"#[..]));
        for other in [
            r#"{"type":"DELETED","object":{}}"#,
            r#"{"type":"BOOKMARK","object":{}}"#,
            r#"{"type":"ADDED", "object":{}}"#,
            r#"{"object":{},"type":"ADDED"}"#,
            r#"{"type":"ADDED","object":{}} "#,
            "",
        ] {
            assert_eq!(put(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn versions_that_are_gone_or_not_there_yet_need_a_list() {
        let expired =
            br#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;
        assert!(matches!(line(expired).expect("a line"), Line::Error(refusal) if refusal.needs_a_list()));
        let large = br#"{"code":504,"reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;
        assert!(Refusal::of(504, None, large).needs_a_list());
        assert!(!Refusal::of(504, None, b"gateway").needs_a_list());
        assert!(!Refusal::of(403, None, b"{}").needs_a_list());
    }

    #[test]
    fn a_refusal_is_in_the_servers_words_or_in_those_of_what_answered_instead() {
        let forbidden = br#"{"kind":"Status","code":403,"message":"secrets is forbidden: User \"a\" cannot list"}"#;
        assert_eq!(Refusal::of(403, None, forbidden).message, "secrets is forbidden: User \"a\" cannot list");
        assert_eq!(Refusal::of(502, None, b"<html>bad gateway</html>\n").message, "HTTP 502 <html>bad gateway</html>");
    }

    #[test]
    fn a_server_may_say_how_long_to_wait() {
        let busy = Refusal::of(429, None, br#"{"message":"slow down","details":{"retryAfterSeconds":3}}"#);
        assert_eq!(busy.retry_after(), Some(Duration::from_secs(3)));
        assert_eq!(Refusal::of(429, None, b"{}").retry_after(), None);
        assert_eq!(Refusal::of(503, Some(5), b"a proxy").retry_after(), Some(Duration::from_secs(5)));
        assert_eq!(Refusal::of(503, Some(u64::MAX), b"a proxy").retry_after(), Some(LONGEST_REST));
    }
}
