mod deletions;
mod pending;

use super::*;
use crate::{
    cache::store::{Change, Entry, ListScope, Store},
    object::{MetadataOnly, ObjectKey, Payload},
};
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    rc::Rc,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

/// Store and fan-out of an informer.
pub(super) struct Fixture {
    pub(super) fanout: Fanout<u32>,
    pub(super) store: Store<u32>,
    /// Keys of all published events.
    pub(super) published: Mutex<Vec<ObjectKey>>,
    /// Last states of deleted objects.
    pub(super) deleted: Mutex<BTreeSet<(ObjectKey, u32)>>,
}

pub(super) fn key(number: u8) -> ObjectKey {
    ObjectKey::new("a", number.to_string())
}

pub(super) fn entry(number: u8, version: u32) -> Entry<u32> {
    Entry::new(key(number), Arc::new(version), 0)
}

/// Returns a reduction that keeps the version as the resource version.
pub(super) fn reduce() -> Reduce<u32> {
    Arc::new(|key, version| {
        let mut map = ConfigMap::default();
        map.metadata.resource_version = Some(version.to_string());
        Arc::new(map).to_metadata(&Arc::default(), key)
    })
}

pub(super) fn version(state: &ObjectState<u32>) -> u32 {
    match state {
        ObjectState::Full(version) => **version,
        ObjectState::Metadata(metadata) => metadata.revision().expect("the version") as u32,
    }
}

impl Fixture {
    pub(super) fn new(capacity: usize) -> Self {
        Self::with_limits(capacity, usize::MAX)
    }

    pub(super) fn with_limits(capacity: usize, deletions: usize) -> Self {
        let fanout = Fanout::with_limits(capacity, deletions, reduce());
        Self {
            fanout,
            store: Store::default(),
            published: Mutex::default(),
            deleted: Mutex::default(),
        }
    }

    pub(super) fn put(&self, number: u8, version: u32) {
        self.fanout.write(|publisher| {
            let new = entry(number, version);
            self.published.lock().push(key(number));
            publisher.publish(match self.store.put(new.clone(), 1) {
                Some(old) => Event::update(old, new),
                None => Event::create(new, false),
            });
        });
        self.fanout.wake();
    }

    fn note_deleted(&self, object: &Entry<u32>) {
        self.deleted
            .lock()
            .insert((object.key.clone(), *object.object));
    }

    /// Removes an object. Returns whether it existed.
    pub(super) fn remove(&self, number: u8) -> bool {
        let was_there = self.fanout.write(|publisher| {
            let Some(removed) = self.store.remove(&key(number), 1) else {
                return false;
            };
            self.note_deleted(&removed);
            self.published.lock().push(key(number));
            publisher.publish(Event::delete(removed, false));
            true
        });
        self.fanout.wake();
        was_there
    }

    pub(super) fn list(&self, list: impl IntoIterator<Item = (u8, u32)>, first: bool) {
        self.fanout.write(|publisher| {
            let list = list
                .into_iter()
                .map(|(number, version)| entry(number, version))
                .collect();
            let changes =
                self.store
                    .replace(ListScope::Matching(&|_| true), list, &[], 1, |a, b| a == b);
            for change in &changes {
                if let Change::Deleted(object) = change {
                    self.note_deleted(object);
                }
            }
            let events: Vec<_> = changes
                .into_iter()
                .map(|change| Event::listed(change, first))
                .collect();
            self.published
                .lock()
                .extend(events.iter().map(|event| event.key().clone()));
            publisher.publish_all(events);
            publisher.synced();
        });
    }

    pub(super) fn entries(&self) -> Vec<Entry<u32>> {
        self.store.snapshot().iter().cloned().collect()
    }

    pub(super) fn counted(&self) -> (usize, Vec<Entry<u32>>) {
        (self.entries().len(), self.entries())
    }

    pub(super) fn subscribe(&self) -> Subscription<u32> {
        self.fanout.subscribe(|| self.counted())
    }

