//! Scans of a table, as of now or of an earlier revision.

use super::{Expired, Table};
use crate::object::Object;
use std::{cmp::Ordering, collections::BTreeMap, iter, ops::Bound, sync::Arc};

/// Objects in the order of their keys, as of a revision.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<Arc<Object>>,
    /// Number of objects in the range after `objects`.
    pub(crate) remaining: usize,
}

/// Range of the objects of a table to scan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Range<'a> {
    /// Namespace of the objects. Empty for all.
    pub(crate) namespace: &'a str,
    /// First key.
    pub(crate) from: &'a str,
    /// Maximum number of objects.
    pub(crate) limit: Option<usize>,
}

impl Table {
    /// Returns the objects in `range` as of revision `at`.
    pub(super) fn scan(&self, range: Range<'_>, at: u64) -> Result<Scan, Expired> {
        let floor = self.changes.floor;
        if at < floor {
            return Err(Expired { floor });
        }
        // The earlier state of objects that changed since `at`: undo later changes, the last one
        // first.
        let mut past: BTreeMap<&str, Option<&Arc<Object>>> = BTreeMap::new();
        for change in self
            .changes
            .list
            .iter()
            .rev()
            .take_while(|change| change.revision > at)
        {
            past.insert(change.key().as_str(), change.before.as_ref());
        }
        let prefix = if range.namespace.is_empty() {
            String::new()
        } else {
            format!("{}/", range.namespace)
        };
        // The first string after all that begin with the prefix, since "0" follows "/".
        let end = if range.namespace.is_empty() {
            String::new()
        } else {
            format!("{}0", range.namespace)
        };
        let end = if end.is_empty() {
            Bound::Unbounded
        } else {
            Bound::Excluded(end.as_str())
        };
        let start = range.from.max(prefix.as_str());
        if matches!(end, Bound::Excluded(end) if start >= end) {
            return Ok(Scan {
                revision: at,
                objects: Vec::new(),
                remaining: 0,
            });
        }
        let bounds = (Bound::Included(start), end);
        let limit = range.limit.unwrap_or(usize::MAX);
        let present = self.objects.range::<str, _>(bounds);
        let (objects, remaining) = if past.is_empty() {
            take(present.map(|(_, object)| object), limit)
        } else {
            let past = past
                .range::<str, _>(bounds)
                .map(|(key, object)| (*key, *object));
            take(
                merge(present.map(|(key, object)| (key.as_str(), object)), past),
                limit,
            )
        };
        Ok(Scan {
            revision: at,
            objects,
            remaining,
        })
    }
}

/// Returns the first `limit` objects and the number of further ones, which are counted without
/// being cloned.
fn take<'a>(
    mut objects: impl Iterator<Item = &'a Arc<Object>>,
    limit: usize,
) -> (Vec<Arc<Object>>, usize) {
    (
        objects.by_ref().take(limit).cloned().collect(),
        objects.count(),
    )
}

/// Merges current objects with earlier states, both in the order of their keys. An earlier state
/// wins.
///
/// Keys are compared only until `past` is exhausted, so counting the rest is fast.
fn merge<'a>(
    present: impl Iterator<Item = (&'a str, &'a Arc<Object>)>,
    past: impl Iterator<Item = (&'a str, Option<&'a Arc<Object>>)>,
) -> impl Iterator<Item = &'a Arc<Object>> {
    let mut present = present.peekable();
    let mut past = past.peekable();
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
