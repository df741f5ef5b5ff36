//! One slot per key, holding all that the queue knows of it, and the table that finds a key's slot.
//!
//! Invariant: a key has a slot exactly while it waits, runs, is parked or has failed attempts to remember; the table finds
//! every slot in use, and what else it names is left over, see [`Table`].
//!
//! Slots live in chunks, so that growing to a million keys copies none of them. Room once taken is kept
//! for the next burst until the queue is closed or dropped; keys themselves are dropped as soon as they are done.

use super::{
    list::{Links, NIL, Nodes},
    reasons::ReasonIds,
    table::{KeyHash, Seen, Table},
};
use std::ops::{Index, IndexMut};

/// Whether a worker has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Running {
    No,
    Yes,
    /// Yes, and it was unparked since: parking it now does not last.
    Unparked,
}

/// What a key waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// Nothing: it runs, or is only remembered for its attempts.
    Nothing,
    /// A worker; or, while it runs, the end of that run.
    Worker,
    /// The time `ready_at`.
    Time,
    /// To be unparked, or the time `ready_at`, whichever comes first.
    Unpark,
}

pub(super) struct Slot<K> {
    /// `None` only in slots that are not in use.
    pub(super) key: Option<K>,
    /// When the key was first added since it was last handed out.
    pub(super) added_at: u64,
    /// When it became ready, or will.
    pub(super) ready_at: u64,
    /// When the last backoff ends: a run that was ready before is not the retry that was waited for.
    pub(super) backoff_until: u64,
    links: Links,
    pub(super) hash: KeyHash,
    pub(super) priority: i32,
    /// Rate-limited requeues since the last success.
    pub(super) attempts: u32,
    /// Ready: its turn, see [`Ready`](super::ready::Ready). Running: the number of its run.
    pub(super) place: u32,
    pub(super) reasons: ReasonIds,
    pub(super) pending: Pending,
    pub(super) running: Running,
}

impl<K> Slot<K> {
    const FREE: Self = Self {
        key: None,
        added_at: 0,
        ready_at: 0,
        backoff_until: 0,
        links: Links::UNLINKED,
        hash: KeyHash::ZERO,
        priority: 0,
        attempts: 0,
        place: 0,
        reasons: ReasonIds::EMPTY,
        pending: Pending::Nothing,
        running: Running::No,
    };

    #[inline]
    pub(super) fn is_running(&self) -> bool {
        self.running != Running::No
    }

    /// What it is to a search for this key that has met its number under this hash.
    #[inline]
    fn seen(&self, hash: KeyHash, key: &K) -> Seen
    where
        K: Eq,
    {
        match &self.key {
            Some(other) if self.hash == hash => {
                if other == key {
                    Seen::It
                } else {
                    Seen::Other
                }
            }
            _ => Seen::LeftOver,
        }
    }

    /// Nothing is left to remember.
    fn is_idle(&self) -> bool {
        self.pending == Pending::Nothing && !self.is_running() && self.attempts == 0
    }
}

const CHUNK: usize = 256;

pub(super) struct Slots<K> {
    chunks: Chunks<K>,
    table: Table,
    /// First of the free slots, chained by their links.
    free: u32,
    /// Which slots of each chunk are in use: so that finding them looks at no other.
    used: Vec<Bits>,
}

/// One for each slot of a chunk.
type Bits = [u64; CHUNK / u64::BITS as usize];

/// The bit of a slot: its word, and where it is in there.
#[inline]
fn bit(slot: u32) -> (usize, u64) {
    (slot as usize % CHUNK / u64::BITS as usize, 1 << (slot % u64::BITS))
}

struct Chunks<K>(Vec<Box<[Slot<K>; CHUNK]>>);

impl<K> Index<u32> for Chunks<K> {
    type Output = Slot<K>;
    #[inline]
    fn index(&self, slot: u32) -> &Slot<K> {
        &self.0[slot as usize / CHUNK][slot as usize % CHUNK]
    }
}

impl<K> IndexMut<u32> for Chunks<K> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut Slot<K> {
        &mut self.0[slot as usize / CHUNK][slot as usize % CHUNK]
    }
}

impl<K> Index<u32> for Slots<K> {
    type Output = Slot<K>;
    #[inline]
    fn index(&self, slot: u32) -> &Slot<K> {
        &self.chunks[slot]
    }
}

impl<K> IndexMut<u32> for Slots<K> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut Slot<K> {
        &mut self.chunks[slot]
    }
}

