//! Timestamps of managed fields.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::{
    fmt::{self, Display, Formatter},
    str::FromStr,
    time::{SystemTime, UNIX_EPOCH},
};

const SECONDS_PER_DAY: i64 = 86_400;

/// Time in whole seconds. Wire format: `2006-01-02T15:04:05Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    seconds: i64,
}

/// Error of parsing a [`Time`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot parse time {0:?}; use the form `2006-01-02T15:04:05Z`")]
pub struct TimeError(String);

impl Time {
    /// Creates a time from the seconds since 1970-01-01T00:00:00Z.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self { seconds }
    }

    /// Returns the seconds since 1970-01-01T00:00:00Z.
    pub const fn seconds(self) -> i64 {
        self.seconds
    }
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        let seconds = match time.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
        };
        Self { seconds }
    }
}

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_of_day(self.seconds.div_euclid(SECONDS_PER_DAY));
        let second = self.seconds.rem_euclid(SECONDS_PER_DAY);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
    }
}

impl FromStr for Time {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        parse(text).ok_or_else(|| TimeError(text.to_owned()))
    }
}

/// Parses RFC 3339 with optional fractions of a second, which are dropped.
fn parse(text: &str) -> Option<Time> {
    let (date, rest) = text.split_at_checked(10)?;
    let (clock, rest) = rest.strip_prefix('T')?.split_at_checked(8)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let zone = match rest.strip_prefix('.') {
        None => rest,
        Some(fraction) => {
            let zone = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            (zone.len() < fraction.len()).then_some(zone)?
        }
    };
    let offset = match zone.as_bytes() {
        [b'Z'] => 0,
        [sign @ (b'+' | b'-'), ..] => {
            let [hours, minutes] = numbers(zone.get(1..)?, ':', [2, 2])?;
            let seconds = (hours <= 24 && minutes < 60).then_some(hours * 3600 + minutes * 60)?;
            if *sign == b'+' { seconds } else { -seconds }
        }
        _ => return None,
    };
    let valid = (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let seconds =
        day_of_date(year, month, day) * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second
            - offset;
    valid.then_some(Time { seconds })
}

/// Parses numbers of fixed widths.
fn numbers<const N: usize>(text: &str, separator: char, widths: [usize; N]) -> Option<[i64; N]> {
    let mut numbers = [0; N];
    let mut parts = text.split(separator);
    for (number, width) in numbers.iter_mut().zip(widths) {
        let part = parts.next()?;
        let digits = part.len() == width && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = digits.then(|| part.parse().ok()).flatten()?;
    }
    parts.next().is_none().then_some(numbers)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days from 1970-01-01 to a date.
///
/// The calculation starts years in March, so that a leap day is the last day of its year.
fn day_of_date(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Returns the date of a day since 1970-01-01. It is the inverse of [`day_of_date`].
fn date_of_day(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let day_of_era = day.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_and_parsed_in_seconds() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2026-11-19T22:24:55Z", 1_795_127_095),
            ("1969-12-31T23:59:59Z", -1),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!(text.parse(), Ok(Time::from_seconds(seconds)));
            assert_eq!(Time::from_seconds(seconds).to_string(), text);
        }
    }

    #[test]
    fn offsets_are_converted_and_fractions_dropped() {
        assert_eq!(
            "1970-01-01T02:00:00.987+02:00".parse(),
            Ok(Time::from_seconds(0))
        );
        assert_eq!(
            "1970-01-01T00:00:00-00:30".parse(),
            Ok(Time::from_seconds(1800))
        );
    }

    #[test]
    fn a_malformed_time_is_rejected() {
        for text in [
            "",
            "2026-11-19",
            "2026-11-19T22:24:55",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00Zé",
            "é026-01-01T00:00:00Z",
            "2026-01-01T00:00:00+1:00",
        ] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }
}