    pub(super) fn state(&self) -> BTreeMap<ObjectKey, u32> {
        self.entries()
            .into_iter()
            .map(|entry| (entry.key, *entry.object))
            .collect()
    }
}

/// Returns all pending items as text.
fn drain_items(subscription: &mut Subscription<u32>) -> Vec<String> {
    std::iter::from_fn(|| subscription.try_next())
        .map(describe)
        .collect()
}

/// Formats an item. An asterisk marks a version of which only metadata is left.
fn describe(item: Item<u32>) -> String {
    let Item::Event(event) = item else {
        return "done".into();
    };
    let name = event.key().name().to_owned();
    let state = |state: &ObjectState<u32>| {
        let reduced = matches!(state, ObjectState::Metadata(_));
        format!("{}{}", version(state), if reduced { "*" } else { "" })
    };
    match event {
        Event::Create {
            object,
            initial: true,
            ..
        } => format!("{name} is {}", state(&object)),
        Event::Create { object, .. } => format!("{name} +{}", state(&object)),
        Event::Update { old, new, .. } => format!("{name} {}>{}", state(&old), state(&new)),
        Event::Delete {
            object,
            state_unknown: true,
            ..
        } => format!("{name} lost {}", state(&object)),
        Event::Delete { object, .. } => format!("{name} -{}", state(&object)),
    }
}

#[test]
fn handlers_receive_events_in_order() {
    let fixture = Fixture::new(64);
    fixture.list([], true);
    let mut cursors = [fixture.subscribe(), fixture.subscribe()];
    fixture.put(1, 1);
    fixture.put(2, 2);
    fixture.put(1, 3);
    fixture.remove(2);
    fixture.list([(1, 4), (3, 5)], false);
    fixture.list([(1, 4)], false);
    for subscription in &mut cursors {
        let all = [
            "done", "1 +1", "2 +2", "1 1>3", "2 -2", "1 3>4", "3 +5", "3 lost 5",
        ];
        assert_eq!(drain_items(subscription), all);
    }
}

#[test]
fn a_late_handler_receives_the_snapshot_then_initial_done_then_events() {
    let fixture = Fixture::new(64);
    fixture.list([(1, 1), (2, 2)], true);
    fixture.put(2, 3);
    let mut subscription = fixture.subscribe();
    fixture.put(1, 4);
    assert!(!subscription.is_initial_done());
    let mut all = drain_items(&mut subscription);
    all[..2].sort();
    assert_eq!(all, ["1 is 1", "2 is 3", "done", "1 1>4"]);
    assert!(subscription.is_initial_done());
}

#[test]
fn handlers_receive_nothing_before_the_first_sync_and_initial_done_for_an_empty_list() {
    for list in [vec![], vec![(1, 1)]] {
        let fixture = Fixture::new(64);
        let mut subscription = fixture.subscribe();
        assert!(drain_items(&mut subscription).is_empty() && !subscription.is_initial_done());
        fixture.list(list.clone(), true);
        let all = drain_items(&mut subscription);
        assert_eq!(
            all,
            if list.is_empty() {
                vec!["done"]
            } else {
                vec!["1 is 1", "done"]
            }
        );
    }
}

#[test]
fn a_lagging_handler_receives_initial_done_after_the_first_list() {
    let fixture = Fixture::new(2);
    let mut subscription = fixture.subscribe();
    fixture.list([(1, 1), (2, 2), (3, 3)], true);
    fixture.put(4, 4);
    fixture.put(2, 5);
    fixture.put(4, 6);
    fixture.put(5, 7);
    assert_eq!(
        drain_items(&mut subscription),
        [
            "1 is 1", "2 is 5", "3 is 3", "done", "4 +4", "4 4>6", "5 +7"
        ]
    );
}

