//! Grammars of Kubernetes names. Each function returns the real server's errors, none for a valid
//! name.
//!
//! Invariant: no valid object name has a meaning in a path, so no object is stored at the path of
//! another one.

use crate::resource::NameRule;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', \
     and must start and end with an alphanumeric character";

/// Validates an object's name.
pub(crate) fn name(rule: NameRule, name: &str) -> Vec<String> {
    match rule {
        NameRule::Subdomain => subdomain(name),
        NameRule::Label => label(name),
        NameRule::PathSegment => path_segment(name),
    }
}

/// Validates `metadata.generateName`. It can end in a dash.
pub(crate) fn prefix(rule: NameRule, prefix: &str) -> Vec<String> {
    match prefix.strip_suffix('-') {
        // Two dots are harmless before a suffix.
        _ if rule == NameRule::PathSegment => path_characters(prefix),
        Some(rest) if !rest.is_empty() => name(rule, &format!("{rest}a")),
        _ => name(rule, prefix),
    }
}

/// Validates an RFC 1123 subdomain, such as `a.b-c.d`.
pub(crate) fn subdomain(value: &str) -> Vec<String> {
    let mut errors = too_long(value, 253, "characters");
    if !is_subdomain(value) {
        errors.push(grammar(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character",
            &format!("{LABEL}(\\.{LABEL})*"),
            &["example.com"],
        ));
    }
    errors
}

/// Validates an RFC 1123 label, such as `a-b`.
pub(crate) fn label(value: &str) -> Vec<String> {
    let mut errors = too_long(value, 63, "characters");
    if is_label(value) {
        return errors;
    }
    errors.push(if is_subdomain(value) {
        "must not contain dots".into()
    } else {
        grammar(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
             and must start and end with an alphanumeric character",
            LABEL,
            &["my-name", "123-abc"],
        )
    });
    errors
}

/// Validates a name that is one segment of a path.
pub(crate) fn path_segment(value: &str) -> Vec<String> {
    if value == "." || value == ".." {
        return vec![format!("may not be '{value}'")];
    }
    path_characters(value)
}

fn path_characters(value: &str) -> Vec<String> {
    ['/', '%']
        .into_iter()
        .filter(|&c| value.contains(c))
        .map(|c| format!("may not contain '{c}'"))
        .collect()
}

/// Validates the key of a label or annotation or the name of a finalizer: `example.com/My_Name`.
pub(crate) fn qualified(value: &str) -> Vec<String> {
    let examples = ["MyName", "my.name", "123-abc"];
    let (prefix, name) = match value.split_once('/') {
        None => (None, value),
        Some((_, rest)) if rest.contains('/') => {
            let rule = grammar(QUALIFIED_RULE, QUALIFIED, &examples);
            let example =
                "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {rule} {example}")];
        }
        Some((prefix, name)) => (Some(prefix), name),
    };
    let mut errors = match prefix {
        None => Vec::new(),
        Some("") => vec!["prefix part must be non-empty".into()],
        Some(prefix) => subdomain(prefix)
            .into_iter()
            .map(|error| format!("prefix part {error}"))
            .collect(),
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".into());
    }
    errors.extend(
        too_long(name, 63, "bytes")
            .into_iter()
            .map(|error| format!("name part {error}")),
    );
    if !is_qualified(name) {
        errors.push(format!(
            "name part {}",
            grammar(QUALIFIED_RULE, QUALIFIED, &examples)
        ));
    }
    errors
}

