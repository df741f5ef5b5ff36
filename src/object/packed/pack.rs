//! Packs what a serde deserializer reads, usually JSON, in one pass.

use super::{
    DIGIT, DIGIT_BITS, FALSE, FLOAT, FLOAT_BITS, INTEGER, LIST, LONG_NAME, MORE, NAME_BITS,
    NEGATIVE, NULL, NUMBER, Names, OBJECT, SHORT, SHORT_INTEGER, SHORT_LENGTH, SHORT_LIST,
    SHORT_OBJECT, SHORT_STRING, STRING, TRUE, UNKNOWN_NAME, names::NamePrediction,
};
use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use std::{borrow::Cow, fmt, sync::LazyLock};

/// Field of an object that stands for a number if `serde_json` has the feature
/// `arbitrary_precision`.
pub(super) const DIGITS: &str = "$serde_json::private::Number";

/// Whether another crate enables the feature `arbitrary_precision` of `serde_json`.
static KEEPS_DIGITS: LazyLock<bool> = LazyLock::new(|| {
    serde_json::from_str("1.10")
        .is_ok_and(|number: serde_json::Number| number.to_string() == "1.10")
});

/// Writer of one packed object, field by field.
pub(in crate::object) struct Packer<'a> {
    names: NamePrediction<'a>,
    pub(super) packed: Vec<u8>,
    fields: u64,
    pub(super) keeps_digits: bool,
}

impl Names {
    pub(in crate::object) fn packer(&self) -> Packer<'_> {
        let mut packed = Vec::with_capacity(2048);
        packed.push(SHORT_OBJECT);
        Packer {
            names: self.guess(),
            packed,
            fields: 0,
            keeps_digits: *KEEPS_DIGITS,
        }
    }
}

impl<'a> Packer<'a> {
    /// Writes the name of a field, and returns the seed that packs its value.
    pub(in crate::object) fn field(&mut self, name: &str) -> Value<'_, 'a> {
        self.fields += 1;
        self.name(name);
        Value(self)
    }

    pub(in crate::object) fn finish(mut self) -> Box<str> {
        self.count(0, self.fields, OBJECT, SHORT_OBJECT);
        self.names.end();
        str::from_utf8(&self.packed)
            .expect("strings, and bytes below 128")
            .into()
    }

    pub(super) fn name(&mut self, name: &str) {
        if let Some(number) = self.names.number(name) {
            self.named(number);
        } else {
            self.packed.push(UNKNOWN_NAME);
            self.string(name);
        }
    }

    /// Writes the expected name if `text` starts with it and a quote.
    ///
    /// Returns the length of both.
    #[inline]
    pub(super) fn expected_name(&mut self, text: &[u8]) -> Option<usize> {
        let (number, length) = self.names.expected(text)?;
        self.named(number);
        Some(length)
    }

    #[inline]
    fn named(&mut self, number: u16) {
        if number < LONG_NAME.into() {
            self.packed.push(number as u8);
        } else {
            let beyond = number - u16::from(LONG_NAME);
            let low = beyond & ((1 << NAME_BITS) - 1);
            self.packed
                .extend([LONG_NAME + (beyond >> NAME_BITS) as u8, low as u8]);
        }
    }

    #[inline]
    pub(super) fn string(&mut self, text: &str) {
        if text.len() < SHORT_LENGTH {
            self.packed.push(SHORT_STRING + text.len() as u8);
        } else {
            self.packed.push(STRING);
            self.packed.extend(digits(text.len() as u64));
        }
        self.packed.extend_from_slice(text.as_bytes());
    }

    pub(super) fn integer(&mut self, integer: u64) {
        if integer < SHORT {
            self.packed.push(SHORT_INTEGER + integer as u8);
        } else {
            self.packed.push(INTEGER);
            self.packed.extend(digits(integer));
        }
    }

    pub(super) fn negative(&mut self, integer: i64) {
        self.packed.push(NEGATIVE);
        self.packed.extend(digits(!integer as u64));
    }

    fn number(&mut self, text: &str) {
        if let Ok(integer) = text.parse() {
            self.integer(integer);
        } else if let Some(negative) = text.parse().ok().filter(|integer| *integer < 0) {
            self.negative(negative);
        } else {
            self.packed.push(NUMBER);
            self.string(text);
        }
    }

    /// Writes the number of elements at `at`, where one byte is reserved.
    pub(super) fn count(&mut self, at: usize, count: u64, long: u8, short: u8) {
        if count < SHORT {
            self.packed[at] = short + count as u8;
        } else {
            self.packed[at] = long;
            self.packed.splice(at + 1..=at, digits(count));
        }
    }
}

fn digits(number: u64) -> impl Iterator<Item = u8> {
    let mut rest = Some(number);
    std::iter::from_fn(move || {
        let number = rest?;
        rest = Some(number >> DIGIT_BITS).filter(|more| *more > 0);
        Some(number as u8 & DIGIT | if rest.is_some() { MORE } else { 0 })
    })
}

/// Seed that packs a value.
pub(in crate::object) struct Value<'p, 'a>(&'p mut Packer<'a>);

impl<'de> DeserializeSeed<'de> for Value<'_, '_> {
    type Value = ();

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.packed.push(NULL);
        Ok(())
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.0.packed.push(if value { TRUE } else { FALSE });
        Ok(())
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.0.integer(value);
        Ok(())
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        match u64::try_from(value) {
            Ok(value) => self.0.integer(value),
            Err(_) => self.0.negative(value),
        }
        Ok(())
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        let bits = value.to_bits();
        self.0.packed.push(FLOAT);
        self.0.packed.extend(
            (0..u64::BITS)
                .step_by(FLOAT_BITS as usize)
                .map(|at| (bits >> at) as u8 & 0x7F),
        );
        Ok(())
    }
    #[inline]
    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.0.string(value);
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let (at, mut count) = (self.0.packed.len(), 0);
        self.0.packed.push(SHORT_LIST);
        while list.next_element_seed(Value(self.0))?.is_some() {
            count += 1;
        }
        self.0.count(at, count, LIST, SHORT_LIST);
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (at, mut count) = (self.0.packed.len(), 0);
        self.0.packed.push(SHORT_OBJECT);
        while let Some(named) = map.next_key_seed(Name {
            packer: self.0,
            first: count == 0,
        })? {
            if named == Named::Digits {
                let text: Cow<'de, str> = map.next_value()?;
                self.0.packed.truncate(at);
                self.0.number(&text);
                return Ok(());
            }
            map.next_value_seed(Value(self.0))?;
            count += 1;
        }
        self.0.count(at, count, OBJECT, SHORT_OBJECT);
        Ok(())
    }
}

/// Seed that packs a name.
struct Name<'p, 'a> {
    packer: &'p mut Packer<'a>,
    /// Whether the name is the first of its object.
    first: bool,
}

#[derive(PartialEq)]
enum Named {
    Field,
    /// The object stands for a number.
    Digits,
}

impl<'de> DeserializeSeed<'de> for Name<'_, '_> {
    type Value = Named;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Named, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_, '_> {
    type Value = Named;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }
    #[inline]
    fn visit_str<E: Error>(self, name: &str) -> Result<Named, E> {
        if self.packer.keeps_digits && self.first && name == DIGITS {
            return Ok(Named::Digits);
        }
        self.packer.name(name);
        Ok(Named::Field)
    }
}
