//! Looking at a table, now or as it was.

use super::{Expired, Table};
use crate::object::Object;
use std::{cmp::Ordering, collections::BTreeMap, iter, ops::Bound, sync::Arc};

/// Objects in key order, as of a revision.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<Arc<Object>>,
    /// How many more there are.
    pub(crate) remaining: usize,
}

/// Which objects of a table to scan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Range<'a> {
    /// Only this namespace; empty for all.
    pub(crate) namespace: &'a str,
    /// Only keys from this one on.
    pub(crate) from: &'a str,
    /// At most so many.
    pub(crate) limit: Option<usize>,
}

impl Table {
    /// The objects in a range, as of a revision.
    pub(super) fn scan(&self, range: Range<'_>, at: u64) -> Result<Scan, Expired> {
        let floor = self.changes.floor;
        if at < floor {
            return Err(Expired { floor });
        }
        // What the objects changed since then were: undo the later changes, the last one first.
        let mut past: BTreeMap<&str, Option<&Arc<Object>>> = BTreeMap::new();
        for change in self.changes.list.iter().rev().take_while(|change| change.revision > at) {
            past.insert(change.key().as_str(), change.before.as_ref());
        }
        let prefix = if range.namespace.is_empty() { String::new() } else { format!("{}/", range.namespace) };
        // The first text after all that begin with the prefix: "0" comes after "/".
        let end = if range.namespace.is_empty() { String::new() } else { format!("{}0", range.namespace) };
        let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end.as_str()) };
        let start = range.from.max(prefix.as_str());
        if matches!(end, Bound::Excluded(end) if start >= end) {
            return Ok(Scan { revision: at, objects: Vec::new(), remaining: 0 });
        }
        let bounds = (Bound::Included(start), end);
        let limit = range.limit.unwrap_or(usize::MAX);
        let present = self.objects.range::<str, _>(bounds);
        let (objects, remaining) = if past.is_empty() {
            take(present.map(|(_, object)| object), limit)
        } else {
            let past = past.range::<str, _>(bounds).map(|(key, object)| (*key, *object));
            take(merged(present.map(|(key, object)| (key.as_str(), object)), past), limit)
        };
        Ok(Scan { revision: at, objects, remaining })
    }
}

/// The first `limit` objects, and how many more there are: those are counted without being looked at.
fn take<'a>(mut objects: impl Iterator<Item = &'a Arc<Object>>, limit: usize) -> (Vec<Arc<Object>>, usize) {
    (objects.by_ref().take(limit).cloned().collect(), objects.count())
}

/// What is present, but where the past is known, what was: both in the order of their keys. Keys are looked at only as long as there is
/// a past, so that counting what comes after it is quick.
fn merged<'a>(
    present: impl Iterator<Item = (&'a str, &'a Arc<Object>)>,
    past: impl Iterator<Item = (&'a str, Option<&'a Arc<Object>>)>,
) -> impl Iterator<Item = &'a Arc<Object>> {
    let (mut present, mut past) = (present.peekable(), past.peekable());
    iter::from_fn(move || {
        loop {
            let order = match (present.peek(), past.peek()) {
                (_, None) => return present.next().map(|(_, object)| object),
                (None, Some(_)) => Ordering::Greater,
                (Some((now, _)), Some((then, _))) => now.cmp(then),
            };
            if order.is_lt() {
                return present.next().map(|(_, object)| object);
            }
            if order.is_eq() {
                present.next();
            }
            if let Some((_, Some(object))) = past.next() {
                return Some(object);
            }
        }
    })
}
