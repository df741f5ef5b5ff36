//! Where a control plane listens: a host and a port, out of what Terraform says.
//!
//! Accepted are `https://host[:port][/]`, `host`, `host:port`, `[v6]` and `[v6]:port`; without a port it is 443. The host keeps its case, which EKS uses. Nothing
//! that was refused is in an error's text: it may be a secret that was put in the wrong place.

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use std::{fmt, net::Ipv6Addr, str::FromStr};

const DEFAULT_PORT: u16 = 443;

/// The longest host that the Cluster API takes.
const LONGEST: usize = 512;

/// As Go reads it: last bits that mean nothing are no error.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// A host and a port that somebody can be reached at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Address {
    host: String,
    port: u16,
}

/// Why something is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AddressError {
    /// Nothing, or only space.
    #[error("it is empty")]
    Empty,
    /// More than the Cluster API takes.
    #[error("its host is longer than 512 characters")]
    TooLong,
    /// Space, or what cannot be seen.
    #[error("it has spaces or control characters in it")]
    Unprintable,
    /// Another scheme.
    #[error("its scheme is not https")]
    Scheme,
    /// A user's name before the host.
    #[error("it has a user in it")]
    User,
    /// More than a host and a port.
    #[error("it has a path, a query or a fragment")]
    Path,
    /// No name of a host, and no number of one.
    #[error("its host is no DNS name and no IP address")]
    Host,
    /// Not between 1 and 65535.
    #[error("its port is no number from 1 to 65535")]
    Port,
    /// Bytes that are no text.
    #[error("it is no text")]
    NotText,
}

impl Address {
    /// The host, as it was written; an IPv6 address without brackets.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Out of a secret: as it stands, or else encoded once more, as some have it. What both ways are no address is refused for what is wrong with it as it stands.
    pub(super) fn from_secret(bytes: &[u8]) -> Result<Self, AddressError> {
        let raw = str::from_utf8(bytes).map_err(|_| AddressError::NotText).and_then(Self::from_str);
        raw.or_else(|error| Self::from_base64(bytes).ok_or(error))
    }

    fn from_base64(bytes: &[u8]) -> Option<Self> {
        let bytes: Vec<u8> = bytes.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
        String::from_utf8(LENIENT.decode(bytes).ok()?).ok()?.parse().ok()
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::with_default(text, DEFAULT_PORT)
    }
}

impl Address {
    /// With this port where the text has none.
    pub(super) fn with_default(text: &str, port: u16) -> Result<Self, AddressError> {
        let (text, default) = (text.trim(), port);
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        if text.chars().any(|char| char.is_whitespace() || char.is_control()) {
            return Err(AddressError::Unprintable);
        }
        let authority = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => rest.strip_suffix('/').unwrap_or(rest),
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
        if host.len() > LONGEST {
            return Err(AddressError::TooLong);
        }
        Ok(Self { host: host.to_owned(), port: port.map_or(Ok(default), parse_port)? })
    }
}

/// The host, which is one, and the port as it stands.
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
    if is_name(host) { Ok((host, port)) } else { Err(AddressError::Host) }
}

/// A DNS name, which an IPv4 address looks like, too: but then it has to be one.
fn is_name(host: &str) -> bool {
    let labels: Vec<_> = host.strip_suffix('.').unwrap_or(host).split('.').collect();
    let is_label = |label: &&str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let numeric = labels.last().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    labels.iter().all(is_label) && (!numeric || host.parse::<std::net::Ipv4Addr>().is_ok())
}

fn parse_port(port: &str) -> Result<u16, AddressError> {
    // A sign is no digit.
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse().ok().filter(|port| digits && *port > 0).ok_or(AddressError::Port)
}

/// `host:port`, an IPv6 address in brackets.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is(text: &str, host: &str, port: u16) {
        assert_eq!(text.parse(), Ok(Address { host: host.into(), port }), "{text}");
    }

    #[test]
    fn what_terraform_says_is_a_host_with_its_case_and_a_port() {
        is("https://ABC123.gr7.eu-west-1.eks.amazonaws.com", "ABC123.gr7.eu-west-1.eks.amazonaws.com", 443);
        is("HTTPS://Host.Example/", "Host.Example", 443);
        is("https://host:6443", "host", 6443);
        is("https://host:443/", "host", 443);
        is(" https://host\n", "host", 443);
    }

    #[test]
    fn without_a_scheme_it_is_one_too() {
        is("apiserver123", "apiserver123", 443);
        is("host:6443", "host", 6443);
        is("10.0.0.1:6443", "10.0.0.1", 6443);
        is("[2001:db8::1]:6443", "2001:db8::1", 6443);
        is("[::1]", "::1", 443);
    }

    #[test]
    fn an_address_is_written_as_it_is_read() {
        for text in ["host:6443", "[2001:db8::1]:443"] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn everything_else_is_refused_for_what_it_is() {
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
    fn a_secret_holds_it_as_it_stands_or_encoded_once_more() {
        let host = Address { host: "host".into(), port: 6443 };
        for bytes in ["https://host:6443", "aHR0cHM6Ly9ob3N0OjY0NDM=", "aHR0cHM6Ly9o\nb3N0OjY0NDM=\n"] {
            assert_eq!(Address::from_secret(bytes.as_bytes()), Ok(host.clone()), "{bytes}");
        }
        let plain = Address::from_secret(b"apiserver123").expect("as it stands, though it could be decoded");
        assert_eq!(plain.host(), "apiserver123");
        assert_eq!(Address::from_secret(b"\xff\xfe"), Err(AddressError::NotText));
        assert_eq!(Address::from_secret(b"http://host"), Err(AddressError::Scheme));
    }

    #[test]
    fn what_is_refused_is_not_in_the_words_of_the_refusal() {
        let error = "https://admin:hunter2@host".parse::<Address>().expect_err("a user");
        assert!(!error.to_string().contains("hunter2") && !format!("{error:?}").contains("hunter2"));
    }
}
