//! Ages in the format of `kubectl`: `5m`, `2d3h`.

use jiff::Timestamp;
use serde_json::Value;

/// Returns the age of a timestamp: `<unknown>` if it is missing, `<invalid>` if it is invalid.
pub(crate) fn age(at: &Value, now: Timestamp) -> String {
    match at.as_str() {
        None | Some("") => "<unknown>".into(),
        Some(at) => at
            .parse()
            .map_or_else(|_| "<invalid>".into(), |at| format_duration(at, now)),
    }
}

/// Formats the time between two timestamps, with a second unit while the first is small.
pub(crate) fn format_duration(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.duration_since(from).as_secs();
    let minutes = seconds / 60;
    let hours = seconds / 3600;
    let days = seconds / 86_400;
    let two_units = |whole: i64, unit: char, rest: i64, rest_unit: char| {
        if rest == 0 {
            format!("{whole}{unit}")
        } else {
            format!("{whole}{unit}{rest}{rest_unit}")
        }
    };
    // Clocks differ slightly, so a recent timestamp can be in the future.
    match seconds {
        ..-1 => "<invalid>".into(),
        -1 => "0s".into(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two_units(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two_units(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two_units(days, 'd', hours % 24, 'h'),
        _ if days < 2 * 365 => format!("{days}d"),
        _ if days < 8 * 365 => two_units(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    #[test]
    fn an_age_has_two_units_while_the_first_is_small() {
        let start = Timestamp::from_second(1_000_000_000).unwrap();
        let hour = 3600;
        let day = 24 * hour;
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (330, "5m30s"),
            (600, "10m"),
            (179 * 60, "179m"),
            (3 * hour, "3h"),
            (5 * hour + 60, "5h1m"),
            (47 * hour, "47h"),
            (2 * day + 3 * hour, "2d3h"),
            (9 * day + 3 * hour, "9d"),
            (2 * 365 * day + day, "2y1d"),
            (9 * 365 * day + day, "9y"),
        ] {
            assert_eq!(
                format_duration(start, start + SignedDuration::from_secs(seconds)),
                expected
            );
        }
    }

    #[test]
    fn a_missing_time_is_unknown_and_a_malformed_one_invalid() {
        let now = Timestamp::from_second(1_000_000_000).unwrap();
        assert_eq!(age(&Value::Null, now), "<unknown>");
        assert_eq!(age(&"yesterday".into(), now), "<invalid>");
        assert_eq!(age(&"2001-09-09T01:46:35Z".into(), now), "5s");
    }
}