#[test]
fn a_lagging_handler_receives_coalesced_events_then_all_events() {
    let fixture = Fixture::new(4);
    fixture.list([(1, 0), (2, 0), (3, 0)], true);
    let (mut slow, mut quick) = (fixture.subscribe(), fixture.subscribe());
    drain_items(&mut slow);
    let mut events = 0;
    for version in 1..=100 {
        fixture.put(1 + (version % 2) as u8, version);
        events += drain_items(&mut quick).len();
    }
    assert_eq!(events, 4 + 100, "the quick handler received all events");
    fixture.remove(3);
    assert!(fixture.fanout.len() <= 4);
    let stats = slow.stats();
    assert_eq!(
        (
            stats.behind,
            stats.pending,
            stats.delivered,
            stats.coalesced
        ),
        (4, 2, 3, 95)
    );
    assert_eq!(
        drain_items(&mut slow),
        ["2 0>97", "1 0>96", "1 96>98", "2 97>99", "1 98>100", "3 -0"]
    );
    fixture.put(1, 101);
    fixture.put(1, 102);
    assert_eq!(drain_items(&mut slow), ["1 100>101", "1 101>102"]);
    assert_eq!(
        slow.stats(),
        HandlerStats {
            delivered: 11,
            coalesced: 95,
            ..HandlerStats::default()
        }
    );
    assert_eq!(fixture.fanout.stats().len(), 2);
}

/// The handler must receive both states, to notify the owners of both.
#[test]
fn a_lagging_handler_receives_the_last_state_before_a_deletion() {
    let fixture = Fixture::new(1);
    fixture.list([(1, 1)], true);
    let mut slow = fixture.subscribe();
    assert_eq!(drain_items(&mut slow), ["1 is 1", "done"]);
    fixture.put(1, 2);
    fixture.put(1, 3);
    fixture.remove(1);
    fixture.put(2, 4);
    assert_eq!(drain_items(&mut slow), ["1 1>3", "1 -3", "2 +4"]);
}

#[test]
fn no_event_is_stored_without_subscriptions() {
    let fixture = Fixture::new(4);
    fixture.list((0..10).map(|number| (number, 0)), true);
    assert_eq!(fixture.fanout.len(), 0, "no subscription exists");
    let (mut reads, sleeps) = (fixture.subscribe(), fixture.subscribe());
    let old = fixture.store.get(&key(1)).expect("the object exists");
    let old = (Arc::downgrade(&old), drop(old)).0;
    drain_items(&mut reads);
    (0..10).for_each(|number| fixture.put(number, 1));
    drain_items(&mut reads);
    assert_eq!(fixture.fanout.len(), 4);
    assert!(
        old.upgrade().is_some(),
        "not delivered to the slow handler yet"
    );
    drop(sleeps);
    assert_eq!(
        (fixture.fanout.len(), fixture.fanout.stats().len()),
        (0, 1),
        "the other one has read all"
    );
    assert!(old.upgrade().is_none());
    drop(reads);
    fixture.put(1, 2);
    assert_eq!((fixture.fanout.len(), fixture.fanout.stats().len()), (0, 0));
}

#[test]
fn the_state_is_replayed_as_it_is_read() {
    let fanout = Fanout::new(reduce());
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = taken.clone();
    let mut subscription = fanout.subscribe(move || {
        let all = (0..10_000).map(move |number| {
            counted.fetch_add(1, SeqCst);
            entry(number as u8, number)
        });
        (10_000, all)
    });
    assert_eq!(taken.load(SeqCst), 0);
    assert!(subscription.try_next().is_some());
    assert!(taken.load(SeqCst) <= subscription::BATCH);
}

/// Waker that counts its calls.
#[derive(Default)]
struct CountingWaker(AtomicUsize);
impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Polls `next` once and drops the future, as `select!` does.
fn poll(subscription: &mut Subscription<u32>, waker: &Waker) -> Poll<Option<Item<u32>>> {
    pin!(subscription.next()).poll(&mut Context::from_waker(waker))
}

