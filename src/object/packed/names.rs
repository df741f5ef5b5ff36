//! The names of the fields that an informer's objects have, each with a number.
//!
//! Invariant: a name keeps its number as long as this lives, so that whatever was packed can be read. Only the first [`NAMES`] names that come get one, and none
//! that is long: keys of maps are names too, and there may be any number of them.

use super::NAMES;
use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::RwLock;
use std::{hash::BuildHasher, sync::Arc};

/// Longer names are not worth a number.
const LONGEST: usize = 64;

/// Names are read far more often than they come: who reads has them all as they are, and who brings a new one copies them.
#[derive(Debug, Default)]
pub(in crate::object) struct Names(RwLock<Arc<Known>>);

/// The names there were at one moment.
#[derive(Clone, Debug, Default)]
pub(in crate::object) struct Known {
    names: Vec<Arc<str>>,
    numbers: HashTable<u16>,
    hasher: DefaultHashBuilder,
}

impl Names {
    pub(in crate::object) fn known(&self) -> Arc<Known> {
        self.0.read().clone()
    }

    /// What is known once this name is, if it is worth a number and there is one left.
    #[cold]
    pub(super) fn learn(&self, name: &str) -> Option<Arc<Known>> {
        if name.len() > LONGEST {
            return None;
        }
        let mut known = self.0.write();
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
    pub(super) fn number(&self, name: &str) -> Option<u16> {
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
    fn there_are_only_so_many_numbers_and_none_for_long_names() {
        let names = Names::default();
        assert!(names.learn(&"x".repeat(LONGEST + 1)).is_none());
        for number in 0..NAMES {
            assert!(names.learn(&number.to_string()).is_some());
        }
        assert!(names.learn("one more").is_none());
        assert!(names.learn("0").is_some(), "it is known");
        assert_eq!(names.known().names.len(), NAMES);
    }
}
