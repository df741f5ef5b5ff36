//! Handlers that come, read a little, lag and go, against what the store shows.

use super::{
    tests::{World, key, version},
    *,
};
use crate::object::ObjectKey;
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

/// A handler that checks what it is told: every event follows from what it knows.
struct Handler<'a> {
    world: &'a World,
    cursor: Cursor<u32>,
    known: BTreeMap<ObjectKey, u32>,
    /// Keys of all events that it was told.
    told: BTreeSet<ObjectKey>,
    /// Events that were not of the log.
    aside: u64,
    /// How many there were before it.
    before: usize,
}

impl<'a> Handler<'a> {
    fn new(world: &'a World, replayed: usize) -> Self {
        let cursor = world.subscribe();
        let before = world.published.lock().len();
        let (known, told) = (BTreeMap::new(), BTreeSet::new());
        Self { world, cursor, known, told, aside: replayed as u64, before }
    }

    /// The state before is what it knows. Of an object that it does not know, it is the last state of one that is deleted.
    fn check_before(&self, key: &ObjectKey, before: u32, is_known: impl FnOnce(u32) -> bool) {
        match self.known.get(key) {
            Some(known) => assert!(is_known(*known), "{key} is not what it knows"),
            None => assert!(self.world.deleted.lock().contains(&(key.clone(), before)), "{key} is not known"),
        }
    }

    fn hear(&mut self, item: Item<u32>) {
        let Item::Event(event) = item else { return };
        self.told.insert(event.key().clone());
        match event {
            Event::Create { key, object, initial } => {
                assert!(!(initial && self.cursor.is_initial_done()), "initial after the beginning was done");
                assert!(initial || self.cursor.is_initial_done(), "news in the beginning");
                assert!(self.known.insert(key, **object.full()).is_none(), "created twice");
            }
            Event::Update { key, old, new } => {
                let (old, new) = (version(&old), version(&new));
                self.check_before(&key, old, |known| known == old);
                // Versions are never used twice: only a resync has the same one again.
                assert!(new >= old, "back in time");
                self.aside += u64::from(new == old);
                self.known.insert(key, new);
            }
            Event::Delete { key, object, .. } => {
                let last = version(&object);
                self.check_before(&key, last, |known| known <= last);
                self.known.remove(&key);
            }
        }
    }

    /// Up to `most` of what there is.
    fn read(&mut self, most: usize) {
        for _ in 0..most {
            let Some(item) = self.cursor.try_next() else { return };
            self.hear(item);
        }
    }

