//! Go's text formats of strings and JSON, for the error texts of Cluster API.

use serde::Serialize;
use std::fmt::Write;

/// Returns a text as Go's `%q` prints it. Bytes that are not UTF-8 are escaped.
pub(super) fn quoted(text: impl AsRef<[u8]>) -> String {
    let mut quoted = String::from('"');
    for chunk in text.as_ref().utf8_chunks() {
        for c in chunk.valid().chars() {
            push(&mut quoted, c);
        }
        for byte in chunk.invalid() {
            // Writing to a `String` does not fail.
            let _ = write!(quoted, "\\x{byte:02x}");
        }
    }
    quoted.push('"');
    quoted
}

fn push(quoted: &mut String, c: char) {
    let code = u32::from(c);
    // Writing to a `String` does not fail.
    let _ = match c {
        '"' | '\\' => write!(quoted, "\\{c}"),
        '\x07' => write!(quoted, "\\a"),
        '\x08' => write!(quoted, "\\b"),
        '\t' => write!(quoted, "\\t"),
        '\n' => write!(quoted, "\\n"),
        '\x0b' => write!(quoted, "\\v"),
        '\x0c' => write!(quoted, "\\f"),
        '\r' => write!(quoted, "\\r"),
        _ if c.is_ascii_control() => write!(quoted, "\\x{code:02x}"),
        _ if c.is_ascii() || c.escape_debug().len() == 1 => write!(quoted, "{c}"),
        _ if code < 0x1_0000 => write!(quoted, "\\u{code:04x}"),
        _ => write!(quoted, "\\U{code:08x}"),
    };
}

/// Returns a value as JSON, with the characters escaped that Go escapes for HTML.
pub(super) fn json(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).unwrap_or_default();
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_as_by_go() {
        assert_eq!(quoted("a'é\u{20ac}"), "\"a'é€\"");
        assert_eq!(quoted("\"\\\t\0\u{7f}"), r#""\"\\\t\x00\x7f""#);
        assert_eq!(quoted(b"\xff<"), r#""\xff<""#);
        assert_eq!(
            quoted("\u{a0}\u{200b}\u{e0001}"),
            r#""\u00a0\u200b\U000e0001""#
        );
    }

    #[test]
    fn json_is_escaped_as_by_go() {
        assert_eq!(json(&"<&>"), r#""\u003c\u0026\u003e""#);
    }
}