#[test]
fn a_dropped_next_consumes_no_event_and_only_waiting_handlers_are_woken() {
    let fixture = Fixture::new(64);
    fixture.list([], true);
    let mut subscription = fixture.subscribe();
    drain_items(&mut subscription);
    let bell = Arc::new(CountingWaker::default());
    let waker = bell.clone().into();
    let rings = || bell.0.load(SeqCst);
    assert!(
        poll(&mut subscription, &waker).is_pending()
            && poll(&mut subscription, &waker).is_pending()
    );
    fixture.put(1, 1);
    fixture.put(2, 2);
    assert_eq!(rings(), 1, "woken once");
    for event in ["1 +1", "2 +2"] {
        let Poll::Ready(Some(item)) = poll(&mut subscription, &waker) else {
            panic!("{event} was published")
        };
        assert_eq!(describe(item), event);
    }
    fixture.put(3, 3);
    assert_eq!(rings(), 1, "a handler that does not wait is not woken");
    assert_eq!(drain_items(&mut subscription), ["3 +3"]);
    assert!(poll(&mut subscription, &waker).is_pending());
    assert!(subscription.try_next().is_none());
    fixture.put(4, 4);
    assert_eq!(rings(), 1, "the handler reads again without waiting");
    drain_items(&mut subscription);
    assert!(poll(&mut subscription, &waker).is_pending());
    fixture.fanout.close();
    assert_eq!(rings(), 2, "closing wakes the subscription");
    assert!(matches!(poll(&mut subscription, &waker), Poll::Ready(None)));
}

#[test]
fn handlers_of_a_closed_informer_receive_the_pending_events_and_end() {
    let fixture = Fixture::new(2);
    fixture.list([(9, 9)], true);
    let mut subscription = fixture.subscribe();
    (1..=4).for_each(|number| fixture.put(number, 0));
    let Fixture { fanout, .. } = fixture;
    drop(fanout);
    let waker = Waker::noop();
    for item in ["9 is 9", "done", "1 +0", "2 +0", "3 +0", "4 +0"] {
        let Poll::Ready(Some(next)) = poll(&mut subscription, waker) else {
            panic!("{item} was not delivered")
        };
        assert_eq!(describe(next), item);
    }
    assert!(matches!(poll(&mut subscription, waker), Poll::Ready(None)));
}

#[test]
fn a_resync_repeats_unchanged_objects_after_pending_events() {
    let fixture = Fixture::new(1);
    fixture.list((0..100).map(|number| (number, 0)), true);
    let mut subscription = fixture.subscribe();
    subscription.resync(Duration::ZERO, || fixture.counted());
    assert_eq!(
        drain_items(&mut subscription).len(),
        101,
        "no resync during the initial snapshot"
    );
    // One change is in the backlog, one in the log, and one follows later.
    fixture.put(1, 1);
    fixture.put(2, 1);
    subscription.resync(Duration::ZERO, || fixture.counted());
    let next = |subscription: &mut Subscription<_>| subscription.try_next().map(describe);
    assert_eq!(next(&mut subscription).as_deref(), Some("1 0>1"));
    assert_eq!(next(&mut subscription).as_deref(), Some("2 0>1"));
    let mut first: Vec<_> = (0..subscription::BATCH)
        .filter_map(|_| next(&mut subscription))
        .collect();
    subscription.resync(Duration::ZERO, || fixture.counted());
    let late = (3..100)
        .find(|number| !first.contains(&format!("{number} 0>0")))
        .expect("most are not delivered yet");
    fixture.put(late, 1);
    assert_eq!(next(&mut subscription).unwrap(), format!("{late} 0>1"));
    first.extend(drain_items(&mut subscription));
    first.sort();
    let mut all: Vec<_> = (0..100)
        .filter(|number| ![1, 2, late].contains(number))
        .map(|number| format!("{number} 0>0"))
        .collect();
    all.sort();
    assert_eq!(first, all);
}

