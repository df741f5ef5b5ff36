//! Indexes of objects by the values of a function, any number per object.
//!
//! The user's function must not run under the store's lock. So an [`Indexer`] calls it, and a
//! [`Table`] stores the values. The function must be deterministic: an object is removed by calling
//! it again. If it is not, an index may find an object under values of another one, but nothing
//! worse happens. An object on which the function fails is not in the index. The error is recorded
//! when the object is added, not again when it is removed.

use super::{
    SharedIndexer,
    postings::{Postings, Slot},
};
use crate::cache::stats::ErrorCount;
use hashbrown::HashMap;
use std::{
    any::Any,
    hash::Hash,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// Values of one object in an index: a `Vec<V>`.
pub(crate) type Values = Box<dyn Any + Send>;

/// Payloads of panics in hashing or comparing values.
pub(crate) type Panics = Vec<Box<dyn Any + Send>>;

/// Error that is recorded for an object with such values.
pub(super) const PANICKED: &str = "hashing or comparing values of the index panicked";

/// Catches panics in hashing and comparing values, so that a write completes.
fn attempt<T>(what: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(what))
}

/// Calls the user's index function.
pub(crate) trait Indexer<O>: Send + Sync {
    /// Returns the values of an object, or why there are none.
    fn values(&self, object: &O) -> Result<Values, String>;
    /// Creates an empty table for the values.
    fn table(&self) -> Box<dyn Table>;
}

/// Slots by value.
///
/// Dropping a value runs user code. So unused and removed values stay in `values`, and panics are
/// returned, for the caller to free. A value that panics is omitted, others are not affected.
pub(crate) trait Table: Send + Sync {
    fn insert(&mut self, slot: Slot, values: &mut Values) -> Panics;
    /// Returns a larger copy if there is no room for these values.
    fn grown(&self, values: &Values) -> Option<Box<dyn Table>>;
    fn remove(&mut self, slot: Slot, values: &mut Values) -> Panics;
    /// Returns a copy for objects that moved from these sorted slots to the first ones.
    fn moved(&self, from: &[Slot]) -> Box<dyn Table>;
    /// Returns whether both are equal, so that there is nothing to update.
    fn is_same(&self, a: &Values, b: &Values) -> bool;
    fn as_any(&self) -> &dyn Any;
}

/// Indexer of a function.
pub(crate) struct FnIndexer<F, V>(F, PhantomData<fn() -> V>);

impl<F, V> FnIndexer<F, V> {
    pub(crate) fn new(function: F) -> Self {
        Self(function, PhantomData)
    }
}

impl<O, F, V> Indexer<O> for FnIndexer<F, V>
where
    F: Fn(&O) -> Result<Vec<V>, String> + Send + Sync,
    V: Hash + Eq + Send + Sync + 'static,
{
    /// Converts a panic of the function to an error.
    fn values(&self, object: &O) -> Result<Values, String> {
        let change = attempt(|| (self.0)(object));
        Ok(Box::new(change.unwrap_or_else(|_| {
            Err("index function panicked".into())
        })?))
    }

    fn table(&self) -> Box<dyn Table> {
        Box::new(ValueTable::<V>(HashMap::new()))
    }
}

/// Table of values. `Arc`, so that a larger copy can share the values.
pub(super) struct ValueTable<V>(HashMap<Arc<V>, Postings>);

impl<V: Hash + Eq> ValueTable<V> {
    pub(super) fn get(&self, value: &V) -> Postings {
        self.0.get(value).cloned().unwrap_or_default()
    }
}

impl<V: Hash + Eq + Send + Sync + 'static> Table for ValueTable<V> {
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
            // A value that panics now could not be found any more either.
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
                if postings.is_empty() {
                    self.0.remove_entry(&values[at])
                } else {
                    None
                }
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

/// Number of an index, and the type of its values.
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

/// Lookup of one value in an index.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    number: usize,
    value: &'a dyn Any,
    find: fn(&dyn Any, &dyn Any) -> Option<Postings>,
}

impl Lookup<'_> {
    pub(super) fn find(&self, tables: &[Option<Box<dyn Table>>]) -> Postings {
        let table = tables[self.number].as_ref().map(|table| table.as_any());
        table
            .and_then(|table| (self.find)(table, self.value))
            .unwrap_or_default()
    }
}

impl<V: Hash + Eq + Send + Sync + 'static> IndexId<V> {
    /// Creates the ID of an index. With another type of values, lookups find nothing.
    pub(crate) fn new(number: usize) -> Self {
        Self {
            number,
            value: PhantomData,
        }
    }

    pub(crate) fn of(self, value: &V) -> Lookup<'_> {
        let find = |table: &dyn Any, value: &dyn Any| {
            Some(
                table
                    .downcast_ref::<ValueTable<V>>()?
                    .get(value.downcast_ref()?),
            )
        };
        Lookup {
            number: self.number,
            value,
            find,
        }
    }
}

/// Index values of an object before and after a change.
pub(super) struct IndexChange<'a> {
    values: Vec<(usize, Option<Values>, Option<Values>)>,
    panics: Panics,
    errors: &'a ErrorCount<String>,
}

impl<'a> IndexChange<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(super) fn of<P>(
        indexers: &[Option<SharedIndexer<P>>],
        old: Option<&Arc<P>>,
        new: Option<&Arc<P>>,
        errors: &'a ErrorCount<String>,
    ) -> Self {
        let indexers = indexers
            .iter()
            .enumerate()
            .filter_map(|(number, indexer)| Some((number, indexer.as_ref()?)));
        let change = indexers.map(|(number, indexer)| {
            let old = old.and_then(|old| indexer.values(old).ok());
            let new = new.and_then(|new| {
                indexer
                    .values(new)
                    .map_err(|error| errors.record(error))
                    .ok()
            });
            (number, old, new)
        });
        Self {
            values: change.collect(),
            panics: Vec::new(),
            errors,
        }
    }

    /// Returns larger copies of the tables that have no room for the values, by number.
    pub(super) fn grown(&self, tables: &[Option<Box<dyn Table>>]) -> Vec<(usize, Box<dyn Table>)> {
        let grown = |(number, _, new): &(usize, _, Option<Values>)| {
            Some((*number, tables[*number].as_ref()?.grown(new.as_ref()?)?))
        };
        self.values.iter().filter_map(grown).collect()
    }

    /// Updates the tables. The caller frees `self` after the lock is released.
    pub(super) fn update(&mut self, slot: Slot, tables: &mut [Option<Box<dyn Table>>]) {
        for (number, old, new) in &mut self.values {
            let Some(table) = &mut tables[*number] else {
                continue;
            };
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
                    self.errors.record(PANICKED.into());
                }
                self.panics.extend(panics);
            }
        }
    }
}

fn vec<V: 'static>(values: &mut Values) -> &mut Vec<V> {
    values
        .downcast_mut()
        .expect("a table gets the values of its own indexer")
}