impl<K> Nodes for Slots<K> {
    #[inline]
    fn links(&mut self, node: u32) -> &mut Links {
        &mut self.chunks[node].links
    }
}

impl<K: Eq> Slots<K> {
    pub(super) const fn new() -> Self {
        Self { chunks: Chunks(Vec::new()), table: Table::new(), free: NIL, used: Vec::new() }
    }

    pub(super) fn find(&self, hash: KeyHash, key: &K) -> Option<u32> {
        self.table.find(hash, |slot| self.chunks[slot].seen(hash, key)).ok()
    }

    /// The slot of the key that is given. If it has none, one is made, and the key is taken to stay there.
    ///
    /// # Panics
    /// Without a key.
    #[inline]
    pub(super) fn find_or_insert(&mut self, hash: KeyHash, key: &mut Option<K>) -> u32 {
        let Self { chunks, table, free, used } = self;
        let wanted = key.as_ref().expect("a key is given");
        match table.find(hash, |slot| chunks[slot].seen(hash, wanted)) {
            Ok(slot) => slot,
            Err(place) => {
                if *free == NIL {
                    *free = chunks.grow();
                    used.push(Bits::default());
                }
                let slot = *free;
                if !table.insert(place, hash, slot) {
                    self.make_room(hash, slot);
                }
                let (word, bit) = bit(slot);
                self.used[slot as usize / CHUNK][word] |= bit;
                let new = &mut self.chunks[slot];
                self.free = new.links.next();
                (new.key, new.hash) = (key.take(), hash);
                slot
            }
        }
    }

    /// Make the table anew, and add what it has no room for.
    #[cold]
    fn make_room(&mut self, hash: KeyHash, slot: u32) {
        let Self { chunks, table, used, .. } = self;
        let words = used.as_flattened();
        let count = words.iter().map(|word| word.count_ones() as usize).sum();
        table.rebuild(count, || {
            let slots =
                words.iter().zip(0..).flat_map(|(word, number)| ones(*word).map(move |bit| number * u64::BITS + bit));
            slots.map(|slot| (chunks[slot].hash, slot))
        });
        let added = table.find(hash, |_| Seen::Other).is_err_and(|place| table.insert(place, hash, slot));
        assert!(added, "there is room in a table made anew");
    }

    /// Give up the slot if nothing is left to remember: true if so. The key is put into `done`, to be dropped without the lock.
    #[inline]
    pub(super) fn free_if_idle(&mut self, at: u32, done: &mut Option<K>) -> bool {
        let slot = &mut self.chunks[at];
        let idle = slot.is_idle();
        if idle {
            *done = slot.key.take();
            slot.links = Links::to_next(std::mem::replace(&mut self.free, at));
            slot.backoff_until = 0;
            let (word, bit) = bit(at);
            self.used[at as usize / CHUNK][word] &= !bit;
        }
        idle
    }

    /// Change every slot in use, and give up those that become idle.
    pub(super) fn sweep(&mut self, mut change: impl FnMut(&mut Slot<K>)) -> Vec<K> {
        let mut keys = Vec::new();
        for slot in 0..self.capacity() {
            if self.chunks[slot].key.is_some() {
                change(&mut self.chunks[slot]);
                let mut done = None;
                self.free_if_idle(slot, &mut done);
                keys.extend(done);
            }
        }
        keys
    }

    /// How many slots there are, in use or not: the range that [`Self::used`] takes.
    pub(super) fn capacity(&self) -> u32 {
        (self.chunks.0.len() * CHUNK) as u32
    }

    /// The slots in use among those numbered `range`.
    pub(super) fn used(&self, range: std::ops::Range<u32>) -> impl Iterator<Item = (u32, &K, &Slot<K>)> {
        range.filter_map(|at| {
            let slot = &self.chunks[at];
            slot.key.as_ref().map(|key| (at, key, slot))
        })
    }
}

impl<K> Chunks<K> {
    /// Add a chunk of free slots and return the first of them.
    fn grow(&mut self) -> u32 {
        let first = self.0.len() * CHUNK;
        assert!(first + CHUNK < NIL as usize, "a queue holds less than 2^32 keys");
        let chunk: Box<[Slot<K>]> = (1..=CHUNK)
            .map(|n| Slot { links: Links::to_next(if n < CHUNK { (first + n) as u32 } else { NIL }), ..Slot::FREE })
            .collect();
        self.0.extend(<Box<[Slot<K>; CHUNK]>>::try_from(chunk).ok());
        first as u32
    }
}

/// Where a word has ones.
fn ones(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let first = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(first)
    })
}
