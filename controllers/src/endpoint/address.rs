//! Host and port of a control plane, parsed from values of Terraform.
//!
//! Accepts `https://host[:port][/]`, `host`, `host:port`, `[v6]` and `[v6]:port`. The default port
//! is 443. The case of the host is kept, because EKS uses it. Errors do not contain the rejected
//! value, which may be a misplaced secret.

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use std::{fmt, net::Ipv6Addr, str::FromStr};

const DEFAULT_PORT: u16 = 443;

/// Longest host that the Cluster API accepts.
const MAX_HOST_LENGTH: usize = 512;

/// Base64 as Go decodes it: unused trailing bits are not an error.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Host and port of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Address {
    host: String,
    port: u16,
}

/// Reason why a value is not a valid address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AddressError {
    /// The value is empty or blank.
    #[error("the value is empty")]
    Empty,
    /// The host is longer than the Cluster API accepts.
    #[error("the host is longer than 512 characters")]
    TooLong,
    /// The value contains spaces or control characters.
    #[error("the value contains spaces or control characters")]
    Unprintable,
    /// The scheme is not `https`.
    #[error("the scheme is not https")]
    Scheme,
    /// The value contains a user name.
    #[error("the value contains a user")]
    User,
    /// The value contains a path, query or fragment.
    #[error("the value contains a path, a query or a fragment")]
    Path,
    /// The host is neither a DNS name nor an IP address.
    #[error("the host is neither a DNS name nor an IP address")]
    Host,
    /// The port is not between 1 and 65535.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// The value is not UTF-8.
    #[error("the value is not UTF-8")]
    NotText,
}

impl Address {
    /// Returns the host as it was written; an IPv6 address without brackets.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Parses the value of a Secret, which is plain or encoded in base64 once more.
    ///
    /// If both fail, returns the error of the plain value.
    pub(super) fn from_secret(bytes: &[u8]) -> Result<Self, AddressError> {
        let raw = str::from_utf8(bytes)
            .map_err(|_| AddressError::NotText)
            .and_then(Self::from_str);
        raw.or_else(|error| Self::from_base64(bytes).ok_or(error))
    }

    fn from_base64(bytes: &[u8]) -> Option<Self> {
        let bytes: Vec<u8> = bytes
            .iter()
            .copied()
            .filter(|byte| !matches!(byte, b'\r' | b'\n'))
            .collect();
        String::from_utf8(LENIENT_BASE64.decode(bytes).ok()?)
            .ok()?
            .parse()
            .ok()
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::with_default(text, DEFAULT_PORT)
    }
}

impl Address {
    /// Parses an address with a default port.
    pub(super) fn with_default(text: &str, port: u16) -> Result<Self, AddressError> {
        let (text, default) = (text.trim(), port);
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        if text
            .chars()
            .any(|char| char.is_whitespace() || char.is_control())
        {
            return Err(AddressError::Unprintable);
        }
        let authority = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => {
                rest.strip_suffix('/').unwrap_or(rest)
            }
            Some(_) => return Err(AddressError::Scheme),
            None => text,
        };
        if authority.contains('@') {
            return Err(AddressError::User);
        }
        if authority.contains(['/', '?', '#', '\\']) {
            return Err(AddressError::Path);
        }
        let (host, port) = split(authority)?;
        if host.len() > MAX_HOST_LENGTH {
            return Err(AddressError::TooLong);
        }
        Ok(Self {
            host: host.to_owned(),
            port: port.map_or(Ok(default), parse_port)?,
        })
    }
}

/// Splits into host and port. Validates the host only.
fn split(authority: &str) -> Result<(&str, Option<&str>), AddressError> {
    if let Some(bracketed) = authority.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']').ok_or(AddressError::Host)?;
        host.parse::<Ipv6Addr>().map_err(|_| AddressError::Host)?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(AddressError::Host),
        };
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    if is_name(host) {
        Ok((host, port))
    } else {
        Err(AddressError::Host)
    }
}

/// Returns whether the host is a DNS name or an IPv4 address.
///
/// A name with a numeric last label must be a valid IPv4 address.
fn is_name(host: &str) -> bool {
    let labels: Vec<_> = host.strip_suffix('.').unwrap_or(host).split('.').collect();
    let is_label = |label: &&str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let numeric = labels
        .last()
        .is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    labels.iter().all(is_label) && (!numeric || host.parse::<std::net::Ipv4Addr>().is_ok())
}

