//! Amounts of resources: however they are written, they are shown in one way, and compared by what they are.
//!
//! A quantity is kept as a whole number of billionths, which is as fine as the real server goes: what is finer is
//! rounded up, away from zero. It remembers the family of its suffix (`k`, `Ki`, `e3`), in which it is shown.

use serde_json::{Number, Value};
use std::cmp::Ordering;

/// How a quantity is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Decimal,
    Binary,
    Exponent,
}

/// An amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quantity {
    nanos: i128,
    family: Family,
}

const NANO: i128 = 1_000_000_000;
/// Amounts are below this number of billionths. The sum of two of them fits `i128`.
const END: i128 = 10_i128.pow(38);
/// Largest amount with a binary suffix. The real server lowers larger amounts to it.
const MAX_BINARY: i128 = i64::MAX as i128 * NANO;
const DECIMAL: [(&str, u32); 10] =
    [("n", 0), ("u", 3), ("m", 6), ("", 9), ("k", 12), ("M", 15), ("G", 18), ("T", 21), ("P", 24), ("E", 27)];
const BINARY: [(&str, u32); 6] = [("Ki", 1), ("Mi", 2), ("Gi", 3), ("Ti", 4), ("Pi", 5), ("Ei", 6)];

/// Why a text is not a quantity that the server stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParseError {
    Syntax,
    /// The real server stores decimal amounts of any size.
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
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(ParseError::Syntax);
    }
    // Digits of the fraction after the 18th only decide whether to round up.
    let (fraction, rest) = fraction.split_at(fraction.len().min(18));
    let more = rest.bytes().any(|digit| digit != b'0');
    // `None`: the digits do not fit.
    let digits = format!("0{whole}{fraction}").parse::<i128>().ok().and_then(|digits| digits.checked_add(more.into()));
    let places = i32::try_from(fraction.len()).unwrap_or(18);
    let (family, nanos) = if let Some((_, power)) = DECIMAL.iter().find(|(it, _)| *it == suffix) {
        (Family::Decimal, digits.and_then(|digits| scaled(digits, power.cast_signed() - places)))
    } else if let Some((_, power)) = BINARY.iter().find(|(it, _)| *it == suffix) {
        let bytes = digits.and_then(|digits| digits.checked_mul(1024_i128.pow(*power)));
        // An overflow is far above the largest amount: at most 18 digits are behind the point.
        let nanos = bytes.and_then(|bytes| scaled(bytes, 9 - places)).unwrap_or(MAX_BINARY);
        (Family::Binary, Some(nanos.min(MAX_BINARY)))
    } else {
        let power = suffix.strip_prefix(['e', 'E']).and_then(|power| power.parse::<i32>().ok());
        let power = power.ok_or(ParseError::Syntax)?.saturating_add(9 - places);
        (Family::Exponent, digits.and_then(|digits| scaled(digits, power)))
    };
    let nanos = nanos.filter(|nanos| *nanos < END).ok_or(ParseError::TooLarge)?;
    Ok(Quantity { nanos: if negative { -nanos } else { nanos }, family })
}

/// Returns `digits` times a power of ten, rounded up; `None` if that does not fit.
fn scaled(digits: i128, power: i32) -> Option<i128> {
    if digits == 0 {
        return Some(0);
    }
    let factor = 10_i128.checked_pow(power.unsigned_abs());
    if power >= 0 {
        return digits.checked_mul(factor?);
    }
    // A factor that does not fit is larger than every number of digits.
    Some(factor.map_or(1, |factor| digits / factor + i128::from(digits % factor != 0)))
}

/// The text of a quantity as JSON has it: numbers count too.
pub(crate) fn of(value: &Value) -> Option<Quantity> {
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

/// A quantity in the way in which it is shown. `None` if it is none.
pub(super) fn canonical(value: &Value) -> Option<Value> {
    // Most are written as they are shown.
    if let Value::String(text) = value
        && text.len() < 4
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && !text.starts_with('0')
    {
        return None;
    }
    let shown = of(value)?.to_string();
    // What is the same but for a sign or a point that says nothing is kept as it was written.
    let text = value.as_str().unwrap_or_default();
    let (number, suffix) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let plain = number.trim_start_matches('+').trim_end_matches('.');
    if !text.is_empty() && shown.strip_prefix(plain) == Some(suffix) { None } else { Some(shown.into()) }
}

impl Quantity {
    pub(crate) fn is_negative(self) -> bool {
        self.nanos < 0
    }

    pub(crate) fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub(crate) fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }

    /// However it is written.
    pub(crate) fn is_as_much_as(self, other: Self) -> bool {
        self.nanos == other.nanos
    }

    /// No finer than thousandths, rounded up.
    pub(crate) fn in_thousandths(self) -> Self {
        let step = NANO / 1000;
        let up = if self.nanos < 0 { 1 - step } else { step - 1 };
        Self { nanos: (self.nanos + up) / step * step, ..self }
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
        // Small amounts are not shown in powers of two: they would have to be rounded.
        if self.family == Family::Binary && number.abs() >= 1024 * NANO {
            let up = if number < 0 { 1 - NANO } else { NANO - 1 };
            number = (number + up) / NANO;
            let mut power = 0;
            while number % 1024 == 0 && power < BINARY.len() {
                number /= 1024;
                power += 1;
            }
            return write!(f, "{number}{}", if power == 0 { "" } else { BINARY[power - 1].0 });
        }
        // Amounts with an exponent have no largest suffix.
        let is_exponent = self.family == Family::Exponent;
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
    fn an_amount_is_shown_in_one_way() {
        for (written, shown) in [
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
            ("9999999999999999999999999999999999999999Ki", "9223372036854775807"),
            ("-100000.000000000000000001Ei", "-9223372036854775807"),
        ] {
            assert_eq!(parse(written).unwrap().to_string(), shown, "{written}");
        }
    }

    #[test]
    fn what_is_none_is_told() {
        for text in ["", "Gi", "1gi", "1 Gi", "1e", "1.2.3", ".", "1e3m", "--1", "1e2147483648"] {
            assert_eq!(parse(text), Err(ParseError::Syntax), "{text}");
        }
    }

    #[test]
    fn an_amount_that_does_not_fit_is_too_large() {
        let digits = "9".repeat(40);
        for text in ["1e100", "-1e100", "1e29", "1e2147483647", &digits, &format!("{digits}n"), &format!("{digits}.5")]
        {
            assert_eq!(parse(text), Err(ParseError::TooLarge), "{text}");
        }
        let largest = parse("99999999999999999999999999999.999999999").unwrap();
        assert_eq!(largest.in_thousandths().to_string(), "100000000000E");
    }

    #[test]
    fn amounts_are_compared_by_what_they_are() {
        assert!(parse("1Gi").unwrap() > parse("1G").unwrap() && parse("900m").unwrap() < parse("1").unwrap());
        assert!(parse("1.5").unwrap().in_thousandths().to_string() == "1500m" && !parse("1.5").unwrap().is_whole());
        assert_eq!(parse("0.0001").unwrap().in_thousandths().to_string(), "1m");
        assert!(parse("-1").unwrap().is_negative() && parse("0k").unwrap().is_zero());
    }
}
