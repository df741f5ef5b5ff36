//! Objects by what a function says of them: several values each, or none.
//!
//! In two halves, because the function is the user's and must not run under the store's lock: an [`Indexer`] asks it, a [`Table`] keeps what
//! it said. The function has to say the same of the same object each time: what it said when an object came is taken back when it goes. If it does not,
//! an object may be found by what is said of another, and nothing worse. Of an object that
//! it fails on it says nothing, and why is noted when that comes, not again when it goes.

use super::{
    SharedIndexer,
    postings::{Postings, Slot},
};
use crate::cache::stats::Trouble;
use hashbrown::HashMap;
use std::{
    any::Any,
    hash::Hash,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// What an index says of one object: a `Vec<V>`.
pub(crate) type Values = Box<dyn Any + Send>;

/// What values panicked with.
pub(crate) type Panics = Vec<Box<dyn Any + Send>>;

/// What is noted of an object with such values.
pub(super) const PANICKED: &str = "the index's own values panicked when they were hashed or compared";

/// What hashes and compares values: who changes the store must come to the end, whatever they do.
fn attempt<T>(what: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(what))
}

/// Asks the user's function.
pub(crate) trait Indexer<O>: Send + Sync {
    /// Why it cannot say anything, if it cannot.
    fn values(&self, object: &O) -> Result<Values, String>;
    /// For what this one says, and nothing in it yet.
    fn table(&self) -> Box<dyn Table>;
}

/// Slots by value. Values are the user's, and what frees them is too: those that are not needed, or not any more, are left in `values`, for the
/// caller to free, and so is what they panicked with when they were hashed or compared: a value that panics is left out, and the others are not.
pub(crate) trait Table: Send + Sync {
    fn insert(&mut self, slot: Slot, values: &mut Values) -> Panics;
    /// The same in a larger one, if this one has no room for these.
    fn grown(&self, values: &Values) -> Option<Box<dyn Table>>;
    fn remove(&mut self, slot: Slot, values: &mut Values) -> Panics;
    /// The same of the objects that were in these slots, sorted, and are in the first ones now.
    fn moved(&self, from: &[Slot]) -> Box<dyn Table>;
    /// Whether both say the same: then there is nothing to do.
    fn is_same(&self, a: &Values, b: &Values) -> bool;
    fn as_any(&self) -> &dyn Any;
}

/// The user's function.
pub(crate) struct Function<F, V>(F, PhantomData<fn() -> V>);

impl<F, V> Function<F, V> {
    pub(crate) fn new(function: F) -> Self {
        Self(function, PhantomData)
    }
}

impl<O, F, V> Indexer<O> for Function<F, V>
where
    F: Fn(&O) -> Result<Vec<V>, String> + Send + Sync,
    V: Hash + Eq + Send + Sync + 'static,
{
    /// A function that panics says nothing of that object.
    fn values(&self, object: &O) -> Result<Values, String> {
        let said = attempt(|| (self.0)(object));
        Ok(Box::new(said.unwrap_or_else(|_| Err("the index's own function panicked".into()))?))
    }

    fn table(&self) -> Box<dyn Table> {
        Box::new(ByValue::<V>(HashMap::new()))
    }
}

/// Values are counted so that a larger table can be made beside this one.
pub(super) struct ByValue<V>(HashMap<Arc<V>, Postings>);

impl<V: Hash + Eq> ByValue<V> {
    pub(super) fn get(&self, value: &V) -> Postings {
        self.0.get(value).cloned().unwrap_or_default()
    }
}

