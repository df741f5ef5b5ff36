//! Conversions between types: `int(…)`, `string(…)`, `timestamp(…)`, with the texts of Go.

use super::{eval::Failure, value::Val};
use jiff::{SignedDuration, Timestamp};
use std::fmt::Write as _;

type Result<T> = std::result::Result<T, Failure>;

/// Converts a value to the type that has this name. `None` if there is no such conversion.
pub(super) fn convert(to: &str, value: &Val) -> Option<Result<Val>> {
    if let Val::String(text) = value {
        let converted = match to {
            "bool" => bool(text).map(Val::Bool),
            "bytes" => Some(Val::Bytes(text.as_bytes().into())),
            "double" => text.parse().ok().map(Val::Double),
            "duration" => parse_duration(text).map(Val::Duration),
            "int" => text.parse().ok().map(Val::Int),
            "string" => Some(value.clone()),
            "timestamp" => text.parse().ok().map(Val::Timestamp),
            "uint" => text.parse().ok().map(Val::Uint),
            _ => return None,
        };
        let name = match to {
            "duration" => "google.protobuf.Duration",
            "timestamp" => "google.protobuf.Timestamp",
            name => name,
        };
        let error = || Failure::new(format!("type conversion error from 'string' to '{name}'"));
        return Some(converted.ok_or_else(error));
    }
    Some(match (to, value) {
        ("bool", Val::Bool(_))
        | ("bytes", Val::Bytes(_))
        | ("double", Val::Double(_))
        | ("duration", Val::Duration(_))
        | ("int", Val::Int(_))
        | ("timestamp", Val::Timestamp(_))
        | ("uint", Val::Uint(_)) => Ok(value.clone()),
        ("double", _) => Ok(Val::Double(value.float()?)),
        ("int", Val::Uint(number)) => i64::try_from(*number).map(Val::Int).map_err(|_| overflow()),
        ("int", Val::Double(number)) => int(*number),
        ("int", Val::Timestamp(time)) => Ok(Val::Int(time.as_second())),
        ("uint", Val::Int(number)) => u64::try_from(*number)
            .map(Val::Uint)
            .map_err(|_| unsigned_overflow()),
        ("uint", Val::Double(number)) => uint(*number),
        ("timestamp", Val::Int(seconds)) => Timestamp::from_second(*seconds)
            .map(Val::Timestamp)
            .map_err(|_| Failure::new("timestamp overflow")),
        ("string", _) => Ok(Val::text(string(value)?)),
        _ => return None,
    })
}

/// Returns the text of a value; `None` of a list, map or value of a library.
fn string(value: &Val) -> Option<String> {
    Some(match value {
        Val::Bool(value) => value.to_string(),
        Val::Int(number) => number.to_string(),
        Val::Uint(number) => number.to_string(),
        Val::Double(number) => format_double(*number),
        Val::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Val::Timestamp(time) => time.to_string(),
        Val::Duration(duration) => {
            let mut text = duration.as_secs().to_string();
            let nanos = duration.subsec_nanos().unsigned_abs();
            if nanos > 0 {
                if duration.is_negative() && !text.starts_with('-') {
                    text.insert(0, '-');
                }
                let digits = format!("{nanos:09}");
                // Writing to a string cannot fail.
                let _ = write!(text, ".{}", digits.trim_end_matches('0'));
            }
            text + "s"
        }
        _ => return None,
    })
}

/// Formats a number as Go's `%v` does: the shortest text, with an exponent from 1e6 on.
pub(super) fn format_double(number: f64) -> String {
    if !number.is_finite() {
        let text = if number.is_nan() { "NaN" } else { "+Inf" };
        return if number == f64::NEG_INFINITY {
            "-Inf".into()
        } else {
            text.into()
        };
    }
    let shortest = format!("{number:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return number.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn int(number: f64) -> Result<Val> {
    // 2^63, the first number that does not fit.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if number > -LIMIT && number < LIMIT {
        Ok(Val::Int(number as i64))
    } else {
        Err(overflow())
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
#[expect(clippy::cast_sign_loss, reason = "the range is checked")]
fn uint(number: f64) -> Result<Val> {
    // 2^64, the first number that does not fit.
    const LIMIT: f64 = 18_446_744_073_709_551_616.0;
    if (0.0..LIMIT).contains(&number) {
        Ok(Val::Uint(number as u64))
    } else {
        Err(unsigned_overflow())
    }
}

pub(super) fn overflow() -> Failure {
    Failure::new("integer overflow")
}

pub(super) fn unsigned_overflow() -> Failure {
    Failure::new("unsigned integer overflow")
}

/// Parses a duration of Go: `1h30m`, `-1.5s`.
pub(super) fn parse_duration(text: &str) -> Option<SignedDuration> {
    const UNITS: [(&str, i128); 8] = [
        ("ns", 1),
        ("us", 1_000),
        ("\u{b5}s", 1_000),
        ("\u{3bc}s", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let whole: i128 = if whole.is_empty() {
            0
        } else {
            whole.parse().ok()?
        };
        nanos = nanos.checked_add(whole.checked_mul(*factor)?)?;
        let fraction = &fraction[..fraction.len().min(15)];
        if !fraction.is_empty() {
            let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
            nanos = nanos.checked_add(fraction.parse::<i128>().ok()? * factor / scale)?;
        }
        rest = after;
    }
    let signed = if text.starts_with('-') { -nanos } else { nanos };
    i64::try_from(signed).ok().map(SignedDuration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        let nanos = |text: &str| parse_duration(text).map(|duration| duration.as_nanos());
        assert_eq!(nanos("1h30m"), Some(5_400_000_000_000));
        assert_eq!(nanos("-1.5s"), Some(-1_500_000_000));
        assert_eq!(nanos("0"), Some(0));
        for invalid in ["", "1", "h", "1x", "1..5s", "999999999999h"] {
            assert_eq!(nanos(invalid), None, "{invalid}");
        }
        let text = |text: &str| parse_duration(text).and_then(|it| string(&Val::Duration(it)));
        assert_eq!(text("1h").as_deref(), Some("3600s"));
        assert_eq!(text("-0.5s").as_deref(), Some("-0.5s"));
    }

    #[test]
    fn a_number_that_does_not_fit_is_an_error() {
        let fails = |to: &str, value: Val| convert(to, &value).expect("a conversion").is_err();
        assert!(fails("int", Val::Double(1e19)) && fails("int", Val::Uint(u64::MAX)));
        assert!(fails("uint", Val::Int(-1)) && fails("uint", Val::Double(-1.0)));
        assert!(fails("int", Val::text("1.5")) && fails("int", Val::Double(f64::NAN)));
        assert!(convert("int", &Val::Null).is_none());
    }
}
