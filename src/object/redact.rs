//! Removes values from the messages of decoders.
//!
//! The messages are logged and returned to reconcilers, whose errors are logged too. A message of
//! serde quotes the value that does not match, which may be a password.

/// Replaces messages of a type's own code about a `Secret`.
const HIDDEN: &str = "a value does not match its type";

/// Returns the message of `error` without values of the object's fields.
///
/// Removes the value from the messages that serde makes, and the text in double quotes from others.
/// Other messages of a `Secret` are dropped, because a type's own code can put a value anywhere.
/// Field names and the position stay.
pub(crate) fn redacted(kind: &str, error: &serde_json::Error) -> String {
    let text = error.to_string();
    let (message, position) = text
        .rfind(" at line ")
        .map_or((&*text, ""), |at| text.split_at(at));
    if !error.is_data() {
        // Syntax errors contain no values.
        return text;
    }
    let message = match without_value(message) {
        Some(message) => message,
        None if kind == "Secret" => HIDDEN.to_owned(),
        None => without_quoted(message),
    };
    message + position
}

/// Returns a message of serde without its value; `None` for other messages.
fn without_value(message: &str) -> Option<String> {
    for prefix in ["invalid type: ", "invalid value: "] {
        if let Some(rest) = message.strip_prefix(prefix) {
            // The value may contain the separator, the description of the type does not.
            let (found, expected) = rest.rsplit_once(", expected ")?;
            let found = found
                .split(['"', '`'])
                .next()
                .unwrap_or_default()
                .trim_end();
            return Some(format!("{prefix}{found}, expected {expected}"));
        }
    }
    if let Some(rest) = message.strip_prefix("unknown variant `") {
        let (_, expected) = rest.rsplit_once("`, expected ")?;
        return Some(format!("unknown variant, expected {expected}"));
    }
    let names_fields = [
        "missing field ",
        "unknown field ",
        "duplicate field ",
        "invalid length ",
    ];
    names_fields
        .iter()
        .any(|prefix| message.starts_with(prefix))
        .then(|| message.to_owned())
}

fn without_quoted(message: &str) -> String {
    let mut parts = message.split('"');
    let mut kept = parts.next().unwrap_or_default().to_owned();
    while let Some(_quoted) = parts.next() {
        kept += "\"…\"";
        kept += parts.next().unwrap_or_default();
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{
        Deserialize, Deserializer,
        de::{DeserializeOwned, Error},
    };

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Strict {
        #[serde(rename = "port")]
        _port: i32,
    }

    #[derive(Debug, Deserialize)]
    enum Color {
        #[serde(rename = "red")]
        Red,
        #[serde(rename = "green")]
        Green,
    }

    #[derive(Debug)]
    struct Custom;

    impl<'de> Deserialize<'de> for Custom {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = String::deserialize(deserializer)?;
            Err(D::Error::custom(format!("bad token {text:?}")))
        }
    }

    fn message<T: DeserializeOwned + std::fmt::Debug>(kind: &str, json: &str) -> String {
        redacted(
            kind,
            &serde_json::from_str::<T>(json).expect_err("undecodable"),
        )
    }

    #[test]
    fn a_redacted_message_names_the_types_and_not_the_value() {
        for (json, expected) in [
            (
                r#"{"port": "hunter2"}"#,
                "invalid type: string, expected i32 at line 1 column 18",
            ),
            (
                r#"{"port": "a\", expected b"}"#,
                "invalid type: string, expected i32 at line 1 column 26",
            ),
            (
                r#"{"port": 99999999999}"#,
                "invalid value: integer, expected i32 at line 1 column 20",
            ),
            (
                r#"{"port": 1.5}"#,
                "invalid type: floating point, expected i32 at line 1 column 12",
            ),
            (
                r#"{"port": null}"#,
                "invalid type: null, expected i32 at line 1 column 13",
            ),
            ("{}", "missing field `port` at line 1 column 2"),
            (
                r#"{"prt": 1}"#,
                "unknown field `prt`, expected `port` at line 1 column 6",
            ),
            (
                r#"{"port": "#,
                "EOF while parsing a value at line 1 column 9",
            ),
        ] {
            assert_eq!(message::<Strict>("Secret", json), expected, "{json}");
            assert_eq!(message::<Strict>("Website", json), expected, "{json}");
        }
        let message = message::<Color>("Secret", r#""hunter2""#);
        assert!(
            message.starts_with("unknown variant, expected `red` or `green`"),
            "{message}"
        );
        assert!(!message.contains("hunter2"), "{message}");
    }

    #[test]
    fn a_redacted_message_keeps_unquoted_text_except_for_secrets() {
        let json = r#""hunter2""#;
        assert!(message::<Custom>("Website", json).starts_with(r#"bad token "…""#));
        assert!(message::<Custom>("Secret", json).starts_with(HIDDEN));
    }
}
