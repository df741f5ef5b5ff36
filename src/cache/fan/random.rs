//! Handlers that come, read a little, lag and go, against what the store shows.

use super::{
    tests::{World, key},
    *,
};
use crate::object::ObjectKey;
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};
use steersman_testkit::{Seeds, this_test};

/// A handler that checks what it is told: every event follows from what it knows.
struct Handler {
    cursor: Cursor<u32>,
    known: BTreeMap<ObjectKey, Arc<u32>>,
    /// Events that were not of the log.
    aside: u64,
    /// How many there were before it.
    before: u64,
}

impl Handler {
    fn new(cursor: Cursor<u32>, replayed: usize, before: u64) -> Self {
        Self { cursor, known: BTreeMap::new(), aside: replayed as u64, before }
    }

    fn hear(&mut self, item: Item<u32>) {
        match item {
            Item::InitialDone => {}
            Item::Event(Event::Create { object, initial }) => {
                assert!(!(initial && self.cursor.is_initial_done()), "initial after the beginning was done");
                assert!(initial || self.cursor.is_initial_done(), "news in the beginning");
                assert!(self.known.insert(object.key, object.object).is_none(), "created twice");
            }
            Item::Event(Event::Update { old, new }) => {
                assert!(self.known.get(&new.key).is_some_and(|known| Arc::ptr_eq(known, &old)), "not what it knows");
                // Versions are never used twice: only a resync has the same one again.
                assert!(new.object > old || Arc::ptr_eq(&new.object, &old), "back in time");
                self.aside += u64::from(Arc::ptr_eq(&new.object, &old));
                self.known.insert(new.key, new.object);
            }
            Item::Event(Event::Delete { object, .. }) => {
                assert!(self.known.remove(&object.key).is_some_and(|known| known <= object.object), "not known");
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

    fn knows(&self) -> BTreeMap<ObjectKey, u32> {
        self.known.iter().map(|(key, object)| (key.clone(), **object)).collect()
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

steersman_testkit::properties! {
    #[test]
    fn handlers_that_read_to_the_end_know_what_the_store_shows(
        capacity in 1usize..40,
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let world = World::new(capacity);
        let mut handlers = Vec::<Handler>::new();
        let (mut synced, mut published) = (false, 0u64);
        for (version, step) in (1u32..).step_by(16).zip(steps) {
            let of = |handler: u8| (!handlers.is_empty()).then(|| usize::from(handler) % handlers.len());
            match step {
                Step::Put(number) if synced => {
                    world.put(number, version);
                    published += 1;
                }
                Step::Remove(number) if synced => published += u64::from(world.remove(number)),
                Step::Put(_) | Step::Remove(_) => {}
                Step::List(numbers) => {
                    // Every other object is as it was.
                    let state = world.state();
                    let list = numbers.into_iter().map(|number| {
                        let same = state.get(&key(number)).filter(|_| number % 2 == 0);
                        (number, same.copied().unwrap_or(version + u32::from(number)))
                    });
                    published += world.list(list, !synced) as u64;
                    synced = true;
                }
                Step::Subscribe => handlers.push(Handler::new(world.subscribe(), world.store.len(), published)),
                Step::Read(handler, most) => of(handler).into_iter().for_each(|at| handlers[at].read(most)),
                Step::Resync(handler) => of(handler).into_iter().for_each(|at| handlers[at].cursor.resync(Duration::ZERO, || world.counted())),
                Step::Drop(handler) => of(handler).into_iter().for_each(|at| drop(handlers.swap_remove(at))),
            }
            let bound = if handlers.is_empty() { 0 } else { capacity };
            prop_assert!(world.fan.len() <= bound);
            for handler in &handlers {
                let objects: BTreeSet<_> = world.state().into_keys().chain(handler.known.keys().cloned()).collect();
                // What it was told is known; what it has taken and not handed over may be about others.
                prop_assert!(handler.cursor.stats().pending <= objects.len() + cursor::BATCH);
            }
        }
        for mut handler in handlers {
            let (was, aside) = (handler.cursor.stats(), handler.aside);
            handler.read(usize::MAX);
            prop_assert_eq!(handler.cursor.is_initial_done(), synced);
            prop_assert_eq!(handler.knows(), world.state());
            let HandlerStats { behind, pending, delivered, coalesced } = handler.cursor.stats();
            prop_assert_eq!((behind, pending), (0, 0));
            // Of what is pending one or two; of a resync also what was not counted yet.
            let (told, least) = (delivered - was.delivered, (was.behind + was.pending) as u64);
            let most = least + was.pending as u64 + handler.aside - aside;
            prop_assert!((least..=most).contains(&told), "{told} told of {was:?}");
            prop_assert_eq!(delivered - handler.aside + coalesced, published - handler.before, "every event is told or coalesced");
        }
        prop_assert_eq!((world.fan.len(), world.fan.stats().len()), (0, 0));
    }
}

/// On real threads: handlers that sleep, and come and go while the writer writes.
#[test]
fn soak_handlers_on_threads_of_their_own_end_with_what_the_store_shows() {
    for seed in Seeds::new(this_test!(), 1) {
        let world = World::new(16);
        let written = AtomicU64::new(0);
        thread::scope(|scope| {
            for handler in 0..3 {
                let (world, written) = (&world, &written);
                scope.spawn(move || {
                    // All but the last leave early, and come again.
                    for stay in [10, 1000, usize::MAX] {
                        let mut heard = Handler::new(world.subscribe(), 0, 0);
                        for count in 0..stay {
                            let Some(item) = futures::executor::block_on(heard.cursor.next()) else { break };
                            heard.hear(item);
                            if handler == 0 && count % 64 == 0 {
                                thread::yield_now();
                                heard.cursor.resync(Duration::ZERO, || world.counted());
                            }
                        }
                        if stay == usize::MAX {
                            assert_eq!(heard.knows(), world.state());
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
    }
}
