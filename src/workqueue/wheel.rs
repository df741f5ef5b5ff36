//! Delayed keys in a hierarchical timing wheel. All operations take constant time.
//!
//! Invariant: a key is in the bucket that `ready_at` and `now` determine, see [`Wheel::bucket_of`],
//! so its position need not be stored. Times are nanoseconds. A bucket of the lowest level spans
//! one tick, and one of each further level 64 times more. When `now` enters a bucket of a higher
//! level, its keys move down.

use super::{linked_list::List, slots::Slots};

/// A tick is 2^12 ns, about 4 µs.
///
/// The bucket of the current tick is scanned whenever one of its keys is due, so it should have few
/// keys. Timers have a resolution of 1 ms, but keys are added and taken in between.
const TICK_BITS: u32 = 12;
const LEVEL_BITS: u32 = 6;
/// Sufficient for every 64-bit time.
const LEVELS: usize = (u64::BITS - TICK_BITS).div_ceil(LEVEL_BITS) as usize;
const BUCKETS: usize = 1 << LEVEL_BITS;

pub(super) struct Wheel {
    /// Tick up to which keys have expired.
    now: u64,
    /// Lower bound of the first due time; `u64::MAX` if no key is delayed.
    next_due: u64,
    levels: [Level; LEVELS],
    due: Vec<(u64, u32)>,
}

struct Level {
    /// One bit per bucket that has keys.
    occupied: u64,
    buckets: Box<[Bucket; BUCKETS]>,
}

#[derive(Clone, Copy)]
struct Bucket {
    list: List,
    /// Lower bound of the due times. Removing keys does not raise it.
    earliest: u64,
}

impl Bucket {
    const EMPTY: Self = Self {
        list: List::EMPTY,
        earliest: u64::MAX,
    };
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self {
            now: 0,
            next_due: u64::MAX,
            levels: std::array::from_fn(|_| Level {
                occupied: 0,
                buckets: Box::new([Bucket::EMPTY; BUCKETS]),
            }),
            due: Vec::new(),
        }
    }

    /// Returns a lower bound of the first due time, if keys are delayed.
    #[inline]
    pub(super) fn next_due(&self) -> Option<u64> {
        (self.next_due != u64::MAX).then_some(self.next_due)
    }

    fn update_next_due(&mut self) {
        self.next_due = self
            .levels
            .iter()
            .find(|level| level.occupied != 0)
            .map_or(u64::MAX, |level| {
                level.buckets[level.occupied.trailing_zeros() as usize].earliest
            });
    }

    /// Adds a key with its `ready_at`, which is below `u64::MAX`.
    pub(super) fn push<K: Eq>(&mut self, slots: &mut Slots<K>, at: u32) {
        let ready_at = slots[at].ready_at;
        let (level, index) = self.bucket_of(ready_at);
        let level = &mut self.levels[level];
        level.occupied |= 1 << index;
        let bucket = &mut level.buckets[index];
        bucket.list.push_back(slots, at);
        bucket.earliest = bucket.earliest.min(ready_at);
        self.next_due = self.next_due.min(ready_at);
    }

    /// Removes a key, whose `ready_at` must not have changed since `push`.
    pub(super) fn remove<K: Eq>(&mut self, slots: &mut Slots<K>, at: u32) {
        let (level, index) = self.bucket_of(slots[at].ready_at);
        let level = &mut self.levels[level];
        level.buckets[index].list.unlink(slots, at);
        level.clear_if_empty(index);
        self.update_next_due();
    }

    /// Advances to `now` and calls `each` for the due keys.
    ///
    /// The keys are ordered by time, then by the order of adding.
    pub(super) fn expire<K: Eq>(
        &mut self,
        slots: &mut Slots<K>,
        now: u64,
        mut each: impl FnMut(&mut Slots<K>, u32),
    ) {
        // The clock may go back. Due keys that were added since are then in the current bucket.
        let target = (now >> TICK_BITS).max(self.now);
        let mut due = std::mem::take(&mut self.due);
        while let Some((level, index, start)) = self.first_bucket(target) {
            self.now = start;
            let bucket = self.levels[level].take(index);
            let mut list = bucket.list;
            while let Some(at) = list.pop_front(slots) {
                let ready_at = slots[at].ready_at;
                if ready_at <= now {
                    due.push((ready_at, at));
                } else {
                    self.push(slots, at);
                }
            }
            due.sort_by_key(|&(ready_at, _)| ready_at);
            for (_, at) in due.drain(..) {
                each(slots, at);
            }
            if start == target && level == 0 {
                break;
            }
        }
        self.now = target;
        self.due = due;
        self.update_next_due();
    }

    /// Returns the first bucket with keys, if it starts by `target`.
    ///
    /// Its keys are due before all others.
    fn first_bucket(&self, target: u64) -> Option<(usize, usize, u64)> {
        let (level, occupied) = self
            .levels
            .iter()
            .map(|level| level.occupied)
            .enumerate()
            .find(|&(_, o)| o != 0)?;
        let index = occupied.trailing_zeros();
        let shift = LEVEL_BITS * level as u32;
        let above = self.now >> (shift + LEVEL_BITS);
        let start = ((above << LEVEL_BITS) | u64::from(index)) << shift;
        (start <= target).then_some((level, index as usize, start))
    }

    /// Returns the level and bucket of a time.
    ///
    /// The level is that of the highest base-64 digit in which its tick differs from `now`. The
    /// bucket is that digit.
    fn bucket_of(&self, ready_at: u64) -> (usize, usize) {
        let tick = (ready_at >> TICK_BITS).max(self.now);
        let differ = (tick ^ self.now) | 1;
        let level = differ.ilog2() / LEVEL_BITS;
        (
            level as usize,
            (tick >> (level * LEVEL_BITS)) as usize % BUCKETS,
        )
    }
}