    /// It was told of every object that was touched since it came.
    fn check_all_told(&self) {
        for key in &self.world.published.lock()[self.before..] {
            assert!(self.told.contains(key), "not told of {key}");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Remove(u8),
    List(BTreeSet<u8>),
    Subscribe,
    Read(u8, usize),
    Resync(u8),
    Drop(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let number = || 0u8..12;
    prop_oneof![
        20 => number().prop_map(Step::Put),
        12 => number().prop_map(Step::Remove),
        2 => proptest::collection::btree_set(number(), 0..12).prop_map(Step::List),
        3 => Just(Step::Subscribe),
        12 => (any::<u8>(), 0usize..80).prop_map(|(handler, most)| Step::Read(handler, most)),
        2 => any::<u8>().prop_map(Step::Resync),
        1 => any::<u8>().prop_map(Step::Drop),
    ]
}

proptest! {
    #[test]
    fn handlers_that_read_to_the_end_know_what_the_store_shows(
        capacity in 1usize..40,
        deletions in 0usize..6,
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let world = World::with_limits(capacity, deletions);
        let mut handlers = Vec::<Handler<'_>>::new();
        let mut synced = false;
        for (version, step) in (1u32..).step_by(16).zip(steps) {
            let of = |handler: u8| (!handlers.is_empty()).then(|| usize::from(handler) % handlers.len());
            match step {
                Step::Put(number) if synced => world.put(number, version),
                Step::Remove(number) if synced => drop(world.remove(number)),
                Step::Put(_) | Step::Remove(_) => {}
                Step::List(numbers) => {
                    // Every other object is as it was.
                    let state = world.state();
                    let list = numbers.into_iter().map(|number| {
                        let same = state.get(&key(number)).filter(|_| number % 2 == 0);
                        (number, same.copied().unwrap_or(version + u32::from(number)))
                    });
                    world.list(list, !synced);
                    synced = true;
                }
                Step::Subscribe => handlers.push(Handler::new(&world, world.store.len())),
                Step::Read(handler, most) => of(handler).into_iter().for_each(|at| handlers[at].read(most)),
                Step::Resync(handler) => of(handler).into_iter().for_each(|at| handlers[at].cursor.resync(Duration::ZERO, || world.counted())),
                Step::Drop(handler) => of(handler).into_iter().for_each(|at| drop(handlers.swap_remove(at))),
            }
            let bound = if handlers.is_empty() { 0 } else { capacity };
            prop_assert!(world.fan.len() <= bound);
            for handler in &handlers {
                let stats = handler.cursor.stats();
                prop_assert!(stats.deletions <= stats.pending && stats.metadata_only_deletions <= stats.deletions);
                prop_assert!(stats.deletions - stats.metadata_only_deletions <= deletions);
            }
        }
        for mut handler in handlers {
            let (was, aside) = (handler.cursor.stats(), handler.aside);
            handler.read(usize::MAX);
            prop_assert_eq!(handler.cursor.is_initial_done(), synced);
            prop_assert_eq!(&handler.known, &world.state());
            handler.check_all_told();
            let HandlerStats { behind, pending, delivered, coalesced, deletions, .. } = handler.cursor.stats();
            prop_assert_eq!((behind, pending, deletions), (0, 0, 0));
            // Of what is pending one or two; of a resync also what was not counted yet.
            let (told, least) = (delivered - was.delivered, (was.behind + was.pending) as u64);
            let most = least + was.pending as u64 + handler.aside - aside;
            prop_assert!((least..=most).contains(&told), "{told} told of {was:?}");
            prop_assert_eq!(delivered - handler.aside + coalesced, (world.published.lock().len() - handler.before) as u64, "every event is told or coalesced");
        }
        prop_assert_eq!((world.fan.len(), world.fan.stats().len()), (0, 0));
    }
}

/// On real threads: handlers that sleep, and come and go while the writer writes.
#[test]
fn soak_handlers_on_threads_of_their_own_end_with_what_the_store_shows() {
    let soak = std::env::var("STEERSMAN_SOAK").ok().and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    let begin = Instant::now();
    let mut seed = 1u64;
    loop {
        println!("seed {seed}");
        let world = World::with_limits(16, 4);
        let written = AtomicU64::new(0);
        thread::scope(|scope| {
            for handler in 0..3 {
                let (world, written) = (&world, &written);
                scope.spawn(move || {
                    // All but the last leave early, and come again.
                    for stay in [10, 1000, usize::MAX] {
                        let mut heard = Handler::new(world, 0);
                        for count in 0..stay {
                            let Some(item) = futures::executor::block_on(heard.cursor.next()) else { break };
                            heard.hear(item);
                            if handler == 0 && count % 64 == 0 {
                                thread::yield_now();
                                heard.cursor.resync(Duration::ZERO, || world.counted());
                            }
                        }
                        if stay == usize::MAX {
                            assert_eq!(heard.known, world.state());
                            heard.check_all_told();
                            assert_eq!(written.load(SeqCst), 5_000, "it ends after all is written");
                        }
                    }
                });
            }
            world.list((0..10).map(|number| (number, 0)), true);
            let mut random = seed;
            for version in 1..=5_000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let number = (random >> 33) as u8 % 20;
                if random >> 60 < 5 {
                    world.remove(number);
                } else {
                    world.put(number, version);
                }
                written.fetch_add(1, SeqCst);
            }
            world.fan.close();
        });
        seed += 1;
        if soak.is_none_or(|soak| begin.elapsed() >= soak) {
            break;
        }
    }
}
