//! Field names of the objects of an informer, each with a number.
//!
//! Invariant: a name keeps its number as long as this exists, so that packed objects can be read.
//! Only the first [`NAMES`] names get one, and only short ones, because keys of maps are names,
//! too, and their number is unlimited. Names that JSON escapes do not get one, so that a numbered
//! name appears in a message verbatim.

use super::NAMES;
use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::{Mutex, RwLock};
use std::{hash::BuildHasher, mem, sync::Arc};

/// Maximum length of a name with a number.
const LONGEST: usize = 64;

/// Maximum of names of an object that are expected in the next one.
const TRAIL: usize = 1024;
/// Maximum of expected names that are skipped when an object differs.
const AHEAD: usize = 32;

/// Names with numbers. Readers share a snapshot, and adding a name copies it.
#[derive(Debug, Default)]
pub(in crate::object) struct Names {
    known: RwLock<Arc<Known>>,
    /// Names of a recently packed object in order. The next object usually has the same.
    trail: Mutex<Vec<u16>>,
}

/// Snapshot of the names.
#[derive(Clone, Debug, Default)]
pub(in crate::object) struct Known {
    names: Vec<Arc<str>>,
    numbers: HashTable<u16>,
    hasher: DefaultHashBuilder,
}

impl Names {
    pub(in crate::object) fn known(&self) -> Arc<Known> {
        self.known.read().clone()
    }

    /// Returns a predictor for the names of one object.
    pub(super) fn guess(&self) -> NamePrediction<'_> {
        // Take the trail before the snapshot, which then has all of its names.
        let expected = mem::take(&mut *self.trail.lock());
        NamePrediction {
            names: self,
            known: self.known(),
            seen: Vec::with_capacity(expected.len()),
            expected,
            at: 0,
        }
    }

    /// Adds a name if it is suitable, and returns the new snapshot.
    #[cold]
    fn learn(&self, name: &str) -> Option<Arc<Known>> {
        if name.len() > LONGEST
            || name
                .bytes()
                .any(|byte| matches!(byte, b'"' | b'\\' | ..0x20))
        {
            return None;
        }
        let mut known = self.known.write();
        if known.number(name).is_none() {
            if known.names.len() == NAMES {
                return None;
            }
            let mut more = Known::clone(&known);
            more.add(name);
            *known = Arc::new(more);
        }
        Some(known.clone())
    }
}

impl Known {
    fn number(&self, name: &str) -> Option<u16> {
        let is_it = |number: &u16| *self.names[usize::from(*number)] == *name;
        self.numbers
            .find(self.hasher.hash_one(name), is_it)
            .copied()
    }

    /// Returns the names by number.
    pub(super) fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    fn add(&mut self, name: &str) {
        let Self {
            names,
            numbers,
            hasher,
        } = self;
        let number = names.len() as u16;
        names.push(name.into());
        numbers.insert_unique(hasher.hash_one(name), number, |number| {
            hasher.hash_one(&*names[usize::from(*number)])
        });
    }
}

/// Finds the numbers of an object's names.
///
/// Compares each name with that of the previous object first, which is cheaper than a lookup.
pub(super) struct NamePrediction<'a> {
    names: &'a Names,
    known: Arc<Known>,
    expected: Vec<u16>,
    /// Index into `expected`.
    at: usize,
    seen: Vec<u16>,
}

impl NamePrediction<'_> {
    #[inline]
    pub(super) fn number(&mut self, name: &str) -> Option<u16> {
        let expected = self.expected.get(self.at).copied();
        let number = match expected {
            Some(number) if *self.known.names[usize::from(number)] == *name => {
                self.at += 1;
                number
            }
            _ => self.look_up(name)?,
        };
        self.record(number);
        Some(number)
    }

    #[inline]
    fn record(&mut self, number: u16) {
        if self.seen.len() < TRAIL {
            self.seen.push(number);
        }
    }

    /// Returns the expected name if `text` starts with it and a quote: number and length.
    #[inline]
    pub(super) fn expected(&mut self, text: &[u8]) -> Option<(u16, usize)> {
        let number = *self.expected.get(self.at)?;
        let name = &self.known.names[usize::from(number)];
        if text.strip_prefix(name.as_bytes())?.first() != Some(&b'"') {
            return None;
        }
        let length = name.len() + 1;
        self.at += 1;
        self.record(number);
        Some((number, length))
    }

    fn look_up(&mut self, name: &str) -> Option<u16> {
        let number = self.known.number(name).or_else(|| {
            if self.known.names.len() == NAMES {
                return None;
            }
            self.known = self.names.learn(name)?;
            self.known.number(name)
        })?;
        let ahead = self.expected.iter().skip(self.at).take(AHEAD);
        self.at += ahead
            .zip(1..)
            .find(|(expected, _)| **expected == number)
            .map_or(0, |(_, passed)| passed);
        Some(number)
    }

    /// Stores the names of the object for the next one.
    pub(super) fn end(self) {
        if !self.seen.is_empty() {
            *self.names.trail.lock() = self.seen;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number() {
        let names = Names::default();
        let early = names.learn("spec").expect("the table has room");
        for number in 0..2 * NAMES {
            names.learn(&format!("name-{number}"));
        }
        let late = names.known();
        assert_eq!(
            (early.number("spec"), late.number("spec")),
            (Some(0), Some(0))
        );
        assert_eq!(late.names()[..2], ["spec".into(), "name-0".into()]);
        assert_eq!(
            early.number("name-0"),
            None,
            "an earlier snapshot does not change"
        );
    }

    #[test]
    fn long_escaped_and_excess_names_get_no_number() {
        let names = Names::default();
        assert!(names.learn(&"x".repeat(LONGEST + 1)).is_none());
        assert!(
            ["a\"b", "a\\b", "a\tb"]
                .iter()
                .all(|escaped| names.learn(escaped).is_none())
        );
        for number in 0..NAMES {
            assert!(names.learn(&number.to_string()).is_some());
        }
        assert!(names.learn("one more").is_none());
        assert!(names.learn("0").is_some(), "it is known");
        assert_eq!(names.known().names.len(), NAMES);
    }

    #[test]
    fn a_prediction_is_always_verified() {
        let names = Names::default();
        let orders = [
            "abcdef", "abcdef", "bdf", "fedcba", "", "axbycz", "aaabbb", "abcdef",
        ];
        for order in orders {
            let mut guess = names.guess();
            for name in order.chars().map(String::from) {
                let number = guess.number(&name).expect("the table has room");
                assert_eq!(*guess.known.names[usize::from(number)], *name, "in {order}");
            }
            assert_eq!(guess.seen.len(), order.len());
            guess.end();
        }
        let known = names.known();
        assert_eq!(known.names.len(), "abcdefxyz".len());
    }
}
