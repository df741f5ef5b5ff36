//! Parameter `timeout`: the time limit of a request that is not a watch.

use super::Query;
use crate::status::{Failure, Result};
use serde_json::Value;
use std::time::Duration;

/// Time limit of kube-apiserver, which no request can extend.
const MAX: Duration = Duration::from_mins(1);

/// Parses the time limit. `None` if it is missing, not positive, or not below that of
/// kube-apiserver.
///
/// Errors: the parameter is not a duration in Go's format, such as `1m30s`.
pub(crate) fn time_limit(query: &Query) -> Result<Option<Duration>> {
    let text = query.text("timeout");
    if text.is_empty() {
        return Ok(None);
    }
    let limit = parse_duration(text).map_err(|reason| {
        Failure::bad_request(format!(
            "invalid timeout specified in the request URL - time: {reason}"
        ))
    })?;
    Ok(limit.filter(|limit| !limit.is_zero() && *limit < MAX))
}

/// Parses a duration as Go does. `None` if it is negative.
fn parse_duration(text: &str) -> Result<Option<Duration>, String> {
    let invalid = || format!("invalid duration {}", Value::from(text));
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(Some(Duration::ZERO));
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: f64 = 0.0;
    while !rest.is_empty() {
        let is_number = |c: char| c == '.' || c.is_ascii_digit();
        let end = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let (unit, after) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "" => return Err(format!("missing unit in duration {}", Value::from(text))),
            _ => {
                let [unit, text] = [unit, text].map(Value::from);
                return Err(format!("unknown unit {unit} in duration {text}"));
            }
        };
        total += number * seconds;
        rest = after;
    }
    // Go counts nanoseconds in 63 bits.
    if total * 1e9 >= 2f64.powi(63) {
        return Err(invalid());
    }
    if text.starts_with('-') {
        return Ok(None);
    }
    Ok(Some(Duration::from_secs_f64(total)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(query: &str) -> Result<Option<Duration>> {
        time_limit(&Query::parse(Some(query)))
    }

    #[test]
    fn a_time_limit_has_the_format_of_go() {
        for (query, millis) in [
            ("timeout=1s", Some(1000)),
            ("timeout=1.5s", Some(1500)),
            ("timeout=.5s500ms", Some(1000)),
            ("timeout=%2B2s", Some(2000)),
            ("timeout=1m", None),
            ("timeout=1h30m", None),
            ("timeout=-1s", None),
            ("timeout=0", None),
            ("timeout=0s", None),
            ("timeout=", None),
            ("", None),
        ] {
            assert_eq!(
                limit(query).unwrap(),
                millis.map(Duration::from_millis),
                "{query}"
            );
        }
    }

    #[test]
    fn an_invalid_time_limit_has_the_error_of_go() {
        for (query, reason) in [
            ("timeout=x", "invalid duration \"x\""),
            ("timeout=-", "invalid duration \"-\""),
            ("timeout=.s", "invalid duration \".s\""),
            ("timeout=5", "missing unit in duration \"5\""),
            ("timeout=1h5x", "unknown unit \"x\" in duration \"1h5x\""),
            ("timeout=99999999999h", "invalid duration \"99999999999h\""),
        ] {
            let failure = limit(query).unwrap_err();
            assert_eq!(failure.code, 400);
            assert!(failure.message.ends_with(reason), "{}", failure.message);
        }
    }

    steersman_testkit::properties! {
        #[test]
        fn parsing_never_panics(text in r"[-+]?([0-9.]{0,4}(ns|s|h|x)?){0,4}|\PC*") {
            let _ = parse_duration(&text);
        }
    }
}
