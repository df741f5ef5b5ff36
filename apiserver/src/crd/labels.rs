//! What names in definitions may look like, in the real server's words.

/// What is wrong with a DNS-1035 label.
pub(super) fn label(text: &str) -> Option<String> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|byte| inner(byte) || byte == b'-')
        && text.bytes().last().is_some_and(inner);
    let shape = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                 character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                 validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    wrong(text.len() > 63, 63, fits, shape)
}

/// What is wrong with a DNS-1123 subdomain.
pub(super) fn subdomain(text: &str) -> Option<String> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = text.split('.').all(|part| {
        part.bytes().all(|byte| inner(byte) || byte == b'-')
            && part.bytes().next().is_some_and(inner)
            && part.bytes().last().is_some_and(inner)
    });
    let shape = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                 must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    wrong(text.len() > 253, 253, fits, shape)
}

fn wrong(long: bool, max: usize, fits: bool, shape: &str) -> Option<String> {
    let length = long.then(|| format!("must be no more than {max} characters"));
    let all: Vec<_> = length.into_iter().chain((!fits).then(|| shape.to_owned())).collect();
    if all.is_empty() { None } else { Some(all.join(",")) }
}
