//! Resource quantities: parsing, comparison and canonical format.
//!
//! A quantity is an integer number of billionths, the precision of the real server. Finer amounts
//! are rounded away from zero. It has the suffix family (`k`, `Ki`, `e3`) in which it is formatted.

use serde_json::{Number, Value};
use std::cmp::Ordering;

/// Notation of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notation {
    Decimal,
    Binary,
    Exponent,
}

/// A resource quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quantity {
    nanos: i128,
    notation: Notation,
}

const NANO: i128 = 1_000_000_000;
/// Limit of the number of billionths. It leaves room in `i128` to round up.
const NANOS_LIMIT: i128 = 10_i128.pow(38);
/// Largest amount with a binary suffix. The real server caps larger amounts at it.
const MAX_BINARY: i128 = i64::MAX as i128 * NANO;
const DECIMAL: [(&str, u32); 10] = [
    ("n", 0),
    ("u", 3),
    ("m", 6),
    ("", 9),
    ("k", 12),
    ("M", 15),
    ("G", 18),
    ("T", 21),
    ("P", 24),
    ("E", 27),
];
const BINARY: [(&str, u32); 6] = [
    ("Ki", 1),
    ("Mi", 2),
    ("Gi", 3),
    ("Ti", 4),
    ("Pi", 5),
    ("Ei", 6),
];

/// Error of parsing a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParseError {
    Syntax,
    /// The amount is too large. The real server stores decimal amounts of any size.
    TooLarge,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Syntax => {
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            }
            Self::TooLarge => "quantity is too large; use an amount below 1e29",
        })
    }
}

/// Parses `1`, `0.5`, `100m`, `1Gi`, `1e3`.
pub(crate) fn parse(text: &str) -> Result<Quantity, ParseError> {
    let text = text.trim();
    let (negative, unsigned) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(ParseError::Syntax);
    }
    // Digits after the 18th of the fraction only affect rounding.
    let (fraction, rest) = fraction.split_at(fraction.len().min(18));
    let round_up = rest.bytes().any(|digit| digit != b'0');
    // `None` if the digits do not fit.
    let digits = format!("0{whole}{fraction}")
        .parse::<i128>()
        .ok()
        .and_then(|digits| digits.checked_add(round_up.into()));
    let decimals = i32::try_from(fraction.len()).unwrap_or(18);
    let (notation, nanos) = if let Some((_, power)) = DECIMAL.iter().find(|(it, _)| *it == suffix) {
        (
            Notation::Decimal,
            digits.and_then(|digits| scale(digits, power.cast_signed() - decimals)),
        )
    } else if let Some((_, power)) = BINARY.iter().find(|(it, _)| *it == suffix) {
        let bytes = digits.and_then(|digits| digits.checked_mul(1024_i128.pow(*power)));
        // An overflow is far above the largest amount, since the fraction has at most 18 digits.
        let nanos = bytes
            .and_then(|bytes| scale(bytes, 9 - decimals))
            .unwrap_or(MAX_BINARY);
        (Notation::Binary, Some(nanos.min(MAX_BINARY)))
    } else {
        let power = suffix
            .strip_prefix(['e', 'E'])
            .and_then(|power| power.parse::<i32>().ok());
        let power = power
            .ok_or(ParseError::Syntax)?
            .saturating_add(9 - decimals);
        (
            Notation::Exponent,
            digits.and_then(|digits| scale(digits, power)),
        )
    };
    let nanos = nanos
        .filter(|nanos| *nanos < NANOS_LIMIT)
        .ok_or(ParseError::TooLarge)?;
    Ok(Quantity {
        nanos: if negative { -nanos } else { nanos },
        notation,
    })
}

/// Returns `digits` times a power of ten, rounded up; `None` if that does not fit.
fn scale(digits: i128, power: i32) -> Option<i128> {
    if digits == 0 {
        return Some(0);
    }
    let factor = 10_i128.checked_pow(power.unsigned_abs());
    if power >= 0 {
        return digits.checked_mul(factor?);
    }
    // A factor that does not fit is larger than every number of digits.
    Some(factor.map_or(1, |factor| {
        digits / factor + i128::from(digits % factor != 0)
    }))
}

/// Parses a quantity in JSON, which can also be a number.
pub(crate) fn from_value(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => parse(text).ok(),
        Value::Number(number) => parse(&number_text(number)).ok(),
        _ => None,
    }
}

/// Returns a JSON number as a text that [`parse`] reads.
pub(super) fn number_text(number: &Number) -> String {
    match number.as_i64() {
        Some(number) => number.to_string(),
        None => number.as_f64().unwrap_or_default().to_string(),
    }
}

/// Returns the canonical form of a quantity. Returns `None` if the value has it already or is
/// invalid.
pub(super) fn canonical(value: &Value) -> Option<Value> {
    // Fast path for most values.
    if let Value::String(text) = value
        && text.len() < 4
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && !text.starts_with('0')
    {
        return None;
    }
    let formatted = from_value(value)?.to_string();
    // A redundant sign or decimal point is kept.
    let text = value.as_str().unwrap_or_default();
    let (number, suffix) = text.split_at(
        text.find(|c: char| c.is_ascii_alphabetic())
            .unwrap_or(text.len()),
    );
    let plain = number.trim_start_matches('+').trim_end_matches('.');
    if !text.is_empty() && formatted.strip_prefix(plain) == Some(suffix) {
        None
    } else {
        Some(formatted.into())
    }
}

