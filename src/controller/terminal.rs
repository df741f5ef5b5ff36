//! Last terminal errors by request, for `/debug/queues`.
//!
//! The queue forgets a request that is not retried, so nothing else shows why its object is not
//! reconciled. An entry stays until the request is reconciled with another result, or until
//! [`MAX_TERMINAL`] newer ones replace it.

use crate::workqueue::{Key, serialize_seconds};
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::Instant;

/// Terminal errors kept per controller.
const MAX_TERMINAL: usize = 100;

/// A request whose last reconcile ended with a terminal error.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TerminalOutcome {
    /// Request, as text.
    pub key: String,
    /// Error with its causes.
    pub error: Arc<str>,
    /// Attempt that ended with the error.
    pub attempt: u32,
    /// Time since the reconcile ended. Serialized in seconds.
    #[serde(serialize_with = "serialize_seconds")]
    pub ended_ago: Duration,
}

pub(super) struct TerminalOutcomes<R> {
    kept: Mutex<Kept<R>>,
    /// Number of entries, to skip the lock while there are none.
    len: AtomicUsize,
}

struct Kept<R> {
    by_key: HashMap<R, u64>,
    /// Oldest first.
    entries: BTreeMap<u64, Entry<R>>,
    last_id: u64,
}

struct Entry<R> {
    key: R,
    error: Arc<str>,
    attempt: u32,
    ended: Instant,
}

impl<R> Default for TerminalOutcomes<R> {
    fn default() -> Self {
        let kept = Kept {
            by_key: HashMap::new(),
            entries: BTreeMap::new(),
            last_id: 0,
        };
        Self {
            kept: Mutex::new(kept),
            len: AtomicUsize::new(0),
        }
    }
}

impl<R: Key> TerminalOutcomes<R> {
    pub(super) fn insert(&self, key: &R, error: Arc<str>, attempt: u32) {
        let mut kept = self.kept.lock();
        kept.last_id += 1;
        let id = kept.last_id;
        if let Some(previous) = kept.by_key.insert(key.clone(), id) {
            kept.entries.remove(&previous);
        }
        kept.entries.insert(
            id,
            Entry {
                key: key.clone(),
                error,
                attempt,
                ended: Instant::now(),
            },
        );
        if kept.entries.len() > MAX_TERMINAL
            && let Some((_, oldest)) = kept.entries.pop_first()
        {
            kept.by_key.remove(&oldest.key);
        }
        self.len.store(kept.entries.len(), Relaxed);
    }

    /// Removes the entry of a request that was reconciled with another result.
    #[inline]
    pub(super) fn remove(&self, key: &R) {
        if self.len.load(Relaxed) == 0 {
            return;
        }
        let mut kept = self.kept.lock();
        if let Some(id) = kept.by_key.remove(key) {
            kept.entries.remove(&id);
        }
        self.len.store(kept.entries.len(), Relaxed);
    }

    /// Returns the entries, newest first.
    pub(super) fn report(&self) -> Vec<TerminalOutcome> {
        let report = |entry: &Entry<R>| TerminalOutcome {
            key: format!("{:?}", entry.key),
            error: entry.error.clone(),
            attempt: entry.attempt,
            ended_ago: entry.ended.elapsed(),
        };
        self.kept
            .lock()
            .entries
            .values()
            .rev()
            .map(report)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_outcomes_keep_the_last_hundred_requests() {
        let outcomes = TerminalOutcomes::default();
        for key in 0..=MAX_TERMINAL {
            outcomes.insert(&key, "no".into(), 1);
        }
        outcomes.insert(&1, "again".into(), 2);
        outcomes.remove(&2);
        outcomes.remove(&0);
        let report = outcomes.report();
        assert_eq!(report.len(), MAX_TERMINAL - 1);
        assert_eq!(
            (&*report[0].key, &*report[0].error, report[0].attempt),
            ("1", "again", 2)
        );
        assert_eq!(report.last().map(|oldest| &*oldest.key), Some("3"));
    }
}
