//! Objects by what a function says of them: several values each, or none.
//!
//! In two halves, because the function is the user's and must not run under the store's lock: an [`Indexer`] asks it, a [`Table`] keeps what
//! it said. The function has to say the same of the same object each time: what it said when an object came is taken back when it goes.

use super::{
    SharedIndexer,
    postings::{Postings, Slot},
};
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

/// Asks the user's function.
pub(crate) trait Indexer<O>: Send + Sync {
    fn values(&self, object: &O) -> Values;
    /// For what this one says, and nothing in it yet.
    fn table(&self) -> Box<dyn Table>;
}

/// Slots by value.
pub(crate) trait Table: Send + Sync {
    fn insert(&mut self, slot: Slot, values: Values);
    fn remove(&mut self, slot: Slot, values: Values);
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
    F: Fn(&O) -> Vec<V> + Send + Sync,
    V: Hash + Eq + Send + Sync + 'static,
{
    /// A function that panics says nothing of that object.
    fn values(&self, object: &O) -> Values {
        let said = catch_unwind(AssertUnwindSafe(|| (self.0)(object)));
        Box::new(said.unwrap_or_default())
    }

    fn table(&self) -> Box<dyn Table> {
        Box::new(ByValue::<V>(HashMap::new()))
    }
}

pub(super) struct ByValue<V>(HashMap<V, Postings>);

impl<V: Hash + Eq> ByValue<V> {
    pub(super) fn get(&self, value: &V) -> Postings {
        self.0.get(value).cloned().unwrap_or_default()
    }
}

impl<V: Hash + Eq + Send + Sync + 'static> Table for ByValue<V> {
    fn insert(&mut self, slot: Slot, values: Values) {
        for value in vec::<V>(values) {
            self.0.entry(value).or_default().insert(slot);
        }
    }

    fn remove(&mut self, slot: Slot, values: Values) {
        for value in vec::<V>(values) {
            let hashbrown::hash_map::Entry::Occupied(mut found) = self.0.entry(value) else { continue };
            found.get_mut().remove(slot);
            if found.get().is_empty() {
                found.remove();
            }
        }
    }

    fn is_same(&self, a: &Values, b: &Values) -> bool {
        a.downcast_ref::<Vec<V>>() == b.downcast_ref::<Vec<V>>()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What the indexes say of an object that comes, goes or changes.
pub(super) struct Said(Vec<(usize, Option<Values>, Option<Values>)>);

impl Said {
    pub(super) fn of<P>(indexers: &[Option<SharedIndexer<P>>], old: Option<&Arc<P>>, new: Option<&Arc<P>>) -> Self {
        let indexers = indexers.iter().enumerate().filter_map(|(number, indexer)| Some((number, indexer.as_ref()?)));
        let said = indexers.map(|(number, indexer)| {
            let [old, new] = [old, new].map(|object| object.map(|object| indexer.values(object)));
            (number, old, new)
        });
        Self(said.collect())
    }

    pub(super) fn update(self, slot: Slot, tables: &mut [Option<Box<dyn Table>>]) {
        for (number, old, new) in self.0 {
            let Some(table) = &mut tables[number] else { continue };
            if let (Some(old), Some(new)) = (&old, &new)
                && table.is_same(old, new)
            {
                continue;
            }
            if let Some(old) = old {
                table.remove(slot, old);
            }
            if let Some(new) = new {
                table.insert(slot, new);
            }
        }
    }
}

fn vec<V: 'static>(values: Values) -> Vec<V> {
    *values.downcast().expect("a table gets the values of its own indexer")
}
