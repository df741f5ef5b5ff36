//! The keys that a worker may take now, and whose turn it is.
//!
//! Invariant: exactly the keys that wait for a worker and do not run are here, each in the list of its priority, in the order
//! in which they became ready.
//!
//! # Whose turn
//! The highest priority first, and inside a priority first come, first served. So that lower priorities do not starve, every
//! `share`-th turn goes to the key that has been ready longest among those *below the highest priority served since the last
//! such turn*. With `share = 0` there is no such turn.
//!
//! The bound: **a key is handed out at most `share × (older + 2)` turns after it joined its line**, by becoming ready or by being
//! raised, `older` being the number of keys in line before it, whatever is added later and however high. A key that is raised
//! again and again joins anew each time. For: take any stretch of `share` turns, the last
//! of them such a turn, through which the key waits; the first, incomplete, stretch is where the 2 comes from. If the key is
//! below the highest priority served in it, that last turn goes to a key at least as old. If not, every other turn served
//! the key's own priority, in order. Either way each stretch serves the key or an older one.

use super::{list::List, slots::Slots};

/// Priorities without keys are kept to save looking for them again, up to this many.
const KEEP_EMPTY: usize = 64;

/// Written by everybody: on a line of the caches of its own, as other parts of the state are.
#[repr(align(64))]
pub(super) struct Ready {
    /// Highest first.
    levels: Vec<Level>,
    /// No key is in a level before this one.
    top: usize,
    len: usize,
    /// The level used last, if it is still there: most keys have the priority of the one before.
    recent: usize,
    /// What the next key gets as its `place`; may wrap, so ages are compared, not places.
    next_place: u32,
    share: u32,
    /// Turns since the last one that went to the oldest, and the highest priority served in them.
    turns: u32,
    served: i32,
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
    /// A share of 1 would leave the highest priority nothing; it means 2.
    pub(super) fn new(share: u32) -> Self {
        let share = if share == 1 { 2 } else { share };
        Self { levels: Vec::new(), top: 0, len: 0, recent: 0, next_place: 0, share, turns: 0, served: i32::MIN }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Behind all keys of the slot's priority.
    #[inline(always)]
    pub(super) fn push<K: Eq>(&mut self, slots: &mut Slots<K>, at: u32) {
        let slot = &mut slots[at];
        slot.place = self.next_place;
        self.next_place = self.next_place.wrapping_add(1);
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

    /// The key whose turn it is.
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
            self.turns += 1;
            if self.turns >= self.share {
                index = self.passed_over(slots).unwrap_or(index);
                (self.turns, self.served) = (0, i32::MIN);
            } else {
                self.served = self.served.max(self.levels[index].priority);
            }
        }
        let level = &mut self.levels[index];
        let at = level.list.pop_front(slots)?;
        level.len -= 1;
        self.len -= 1;
        Some(at)
    }

    /// The level of the oldest key below all that was served lately.
    fn passed_over<K: Eq>(&self, slots: &Slots<K>) -> Option<usize> {
        let below = self.levels.partition_point(|level| level.priority >= self.served);
        (below.max(self.top)..self.levels.len())
            .filter_map(|index| self.levels[index].oldest().map(|at| (index, at)))
            .max_by_key(|&(_, at)| self.next_place.wrapping_sub(slots[at].place))
            .map(|(index, _)| index)
    }

    #[inline]
    fn index_of(&mut self, priority: i32) -> usize {
        if self.levels.get(self.recent).is_none_or(|level| level.priority != priority) {
            self.recent = self.look_for(priority);
        }
        self.recent
    }

    fn look_for(&mut self, priority: i32) -> usize {
        match self.levels.binary_search_by(|level| priority.cmp(&level.priority)) {
            Ok(index) => index,
            Err(_) => self.insert(priority),
        }
    }

    #[cold]
    fn insert(&mut self, priority: i32) -> usize {
        if self.levels.len() >= KEEP_EMPTY {
            self.levels.retain(|level| level.len > 0);
        }
        let index = self.levels.partition_point(|level| level.priority > priority);
        self.levels.insert(index, Level { priority, len: 0, list: List::EMPTY });
        self.top = 0;
        index
    }
}