impl<V: Hash + Eq + Send + Sync + 'static> Table for ByValue<V> {
    fn insert(&mut self, slot: Slot, values: &mut Values) -> Panics {
        let values = vec::<V>(values);
        let (mut next, mut panics) = (0, Vec::new());
        while let Some(value) = values.get(next) {
            match attempt(|| self.0.get_mut(value).map(|postings| postings.insert(slot))) {
                Ok(Some(())) => next += 1,
                Ok(None) => {
                    let value = Arc::new(values.swap_remove(next));
                    panics.extend(attempt(|| self.0.entry(value).or_default().insert(slot)).err());
                }
                Err(panic) => {
                    panics.push(panic);
                    next += 1;
                }
            }
        }
        panics
    }

    fn grown(&self, values: &Values) -> Option<Box<dyn Table>> {
        let more = values.downcast_ref::<Vec<V>>().map_or(0, Vec::len);
        if self.0.len() + more <= self.0.capacity() {
            return None;
        }
        let mut grown = HashMap::with_capacity(2 * self.0.len() + more);
        for (value, postings) in &self.0 {
            // One that was hashed before, and cannot be now, is not found any more either.
            attempt(|| grown.insert(value.clone(), postings.clone())).ok();
        }
        Some(Box::new(Self(grown)))
    }

    fn remove(&mut self, slot: Slot, values: &mut Values) -> Panics {
        let values = vec::<V>(values);
        let mut panics = Vec::new();
        for at in 0..values.len() {
            let removed = attempt(|| {
                let postings = self.0.get_mut(&values[at])?;
                postings.remove(slot);
                if postings.is_empty() { self.0.remove_entry(&values[at]) } else { None }
            });
            match removed {
                Ok(removed) => values.extend(removed.and_then(|(value, _)| Arc::into_inner(value))),
                Err(panic) => panics.push(panic),
            }
        }
        panics
    }

    fn moved(&self, from: &[Slot]) -> Box<dyn Table> {
        let mut moved = HashMap::new();
        for (value, postings) in &self.0 {
            let postings = postings.moved(from);
            if !postings.is_empty() {
                attempt(|| moved.insert(value.clone(), postings)).ok();
            }
        }
        Box::new(Self(moved))
    }

    fn is_same(&self, a: &Values, b: &Values) -> bool {
        attempt(|| a.downcast_ref::<Vec<V>>() == b.downcast_ref::<Vec<V>>()).unwrap_or(false)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// An index of a store: where it is, and what its values are.
pub(crate) struct IndexId<V> {
    pub(super) number: usize,
    value: PhantomData<fn(V)>,
}

impl<V> Clone for IndexId<V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<V> Copy for IndexId<V> {}

/// Finds the objects an index has under one value.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    number: usize,
    value: &'a dyn Any,
    find: fn(&dyn Any, &dyn Any) -> Option<Postings>,
}

impl Lookup<'_> {
    pub(super) fn find(&self, tables: &[Option<Box<dyn Table>>]) -> Postings {
        let table = tables[self.number].as_ref().map(|table| table.as_any());
        table.and_then(|table| (self.find)(table, self.value)).unwrap_or_default()
    }
}

impl<V: Hash + Eq + Send + Sync + 'static> IndexId<V> {
    /// The index of this number, whose values are of this type: one of another type finds nothing.
    pub(crate) fn new(number: usize) -> Self {
        Self { number, value: PhantomData }
    }

    pub(crate) fn of(self, value: &V) -> Lookup<'_> {
        let find =
            |table: &dyn Any, value: &dyn Any| Some(table.downcast_ref::<ByValue<V>>()?.get(value.downcast_ref()?));
        Lookup { number: self.number, value, find }
    }
}

/// What the indexes say of an object that comes, goes or changes.
pub(super) struct Said<'a> {
    values: Vec<(usize, Option<Values>, Option<Values>)>,
    panics: Panics,
    errors: &'a Trouble<String>,
}

impl<'a> Said<'a> {
    pub(super) fn is_nothing(&self) -> bool {
        self.values.is_empty()
    }

    pub(super) fn of<P>(
        indexers: &[Option<SharedIndexer<P>>],
        old: Option<&Arc<P>>,
        new: Option<&Arc<P>>,
        errors: &'a Trouble<String>,
    ) -> Self {
        let indexers = indexers.iter().enumerate().filter_map(|(number, indexer)| Some((number, indexer.as_ref()?)));
        let said = indexers.map(|(number, indexer)| {
            let old = old.and_then(|old| indexer.values(old).ok());
            let new = new.and_then(|new| indexer.values(new).map_err(|error| errors.note(error)).ok());
            (number, old, new)
        });
        Self { values: said.collect(), panics: Vec::new(), errors }
    }

    /// Larger tables, by number, for those that have no room for what is said.
    pub(super) fn grown(&self, tables: &[Option<Box<dyn Table>>]) -> Vec<(usize, Box<dyn Table>)> {
        let grown = |(number, _, new): &(usize, _, Option<Values>)| {
            Some((*number, tables[*number].as_ref()?.grown(new.as_ref()?)?))
        };
        self.values.iter().filter_map(grown).collect()
    }

    /// What is left is to be freed once the lock is.
    pub(super) fn update(&mut self, slot: Slot, tables: &mut [Option<Box<dyn Table>>]) {
        for (number, old, new) in &mut self.values {
            let Some(table) = &mut tables[*number] else { continue };
            if let (Some(old), Some(new)) = (&*old, &*new)
                && table.is_same(old, new)
            {
                continue;
            }
            if let Some(old) = old {
                self.panics.extend(table.remove(slot, old));
            }
            if let Some(new) = new {
                let panics = table.insert(slot, new);
                if !panics.is_empty() {
                    self.errors.note(PANICKED.into());
                }
                self.panics.extend(panics);
            }
        }
    }
}

fn vec<V: 'static>(values: &mut Values) -> &mut Vec<V> {
    values.downcast_mut().expect("a table gets the values of its own indexer")
}