#[test]
fn undelivered_objects_are_not_resynced() {
    let fixture = Fixture::new(64);
    fixture.list([(1, 0), (2, 0), (3, 0)], true);
    let mut subscription = fixture.subscribe();
    drain_items(&mut subscription);
    fixture.put(1, 1);
    fixture.put(2, 1);
    assert_eq!(
        subscription.try_next().map(describe).as_deref(),
        Some("1 0>1")
    );
    subscription.resync(Duration::ZERO, || fixture.counted());
    assert_eq!(drain_items(&mut subscription), ["2 0>1", "1 1>1", "3 0>0"]);
}

#[test]
fn deleted_objects_that_were_never_delivered_are_not_resynced() {
    let fixture = Fixture::new(1);
    fixture.list([(1, 0)], true);
    let mut subscription = fixture.subscribe();
    drain_items(&mut subscription);
    fixture.put(2, 0);
    subscription.resync(Duration::ZERO, || fixture.counted());
    fixture.remove(2);
    fixture.put(1, 1);
    assert_eq!(drain_items(&mut subscription), ["2 -0", "1 0>1"]);
}

#[test]
fn a_resync_ends_after_more_events_than_objects() {
    let fixture = Fixture::new(4096);
    fixture.list([(1, 0), (2, 0)], true);
    let mut subscription = fixture.subscribe();
    drain_items(&mut subscription);
    let mut resynced_items = |count: u8| {
        fixture.put(3, count.into());
        subscription.resync(Duration::ZERO, || fixture.counted());
        // Keeps the subscription from ever being idle.
        for number in 0..count {
            fixture.put(100 + number, count.into());
            subscription.try_next().expect("an event");
        }
        drain_items(&mut subscription)
            .into_iter()
            .filter(|item| item.starts_with("1 "))
            .collect::<Vec<_>>()
    };
    assert_eq!(resynced_items(10), ["1 0>0"], "few events delay the resync");
    assert!(resynced_items(100).is_empty());
}

/// Payload that locks the fan-out when it is freed.
struct LocksOnDrop(Weak<Fanout<LocksOnDrop>>);
impl Drop for LocksOnDrop {
    fn drop(&mut self) {
        if let Some(fanout) = self.0.upgrade() {
            fanout.write(|_| ());
            drop(fanout.subscribe(|| (0, [])));
        }
    }
}
impl Wake for LocksOnDrop {
    fn wake(self: Arc<Self>) {}
}

/// Deadlocks if a lock is held.
#[test]
fn objects_are_freed_and_tasks_are_woken_with_no_lock_held() {
    let reduce: Reduce<LocksOnDrop> = Arc::new(|key, _| Arc::new(MetadataOnly::named(key.clone())));
    let fanout = Arc::new(Fanout::with_limits(2, 1, reduce));
    let object_that_locks = || Arc::new(LocksOnDrop(Arc::downgrade(&fanout)));
    let object = |number| Entry::new(key(number), object_that_locks(), 0);
    let mut subscription = fanout.subscribe(|| (0, []));
    let waker = object_that_locks().into();
    assert!(
        pin!(subscription.next())
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(waker);
    let events = Rc::new(Cell::new(0));
    let publish = |event| {
        events.set(events.get() + 1);
        fanout.write(|publisher| publisher.publish(event));
        fanout.wake();
    };
    for number in 0..4 {
        publish(Event::create(object(number), false));
        publish(Event::update(object_that_locks(), object(number)));
        publish(Event::delete(object(number), false));
        publish(Event::update(object_that_locks(), object(number + 10)));
        publish(Event::delete(object(number + 10), false));
    }
    assert!(subscription.stats().coalesced > 0);
    while subscription.try_next().is_some() {}
    fanout.write(|publisher| {
        publisher.publish_all((0..9).map(|number| Event::create(object(number), false)));
    });
    drop(subscription);
    publish(Event::create(object(1), false));
    assert_eq!(
        (fanout.len(), fanout.stats().len(), events.get()),
        (0, 0, 21)
    );
}