/// Validates a label's value, which can be empty.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    let mut errors = too_long(value, 63, "bytes");
    if !value.is_empty() && !is_qualified(value) {
        errors.push(grammar(
            &format!(
                "a valid label must be an empty string or {}",
                &QUALIFIED_RULE["must ".len()..]
            ),
            &format!("({QUALIFIED})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// Validates the name of a port.
pub(crate) fn port(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.is_empty() || value.len() > 15 {
        errors.push("must be no more than 15 characters".into());
    }
    if !value
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    {
        errors
            .push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    } else if !value.bytes().any(|byte| byte.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".into());
    }
    if value.contains("--") {
        errors.push("must not contain consecutive hyphens".into());
    }
    if value.starts_with('-') || value.ends_with('-') {
        errors.push("must not begin or end with a hyphen".into());
    }
    errors
}

/// Validates a key of a config map or secret.
pub(crate) fn config_key(value: &str) -> Vec<String> {
    let mut errors = too_long(value, 253, "characters");
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if value.is_empty() || !value.bytes().all(allowed) {
        let rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        errors.push(grammar(
            rule,
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match value {
        "." | ".." => errors.push(format!("must not be '{value}'")),
        _ if value.starts_with("..") => errors.push("must not start with '..'".into()),
        _ => {}
    }
    errors
}

/// Checks the length in bytes. `unit` is the real server's word for them in this grammar.
fn too_long(value: &str, max: usize, unit: &str) -> Vec<String> {
    if value.len() > max {
        vec![format!("must be no more than {max} {unit}")]
    } else {
        Vec::new()
    }
}

/// Formats the error of a grammar. The separators are the real server's, including the double
/// space.
fn grammar(rule: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<_> = examples
        .iter()
        .map(|example| format!("'{example}', "))
        .collect();
    format!(
        "{rule} (e.g. {}regex used for validation is '{pattern}')",
        examples.join(" or ")
    )
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

fn is_label(value: &str) -> bool {
    matches_grammar(
        value,
        |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit(),
        b"-",
    )
}

fn is_qualified(value: &str) -> bool {
    matches_grammar(value, u8::is_ascii_alphanumeric, b"-_.")
}

/// Reports whether a value is not empty, has `outer` bytes at both ends and `outer` or `inner`
/// bytes between.
fn matches_grammar(value: &str, outer: impl Fn(&u8) -> bool, inner: &[u8]) -> bool {
    let bytes = value.as_bytes();
    bytes.first().is_some_and(&outer)
        && bytes.last().is_some_and(&outer)
        && bytes.iter().all(|byte| outer(byte) || inner.contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_subdomain_has_the_error_of_the_real_server() {
        assert_eq!(subdomain("a.b-c.9"), Vec::<String>::new());
        assert_eq!(
            subdomain("A"),
            [concat!(
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', ",
                "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for ",
                r"validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            )]
        );
        for bad in [
            "", ".", "..", "a..b", "-a", "a-", "a.", "a/b", "a%2f", "ä", "a_b",
        ] {
            assert_eq!(subdomain(bad).len(), 1, "{bad}");
        }
        assert_eq!(subdomain(&"a".repeat(253)), Vec::<String>::new());
        assert_eq!(
            subdomain(&"a".repeat(254)),
            ["must be no more than 253 characters"]
        );
    }

    #[test]
    fn a_label_has_no_dots() {
        assert_eq!(label("a.b"), ["must not contain dots"]);
        assert!(
            label("a_b")[0]
                .contains("(e.g. 'my-name',  or '123-abc', regex used for validation is '")
        );
        assert_eq!(label("9a"), Vec::<String>::new());
    }

    #[test]
    fn a_path_segment_cannot_be_a_parent_directory() {
        assert_eq!(path_segment("system:node"), Vec::<String>::new());
        assert_eq!(path_segment(".."), ["may not be '..'"]);
        assert_eq!(
            path_segment("a/b%"),
            ["may not contain '/'", "may not contain '%'"]
        );
    }

    #[test]
    fn a_prefix_may_end_in_a_dash_and_nothing_else() {
        assert_eq!(prefix(NameRule::Subdomain, "web-"), Vec::<String>::new());
        assert_eq!(prefix(NameRule::Subdomain, "-").len(), 1);
        assert_eq!(prefix(NameRule::Subdomain, "web_").len(), 1);
        assert_eq!(prefix(NameRule::PathSegment, "."), Vec::<String>::new());
    }

    #[test]
    fn a_qualified_name_has_one_slash_at_most() {
        for good in ["a", "A_b.c-9", "example.com/a"] {
            assert_eq!(qualified(good), Vec::<String>::new(), "{good}");
        }
        assert_eq!(qualified("/a"), ["prefix part must be non-empty"]);
        assert_eq!(qualified("a/").len(), 2);
        assert!(qualified("a/b/c")[0].starts_with("a valid label key must consist of"));
        assert!(qualified("B/c")[0].starts_with("prefix part a lowercase RFC 1123 subdomain"));
        assert_eq!(
            qualified(&"a".repeat(64)),
            ["name part must be no more than 63 bytes"]
        );
    }

    #[test]
    fn a_label_value_may_be_empty() {
        assert_eq!(label_value(""), Vec::<String>::new());
        assert!(
            label_value("a b")[0]
                .starts_with("a valid label must be an empty string or consist of alphanumeric")
        );
        assert_eq!(
            label_value(&"a".repeat(64)),
            ["must be no more than 63 bytes"]
        );
    }
}
