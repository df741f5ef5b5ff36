//! Ready keys, and the order in which they are handed out.
//!
//! Invariant: the lists contain exactly the keys that wait for a worker and that no worker has,
//! each in the list of its priority, in the order in which they became ready.
//!
//! # Order
//!
//! The highest priority is first, and keys of one priority are served in order. So that lower
//! priorities do not starve, every `share`-th key is instead the one that has been ready longest
//! among those *below the highest priority served since the last such key*. `share = 0` disables
//! this.
//!
//! Bound: **a key is handed out within `share × (older + 2)` keys after it was queued**, by
//! becoming ready or by being raised, where `older` is the number of keys queued before it. Later
//! adds do not matter, whatever their priority. Raising a key queues it again.
//!
//! Proof: take any interval of `share` keys that ends with such an exception, and through which the
//! key waits. If the key is below the highest priority served in it, the exception serves a key
//! that is at least as old. If not, all others served the key's own priority, in order. Either way
//! each interval serves the key or an older one. The first, incomplete interval adds the 2.

use super::{linked_list::List, slots::Slots};

/// Maximum of levels before empty ones are removed. They are kept to save insertions.
const MAX_LEVELS: usize = 64;

/// Padded to its own cache line, because every operation writes it.
#[repr(align(64))]
pub(super) struct Ready {
    /// Levels, highest priority first.
    levels: Vec<Level>,
    /// Index below which all levels are empty.
    top: usize,
    len: usize,
    /// Index of the level used last: most keys have the priority of the previous one.
    recent: usize,
    /// `position` of the next key. It may wrap, so ages are compared instead of positions.
    next_position: u32,
    share: u32,
    /// Keys since the last exception, and the highest priority among them.
    since_exception: u32,
    highest_served: i32,
}

#[derive(Clone, Copy)]
pub(super) struct Level {
    pub(super) priority: i32,
    pub(super) len: usize,
    list: List,
}

impl Level {
    pub(super) fn oldest(&self) -> Option<u32> {
        self.list.front()
    }
}

impl Ready {
    /// Creates the lists. A share of 1 counts as 2, because it would disable priorities.
    pub(super) fn new(share: u32) -> Self {
        let share = if share == 1 { 2 } else { share };
        Self {
            levels: Vec::new(),
            top: 0,
            len: 0,
            recent: 0,
            next_position: 0,
            share,
            since_exception: 0,
            highest_served: i32::MIN,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Appends a key to the list of its priority.
    #[inline(always)]
    pub(super) fn push<K: Eq>(&mut self, slots: &mut Slots<K>, at: u32) {
        let slot = &mut slots[at];
        slot.position = self.next_position;
        self.next_position = self.next_position.wrapping_add(1);
        let index = self.index_of(slot.priority);
        let level = &mut self.levels[index];
        level.list.push_back(slots, at);
        level.len += 1;
        self.len += 1;
        self.top = self.top.min(index);
    }

    pub(super) fn remove<K: Eq>(&mut self, slots: &mut Slots<K>, at: u32) {
        let index = self.index_of(slots[at].priority);
        let level = &mut self.levels[index];
        level.list.unlink(slots, at);
        level.len -= 1;
        self.len -= 1;
    }

    /// Removes the next key.
    #[inline(always)]
    pub(super) fn pop<K: Eq>(&mut self, slots: &mut Slots<K>) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        while self.levels[self.top].list.is_empty() {
            self.top += 1;
        }
        let mut index = self.top;
        if self.share != 0 {
            self.since_exception += 1;
            if self.since_exception >= self.share {
                index = self.oldest_overtaken(slots).unwrap_or(index);
                (self.since_exception, self.highest_served) = (0, i32::MIN);
            } else {
                self.highest_served = self.highest_served.max(self.levels[index].priority);
            }
        }
        let level = &mut self.levels[index];
        let at = level.list.pop_front(slots)?;
        level.len -= 1;
        self.len -= 1;
        Some(at)
    }

    /// Returns the level of the oldest key that higher priorities have overtaken.
    fn oldest_overtaken<K: Eq>(&self, slots: &Slots<K>) -> Option<usize> {
        let below = self
            .levels
            .partition_point(|level| level.priority >= self.highest_served);
        (below.max(self.top)..self.levels.len())
            .filter_map(|index| self.levels[index].oldest().map(|at| (index, at)))
            .max_by_key(|&(_, at)| self.next_position.wrapping_sub(slots[at].position))
            .map(|(index, _)| index)
    }

    #[inline]
    fn index_of(&mut self, priority: i32) -> usize {
        if self
            .levels
            .get(self.recent)
            .is_none_or(|level| level.priority != priority)
        {
            self.recent = self.find_level(priority);
        }
        self.recent
    }

    fn find_level(&mut self, priority: i32) -> usize {
        match self
            .levels
            .binary_search_by(|level| priority.cmp(&level.priority))
        {
            Ok(index) => index,
            Err(_) => self.insert(priority),
        }
    }

    #[cold]
    fn insert(&mut self, priority: i32) -> usize {
        if self.levels.len() >= MAX_LEVELS {
            self.levels.retain(|level| level.len > 0);
        }
        let index = self
            .levels
            .partition_point(|level| level.priority > priority);
        self.levels.insert(
            index,
            Level {
                priority,
                len: 0,
                list: List::EMPTY,
            },
        );
        self.top = 0;
        index
    }
}
