//! Continue tokens: the position of the next page of a list, and the revision that is listed.
//!
//! Clients can forge tokens, so the key is relative to the listed prefix and cannot leave it.

use crate::status::{Failure, Result};
use base64::{
    DecodeError, Engine,
    alphabet::URL_SAFE,
    engine::{GeneralPurpose, GeneralPurposeConfig, general_purpose::NO_PAD},
};
use serde::{Deserialize, Serialize};

const VERSION: &str = "meta.k8s.io/v1";

/// Ignores trailing bits, as kube-apiserver does.
const BASE64: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, LENIENT);
const LENIENT: GeneralPurposeConfig = NO_PAD.with_decode_allow_trailing_bits(true);

/// Longer than a token for the longest namespace and name.
const MAX_LENGTH: usize = 4096;

/// Position of the next page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// Revision that is listed. `None` is the current one, used once the revision of the first page
    /// is compacted.
    pub(crate) revision: Option<u64>,
    /// First key, relative to the listed prefix: `namespace/name\0`, or `name\0` within a
    /// namespace.
    pub(crate) start: String,
}

#[derive(Deserialize, Serialize)]
struct Token<S> {
    #[serde(default)]
    v: S,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: S,
}

impl Position {
    /// Returns the position right after `key`.
    pub(crate) fn after(revision: Option<u64>, key: &str) -> Self {
        Self {
            revision,
            start: format!("{key}\0"),
        }
    }

    /// Encodes the position as a continue token.
    pub(crate) fn encode(&self) -> String {
        let rv = self
            .revision
            .map_or(-1, |revision| i64::try_from(revision).unwrap_or(i64::MAX));
        let token = Token {
            v: VERSION,
            rv,
            start: &*self.start,
        };
        BASE64.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    /// Decodes a continue token.
    pub(crate) fn decode(token: &str) -> Result<Self> {
        parse(token).map_err(|reason| {
            Failure::bad_request(format!(
                "invalid continue token: continue key is not valid: {reason}"
            ))
        })
    }
}

fn parse(token: &str) -> Result<Position, String> {
    if token.len() > MAX_LENGTH {
        return Err(format!("longer than {MAX_LENGTH} bytes"));
    }
    let json = BASE64.decode(token).map_err(|error| {
        let at = match error {
            DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => {
                at
            }
            DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => token.len(),
        };
        format!("illegal base64 data at input byte {at}")
    })?;
    let token: Token<String> = serde_json::from_slice(&json)
        .map_err(|error| format!("unexpected end of JSON input, or no JSON: {error}"))?;
    if token.v != VERSION {
        return Err(format!(
            "server does not recognize this encoded version {}",
            token.v
        ));
    }
    if token.rv == 0 {
        return Err(format!(
            "incorrect encoded start resourceVersion (version {VERSION})"
        ));
    }
    if token.start.is_empty() {
        return Err(format!("encoded start key empty (version {VERSION})"));
    }
    if token
        .start
        .split('/')
        .any(|segment| matches!(segment, "" | "." | ".."))
    {
        return Err(token.start);
    }
    Ok(Position {
        revision: u64::try_from(token.rv).ok(),
        start: token.start,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn forged(json: &str) -> Result<Position> {
        Position::decode(&BASE64.encode(json))
    }

    #[test]
    fn a_token_equals_that_of_kube_apiserver() {
        let token = Position::after(Some(7), "default/a").encode();
        let json = BASE64.decode(token).unwrap();
        assert_eq!(
            json,
            br#"{"v":"meta.k8s.io/v1","rv":7,"start":"default/a\u0000"}"#
        );
    }

    #[test]
    fn a_token_without_a_revision_lists_the_current_state() {
        let position = Position::after(None, "a");
        assert!(
            BASE64
                .decode(position.encode())
                .unwrap()
                .starts_with(br#"{"v":"meta.k8s.io/v1","rv":-1,"#)
        );
        assert_eq!(Position::decode(&position.encode()).unwrap(), position);
    }

    #[test]
    fn a_forged_token_cannot_leave_the_listed_prefix() {
        for start in ["../secrets/a", "a/../b", "./a", "a//b", "/a", "a/", ".."] {
            let failure = forged(&format!(
                r#"{{"v":"meta.k8s.io/v1","rv":1,"start":"{start}"}}"#
            ))
            .unwrap_err();
            assert_eq!(failure.code, 400);
            assert_eq!(
                failure.message,
                format!("invalid continue token: continue key is not valid: {start}")
            );
        }
    }

    #[test]
    fn an_invalid_token_is_rejected() {
        for (json, reason) in [
            ("{", "unexpected end of JSON input"),
            ("{}", "server does not recognize this encoded version"),
            (
                r#"{"v":"meta.k8s.io/v1","start":"a"}"#,
                "incorrect encoded start resourceVersion",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":1}"#,
                "encoded start key empty",
            ),
        ] {
            let message = forged(json).unwrap_err().message;
            assert!(
                message.starts_with(&format!(
                    "invalid continue token: continue key is not valid: {reason}"
                )),
                "{message}"
            );
        }
        assert_eq!(Position::decode("not base64!").unwrap_err().code, 400);
        assert_eq!(Position::decode(&"a".repeat(5000)).unwrap_err().code, 400);
    }

    steersman_testkit::properties! {
        #[test]
        fn a_token_survives_the_round_trip(revision in 1..=u64::MAX / 2, key in "[a-z0-9.-]{1,9}x(/[a-z0-9-]{1,9})?") {
            let position = Position::after(Some(revision), &key);
            prop_assert_eq!(Position::decode(&position.encode()).unwrap(), position);
        }

        #[test]
        fn decoding_never_panics(token in r"[A-Za-z0-9_-]{0,40}|\PC*") {
            let _ = Position::decode(&token);
        }
    }
}
