mod behind;
mod deletions;

use super::*;
use crate::{
    cache::store::{About, Change, Entry, Store},
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

/// A store and its fan, as an informer has them.
pub(super) struct World {
    pub(super) fan: Fan<u32>,
    pub(super) store: Store<u32>,
    /// Keys of all published events.
    pub(super) published: Mutex<Vec<ObjectKey>>,
    /// Last states of deleted objects.
    pub(super) deleted: Mutex<BTreeSet<(ObjectKey, u32)>>,
}

pub(super) fn key(number: u8) -> ObjectKey {
    ObjectKey::new("a", &number.to_string())
}

pub(super) fn entry(number: u8, version: u32) -> Entry<u32> {
    Entry::new(key(number), Arc::new(version), 0)
}

/// Keeps the version as the resource version.
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

impl World {
    pub(super) fn new(capacity: usize) -> Self {
        Self::with_limits(capacity, usize::MAX)
    }

    pub(super) fn with_limits(capacity: usize, deletions: usize) -> Self {
        let fan = Fan::with_limits(capacity, deletions, reduce());
        Self { fan, store: Store::default(), published: Mutex::default(), deleted: Mutex::default() }
    }

    pub(super) fn put(&self, number: u8, version: u32) {
        self.fan.write(|publisher| {
            let new = entry(number, version);
            self.published.lock().push(key(number));
            publisher.publish(match self.store.put(new.clone(), 1) {
                Some(old) => Event::update(old, new),
                None => Event::create(new, false),
            });
        });
        self.fan.wake();
    }

    fn note_deleted(&self, object: &Entry<u32>) {
        self.deleted.lock().insert((object.key.clone(), *object.object));
    }

    /// True if it was there.
    pub(super) fn remove(&self, number: u8) -> bool {
        let was_there = self.fan.write(|publisher| {
            let Some(removed) = self.store.remove(&key(number), 1) else { return false };
            self.note_deleted(&removed);
            self.published.lock().push(key(number));
            publisher.publish(Event::delete(removed, false));
            true
        });
        self.fan.wake();
        was_there
    }

    pub(super) fn list(&self, list: impl IntoIterator<Item = (u8, u32)>, first: bool) {
        self.fan.write(|publisher| {
            let list = list.into_iter().map(|(number, version)| entry(number, version)).collect();
            let changes = self.store.replace(About::Those(&|_| true), list, &[], 1, |a, b| a == b);
            for change in &changes {
                if let Change::Deleted(object) = change {
                    self.note_deleted(object);
                }
            }
            let events: Vec<_> = changes.into_iter().map(|change| Event::listed(change, first)).collect();
            self.published.lock().extend(events.iter().map(|event| event.key().clone()));
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

    pub(super) fn subscribe(&self) -> Cursor<u32> {
        self.fan.subscribe(|| self.counted())
    }

    pub(super) fn state(&self) -> BTreeMap<ObjectKey, u32> {
        self.entries().into_iter().map(|entry| (entry.key, *entry.object)).collect()
    }
}

/// All there is to hear now.
fn heard(cursor: &mut Cursor<u32>) -> Vec<String> {
    std::iter::from_fn(|| cursor.try_next()).map(said).collect()
}

/// A version with an asterisk is that of a state of which only metadata is left.
fn said(item: Item<u32>) -> String {
    let Item::Event(event) = item else { return "done".into() };
    let name = event.key().name().to_owned();
    let state = |state: &ObjectState<u32>| {
        let reduced = matches!(state, ObjectState::Metadata(_));
        format!("{}{}", version(state), if reduced { "*" } else { "" })
    };
    match event {
        Event::Create { object, initial: true, .. } => format!("{name} is {}", state(&object)),
        Event::Create { object, .. } => format!("{name} +{}", state(&object)),
        Event::Update { old, new, .. } => format!("{name} {}>{}", state(&old), state(&new)),
        Event::Delete { object, state_unknown: true, .. } => format!("{name} lost {}", state(&object)),
        Event::Delete { object, .. } => format!("{name} -{}", state(&object)),
    }
}

#[test]
fn handlers_hear_what_happens_in_order() {
    let world = World::new(64);
    world.list([], true);
    let mut cursors = [world.subscribe(), world.subscribe()];
    world.put(1, 1);
    world.put(2, 2);
    world.put(1, 3);
    world.remove(2);
    world.list([(1, 4), (3, 5)], false);
    world.list([(1, 4)], false);
    for cursor in &mut cursors {
        let all = ["done", "1 +1", "2 +2", "1 1>3", "2 -2", "1 3>4", "3 +5", "3 lost 5"];
        assert_eq!(heard(cursor), all);
    }
}

#[test]
fn a_late_handler_hears_the_state_then_that_it_was_all_then_what_happens() {
    let world = World::new(64);
    world.list([(1, 1), (2, 2)], true);
    world.put(2, 3);
    let mut cursor = world.subscribe();
    world.put(1, 4);
    assert!(!cursor.is_initial_done());
    let mut all = heard(&mut cursor);
    all[..2].sort();
    assert_eq!(all, ["1 is 1", "2 is 3", "done", "1 1>4"]);
    assert!(cursor.is_initial_done());
}

#[test]
fn before_the_first_sync_nothing_is_heard_and_an_empty_list_is_heard_of_too() {
    for list in [vec![], vec![(1, 1)]] {
        let world = World::new(64);
        let mut cursor = world.subscribe();
        assert!(heard(&mut cursor).is_empty() && !cursor.is_initial_done());
        world.list(list.clone(), true);
        let all = heard(&mut cursor);
        assert_eq!(all, if list.is_empty() { vec!["done"] } else { vec!["1 is 1", "done"] });
    }
}

#[test]
fn the_beginning_is_done_when_all_of_the_first_list_was_heard_also_by_one_who_lags() {
    let world = World::new(2);
    let mut cursor = world.subscribe();
    world.list([(1, 1), (2, 2), (3, 3)], true);
    world.put(4, 4);
    world.put(2, 5);
    world.put(4, 6);
    world.put(5, 7);
    assert_eq!(heard(&mut cursor), ["1 is 1", "2 is 5", "3 is 3", "done", "4 +4", "4 4>6", "5 +7"]);
}

#[test]
fn one_who_lags_hears_each_object_once_and_then_all_again() {
    let world = World::new(4);
    world.list([(1, 0), (2, 0), (3, 0)], true);
    let (mut slow, mut quick) = (world.subscribe(), world.subscribe());
    heard(&mut slow);
    let mut events = 0;
    for version in 1..=100 {
        world.put(1 + (version % 2) as u8, version);
        events += heard(&mut quick).len();
    }
    assert_eq!(events, 4 + 100, "the quick one heard all");
    world.remove(3);
    assert!(world.fan.len() <= 4);
    let stats = slow.stats();
    assert_eq!((stats.behind, stats.pending, stats.delivered, stats.coalesced), (4, 2, 3, 95));
    assert_eq!(heard(&mut slow), ["2 0>97", "1 0>96", "1 96>98", "2 97>99", "1 98>100", "3 -0"]);
    world.put(1, 101);
    world.put(1, 102);
    assert_eq!(heard(&mut slow), ["1 100>101", "1 101>102"]);
    assert_eq!(slow.stats(), HandlerStats { delivered: 11, coalesced: 95, ..HandlerStats::default() });
    assert_eq!(world.fan.stats().len(), 2);
}

/// Whom an object concerned when it was told of, and whom it concerned in the end, both hear that it is gone.
#[test]
fn one_who_lags_hears_what_an_object_became_before_it_was_gone() {
    let world = World::new(1);
    world.list([(1, 1)], true);
    let mut slow = world.subscribe();
    assert_eq!(heard(&mut slow), ["1 is 1", "done"]);
    world.put(1, 2);
    world.put(1, 3);
    world.remove(1);
    world.put(2, 4);
    assert_eq!(heard(&mut slow), ["1 1>3", "1 -3", "2 +4"]);
}

#[test]
fn nothing_is_kept_for_nobody() {
    let world = World::new(4);
    world.list((0..10).map(|number| (number, 0)), true);
    assert_eq!(world.fan.len(), 0, "nobody listens");
    let (mut reads, sleeps) = (world.subscribe(), world.subscribe());
    let old = world.store.get(&key(1)).expect("it is there");
    let old = (Arc::downgrade(&old), drop(old)).0;
    heard(&mut reads);
    (0..10).for_each(|number| world.put(number, 1));
    heard(&mut reads);
    assert_eq!(world.fan.len(), 4);
    assert!(old.upgrade().is_some(), "still to be told by the one who sleeps");
    drop(sleeps);
    assert_eq!((world.fan.len(), world.fan.stats().len()), (0, 1), "the other one has read all");
    assert!(old.upgrade().is_none());
    drop(reads);
    world.put(1, 2);
    assert_eq!((world.fan.len(), world.fan.stats().len()), (0, 0));
}

#[test]
fn the_state_is_replayed_as_it_is_read() {
    let fan = Fan::new(reduce());
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = taken.clone();
    let mut cursor = fan.subscribe(move || {
        let all = (0..10_000).map(move |number| {
            counted.fetch_add(1, SeqCst);
            entry(number as u8, number)
        });
        (10_000, all)
    });
    assert_eq!(taken.load(SeqCst), 0);
    assert!(cursor.try_next().is_some());
    assert!(taken.load(SeqCst) <= cursor::BATCH);
}

/// Counts how often it is called.
#[derive(Default)]
struct Bell(AtomicUsize);
impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Poll `next` once, as `select!` does, and drop it.
fn poll(cursor: &mut Cursor<u32>, waker: &Waker) -> Poll<Option<Item<u32>>> {
    pin!(cursor.next()).poll(&mut Context::from_waker(waker))
}

#[test]
fn a_future_that_is_dropped_has_taken_nothing_and_only_sleepers_are_woken() {
    let world = World::new(64);
    world.list([], true);
    let mut cursor = world.subscribe();
    heard(&mut cursor);
    let bell = Arc::new(Bell::default());
    let waker = bell.clone().into();
    let rings = || bell.0.load(SeqCst);
    assert!(poll(&mut cursor, &waker).is_pending() && poll(&mut cursor, &waker).is_pending());
    world.put(1, 1);
    world.put(2, 2);
    assert_eq!(rings(), 1, "woken once");
    for event in ["1 +1", "2 +2"] {
        let Poll::Ready(Some(item)) = poll(&mut cursor, &waker) else { panic!("{event} was published") };
        assert_eq!(said(item), event);
    }
    world.put(3, 3);
    assert_eq!(rings(), 1, "it was not asleep");
    assert_eq!(heard(&mut cursor), ["3 +3"]);
    assert!(poll(&mut cursor, &waker).is_pending());
    assert!(cursor.try_next().is_none());
    world.put(4, 4);
    assert_eq!(rings(), 1, "it looked again without falling asleep");
    heard(&mut cursor);
    assert!(poll(&mut cursor, &waker).is_pending());
    world.fan.close();
    assert_eq!(rings(), 2, "that it has ended is something to hear");
    assert!(matches!(poll(&mut cursor, &waker), Poll::Ready(None)));
}

#[test]
fn when_the_informer_ends_its_handlers_hear_the_rest_and_end() {
    let world = World::new(2);
    world.list([(9, 9)], true);
    let mut cursor = world.subscribe();
    (1..=4).for_each(|number| world.put(number, 0));
    let World { fan, .. } = world;
    drop(fan);
    let waker = Waker::noop();
    for item in ["9 is 9", "done", "1 +0", "2 +0", "3 +0", "4 +0"] {
        let Poll::Ready(Some(next)) = poll(&mut cursor, waker) else { panic!("{item} is still to be told") };
        assert_eq!(said(next), item);
    }
    assert!(matches!(poll(&mut cursor, waker), Poll::Ready(None)));
}

#[test]
fn a_resync_tells_again_what_has_not_changed_and_lets_news_pass() {
    let world = World::new(1);
    world.list((0..100).map(|number| (number, 0)), true);
    let mut cursor = world.subscribe();
    cursor.resync(Duration::ZERO, || world.counted());
    assert_eq!(heard(&mut cursor).len(), 101, "it has only begun: no resync");
    // Pending in the backlog, in the log; and one that comes later.
    world.put(1, 1);
    world.put(2, 1);
    cursor.resync(Duration::ZERO, || world.counted());
    let next = |cursor: &mut Cursor<_>| cursor.try_next().map(said);
    assert_eq!(next(&mut cursor).as_deref(), Some("1 0>1"));
    assert_eq!(next(&mut cursor).as_deref(), Some("2 0>1"));
    let mut first: Vec<_> = (0..cursor::BATCH).filter_map(|_| next(&mut cursor)).collect();
    cursor.resync(Duration::ZERO, || world.counted());
    let late = (3..100).find(|number| !first.contains(&format!("{number} 0>0"))).expect("most are not told yet");
    world.put(late, 1);
    assert_eq!(next(&mut cursor).unwrap(), format!("{late} 0>1"));
    first.extend(heard(&mut cursor));
    first.sort();
    let mut all: Vec<_> =
        (0..100).filter(|number| ![1, 2, late].contains(number)).map(|number| format!("{number} 0>0")).collect();
    all.sort();
    assert_eq!(first, all);
}

#[test]
fn what_was_taken_and_not_handed_over_is_not_resynced() {
    let world = World::new(64);
    world.list([(1, 0), (2, 0), (3, 0)], true);
    let mut cursor = world.subscribe();
    heard(&mut cursor);
    world.put(1, 1);
    world.put(2, 1);
    assert_eq!(cursor.try_next().map(said).as_deref(), Some("1 0>1"));
    cursor.resync(Duration::ZERO, || world.counted());
    assert_eq!(heard(&mut cursor), ["2 0>1", "1 1>1", "3 0>0"]);
}

#[test]
fn what_was_never_told_and_is_deleted_is_not_resynced() {
    let world = World::new(1);
    world.list([(1, 0)], true);
    let mut cursor = world.subscribe();
    heard(&mut cursor);
    world.put(2, 0);
    cursor.resync(Duration::ZERO, || world.counted());
    world.remove(2);
    world.put(1, 1);
    assert_eq!(heard(&mut cursor), ["2 -0", "1 0>1"]);
}

#[test]
fn a_resync_is_given_up_by_who_hears_of_more_than_there_was() {
    let world = World::new(4096);
    world.list([(1, 0), (2, 0)], true);
    let mut cursor = world.subscribe();
    heard(&mut cursor);
    let mut beside_news = |count: u8| {
        world.put(3, count.into());
        cursor.resync(Duration::ZERO, || world.counted());
        // There is always something more to be told.
        for number in 0..count {
            world.put(100 + number, count.into());
            cursor.try_next().expect("there is");
        }
        heard(&mut cursor).into_iter().filter(|said| said.starts_with("1 ")).collect::<Vec<_>>()
    };
    assert_eq!(beside_news(10), ["1 0>0"], "later, if that is not much");
    assert!(beside_news(100).is_empty());
}

/// Goes back to the fan when it is freed.
struct Nosy(Weak<Fan<Nosy>>);
impl Drop for Nosy {
    fn drop(&mut self) {
        if let Some(fan) = self.0.upgrade() {
            fan.write(|_| ());
            drop(fan.subscribe(|| (0, [])));
        }
    }
}
impl Wake for Nosy {
    fn wake(self: Arc<Self>) {}
}

/// If one were held, this would hang.
#[test]
fn objects_are_freed_and_tasks_are_woken_with_no_lock_held() {
    let reduce: Reduce<Nosy> = Arc::new(|key, _| Arc::new(MetadataOnly::named(key.clone())));
    let fan = Arc::new(Fan::with_limits(2, 1, reduce));
    let nosy = || Arc::new(Nosy(Arc::downgrade(&fan)));
    let object = |number| Entry::new(key(number), nosy(), 0);
    let mut cursor = fan.subscribe(|| (0, []));
    let waker = nosy().into();
    assert!(pin!(cursor.next()).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    let events = Rc::new(Cell::new(0));
    let publish = |event| {
        events.set(events.get() + 1);
        fan.write(|publisher| publisher.publish(event));
        fan.wake();
    };
    for number in 0..4 {
        publish(Event::create(object(number), false));
        publish(Event::update(nosy(), object(number)));
        publish(Event::delete(object(number), false));
        publish(Event::update(nosy(), object(number + 10)));
        publish(Event::delete(object(number + 10), false));
    }
    assert!(cursor.stats().coalesced > 0);
    while cursor.try_next().is_some() {}
    fan.write(|publisher| {
        publisher.publish_all((0..9).map(|number| Event::create(object(number), false)));
    });
    drop(cursor);
    publish(Event::create(object(1), false));
    assert_eq!((fan.len(), fan.stats().len(), events.get()), (0, 0, 21));
}
