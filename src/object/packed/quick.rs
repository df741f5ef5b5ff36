//! JSON in the words that servers use, packed as it is read, with no deserializer in between.
//!
//! What holds: what is taken here is JSON, and is packed byte by byte as a [`Pen`] packs it by serde. Whatever is not in a server's own words is refused,
//! and then it is serde's to read or to say what is wrong with: white space, numbers with a fraction, what is nested deeply, what is no JSON.
//! So this has to know little, and need not be right about the rest.
//!
//! Half of an object are names, and nearly always the name that comes is the one that came there in the object before. So that is looked for first, and the end of
//! the name with it. An event of a compact informer took a fifth less of the processor's time with this than by serde alone.

use super::{
    FALSE, LIST, NULL, OBJECT, SHORT_LIST, SHORT_OBJECT, TRUE,
    pack::{DIGITS, Pen},
};
use std::borrow::Cow;

/// What is nested deeper is serde's.
const DEPTH: u32 = 64;
/// Integers of so many digits fit.
const DIGITS_OF_INTEGERS: usize = 18;

/// A message, and how far it was read. Every step gives nothing if it meets what it does not take.
pub(in crate::object) struct Quick<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Quick<'t> {
    pub(in crate::object) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// What is left.
    pub(in crate::object) fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Somebody else has read so much of it.
    pub(in crate::object) fn pass(&mut self, bytes: usize) {
        self.at += bytes;
    }

    pub(in crate::object) fn end(&self) -> Option<()> {
        (self.at == self.text.len()).then_some(())
    }

    #[inline]
    fn bytes(&self) -> &'t [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    #[inline]
    pub(in crate::object) fn next(&mut self) -> Option<u8> {
        let next = *self.text.as_bytes().get(self.at)?;
        self.at += 1;
        Some(next)
    }

    #[inline]
    pub(in crate::object) fn eat(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn eat_all(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes().starts_with(bytes).then(|| self.at += bytes.len())
    }

    /// A string, of which the first quote was read.
    pub(in crate::object) fn string(&mut self) -> Option<Cow<'t, str>> {
        let from = self.at;
        let mut escapes = false;
        loop {
            self.at += plain(self.bytes());
            match self.next()? {
                b'"' => break,
                b'\\' => {
                    escapes = true;
                    self.next()?;
                }
                _ => return None,
            }
        }
        if escapes {
            return serde_json::from_str(self.text.get(from - 1..self.at)?).ok().map(Cow::Owned);
        }
        self.text.get(from..self.at - 1).map(Cow::Borrowed)
    }

    pub(in crate::object) fn value(&mut self, pen: &mut Pen<'_>) -> Option<()> {
        self.any(pen, DEPTH)
    }

    fn any(&mut self, pen: &mut Pen<'_>, depth: u32) -> Option<()> {
        match self.next()? {
            b'"' => pen.string(&self.string()?),
            b'{' => self.object(pen, depth.checked_sub(1)?)?,
            b'[' => self.list(pen, depth.checked_sub(1)?)?,
            b't' => {
                self.eat_all(b"rue")?;
                pen.packed.push(TRUE);
            }
            b'f' => {
                self.eat_all(b"alse")?;
                pen.packed.push(FALSE);
            }
            b'n' => {
                self.eat_all(b"ull")?;
                pen.packed.push(NULL);
            }
            b'-' => match self.integer()? {
                0 => return None, // It is a fraction.
                integer => pen.negative(-i64::try_from(integer).ok()?),
            },
            b'0'..=b'9' => {
                self.at -= 1;
                pen.integer(self.integer()?);
            }
            _ => return None,
        }
        Some(())
    }

    fn integer(&mut self) -> Option<u64> {
        let bytes = self.bytes();
        let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let follows = bytes.get(digits)?;
        let written_so = digits == 1 || (2..=DIGITS_OF_INTEGERS).contains(&digits) && bytes[0] != b'0';
        if !written_so || !matches!(follows, b',' | b'}' | b']') {
            return None;
        }
        self.at += digits;
        Some(bytes[..digits].iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
    }

    fn object(&mut self, pen: &mut Pen<'_>, depth: u32) -> Option<()> {
        self.several(pen, b'}', (OBJECT, SHORT_OBJECT), |message, pen| {
            message.eat(b'"')?;
            message.name(pen)?;
            message.any(pen, depth)
        })
    }

    fn list(&mut self, pen: &mut Pen<'_>, depth: u32) -> Option<()> {
        self.several(pen, b']', (LIST, SHORT_LIST), |message, pen| message.any(pen, depth))
    }

    /// What has commas in between, up to its end.
    #[inline]
    fn several(
        &mut self,
        pen: &mut Pen<'_>,
        end: u8,
        (long, short): (u8, u8),
        mut one: impl FnMut(&mut Self, &mut Pen<'_>) -> Option<()>,
    ) -> Option<()> {
        let (at, mut count) = (pen.packed.len(), 0);
        pen.packed.push(short);
        if self.bytes().first() == Some(&end) {
            self.at += 1;
            return Some(());
        }
        loop {
            one(self, pen)?;
            count += 1;
            match self.next()? {
                b',' => {}
                byte if byte == end => break,
                _ => return None,
            }
        }
        pen.count(at, count, long, short);
        Some(())
    }

    /// A name, of which the first quote was read, and what parts it from its value.
    fn name(&mut self, pen: &mut Pen<'_>) -> Option<()> {
        if let Some(length) = pen.expected_name(self.bytes()) {
            self.at += length;
            return self.eat(b':');
        }
        let name = self.string()?;
        self.eat(b':')?;
        if name == DIGITS {
            return None; // What that means depends on how `serde_json` was built.
        }
        pen.name(&name);
        Some(())
    }
}

const WORD: usize = size_of::<u64>();
const ONES: u64 = u64::from_ne_bytes([1; WORD]);
const HIGHS: u64 = u64::from_ne_bytes([0x80; WORD]);

/// How many bytes come before a quote, a backslash or a control character: a word at a time.
#[inline]
fn plain(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<WORD>();
    for (number, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The high bit of each byte that is one of them, and perhaps of some after the first.
        let is = |byte: u8| (word ^ (ONES * u64::from(byte))).wrapping_sub(ONES);
        let found = (is(b'"') | is(b'\\') | word.wrapping_sub(ONES * 0x20)) & !word & HIGHS;
        if found != 0 {
            return number * WORD + found.trailing_zeros() as usize / 8;
        }
    }
    let in_rest = rest.iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | ..0x20)).count();
    words.len() * WORD + in_rest
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Names, tests::values},
        *,
    };
    use proptest::{collection::vec, prelude::*};
    use serde::de::DeserializeSeed;

    /// The value of the one field of an object, as both pack it.
    fn both(names: &Names, text: &str) -> (Option<Box<str>>, Option<Box<str>>) {
        let mut pen = names.pen();
        let mut quick = Quick::new(text);
        pen.field("it");
        let taken = quick.value(&mut pen).and_then(|()| quick.eat(b'}')).and_then(|()| quick.end());
        let quickly = taken.map(|()| pen.finish());
        let mut pen = names.pen();
        let mut deserializer =
            serde_json::Deserializer::from_str(text.get(..text.len().saturating_sub(1)).unwrap_or(""));
        let read = pen.field("it").deserialize(&mut deserializer).and_then(|()| deserializer.end());
        (quickly, read.ok().map(|()| pen.finish()))
    }

    steersman_testkit::properties! {
        #[test]
        fn what_is_taken_is_packed_as_serde_reads_it(value in values(), next in values()) {
            let names = Names::default();
            for value in [&value, &next, &value] {
                let text = value.to_string() + "}";
                let (quickly, read) = both(&names, &text);
                prop_assert!(quickly.is_none() || quickly == read, "{}", text);
            }
        }

        /// Of what is nearly JSON, too.
        #[test]
        fn what_serde_refuses_is_not_taken(value in values(), changes in vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..4)) {
            const BYTES: &[u8] = b"\"\\{}[]:,0-19.eE tfn\n\x1f\x7f$u";
            let mut text = value.to_string().into_bytes();
            text.push(b'}');
            for (at, byte) in changes {
                let at = at.index(text.len());
                text[at] = BYTES[byte.index(BYTES.len())];
            }
            if let Ok(text) = String::from_utf8(text) {
                let (quickly, read) = both(&Names::default(), &text);
                prop_assert!(quickly.is_none() || quickly == read, "{}", text);
            }
        }

        #[test]
        fn a_string_ends_where_it_does(text in vec(any::<u8>(), 0..40)) {
            let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\' | ..0x20)).unwrap_or(text.len());
            prop_assert_eq!(plain(&text), end);
        }
    }

    #[test]
    fn servers_words_are_taken() {
        let names = Names::default();
        for text in [
            r#"{"a":1,"b":[true,false,null,"é\"\u003c",-5,0,[],{}],"c":{"a":999999999999999999}}"#,
            r#"{"a":1,"x":[],"c":{"b":-999999999999999999,"":""}}"#,
            r#""a string""#,
            "[[[]]]",
        ] {
            let (quickly, read) = both(&names, &(text.to_owned() + "}"));
            assert!(quickly.is_some() && quickly == read, "{text}");
        }
    }

    #[test]
    fn others_words_are_left_to_serde() {
        let deep = "[".repeat(65) + &"]".repeat(65);
        for text in [
            "1.5",
            "1e3",
            "-0",
            "01",
            "1234567890123456789",
            " 1",
            "[1, 2]",
            r#"{"a" :1}"#,
            "\"\n\"",
            &deep,
            r#"{"$serde_json::private::Number":"1"}"#,
            "tru",
            r#""\ud800""#,
        ] {
            assert_eq!(both(&Names::default(), &(text.to_owned() + "}")).0, None, "{text}");
        }
    }
}