impl Level {
    fn take(&mut self, index: usize) -> Bucket {
        self.occupied &= !(1 << index);
        std::mem::replace(&mut self.buckets[index], Bucket::EMPTY)
    }

    fn clear_if_empty(&mut self, index: usize) {
        if self.buckets[index].list.is_empty() {
            self.take(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workqueue::slot_table::KeyHash;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        /// Adds this key with a delay.
        Push(u32, u64),
        Remove(u32),
        /// Advances the clock.
        Advance(u64),
        /// Moves the clock back.
        Back(u64),
    }

    /// Generates times of every magnitude, so that every level of the wheel is used.
    fn nanos() -> impl Strategy<Value = u64> {
        (0..60u32, any::<u64>()).prop_map(|(bits, random)| random & ((1 << bits) - 1))
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..24u32, nanos()).prop_map(|(key, after)| Step::Push(key, after)),
            1 => (0..24u32).prop_map(Step::Remove),
            2 => nanos().prop_map(Step::Advance),
            1 => nanos().prop_map(Step::Back),
        ];
        prop::collection::vec(step, 0..120)
    }

    steersman_testkit::properties! {
        #[test]
        fn keys_expire_in_the_order_of_their_times_and_never_early(steps in steps()) {
            let (mut slots, mut wheel) = (Slots::new(), Wheel::new());
            let ids: Vec<u32> = (0..24u32).map(|key| slots.find_or_insert(KeyHash::fold(key.into()), &mut Some(key))).collect();
            // Model: delayed keys in the order of adding.
            let mut waiting: Vec<(u64, u32)> = Vec::new();
            let mut now = 0u64;
            for step in steps {
                match step {
                    Step::Push(key, after) => {
                        let id = ids[key as usize];
                        if waiting.iter().all(|&(_, other)| other != id) {
                            let at = now.saturating_add(after).min(u64::MAX - 1);
                            slots[id].ready_at = at;
                            wheel.push(&mut slots, id);
                            waiting.push((at, id));
                        }
                    }
                    Step::Remove(key) => {
                        let id = ids[key as usize];
                        if waiting.iter().any(|&(_, other)| other == id) {
                            wheel.remove(&mut slots, id);
                            waiting.retain(|&(_, other)| other != id);
                        }
                    }
                    Step::Advance(_) | Step::Back(_) => {
                        now = match step {
                            Step::Back(by) => now.saturating_sub(by),
                            Step::Advance(by) => now.saturating_add(by).min(u64::MAX - 1),
                            Step::Push(..) | Step::Remove(_) => now,
                        };
                        let mut due: Vec<_> = waiting.extract_if(.., |(at, _)| *at <= now).collect();
                        due.sort_by_key(|&(at, _)| at);
                        let mut expired = Vec::new();
                        wheel.expire(&mut slots, now, |slots, at| expired.push((slots[at].ready_at, at)));
                        prop_assert_eq!(expired, due);
                        prop_assert!(wheel.next_due().is_none_or(|due| due > now), "the next due time is in the past");
                    }
                }
                let first = waiting.iter().map(|&(at, _)| at).min();
                prop_assert_eq!(wheel.next_due().is_some(), first.is_some());
                prop_assert!(wheel.next_due() <= first, "{:?} is later than {:?}", wheel.next_due(), first);
            }
        }
    }

    #[test]
    fn a_clock_that_goes_back_delays_no_key() {
        let (mut slots, mut wheel) = (Slots::new(), Wheel::new());
        let at = slots.find_or_insert(KeyHash::fold(1), &mut Some("key"));
        wheel.expire(&mut slots, 5_000_000_000, |_, _| {});
        slots[at].ready_at = 1_000_000_000;
        wheel.push(&mut slots, at);
        let mut expired = Vec::new();
        wheel.expire(&mut slots, 999_999_999, |_, at| expired.push(at));
        assert_eq!((expired.len(), wheel.next_due()), (0, Some(1_000_000_000)));
        wheel.expire(&mut slots, 1_000_000_000, |_, at| expired.push(at));
        assert_eq!((expired, wheel.next_due()), (vec![at], None));
    }
}
