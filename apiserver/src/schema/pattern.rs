//! Translation of Go's regular expressions, which schemas use, to Rust's.
//!
//! Both are dialects of RE2. In Go `\d`, `\s` and `\w` are ASCII, a brace that does not start a
//! repetition is a literal, and classes have no operators, so `[`, `&` and `~` are literals in
//! them.

use regex::Regex;

pub(super) fn regex(pattern: &str) -> Result<Regex, regex::Error> {
    Regex::new(&translate(pattern))
}

fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut class = false;
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let mut consumed = c.len_utf8();
        match (c, class) {
            ('\\', _) => {
                let escaped = after.chars().next();
                consumed += escaped.map_or(0, char::len_utf8);
                match (escaped.and_then(ascii_class), class) {
                    (Some(set), true) => out.push_str(set),
                    (Some(set), false) => out.extend(["[", set, "]"]),
                    (None, _) => out.push_str(&rest[..consumed]),
                }
            }
            ('[', false) => {
                class = true;
                consumed += usize::from(after.starts_with('^'));
                out.push_str(&rest[..consumed]);
                // A bracket at the start of a class is a literal.
                if rest[consumed..].starts_with(']') {
                    consumed += 1;
                    out.push_str("\\]");
                }
            }
            ('[', true) if after.starts_with(':') => {
                let end = after.find(":]").map_or(0, |at| at + 2);
                consumed += end;
                out.push_str(&rest[..consumed]);
            }
            ('[' | '&' | '~', true) => out.extend(['\\', c]),
            (']', true) => {
                class = false;
                out.push(c);
            }
            ('{', false) if !is_repetition(after) => out.push_str("\\{"),
            _ => out.push(c),
        }
        rest = &rest[consumed..];
    }
    out
}

/// Returns the characters of a class in Go. Negated classes differ only in rare characters and are
/// not translated.
fn ascii_class(class: char) -> Option<&'static str> {
    match class {
        'd' => Some("0-9"),
        's' => Some("\\t\\n\\f\\r "),
        'w' => Some("0-9A-Za-z_"),
        _ => None,
    }
}

/// Reports whether the text starts with the rest of a repetition: `2}`, `2,}` or `2,3}`.
fn is_repetition(after: &str) -> bool {
    let Some((inner, _)) = after.split_once('}') else {
        return false;
    };
    let (from, to) = inner.split_once(',').unwrap_or((inner, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !from.is_empty() && digits(from) && digits(to)
}

#[cfg(test)]
mod tests {
    use super::regex;

    #[test]
    fn classes_are_ascii_as_in_go() {
        assert!(regex(r"^\d+$").unwrap().is_match("12"));
        assert!(!regex(r"^\d+$").unwrap().is_match("١٢"));
        assert!(!regex(r"^[\w.]+$").unwrap().is_match("ä"));
        assert!(regex(r"^[\w.]+$").unwrap().is_match("a_1.b"));
    }

    #[test]
    fn literals_that_are_operators_in_rust_stay_literals() {
        assert!(regex("^{a}$").unwrap().is_match("{a}"));
        assert!(regex("^a{2,3}$").unwrap().is_match("aa"));
        assert!(regex("^[[&&]+$").unwrap().is_match("[&"));
        assert!(regex("^[]a]+$").unwrap().is_match("]a"));
        assert!(regex("^[^]a]+$").unwrap().is_match("b"));
        assert!(!regex("^[^]a]+$").unwrap().is_match("]"));
        assert!(regex("^[[:alpha:]]+$").unwrap().is_match("ab"));
    }

    #[test]
    fn an_invalid_expression_is_an_error() {
        assert!(regex("(").is_err());
        assert!(regex("[a").is_err());
        assert!(regex("\\").is_err());
    }
}
