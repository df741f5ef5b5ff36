//! Formats of strings, checked as on the real server. Unknown formats are ignored.

use super::checksums::{is_credit_card, is_isbn10, is_isbn13};
use base64::{Engine, engine::general_purpose::STANDARD};
use regex::Regex;
use std::{net::IpAddr, net::Ipv4Addr, net::Ipv6Addr, sync::LazyLock};

/// Returns the function that checks a format; `None` if the format is unknown.
pub(super) fn check(name: &str) -> Option<fn(&str) -> bool> {
    Some(match name.replace('-', "").as_str() {
        "bsonobjectid" => {
            |text| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        }
        "byte" => |text| STANDARD.decode(text).is_ok(),
        "cidr" => is_cidr,
        "creditcard" => is_credit_card,
        "date" => is_date,
        "datetime" => is_date_time,
        "duration" => is_duration,
        "email" => is_email,
        "hexcolor" => |text| {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        },
        "hostname" => is_hostname,
        "ipv4" => |text| text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => |text| text.parse::<Ipv6Addr>().is_ok(),
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "k8slongname" => |text| text.len() <= 253 && text.split('.').all(is_name),
        "k8sshortname" => |text| text.len() <= 63 && is_name(text),
        "mac" => is_mac,
        "password" => |_| true,
        "rgbcolor" => |text| {
            static COLOR: LazyLock<Option<Regex>> = LazyLock::new(|| {
                Regex::new(r"^rgb\(\s*\d{1,3}\s*,\s*\d{1,3}\s*,\s*\d{1,3}\s*\)$").ok()
            });
            COLOR.as_ref().is_some_and(|color| color.is_match(text))
        },
        "ssn" => |text| {
            static SSN: LazyLock<Option<Regex>> =
                LazyLock::new(|| Regex::new("^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$").ok());
            SSN.as_ref().is_some_and(|ssn| ssn.is_match(text))
        },
        "uri" => is_uri,
        "uuid" => |text| uuid(text).is_some(),
        "uuid3" => |text| uuid(text).is_some_and(|digits| digits[12] == b'3'),
        "uuid4" => {
            |text| uuid(text).is_some_and(|digits| digits[12] == b'4' && is_variant(digits[16]))
        }
        "uuid5" => {
            |text| uuid(text).is_some_and(|digits| digits[12] == b'5' && is_variant(digits[16]))
        }
        _ => return None,
    })
}

/// Returns the digits of a UUID. Its dashes are optional.
fn uuid(text: &str) -> Option<[u8; 32]> {
    let parts = [8, 4, 4, 4, 12];
    let mut rest = text;
    let mut digits = Vec::with_capacity(32);
    for (index, length) in parts.into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let part = rest
            .get(..length)
            .filter(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        digits.extend_from_slice(part.as_bytes());
        rest = &rest[length..];
    }
    if rest.is_empty() {
        digits.try_into().ok()
    } else {
        None
    }
}

fn is_variant(digit: u8) -> bool {
    matches!(digit.to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b')
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && super::gotime::parse(&format!("{text}T00:00:00Z"), false).is_ok()
}

/// Reports whether a text is an RFC 3339 time. Its letters can be lower case.
fn is_date_time(text: &str) -> bool {
    super::gotime::parse(&text.to_ascii_uppercase(), false).is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let is_valid = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    let max = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    is_valid && bits.parse::<u8>().is_ok_and(|bits| bits <= max)
}

/// Reports whether a text has six, eight or twenty bytes in hex with the same separator throughout.
fn is_mac(text: &str) -> bool {
    [(':', 2), ('-', 2), ('.', 4)]
        .into_iter()
        .any(|(separator, digits)| {
            let parts: Vec<_> = text.split(separator).collect();
            let hex = |part: &&str| {
                part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit())
            };
            matches!(parts.len() * digits / 2, 6 | 8 | 20) && parts.iter().all(hex)
        })
}