fn parse_port(port: &str) -> Result<u16, AddressError> {
    // `parse` accepts a sign, which is not a digit.
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse()
        .ok()
        .filter(|port| digits && *port > 0)
        .ok_or(AddressError::Port)
}

/// Formats as `host:port`, with an IPv6 address in brackets.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_parses(text: &str, host: &str, port: u16) {
        assert_eq!(
            text.parse(),
            Ok(Address {
                host: host.into(),
                port
            }),
            "{text}"
        );
    }

    #[test]
    fn a_url_is_parsed_into_host_and_port() {
        assert_parses(
            "https://ABC123.gr7.eu-west-1.eks.amazonaws.com",
            "ABC123.gr7.eu-west-1.eks.amazonaws.com",
            443,
        );
        assert_parses("HTTPS://Host.Example/", "Host.Example", 443);
        assert_parses("https://host:6443", "host", 6443);
        assert_parses("https://host:443/", "host", 443);
        assert_parses(" https://host\n", "host", 443);
    }

    #[test]
    fn the_scheme_is_optional() {
        assert_parses("apiserver123", "apiserver123", 443);
        assert_parses("host:6443", "host", 6443);
        assert_parses("10.0.0.1:6443", "10.0.0.1", 6443);
        assert_parses("[2001:db8::1]:6443", "2001:db8::1", 6443);
        assert_parses("[::1]", "::1", 443);
    }

    #[test]
    fn a_formatted_address_can_be_parsed_again() {
        for text in ["host:6443", "[2001:db8::1]:443"] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn invalid_values_are_rejected_with_their_reason() {
        use AddressError::*;
        let long = format!("https://{}", ["a"; 300].join("."));
        for (text, error) in [
            ("", Empty),
            (" \n", Empty),
            ("a b", Unprintable),
            ("host\u{7f}", Unprintable),
            ("http://host", Scheme),
            ("ftp://host", Scheme),
            ("://host", Scheme),
            ("https://user:pw@host", User),
            ("user@host", User),
            ("https://host/api", Path),
            ("https://host//", Path),
            ("https://host?x=1", Path),
            ("https://host#top", Path),
            ("host\\x", Path),
            ("https://", Host),
            ("https:///", Host),
            ("-host", Host),
            ("host-.example", Host),
            ("ho_st", Host),
            ("a..b", Host),
            ("1.2.3", Host),
            ("1.2.3.256", Host),
            ("[1.2.3.4]", Host),
            ("[::1", Host),
            ("[::1]x", Host),
            ("2001:db8::1", Host),
            ("host:", Port),
            ("host:0", Port),
            ("host:65536", Port),
            ("host:+1", Port),
            ("host:https", Port),
            (&long, TooLong),
        ] {
            assert_eq!(text.parse::<Address>(), Err(error), "{text:?}");
        }
    }

    #[test]
    fn a_secret_value_is_plain_or_base64() {
        let host = Address {
            host: "host".into(),
            port: 6443,
        };
        for bytes in [
            "https://host:6443",
            "aHR0cHM6Ly9ob3N0OjY0NDM=",
            "aHR0cHM6Ly9o\nb3N0OjY0NDM=\n",
        ] {
            assert_eq!(
                Address::from_secret(bytes.as_bytes()),
                Ok(host.clone()),
                "{bytes}"
            );
        }
        let plain = Address::from_secret(b"apiserver123").expect("the plain value has precedence");
        assert_eq!(plain.host(), "apiserver123");
        assert_eq!(
            Address::from_secret(b"\xff\xfe"),
            Err(AddressError::NotText)
        );
        assert_eq!(
            Address::from_secret(b"http://host"),
            Err(AddressError::Scheme)
        );
    }

    #[test]
    fn an_error_does_not_contain_the_rejected_value() {
        let error = "https://admin:hunter2@host"
            .parse::<Address>()
            .expect_err("a user");
        assert!(
            !error.to_string().contains("hunter2") && !format!("{error:?}").contains("hunter2")
        );
    }
}
