//! Validation of URLs and absolute paths, equal to Go's `url.ParseRequestURI`.

use crate::extension_config::go::quoted;
use std::net::IpAddr;

/// Error of a text that is neither a URL nor an absolute path. Its text is that of Go.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("parse {}: {reason}", quoted(text))]
pub(super) struct UriError {
    text: String,
    reason: String,
}

/// Checks a text. Returns the scheme of a URL, or an empty text for an absolute path.
pub(super) fn scheme(text: &str) -> Result<&str, UriError> {
    checked_scheme(text).map_err(|reason| UriError {
        text: text.into(),
        reason,
    })
}

fn checked_scheme(text: &str) -> Result<&str, String> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".into());
    }
    if text == "*" {
        return Ok("");
    }
    let (scheme, rest) = split_scheme(text)?;
    let rest = rest.split('?').next().unwrap_or_default();
    if !rest.starts_with('/') {
        return match scheme {
            "" if text.is_empty() => Err("empty url".into()),
            "" => Err("invalid URI for request".into()),
            _ => Ok(scheme),
        };
    }
    let path = match rest.strip_prefix("//") {
        Some(rest) if !scheme.is_empty() => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            check_authority(scheme, authority)?;
            path
        }
        _ => rest,
    };
    check_escapes(path)?;
    Ok(scheme)
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')));
    match end {
        Some(0) if text.starts_with(':') => Err("missing protocol scheme".into()),
        Some(end)
            if text[end..].starts_with(':')
                && text.starts_with(|c: char| c.is_ascii_alphabetic()) =>
        {
            Ok((&text[..end], &text[end + 1..]))
        }
        _ => Ok(("", text)),
    }
}

fn check_authority(scheme: &str, authority: &str) -> Result<(), String> {
    let Some((user, host)) = authority.rsplit_once('@') else {
        return check_host(scheme, authority);
    };
    check_host(scheme, host)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(allowed) {
        return Err("net/url: invalid userinfo".into());
    }
    check_escapes(user)
}

fn check_host(scheme: &str, host: &str) -> Result<(), String> {
    match host.rfind('[') {
        Some(0) => return check_ip_literal(host),
        Some(_) => return Err("invalid IP-literal".into()),
        None => {}
    }
    let is_http = ["http", "https"]
        .iter()
        .any(|http| scheme.eq_ignore_ascii_case(http));
    let colon = if is_http {
        host.find(':')
    } else {
        host.rfind(':')
    };
    check_port(&host[colon.unwrap_or(host.len())..])?;
    check_host_characters(host)
}

fn check_ip_literal(host: &str) -> Result<(), String> {
    let end = host.rfind(']').ok_or("missing ']' in host")?;
    check_port(&host[end + 1..])?;
    let literal = &host[1..end];
    let (address, zone) = literal.split_once("%25").unwrap_or((literal, ""));
    check_host_characters(address)?;
    check_escapes(zone)?;
    match address.parse() {
        Ok(IpAddr::V6(_)) => Ok(()),
        Ok(IpAddr::V4(_)) => Err("invalid IP-literal".into()),
        Err(_) => {
            let literal = quoted(literal);
            Err(format!(
                "invalid host: ParseAddr({literal}): unable to parse IP"
            ))
        }
    }
}

fn check_port(port: &str) -> Result<(), String> {
    let digits = port.strip_prefix(':').unwrap_or(port);
    let is_valid = digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_valid && (port.is_empty() || port.starts_with(':')) {
        return Ok(());
    }
    Err(format!("invalid port {} after host", quoted(port)))
}

/// Checks the characters of a host. Only bytes outside of ASCII and `%` itself can be escaped.
fn check_host_characters(host: &str) -> Result<(), String> {
    check_each(host, |c, escape| {
        let Some(escape) = escape else {
            let allowed = c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"".contains(c);
            return (c.is_ascii() && !allowed)
                .then(|| format!("invalid character {} in host name", quoted(c.to_string())));
        };
        let is_ascii = escape.as_bytes().get(1).is_some_and(|digit| *digit < b'8');
        (is_ascii && escape != "%25").then(|| escape_error(escape))
    })
}

fn check_escapes(text: &str) -> Result<(), String> {
    check_each(text, |_, _| None)
}

/// Calls `error` with each character, and with the whole escape for each `%`.
fn check_each(
    text: &str,
    error: impl Fn(char, Option<&str>) -> Option<String>,
) -> Result<(), String> {
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (escape, length) = if c == '%' {
            let is_escape =
                rest.len() > 2 && rest.as_bytes()[1..3].iter().all(u8::is_ascii_hexdigit);
            if !is_escape {
                let length = rest.len().min(3);
                return Err(escape_error(&rest[..rest.ceil_char_boundary(length)]));
            }
            (Some(&rest[..3]), 3)
        } else {
            (None, c.len_utf8())
        };
        if let Some(error) = error(c, escape) {
            return Err(error);
        }
        rest = &rest[length..];
    }
    Ok(())
}

fn escape_error(escape: &str) -> String {
    format!("invalid URL escape {}", quoted(escape))
}