/// Reports whether a text is one address, with an optional name before it.
fn is_email(text: &str) -> bool {
    let address = match text
        .trim()
        .strip_suffix('>')
        .and_then(|text| text.rsplit_once('<'))
    {
        Some((_, address)) => address,
        None => text.trim(),
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let is_valid = |part: &str| {
        !part.is_empty()
            && part.split('.').all(|atom| {
                let special =
                    |c: char| c.is_whitespace() || c.is_control() || "()<>[]:;@\\,\"".contains(c);
                !atom.is_empty() && !atom.contains(special)
            })
    };
    is_valid(local) && is_valid(domain)
}

fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        let middle = label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        !label.is_empty()
            && label.len() <= 63
            && middle
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 255 && text.split('.').all(label)
}

/// Reports whether a text has lower case letters, digits and inner dashes.
fn is_name(text: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !text.is_empty()
        && text.bytes().all(|byte| is_valid(byte) || byte == b'-')
        && text.bytes().next().is_some_and(is_valid)
        && text.bytes().last().is_some_and(is_valid)
}

/// Reports whether a text is an absolute URI or an absolute path.
fn is_uri(text: &str) -> bool {
    if text
        .bytes()
        .any(|byte| byte.is_ascii_control() || byte == b' ')
    {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(inner)
        && !rest.is_empty()
}

/// Reports whether a text is a duration such as `1h30m` or `2 days`.
fn is_duration(text: &str) -> bool {
    const UNITS: &[&str] = &[
        "ns",
        "nano",
        "nanosecond",
        "us",
        "µs",
        "μs",
        "micro",
        "microsecond",
        "ms",
        "milli",
        "millisecond",
        "s",
        "sec",
        "second",
        "m",
        "min",
        "minute",
        "h",
        "hr",
        "hour",
        "d",
        "day",
        "w",
        "wk",
        "week",
    ];
    let mut rest = text.trim().strip_prefix(['+', '-']).unwrap_or(text.trim());
    if rest == "0" {
        return true;
    }
    let mut parts = 0;
    while !rest.is_empty() {
        let number = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let after = rest[number..].trim_start();
        let unit = after
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(after.len());
        let name = &after[..unit];
        let known = UNITS.contains(&name)
            || name
                .strip_suffix('s')
                .is_some_and(|one| UNITS.contains(&one));
        if rest[..number].parse::<f64>().is_err() || !known {
            return false;
        }
        rest = after[unit..].trim_start();
        parts += 1;
    }
    parts > 0
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn each_format_accepts_valid_texts_and_rejects_others() {
        for (format, good, bad) in [
            ("bsonobjectid", "507f1f77bcf86cd799439011", "507f"),
            ("byte", "aGk=", "a"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("cidr", "fd00::/64", "10.0.0.0"),
            ("date", "2026-02-28", "2026-02-29"),
            ("date-time", "2026-01-02t03:04:05.1z", "2026-01-02"),
            ("duration", "1h30m", "1x"),
            ("duration", "2 days", ""),
            ("email", "A <a@b.c>", "a.b.c"),
            ("hexcolor", "#ffF", "#ff"),
            ("hostname", "a-b.c", "-a"),
            ("ipv4", "1.2.3.4", "1.2.3"),
            ("ipv6", "::1", "1.2.3.4"),
            ("k8s-long-name", "a.b-c", "A.b"),
            ("k8s-short-name", "a-b", "a.b"),
            ("mac", "01:23:45:67:89:ab", "01:23"),
            ("rgbcolor", "rgb(1, 2,3)", "rgb(1)"),
            ("ssn", "111-22-3333", "111"),
            ("uri", "https://a.b/c", "a b"),
            ("uuid", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6ba7b810"),
            (
                "uuid4",
                "6ba7b810-9dad-41d1-80b4-00c04fd430c8",
                "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
            ),
        ] {
            let check = check(format).unwrap();
            assert!(check(good), "{format}: {good}");
            assert!(!check(bad), "{format}: {bad}");
        }
    }

    #[test]
    fn unknown_formats_are_not_checked() {
        assert!(check("colour").is_none());
    }
}
