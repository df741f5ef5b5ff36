//! Cache whose entries expire, with a limit of entries.

use hashbrown::HashMap;
use parking_lot::Mutex;
use std::{hash::Hash, time::Duration};
use tokio::time::Instant;

/// Cache of recent results.
///
/// Invariant: `get` returns no expired entry, and there are never more than `max_entries` entries.
pub(super) struct ExpiringCache<K, V> {
    max_entries: usize,
    known: Mutex<HashMap<K, (V, Instant)>>,
}

impl<K: Hash + Eq + Clone, V: Clone> ExpiringCache<K, V> {
    pub(super) fn new(max_entries: usize) -> Self {
        Self {
            max_entries,
            known: Mutex::default(),
        }
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        let known = self.known.lock();
        let (value, until) = known.get(key)?;
        (Instant::now() < *until).then(|| value.clone())
    }

    pub(super) fn put(&self, key: K, value: V, time: Duration) {
        let now = Instant::now();
        let mut known = self.known.lock();
        if known.len() >= self.max_entries && !known.contains_key(&key) {
            known.retain(|_, (_, until)| now < *until);
            while known.len() >= self.max_entries {
                let first = known
                    .iter()
                    .min_by_key(|(_, (_, until))| *until)
                    .map(|(key, _)| key.clone());
                let Some(first) = first else { break };
                known.remove(&first);
            }
        }
        known.insert(key, (value, now + time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn entries_expire_and_the_first_to_expire_is_evicted() {
        let memory = ExpiringCache::new(2);
        memory.put("a", 1, Duration::from_secs(10));
        memory.put("b", 2, Duration::from_secs(5));
        memory.put("b", 3, Duration::from_secs(6));
        assert_eq!((memory.get(&"a"), memory.get(&"b")), (Some(1), Some(3)));
        memory.put("c", 4, Duration::from_secs(20));
        assert_eq!(
            (memory.get(&"a"), memory.get(&"b"), memory.get(&"c")),
            (Some(1), None, Some(4))
        );
        advance(Duration::from_secs(10)).await;
        assert_eq!((memory.get(&"a"), memory.get(&"c")), (None, Some(4)));
        memory.put("d", 5, Duration::from_secs(1));
        assert_eq!((memory.get(&"c"), memory.get(&"d")), (Some(4), Some(5)));
    }
}
