//! Validation of DNS labels and subdomains, with the error texts of Kubernetes.

const MAX_LABEL: usize = 63;
const MAX_SUBDOMAIN: usize = 253;

/// Returns the reasons why a text is not a DNS label of RFC 1123. Empty: it is valid.
pub(in crate::extension_config) fn label_1123(text: &str) -> Vec<String> {
    let mut errors = too_long(text, MAX_LABEL, "characters");
    if !is_label_1123(text) {
        errors.push(if is_subdomain(text) {
            "must not contain dots".into()
        } else {
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \
             '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
             '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                .into()
        });
    }
    errors
}

/// Returns the reasons why a text is not a DNS label of RFC 1035, which starts with a letter.
pub(super) fn label_1035(text: &str) -> Vec<String> {
    let mut errors = too_long(text, MAX_LABEL, "characters");
    if !is_label_1123(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        errors.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
             with an alphabetic character, and end with an alphanumeric character (e.g. \
             'my-name',  or 'abc-123', regex used for validation is \
             '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .into(),
        );
    }
    errors
}

/// Returns the reasons why a text is not a DNS subdomain of RFC 1123.
pub(super) fn subdomain(text: &str) -> Vec<String> {
    let mut errors = too_long(text, MAX_SUBDOMAIN, "bytes");
    if !is_subdomain(text) {
        errors.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
             '-' or '.', and must start and end with an alphanumeric character (e.g. \
             'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .into(),
        );
    }
    errors
}

/// Returns an error if a text has more than `max` bytes.
///
/// `unit` is the word in the error text: Kubernetes uses different ones.
pub(super) fn too_long(text: &str, max: usize, unit: &str) -> Vec<String> {
    let error = (text.len() > max).then(|| format!("must be no more than {max} {unit}"));
    error.into_iter().collect()
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label_1123)
}

fn is_label_1123(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
        && text.chars().all(|c| alphanumeric(c) || c == '-')
}