impl Quantity {
    pub(crate) fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Returns the amount in billionths.
    pub(super) fn nanos(self) -> i128 {
        self.nanos
    }

    /// Returns the quantity with another amount in billionths. `None` if it is too large.
    pub(super) fn with_nanos(self, nanos: i128) -> Option<Self> {
        (nanos.abs() < NANOS_LIMIT).then_some(Self { nanos, ..self })
    }

    pub(crate) fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub(crate) fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }

    /// Compares amounts regardless of their notation.
    pub(crate) fn is_equal_amount(self, other: Self) -> bool {
        self.nanos == other.nanos
    }

    /// Rounds up to thousandths.
    pub(crate) fn round_up_to_thousandths(self) -> Self {
        let step = NANO / 1000;
        let up = if self.nanos < 0 { 1 - step } else { step - 1 };
        Self {
            nanos: (self.nanos + up) / step * step,
            ..self
        }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.nanos.cmp(&other.nanos))
    }
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut number = self.nanos;
        if number == 0 {
            return f.write_str("0");
        }
        // Small amounts have no exact binary notation.
        if self.notation == Notation::Binary && number.abs() >= 1024 * NANO {
            let up = if number < 0 { 1 - NANO } else { NANO - 1 };
            number = (number + up) / NANO;
            let mut power = 0;
            while number % 1024 == 0 && power < BINARY.len() {
                number /= 1024;
                power += 1;
            }
            return write!(
                f,
                "{number}{}",
                if power == 0 { "" } else { BINARY[power - 1].0 }
            );
        }
        // Exponents have no largest suffix.
        let is_exponent = self.notation == Notation::Exponent;
        let mut power = 0_u8;
        while number % 1000 == 0 && (is_exponent || usize::from(power) + 1 < DECIMAL.len()) {
            number /= 1000;
            power += 1;
        }
        match power {
            3 => write!(f, "{number}"),
            _ if is_exponent => write!(f, "{number}e{}", 3 * i32::from(power) - 9),
            _ => write!(f, "{number}{}", DECIMAL[usize::from(power)].0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_one_canonical_format() {
        for (written, formatted) in [
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.1Ki", "102400m"),
            ("1023Ki", "1023Ki"),
            ("1000000k", "1G"),
            ("128974848", "128974848"),
            ("1e3", "1e3"),
            ("12E6", "12e6"),
            ("1500e-1", "150"),
            ("0.0001", "100u"),
            ("0.0000000001", "1n"),
            ("-1.5", "-1500m"),
            ("0Mi", "0"),
            ("+5G", "5G"),
            (".5", "500m"),
            ("5.", "5"),
            ("1E", "1E"),
            ("2e-100", "1e-9"),
            ("0e100", "0"),
            ("1e-2147483648", "1e-9"),
            ("-1e28", "-10e27"),
            (
                "9999999999999999999999999999999999999999Ki",
                "9223372036854775807",
            ),
            ("-100000.000000000000000001Ei", "-9223372036854775807"),
        ] {
            assert_eq!(parse(written).unwrap().to_string(), formatted, "{written}");
        }
    }

    #[test]
    fn invalid_quantities_are_syntax_errors() {
        for text in [
            "",
            "Gi",
            "1gi",
            "1 Gi",
            "1e",
            "1.2.3",
            ".",
            "1e3m",
            "--1",
            "1e2147483648",
        ] {
            assert_eq!(parse(text), Err(ParseError::Syntax), "{text}");
        }
    }

    #[test]
    fn an_amount_that_does_not_fit_is_too_large() {
        let digits = "9".repeat(40);
        for text in [
            "1e100",
            "-1e100",
            "1e29",
            "1e2147483647",
            &digits,
            &format!("{digits}n"),
            &format!("{digits}.5"),
        ] {
            assert_eq!(parse(text), Err(ParseError::TooLarge), "{text}");
        }
        let largest = parse("99999999999999999999999999999.999999999").unwrap();
        assert_eq!(
            largest.round_up_to_thousandths().to_string(),
            "100000000000E"
        );
    }

    #[test]
    fn quantities_are_compared_by_their_amount() {
        assert!(
            parse("1Gi").unwrap() > parse("1G").unwrap()
                && parse("900m").unwrap() < parse("1").unwrap()
        );
        assert!(
            parse("1.5").unwrap().round_up_to_thousandths().to_string() == "1500m"
                && !parse("1.5").unwrap().is_whole()
        );
        assert_eq!(
            parse("0.0001")
                .unwrap()
                .round_up_to_thousandths()
                .to_string(),
            "1m"
        );
        assert!(parse("-1").unwrap().is_negative() && parse("0k").unwrap().is_zero());
    }
}
