//! Validation of label keys and values, with the error texts of Kubernetes.

use super::dns;

const MAX_LENGTH: usize = 63;

/// Returns the reasons why a text is not a label key. Empty: it is valid.
pub(in crate::extension_config) fn key(text: &str) -> Vec<String> {
    let parts: Vec<_> = text.split('/').collect();
    let mut errors = Vec::new();
    let name = match *parts {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".into());
            } else {
                let texts = dns::subdomain(prefix);
                errors.extend(texts.iter().map(|text| format!("prefix part {text}")));
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".into());
    }
    let texts = dns::too_long(name, MAX_LENGTH, "bytes");
    errors.extend(texts.iter().map(|text| format!("name part {text}")));
    if !is_name(name) {
        errors.push(format!("name part {KEY}"));
    }
    errors
}

/// Returns the reasons why a text is not a label value. Empty: it is valid.
pub(in crate::extension_config) fn value(text: &str) -> Vec<String> {
    let mut errors = dns::too_long(text, MAX_LENGTH, "bytes");
    if !text.is_empty() && !is_name(text) {
        errors.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', \
             '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  \
             or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .into(),
        );
    }
    errors
}

const KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and \
                   end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
                   '123-abc', regex used for validation is \
                   '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn is_name(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
        && text
            .chars()
            .all(|c| alphanumeric(c) || matches!(c, '-' | '_' | '.'))
}
