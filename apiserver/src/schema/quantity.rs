//! Amounts of resources: however they are written, they are shown in one way, and compared by what they are.
//!
//! A quantity is kept as a whole number of billionths, which is as fine as the real server goes: what is finer is
//! rounded up, away from zero. It remembers the family of its suffix (`k`, `Ki`, `e3`), in which it is shown.

use serde_json::Value;
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
const DECIMAL: [(&str, u32); 10] =
    [("n", 0), ("u", 3), ("m", 6), ("", 9), ("k", 12), ("M", 15), ("G", 18), ("T", 21), ("P", 24), ("E", 27)];
const BINARY: [(&str, u32); 6] = [("Ki", 1), ("Mi", 2), ("Gi", 3), ("Ti", 4), ("Pi", 5), ("Ei", 6)];

/// Reads `1`, `0.5`, `100m`, `1Gi`, `1e3`.
pub(crate) fn parse(text: &str) -> Option<Quantity> {
    let text = text.trim();
    let (negative, unsigned) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    // What is beyond 18 digits of a fraction is no more than something above zero.
    let (fraction, rest) = fraction.split_at(fraction.len().min(18));
    let mut digits: i128 = format!("0{whole}{fraction}").parse().unwrap_or(i128::MAX);
    let more = rest.bytes().any(|digit| digit != b'0');
    if more {
        digits = digits.saturating_add(1);
    }
    let places = i32::try_from(fraction.len()).ok()?;
    let (family, nanos) = if let Some((_, power)) = DECIMAL.iter().find(|(it, _)| *it == suffix) {
        (Family::Decimal, scaled(digits, power.cast_signed() - places))
    } else if let Some((_, power)) = BINARY.iter().find(|(it, _)| *it == suffix) {
        (Family::Binary, scaled(digits.saturating_mul(1024_i128.saturating_pow(*power)), 9 - places))
    } else {
        let power = suffix.strip_prefix(['e', 'E'])?;
        let power: i32 = power.parse().ok()?;
        (Family::Exponent, scaled(digits, power.saturating_add(9 - places)))
    };
    Some(Quantity { nanos: if negative { -nanos } else { nanos }, family })
}

/// `digits` times a power of ten, rounded up.
fn scaled(digits: i128, power: i32) -> i128 {
    let factor = 10_i128.saturating_pow(power.unsigned_abs());
    if power < 0 { (digits + factor - 1) / factor } else { digits.saturating_mul(factor) }
}

/// The text of a quantity as JSON has it: numbers count too.
pub(crate) fn of(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => parse(text),
        Value::Number(number) => match number.as_i64() {
            Some(number) => parse(&number.to_string()),
            None => parse(&number.as_f64()?.to_string()),
        },
        _ => None,
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
        let mut power = 0;
        while number % 1000 == 0 && power + 1 < DECIMAL.len() {
            number /= 1000;
            power += 1;
        }
        let (suffix, exponent) = DECIMAL[power];
        match self.family {
            Family::Exponent if exponent != 9 => write!(f, "{number}e{}", exponent.cast_signed() - 9),
            _ => write!(f, "{number}{suffix}"),
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
        ] {
            assert_eq!(parse(written).unwrap().to_string(), shown, "{written}");
        }
    }

    #[test]
    fn what_is_none_is_told() {
        for text in ["", "Gi", "1gi", "1 Gi", "1e", "1.2.3", ".", "1e3m", "--1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn amounts_are_compared_by_what_they_are() {
        assert!(parse("1Gi") > parse("1G") && parse("900m") < parse("1"));
        assert!(parse("1.5").unwrap().in_thousandths().to_string() == "1500m" && !parse("1.5").unwrap().is_whole());
        assert_eq!(parse("0.0001").unwrap().in_thousandths().to_string(), "1m");
        assert!(parse("-1").unwrap().is_negative() && parse("0k").unwrap().is_zero());
    }
}
