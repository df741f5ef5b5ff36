//! Random tests of handlers that subscribe, lag and leave, compared with the store.

use super::{
    tests::{Fixture, key, version},
    *,
};
use crate::object::ObjectKey;
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};
use steersman_testkit::{Seeds, this_test};

/// Handler that checks that every event follows from the state that it knows.
struct Handler<'a> {
    fixture: &'a Fixture,
    subscription: Subscription<u32>,
    known: BTreeMap<ObjectKey, u32>,
    /// Keys of all received events.
    delivered: BTreeSet<ObjectKey>,
    /// Events from snapshots and resyncs, which are not in the log.
    aside: u64,
    /// Number of events published before the handler subscribed.
    before: usize,
}

impl<'a> Handler<'a> {
    fn new(fixture: &'a Fixture, replayed: usize) -> Self {
        let subscription = fixture.subscribe();
        let before = fixture.published.lock().len();
        let (known, delivered) = (BTreeMap::new(), BTreeSet::new());
        Self {
            fixture,
            subscription,
            known,
            delivered,
            aside: replayed as u64,
            before,
        }
    }

    /// Asserts that `before` is the known state, or the last state of a deleted object.
    fn check_before(&self, key: &ObjectKey, before: u32, is_known: impl FnOnce(u32) -> bool) {
        match self.known.get(key) {
            Some(known) => assert!(is_known(*known), "{key} is not in the known state"),
            None => assert!(
                self.fixture.deleted.lock().contains(&(key.clone(), before)),
                "{key} is not known"
            ),
        }
    }

    fn apply(&mut self, item: Item<u32>) {
        let Item::Event(event) = item else { return };
        self.delivered.insert(event.key().clone());
        match event {
            Event::Create {
                key,
                object,
                initial,
            } => {
                assert!(
                    !(initial && self.subscription.is_initial_done()),
                    "initial event after the initial snapshot"
                );
                assert!(
                    initial || self.subscription.is_initial_done(),
                    "event during the initial snapshot"
                );
                assert!(
                    self.known.insert(key, **object.full()).is_none(),
                    "created twice"
                );
            }
            Event::Update { key, old, new } => {
                let (old, new) = (version(&old), version(&new));
                self.check_before(&key, old, |known| known == old);
                // Versions are unique, so only a resync has equal ones.
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

    /// Reads up to `most` items.
    fn read(&mut self, most: usize) {
        for _ in 0..most {
            let Some(item) = self.subscription.try_next() else {
                return;
            };
            self.apply(item);
        }
    }

    /// Asserts that the handler received every object that changed since it subscribed.
    fn check_all_delivered(&self) {
        for key in &self.fixture.published.lock()[self.before..] {
            assert!(self.delivered.contains(key), "{key} was not delivered");
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

steersman_testkit::properties! {
    #[test]
    fn handlers_that_read_all_events_have_the_state_of_the_store(
        capacity in 1usize..40,
        deletions in 0usize..6,
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let fixture = Fixture::with_limits(capacity, deletions);
        let mut handlers = Vec::<Handler<'_>>::new();
        let mut synced = false;
        for (version, step) in (1u32..).step_by(16).zip(steps) {
            let of = |handler: u8| (!handlers.is_empty()).then(|| usize::from(handler) % handlers.len());
            match step {
                Step::Put(number) if synced => fixture.put(number, version),
                Step::Remove(number) if synced => drop(fixture.remove(number)),
                Step::Put(_) | Step::Remove(_) => {}
                Step::List(numbers) => {
                    // Every other object keeps its version.
                    let state = fixture.state();
                    let list = numbers.into_iter().map(|number| {
                        let same = state.get(&key(number)).filter(|_| number % 2 == 0);
                        (number, same.copied().unwrap_or(version + u32::from(number)))
                    });
                    fixture.list(list, !synced);
                    synced = true;
                }
                Step::Subscribe => handlers.push(Handler::new(&fixture, fixture.store.len())),
                Step::Read(handler, most) => of(handler).into_iter().for_each(|at| handlers[at].read(most)),
                Step::Resync(handler) => of(handler).into_iter().for_each(|at| handlers[at].subscription.resync(Duration::ZERO, || fixture.counted())),
                Step::Drop(handler) => of(handler).into_iter().for_each(|at| drop(handlers.swap_remove(at))),
            }
            let bound = if handlers.is_empty() { 0 } else { capacity };
            prop_assert!(fixture.fanout.len() <= bound);
            for handler in &handlers {
                let stats = handler.subscription.stats();
                prop_assert!(stats.deletions <= stats.pending && stats.metadata_only_deletions <= stats.deletions);
                prop_assert!(stats.deletions - stats.metadata_only_deletions <= deletions);
            }
        }
        for mut handler in handlers {
            let (was, aside) = (handler.subscription.stats(), handler.aside);
            handler.read(usize::MAX);
            prop_assert_eq!(handler.subscription.is_initial_done(), synced);
            prop_assert_eq!(&handler.known, &fixture.state());
            handler.check_all_delivered();
            let HandlerStats { behind, pending, delivered, coalesced, deletions, .. } = handler.subscription.stats();
            prop_assert_eq!((behind, pending, deletions), (0, 0, 0));
            // Each pending object has one or two events. Events of a resync may not be counted yet.
            let (new, least) = (delivered - was.delivered, (was.behind + was.pending) as u64);
            let most = least + was.pending as u64 + handler.aside - aside;
            prop_assert!((least..=most).contains(&new), "{new} new events after {was:?}");
            prop_assert_eq!(delivered - handler.aside + coalesced, (fixture.published.lock().len() - handler.before) as u64, "every event is delivered or coalesced");
        }
        prop_assert_eq!((fixture.fanout.len(), fixture.fanout.stats().len()), (0, 0));
    }
}

/// Handlers on threads wait, leave and subscribe again while the writer writes.
#[test]
fn soak_handlers_on_other_threads_end_with_the_state_of_the_store() {
    for seed in Seeds::new(this_test!(), 1) {
        let fixture = Fixture::with_limits(16, 4);
        let written = AtomicU64::new(0);
        thread::scope(|scope| {
            for number in 0..3 {
                let (fixture, written) = (&fixture, &written);
                scope.spawn(move || {
                    // All rounds but the last leave early.
                    for stay in [10, 1000, usize::MAX] {
                        let mut handler = Handler::new(fixture, 0);
                        for count in 0..stay {
                            let Some(item) =
                                futures::executor::block_on(handler.subscription.next())
                            else {
                                break;
                            };
                            handler.apply(item);
                            if number == 0 && count % 64 == 0 {
                                thread::yield_now();
                                handler
                                    .subscription
                                    .resync(Duration::ZERO, || fixture.counted());
                            }
                        }
                        if stay == usize::MAX {
                            assert_eq!(handler.known, fixture.state());
                            handler.check_all_delivered();
                            assert_eq!(
                                written.load(SeqCst),
                                5_000,
                                "handlers end after the last write"
                            );
                        }
                    }
                });
            }
            fixture.list((0..10).map(|number| (number, 0)), true);
            let mut random = seed;
            for version in 1..=5_000 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let number = (random >> 33) as u8 % 20;
                if random >> 60 < 5 {
                    fixture.remove(number);
                } else {
                    fixture.put(number, version);
                }
                written.fetch_add(1, SeqCst);
            }
            fixture.fanout.close();
        });
    }
}
