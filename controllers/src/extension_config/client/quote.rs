//! Quotes and cuts texts from an extension server for error messages.

use crate::extension_config::go::quoted;

/// Maximum length of a body in an error message, in bytes.
const MAX_BODY: usize = 512;

/// Maximum length of a message or a reason in an error message, in bytes.
const MAX_TEXT: usize = 4096;

/// Quotes the start of a body.
pub(super) fn quote_body(body: &[u8]) -> String {
    match body.get(..MAX_BODY) {
        Some(start) if body.len() > MAX_BODY => quoted([start, b"..."].concat()),
        _ => quoted(body),
    }
}

/// Returns the start of a text that an extension server sent.
pub(super) fn shorten(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.into();
    }
    format!("{}...", &text[..text.floor_char_boundary(MAX_TEXT)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_cut_after_512_bytes() {
        assert_eq!(quote_body(&[b'a'; 512]), format!("\"{}\"", "a".repeat(512)));
        assert_eq!(
            quote_body(&[b'a'; 513]),
            format!("\"{}...\"", "a".repeat(512))
        );
    }

    #[test]
    fn a_text_is_cut_between_two_characters() {
        assert_eq!(shorten("short"), "short");
        let text = shorten(&format!("a{}", "é".repeat(MAX_TEXT)));
        assert_eq!(text.len(), MAX_TEXT - 1 + 3);
    }
}
