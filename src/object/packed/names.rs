//! The names of the fields that an informer's objects have, each with a number.
//!
//! Invariant: a name keeps its number as long as this lives, so that whatever was packed can be read. Only the first [`NAMES`] names that come get one, and none
//! that is long: keys of maps are names too, and there may be any number of them. And none that JSON escapes, so that a name with a number is in a message as it is.

use super::NAMES;
use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::{Mutex, RwLock};
use std::{hash::BuildHasher, mem, sync::Arc};

/// Longer names are not worth a number.
const LONGEST: usize = 64;

/// So many names of an object are expected of the next one at most.
const TRAIL: usize = 1024;
/// Where an object differs, so many names of the one before are passed over at most.
const AHEAD: usize = 32;

/// Names are read far more often than they come: who reads has them all as they are, and who brings a new one copies them.
#[derive(Debug, Default)]
pub(in crate::object) struct Names {
    known: RwLock<Arc<Known>>,
    /// The names of an object that was packed lately, in its order: mostly the next one has the same.
    trail: Mutex<Vec<u16>>,
}

/// The names there were at one moment.
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

    /// For the names of one object.
    pub(super) fn guess(&self) -> Guess<'_> {
        // First the trail and then the names: whoever has left it there knew no more of them.
        let expected = mem::take(&mut *self.trail.lock());
        Guess { names: self, known: self.known(), said: Vec::with_capacity(expected.len()), expected, at: 0 }
    }

    /// What is known once this name is, if it is worth a number and there is one left.
    #[cold]
    fn learn(&self, name: &str) -> Option<Arc<Known>> {
        if name.len() > LONGEST || name.bytes().any(|byte| matches!(byte, b'"' | b'\\' | ..0x20)) {
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
        self.numbers.find(self.hasher.hash_one(name), is_it).copied()
    }

    /// By their numbers.
    pub(super) fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    fn add(&mut self, name: &str) {
        let Self { names, numbers, hasher } = self;
        let number = names.len() as u16;
        names.push(name.into());
        numbers.insert_unique(hasher.hash_one(name), number, |number| hasher.hash_one(&*names[usize::from(*number)]));
    }
}

/// Finds the numbers of an object's names, by looking first at what came next in the object before: to see that two names are the same is less work
/// than to look one up.
pub(super) struct Guess<'a> {
    names: &'a Names,
    known: Arc<Known>,
    expected: Vec<u16>,
    /// Where in there.
    at: usize,
    said: Vec<u16>,
}

impl Guess<'_> {
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
        self.say(number);
        Some(number)
    }

    #[inline]
    fn say(&mut self, number: u16) {
        if self.said.len() < TRAIL {
            self.said.push(number);
        }
    }

    /// The name that is expected, if `text` begins with it and a quote: its number, and how long both are.
    #[inline]
    pub(super) fn expected(&mut self, text: &[u8]) -> Option<(u16, usize)> {
        let number = *self.expected.get(self.at)?;
        let name = &self.known.names[usize::from(number)];
        if text.strip_prefix(name.as_bytes())?.first() != Some(&b'"') {
            return None;
        }
        let length = name.len() + 1;
        self.at += 1;
        self.say(number);
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
        self.at += ahead.zip(1..).find(|(expected, _)| **expected == number).map_or(0, |(_, passed)| passed);
        Some(number)
    }

    /// It had no others.
    pub(super) fn end(self) {
        if !self.said.is_empty() {
            *self.names.trail.lock() = self.said;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number_however_many_come_after_it() {
        let names = Names::default();
        let early = names.learn("spec").expect("there is room");
        for number in 0..2 * NAMES {
            names.learn(&format!("name-{number}"));
        }
        let late = names.known();
        assert_eq!((early.number("spec"), late.number("spec")), (Some(0), Some(0)));
        assert_eq!(late.names()[..2], ["spec".into(), "name-0".into()]);
        assert_eq!(early.number("name-0"), None, "what was known before stays as it was");
    }

    #[test]
    fn there_are_only_so_many_numbers_and_none_for_names_that_are_long_or_escaped() {
        let names = Names::default();
        assert!(names.learn(&"x".repeat(LONGEST + 1)).is_none());
        assert!(["a\"b", "a\\b", "a\tb"].iter().all(|escaped| names.learn(escaped).is_none()));
        for number in 0..NAMES {
            assert!(names.learn(&number.to_string()).is_some());
        }
        assert!(names.learn("one more").is_none());
        assert!(names.learn("0").is_some(), "it is known");
        assert_eq!(names.known().names.len(), NAMES);
    }

    #[test]
    fn a_guess_is_never_wrong_whatever_came_before() {
        let names = Names::default();
        let orders = ["abcdef", "abcdef", "bdf", "fedcba", "", "axbycz", "aaabbb", "abcdef"];
        for order in orders {
            let mut guess = names.guess();
            for name in order.chars().map(String::from) {
                let number = guess.number(&name).expect("there is room");
                assert_eq!(*guess.known.names[usize::from(number)], *name, "in {order}");
            }
            assert_eq!(guess.said.len(), order.len());
            guess.end();
        }
        let known = names.known();
        assert_eq!(known.names.len(), "abcdefxyz".len());
    }
}
