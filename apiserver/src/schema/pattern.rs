//! Go's regular expressions, which are what schemas are written in, as Rust's.
//!
//! Both are RE2's language, with small differences: Go's `\d`, `\s`, `\w` are ASCII, a brace that starts no repetition
//! is a plain character, and there are no operations on classes, so `[`, `&` and `~` mean nothing special in them.

use regex::Regex;

pub(super) fn regex(pattern: &str) -> Result<Regex, regex::Error> {
    Regex::new(&translated(pattern))
}

fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut class = false;
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let mut taken = c.len_utf8();
        match (c, class) {
            ('\\', _) => {
                let escaped = after.chars().next();
                taken += escaped.map_or(0, char::len_utf8);
                match (escaped.and_then(ascii), class) {
                    (Some(set), true) => out.push_str(set),
                    (Some(set), false) => out.extend(["[", set, "]"]),
                    (None, _) => out.push_str(&rest[..taken]),
                }
            }
            ('[', false) => {
                class = true;
                taken += usize::from(after.starts_with('^'));
                out.push_str(&rest[..taken]);
                // A bracket right at the start is a plain character.
                if rest[taken..].starts_with(']') {
                    taken += 1;
                    out.push_str("\\]");
                }
            }
            ('[', true) if after.starts_with(':') => {
                let end = after.find(":]").map_or(0, |at| at + 2);
                taken += end;
                out.push_str(&rest[..taken]);
            }
            ('[' | '&' | '~', true) => out.extend(['\\', c]),
            (']', true) => {
                class = false;
                out.push(c);
            }
            ('{', false) if !is_repetition(after) => out.push_str("\\{"),
            _ => out.push(c),
        }
        rest = &rest[taken..];
    }
    out
}

/// What a class stands for in Go. The inverted ones differ only on exotic characters and stay as they are.
fn ascii(class: char) -> Option<&'static str> {
    match class {
        'd' => Some("0-9"),
        's' => Some("\\t\\n\\f\\r "),
        'w' => Some("0-9A-Za-z_"),
        _ => None,
    }
}

/// `2}`, `2,}` or `2,3}`.
fn is_repetition(after: &str) -> bool {
    let Some((inner, _)) = after.split_once('}') else { return false };
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
    fn plain_characters_that_rust_takes_for_operators_stay_plain() {
        assert!(regex("^{a}$").unwrap().is_match("{a}"));
        assert!(regex("^a{2,3}$").unwrap().is_match("aa"));
        assert!(regex("^[[&&]+$").unwrap().is_match("[&"));
        assert!(regex("^[]a]+$").unwrap().is_match("]a"));
        assert!(regex("^[^]a]+$").unwrap().is_match("b"));
        assert!(!regex("^[^]a]+$").unwrap().is_match("]"));
        assert!(regex("^[[:alpha:]]+$").unwrap().is_match("ab"));
    }

    #[test]
    fn what_is_no_expression_is_an_error() {
        assert!(regex("(").is_err());
        assert!(regex("[a").is_err());
        assert!(regex("\\").is_err());
    }
}
