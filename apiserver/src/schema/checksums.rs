//! String formats with check digits.

/// Reports whether a text is an ISBN with 10 digits, of which the last one may be `X`.
pub(super) fn is_isbn10(text: &str) -> bool {
    let digits = without_separators(text);
    let values = digits.bytes().enumerate().map(|(at, byte)| match byte {
        b'0'..=b'9' => Some(u32::from(byte - b'0')),
        b'X' if at == 9 => Some(10),
        _ => None,
    });
    let sum: Option<u32> = (1..)
        .zip(values)
        .map(|(factor, value)| Some(factor * value?))
        .sum();
    digits.len() == 10 && sum.is_some_and(|sum| sum % 11 == 0)
}

/// Reports whether a text is an ISBN with 13 digits.
pub(super) fn is_isbn13(text: &str) -> bool {
    let digits = without_separators(text);
    let Some(values) = digits_of(&digits).filter(|values| values.len() == 13) else {
        return false;
    };
    let sum: u32 = values
        .iter()
        .zip([1, 3].into_iter().cycle())
        .map(|(value, factor)| value * factor)
        .sum();
    sum.is_multiple_of(10)
}

/// Reports whether a text contains the digits of a credit card number. Other characters are
/// ignored.
pub(super) fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !has_issuer(&digits) {
        return false;
    }
    let Some(values) = digits_of(&digits) else {
        return false;
    };
    // The Luhn algorithm: every second digit from the end counts twice.
    let sum: u32 = values
        .iter()
        .rev()
        .enumerate()
        .map(|(at, &value)| match at % 2 {
            0 => value,
            _ => value * 2 / 10 + value * 2 % 10,
        })
        .sum();
    sum.is_multiple_of(10)
}

/// Reports whether the first digits belong to an issuer that the real server knows, and the length
/// fits.
fn has_issuer(digits: &str) -> bool {
    let prefix = |length: usize| {
        digits
            .get(..length)
            .and_then(|text| text.parse::<u32>().ok())
    };
    match digits.len() {
        13 => prefix(1) == Some(4),
        14 => matches!(prefix(3), Some(300..=305)) || matches!(prefix(2), Some(36 | 38)),
        15 => matches!(prefix(2), Some(34 | 37)) || matches!(prefix(4), Some(2131 | 1800)),
        16 => {
            prefix(1) == Some(4)
                || matches!(prefix(2), Some(35 | 51..=55 | 65))
                || prefix(4) == Some(6011)
        }
        _ => false,
    }
}

fn without_separators(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_ascii_whitespace() && *c != '-')
        .collect()
}

fn digits_of(text: &str) -> Option<Vec<u32>> {
    text.chars().map(|c| c.to_digit(10)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_isbn_has_a_check_digit() {
        for valid in ["0321751043", "0-321-75104-3", "080442957X"] {
            assert!(is_isbn10(valid), "{valid}");
        }
        for invalid in ["", "0321751044", "X321751043", "03217510433", "032175104é"] {
            assert!(!is_isbn10(invalid), "{invalid}");
        }
        for valid in ["9780321751041", "978-0 321 75104 1"] {
            assert!(is_isbn13(valid), "{valid}");
        }
        for invalid in ["", "9780321751042", "978032175104X", "97803217510411"] {
            assert!(!is_isbn13(invalid), "{invalid}");
        }
    }

    #[test]
    fn a_credit_card_number_has_an_issuer_and_a_check_digit() {
        for valid in [
            "4111 1111 1111 1111",
            "5500-0000-0000-0004",
            "340000000000009",
            "30000000000004",
            "6011000000000004",
        ] {
            assert!(is_credit_card(valid), "{valid}");
        }
        for invalid in ["", "4111111111111112", "1234", "0000000000000000", "card"] {
            assert!(!is_credit_card(invalid), "{invalid}");
        }
    }
}
