//! The fan-out under a scheduler that tries the interleavings: the files that ship, compiled a second time against a `sync` in which every lock is a
//! point where another thread may run, as `tests/model` does for the work queue. A cursor that sleeps for ever is a deadlock here.

#[path = "backlog.rs"]
mod backlog;
#[path = "beside.rs"]
mod beside;
#[path = "cursor.rs"]
mod cursor;
#[path = "event.rs"]
mod event;
#[path = "hub.rs"]
mod hub;
#[path = "log.rs"]
mod log;
#[path = "../../../tests/model/schedules.rs"]
mod schedules;
#[path = "../../../tests/model/sync.rs"]
mod sync;
#[path = "wakes.rs"]
mod wakes;

use crate::{
    cache::store::Entry,
    object::{MetadataOnly, ObjectKey},
};
use cursor::Cursor;
use event::{Event, Item};
use hub::Fan;
use shuttle::{future, thread};
use std::{
    collections::BTreeMap,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

fn check(scenario: fn()) {
    schedules::check(500, scenario);
}

type State = BTreeMap<&'static str, u32>;

/// A fan, and a store whose lock is a point to change thread too.
struct World {
    fan: Fan<u32>,
    store: sync::Mutex<State>,
}

fn entry(name: &str, version: u32) -> Entry<u32> {
    Entry::new(ObjectKey::cluster_scoped(name), Arc::new(version), 0)
}

impl World {
    fn new(capacity: usize) -> Arc<Self> {
        let fan = Fan::with_limits(capacity, 4096, Arc::new(|key, _| Arc::new(MetadataOnly::named(key.clone()))));
        Arc::new(Self { fan, store: sync::Mutex::default() })
    }

    /// The first list, of nothing.
    fn list_nothing(&self) {
        self.fan.write(|publisher| {
            publisher.publish_all([]);
            publisher.synced();
        });
    }

    /// The object is this from now on, or is gone.
    fn set(&self, name: &'static str, version: Option<u32>) {
        self.fan.write(|publisher| {
            let mut store = self.store.lock();
            let old = match version {
                Some(version) => store.insert(name, version),
                None => store.remove(name),
            };
            drop(store);
            let event = match (old, version) {
                (None, None) => return,
                (None, Some(new)) => Event::create(entry(name, new), false),
                (Some(old), Some(new)) => Event::update(Arc::new(old), entry(name, new)),
                (Some(old), None) => Event::delete(entry(name, old), false),
            };
            publisher.publish(event);
        });
        self.fan.wake();
    }

    fn subscribe(&self) -> Cursor<u32> {
        self.fan.subscribe(|| self.counted())
    }

    fn entries(&self) -> Vec<Entry<u32>> {
        self.store.lock().iter().map(|(name, version)| entry(name, *version)).collect()
    }

    fn counted(&self) -> (usize, Vec<Entry<u32>>) {
        let entries = self.entries();
        (entries.len(), entries)
    }

    fn state(&self) -> BTreeMap<String, u32> {
        self.store.lock().iter().map(|(name, version)| ((*name).to_owned(), *version)).collect()
    }
}

/// What a handler knows, every event checked against it.
#[derive(Default)]
struct Known(BTreeMap<String, u32>);

impl Known {
    fn hear(&mut self, item: Item<u32>) {
        let Item::Event(event) = item else { return };
        let name = event.key().to_string();
        match event {
            Event::Create { object, .. } => {
                assert!(self.0.insert(name, **object.full()).is_none(), "created twice");
            }
            Event::Update { old, new, .. } => {
                let known = self.0.insert(name, **new.full());
                // It is not told of every object before it is deleted.
                assert_eq!(known.unwrap_or(DELETED), **old.full(), "not what it knows");
            }
            Event::Delete { object, .. } => {
                let known = self.0.remove(&name);
                assert_eq!(known.unwrap_or(DELETED), **object.full(), "not what it knows");
            }
        }
    }
}

/// A handler that comes at some time and stays to the end.
fn handler(world: &Arc<World>) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || {
        let mut cursor = world.subscribe();
        let mut known = Known::default();
        while let Some(item) = future::block_on(cursor.next()) {
            known.hear(item);
        }
        assert_eq!(known.0, world.state());
        assert!(cursor.is_initial_done());
    })
}

/// The version of `b` that is deleted.
const DELETED: u32 = 2;

fn write(world: &World) {
    world.list_nothing();
    world.set("a", Some(1));
    world.set("b", Some(DELETED));
    world.set("a", Some(3));
    world.set("b", None);
    world.set("b", Some(4));
    world.fan.close();
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn soak_nothing_is_lost_or_doubled_between_the_snapshot_and_the_log() {
    check(|| {
        let world = World::new(8);
        let handlers = [handler(&world), handler(&world)];
        write(&world);
        join(handlers);
    });
}

#[test]
fn soak_handlers_that_lag_end_with_what_the_store_shows() {
    check(|| {
        let world = World::new(1);
        let handlers = [handler(&world), handler(&world)];
        write(&world);
        join(handlers);
        assert_eq!(world.fan.len(), 0);
    });
}

#[test]
fn soak_a_handler_that_leaves_takes_nothing_from_the_others() {
    check(|| {
        let world = World::new(2);
        let stays = handler(&world);
        let leaves = thread::spawn({
            let world = world.clone();
            move || {
                let mut cursor = world.subscribe();
                let mut known = Known::default();
                // Polled once and dropped, as in a `select!`, then awaited.
                let polled = pin!(cursor.next()).poll(&mut Context::from_waker(Waker::noop()));
                if let Poll::Ready(Some(item)) = polled {
                    known.hear(item);
                }
                if let Some(item) = future::block_on(cursor.next()) {
                    known.hear(item);
                }
            }
        });
        write(&world);
        join([stays, leaves]);
        assert_eq!((world.fan.len(), world.fan.stats().len()), (0, 0));
    });
}

#[test]
fn soak_a_resync_never_tells_what_is_no_longer_so() {
    check(|| {
        let world = World::new(2);
        world.list_nothing();
        let resyncs = thread::spawn({
            let world = world.clone();
            move || {
                let mut cursor = world.subscribe();
                let mut known = Known::default();
                let mut resyncs = 0;
                while let Some(item) = future::block_on(cursor.next()) {
                    known.hear(item);
                    // Not for ever: there would always be something to hear.
                    if resyncs < 3 {
                        resyncs += 1;
                        cursor.resync(Duration::ZERO, || world.counted());
                    }
                }
                assert_eq!(known.0, world.state());
            }
        });
        write(&world);
        join([resyncs]);
    });
}
