//! From JSON to the packed form.

use super::{
    DIGIT, DIGIT_BITS, FALSE, INTEGER, LIST, LONG_NAME, MORE, NAME_BITS, NEGATIVE, NULL, NUMBER, Names, OBJECT, SHORT,
    SHORT_INTEGER, SHORT_LENGTH, SHORT_LIST, SHORT_OBJECT, SHORT_STRING, STRING, TRUE, UNKNOWN_NAME, names::Known,
};
use memchr::memchr2;
use serde_json::{Error, value::RawValue};
use std::sync::Arc;

/// Nothing that is nested deeper could be read: it is `serde_json`'s own limit.
const DEEPEST: u32 = 127;

impl Names {
    /// An object of these fields.
    pub(in crate::object) fn pack<'a>(
        &self,
        fields: impl ExactSizeIterator<Item = (&'a str, &'a RawValue)>,
    ) -> Result<Box<str>, Error> {
        let mut pen = Pen { names: self, known: self.known(), packed: Vec::with_capacity(2048) };
        pen.counted(fields.len() as u64, OBJECT, SHORT_OBJECT);
        for (name, value) in fields {
            pen.name(name);
            Scanner { json: value.get(), at: 0 }.value(&mut pen, 1)?;
        }
        str::from_utf8(&pen.packed).map(Into::into).map_err(serde::de::Error::custom)
    }
}

/// Writes the packed form.
struct Pen<'a> {
    names: &'a Names,
    known: Arc<Known>,
    packed: Vec<u8>,
}

impl Pen<'_> {
    fn name(&mut self, name: &str) {
        let number = self.known.number(name).or_else(|| {
            self.known = self.names.learn(name)?;
            self.known.number(name)
        });
        match number {
            Some(number) if number < LONG_NAME.into() => self.packed.push(number as u8),
            Some(number) => {
                let beyond = number - u16::from(LONG_NAME);
                let low = beyond & ((1 << NAME_BITS) - 1);
                self.packed.extend([LONG_NAME + (beyond >> NAME_BITS) as u8, low as u8]);
            }
            None => {
                self.packed.push(UNKNOWN_NAME);
                self.string(name);
            }
        }
    }

    fn string(&mut self, text: &str) {
        if text.len() < SHORT_LENGTH {
            self.packed.push(SHORT_STRING + text.len() as u8);
        } else {
            self.packed.push(STRING);
            digits(text.len() as u64, |digit| self.packed.push(digit));
        }
        self.packed.extend_from_slice(text.as_bytes());
    }

    fn counted(&mut self, count: u64, long: u8, short: u8) {
        if count < SHORT {
            self.packed.push(short + count as u8);
        } else {
            self.packed.push(long);
            digits(count, |digit| self.packed.push(digit));
        }
    }

    /// The same of what begins at `at`, where one byte was left for it, and has been written.
    fn count(&mut self, at: usize, count: u64, long: u8, short: u8) {
        if count < SHORT {
            self.packed[at] = short + count as u8;
        } else {
            self.packed[at] = long;
            let mut all = Vec::new();
            digits(count, |digit| all.push(digit));
            self.packed.splice(at + 1..=at, all);
        }
    }

    fn number(&mut self, text: &str) {
        if let Ok(integer) = text.parse::<u64>() {
            self.counted(integer, INTEGER, SHORT_INTEGER);
        } else if let Some(negative) = text.parse().ok().filter(|integer: &i64| *integer < 0) {
            self.packed.push(NEGATIVE);
            digits(!negative as u64, |digit| self.packed.push(digit));
        } else {
            self.packed.push(NUMBER);
            self.string(text);
        }
    }
}

fn digits(mut number: u64, mut each: impl FnMut(u8)) {
    while number > DIGIT.into() {
        each(number as u8 & DIGIT | MORE);
        number >>= DIGIT_BITS;
    }
    each(number as u8);
}

/// Goes through JSON that was read before, so that it is well formed: what it does not expect is an error all the same.
struct Scanner<'a> {
    json: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn value(&mut self, pen: &mut Pen<'_>, depth: u32) -> Result<(), Error> {
        match self.next()? {
            b'"' => self.string(pen, Pen::string)?,
            b'{' => self.nested(pen, depth, (b'}', OBJECT, SHORT_OBJECT))?,
            b'[' => self.nested(pen, depth, (b']', LIST, SHORT_LIST))?,
            b'n' => self.literal(pen, "null", NULL),
            b't' => self.literal(pen, "true", TRUE),
            b'f' => self.literal(pen, "false", FALSE),
            _ => {
                let rest = &self.json[self.at - 1..];
                let length =
                    rest.bytes().take_while(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
                let length = length.count();
                if length == 0 {
                    return Err(self.unexpected());
                }
                pen.number(&rest[..length]);
                self.at += length - 1;
            }
        }
        Ok(())
    }

    /// An object or a list, from behind its first byte on.
    fn nested(&mut self, pen: &mut Pen<'_>, depth: u32, (end, long, short): (u8, u8, u8)) -> Result<(), Error> {
        if depth > DEEPEST {
            return Err(serde::de::Error::custom("it is nested too deeply"));
        }
        let (at, mut count) = (pen.packed.len(), 0);
        pen.packed.push(short);
        if self.peek()? == end {
            self.at += 1;
            return Ok(());
        }
        loop {
            if long == OBJECT {
                match self.next()? {
                    b'"' => self.string(pen, Pen::name)?,
                    _ => return Err(self.unexpected()),
                }
                if self.next()? != b':' {
                    return Err(self.unexpected());
                }
            }
            self.value(pen, depth + 1)?;
            count += 1;
            match self.next()? {
                b',' => {}
                byte if byte == end => break,
                _ => return Err(self.unexpected()),
            }
        }
        pen.count(at, count, long, short);
        Ok(())
    }

    /// From behind its first quote on.
    fn string<'p>(&mut self, pen: &mut Pen<'p>, write: fn(&mut Pen<'p>, &str)) -> Result<(), Error> {
        let rest = &self.json[self.at..];
        let end = memchr2(b'"', b'\\', rest.as_bytes()).ok_or_else(|| self.unexpected())?;
        if rest.as_bytes()[end] == b'"' {
            self.at += end + 1;
            write(pen, &rest[..end]);
            return Ok(());
        }
        let mut strings = serde_json::Deserializer::from_str(&self.json[self.at - 1..]).into_iter::<String>();
        let string = strings.next().ok_or_else(|| self.unexpected())??;
        self.at += strings.byte_offset() - 1;
        write(pen, &string);
        Ok(())
    }

    fn literal(&mut self, pen: &mut Pen<'_>, text: &str, byte: u8) {
        self.at += text.len() - 1;
        pen.packed.push(byte);
    }

    /// The next byte that is no white space.
    fn next(&mut self) -> Result<u8, Error> {
        let byte = self.peek()?;
        self.at += 1;
        Ok(byte)
    }

    /// The same, which stays the next.
    fn peek(&mut self) -> Result<u8, Error> {
        while let Some(byte) = self.json.as_bytes().get(self.at) {
            match byte {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                _ => return Ok(*byte),
            }
        }
        Err(self.unexpected())
    }

    #[cold]
    fn unexpected(&self) -> Error {
        serde::de::Error::custom(format_args!("it is no JSON at byte {}", self.at))
    }
}
