//! Parsing of times as in Go, with Go's errors.

const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Parses an RFC 3339 time with any fraction, or with exactly six fractional digits if `micro` is
/// set.
pub(super) fn parse(text: &str, micro: bool) -> Result<(), String> {
    let layout = if micro { MICROS } else { SECONDS };
    TimeParser {
        text,
        rest: text,
        layout,
    }
    .parse(micro)
}

/// Returns the time in Go's format: in UTC, without a fraction or with six digits. Returns `None`
/// if the text already has that format or is invalid.
pub(super) fn normalize(text: &str, micro: bool) -> Option<String> {
    let length = if micro {
        "2006-01-02T15:04:05.000000Z".len()
    } else {
        "2006-01-02T15:04:05Z".len()
    };
    if text.len() == length && text.ends_with('Z') {
        return None;
    }
    let layout = if micro {
        "%Y-%m-%dT%H:%M:%S.%6fZ"
    } else {
        "%Y-%m-%dT%H:%M:%SZ"
    };
    Some(
        text.parse::<jiff::Timestamp>()
            .ok()?
            .strftime(layout)
            .to_string(),
    )
}

struct TimeParser<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl TimeParser<'_> {
    fn parse(&mut self, micro: bool) -> Result<(), String> {
        let year = self.number("2006", 4)?;
        self.literal("-")?;
        let month = self.number("01", 2)?;
        self.within(1..=12, month, "month")?;
        self.literal("-")?;
        let day = self.number("02", 2)?;
        self.literal("T")?;
        let hour = self.number("15", 2)?;
        self.within(0..=23, hour, "hour")?;
        self.literal(":")?;
        let minute = self.number("04", 2)?;
        self.within(0..=59, minute, "minute")?;
        self.literal(":")?;
        let second = self.number("05", 2)?;
        self.within(0..=59, second, "second")?;
        self.fraction(micro)?;
        self.zone()?;
        if !self.rest.is_empty() {
            return Err(format!(
                "parsing time \"{}\": extra text: \"{}\"",
                self.text, self.rest
            ));
        }
        self.within(1..=days_in_month(year, month), day, "day")
    }

    fn error<T>(&self, element: &str) -> Result<T, String> {
        let Self { text, rest, layout } = self;
        Err(format!(
            "parsing time \"{text}\" as \"{layout}\": cannot parse \"{rest}\" as \"{element}\""
        ))
    }

    fn within(
        &self,
        range: std::ops::RangeInclusive<u32>,
        found: u32,
        what: &str,
    ) -> Result<(), String> {
        if range.contains(&found) {
            Ok(())
        } else {
            Err(format!(
                "parsing time \"{}\": {what} out of range",
                self.text
            ))
        }
    }

    fn literal(&mut self, text: &str) -> Result<(), String> {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => self.error(text),
        }
    }

    fn number(&mut self, element: &str, digits: usize) -> Result<u32, String> {
        match self.rest.get(..digits).filter(|text| is_digits(text)) {
            Some(text) => {
                self.rest = &self.rest[digits..];
                Ok(text.parse().unwrap_or_default())
            }
            None => self.error(element),
        }
    }

    fn fraction(&mut self, micro: bool) -> Result<(), String> {
        let after = self.rest.strip_prefix(['.', ',']);
        if micro {
            if after
                .and_then(|after| after.get(..6))
                .is_some_and(is_digits)
            {
                self.rest = &self.rest[7..];
                return Ok(());
            }
            return self.error(".000000");
        }
        if let Some(after) = after.filter(|after| after.starts_with(|c: char| c.is_ascii_digit())) {
            self.rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
        }
        Ok(())
    }

    fn zone(&mut self) -> Result<(), String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(());
        }
        let bytes = self.rest.as_bytes();
        let [b'+' | b'-', a, b, b':', c, d, ..] = bytes else {
            return self.error("Z07:00");
        };
        if ![a, b, c, d].iter().all(|digit| digit.is_ascii_digit()) {
            return self.error("Z07:00");
        }
        self.rest = &self.rest[6..];
        Ok(())
    }
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn days_in_month(year: u32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => {
            29
        }
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn times_with_and_without_fractions_and_zones_are_valid() {
        for text in [
            "2026-01-02T03:04:05Z",
            "2026-01-02T03:04:05.123Z",
            "2024-02-29T23:59:59+02:00",
            "2026-01-02T03:04:05,5Z",
        ] {
            assert_eq!(parse(text, false), Ok(()), "{text}");
        }
        assert_eq!(parse("2026-01-02T03:04:05.123456-07:00", true), Ok(()));
    }

    #[test]
    fn an_invalid_time_has_the_error_of_go() {
        let error = |text| parse(text, false).unwrap_err();
        assert_eq!(
            error("soon"),
            r#"parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006""#
        );
        assert_eq!(
            error("2026-13-02T03:04:05Z"),
            r#"parsing time "2026-13-02T03:04:05Z": month out of range"#
        );
        assert_eq!(
            error("2026-02-29T03:04:05Z"),
            r#"parsing time "2026-02-29T03:04:05Z": day out of range"#
        );
        assert_eq!(
            error("2026-01-02T03:04:05Zx"),
            r#"parsing time "2026-01-02T03:04:05Zx": extra text: "x""#
        );
        assert!(error("2026-01-02 03:04:05Z").ends_with(r#"cannot parse " 03:04:05Z" as "T""#));
        assert!(error("2026-01-02T03:04:05").ends_with(r#"cannot parse "" as "Z07:00""#));
        assert!(
            parse("2026-01-02T03:04:05.123456789Z", true)
                .unwrap_err()
                .ends_with(r#"cannot parse "789Z" as "Z07:00""#)
        );
        assert!(parse("20é6-01-02T03:04:05Z", false).is_err());
    }
}
