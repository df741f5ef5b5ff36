//! Grammars of names in CRDs, with the errors of the real server.

/// Validates a DNS-1035 label.
pub(crate) fn label(text: &str) -> Option<String> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let valid = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|byte| inner(byte) || byte == b'-')
        && text.bytes().last().is_some_and(inner);
    let grammar = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                 character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                 validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    format_errors(text.len() > 63, 63, valid, grammar)
}

/// Validates a DNS-1123 subdomain.
pub(super) fn subdomain(text: &str) -> Option<String> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let valid = text.split('.').all(|part| {
        part.bytes().all(|byte| inner(byte) || byte == b'-')
            && part.bytes().next().is_some_and(inner)
            && part.bytes().last().is_some_and(inner)
    });
    let grammar = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                 must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    format_errors(text.len() > 253, 253, valid, grammar)
}

fn format_errors(too_long: bool, max: usize, valid: bool, grammar: &str) -> Option<String> {
    let length = too_long.then(|| format!("must be no more than {max} characters"));
    let errors: Vec<_> = length
        .into_iter()
        .chain((!valid).then(|| grammar.to_owned()))
        .collect();
    if errors.is_empty() {
        None
    } else {
        Some(errors.join(","))
    }
}
