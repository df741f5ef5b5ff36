//! Map whose entries expire, and whose size is bounded.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    time::Duration,
};
use tokio::time::Instant;

/// Map whose entries expire after a fixed time. If it is full, the oldest entry is removed.
#[derive(Debug)]
pub(super) struct TtlMap<K, V> {
    ttl: Duration,
    capacity: usize,
    entries: HashMap<K, Entry<V>>,
    /// Keys in the order of insertion, in which they also expire.
    order: BTreeMap<u64, K>,
    next: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    /// `None`: the entry never expires, because its lifetime exceeds the range of the clock.
    expires: Option<Instant>,
    position: u64,
}

impl<V> Entry<V> {
    fn is_expired(&self, now: Instant) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

impl<K: Clone + Eq + Hash, V> TtlMap<K, V> {
    pub(super) fn new(ttl: Duration, capacity: usize) -> Self {
        Self {
            ttl,
            capacity: capacity.max(1),
            entries: HashMap::new(),
            order: BTreeMap::new(),
            next: 0,
        }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        let entry = self.entries.get(key)?;
        (!entry.is_expired(Instant::now())).then_some(&entry.value)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        self.remove(&key);
        self.remove_expired();
        while self.entries.len() >= self.capacity
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.order.insert(self.next, key.clone());
        let entry = Entry {
            value,
            expires: Instant::now().checked_add(self.ttl),
            position: self.next,
        };
        self.entries.insert(key, entry);
        self.next += 1;
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.position);
        }
    }

    pub(super) fn len(&self) -> usize {
        let now = Instant::now();
        let live = self.entries.values().filter(|entry| !entry.is_expired(now));
        live.count()
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
    }

    fn remove_expired(&mut self) {
        let now = Instant::now();
        while let Some(oldest) = self.order.first_entry()
            && self
                .entries
                .get(oldest.get())
                .is_none_or(|entry| entry.is_expired(now))
        {
            self.entries.remove(&oldest.remove());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn entries_expire() {
        let mut map = TtlMap::new(Duration::from_secs(10), 10);
        map.insert("a", 1);
        advance(Duration::from_secs(6)).await;
        map.insert("b", 2);
        assert_eq!(
            (map.get(&"a"), map.get(&"b"), map.len()),
            (Some(&1), Some(&2), 2)
        );
        advance(Duration::from_secs(4)).await;
        assert_eq!(
            (map.get(&"a"), map.get(&"b"), map.len()),
            (None, Some(&2), 1)
        );
        map.insert("c", 3);
        assert_eq!(map.entries.len(), 2, "expired entries are freed");
    }

    #[tokio::test(start_paused = true)]
    async fn entries_with_an_unlimited_lifetime_stay() {
        let mut map = TtlMap::new(Duration::MAX, 10);
        map.insert("a", 1);
        advance(Duration::from_hours(24)).await;
        map.insert("b", 2);
        assert_eq!((map.get(&"a"), map.len()), (Some(&1), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_map_removes_its_oldest_entry() {
        let mut map = TtlMap::new(Duration::from_secs(10), 2);
        map.insert("a", 1);
        map.insert("b", 2);
        map.insert("a", 3);
        map.insert("c", 4);
        assert_eq!(
            (map.get(&"a"), map.get(&"b"), map.get(&"c")),
            (Some(&3), None, Some(&4))
        );
        assert_eq!(map.order.len(), 2);
    }
}
