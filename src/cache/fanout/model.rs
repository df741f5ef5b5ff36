//! Model check of the fan-out under a scheduler that explores interleavings.
//!
//! Compiles the production files a second time, with a `sync` in which every lock is a scheduling
//! point, like `tests/model` for the work queue. A subscription that is never woken is a deadlock
//! here.

#[path = "backlog.rs"]
mod backlog;
#[path = "event.rs"]
mod event;
#[path = "hub.rs"]
mod hub;
#[path = "log.rs"]
mod log;
#[path = "pending_count.rs"]
mod pending_count;
#[path = "../../../tests/model/schedules.rs"]
mod schedules;
#[path = "subscription.rs"]
mod subscription;
#[path = "../../../tests/model/sync.rs"]
mod sync;
#[path = "wakes.rs"]
mod wakes;

use crate::{
    cache::store::Entry,
    object::{MetadataOnly, ObjectKey},
};
use event::{Event, Item};
use hub::Fanout;
use shuttle::{future, thread};
use std::{
    collections::BTreeMap,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use steersman_testkit::{Test, this_test};
use subscription::Subscription;

fn check(test: Test, scenario: fn()) {
    schedules::check(test, 500, scenario);
}

type State = BTreeMap<&'static str, u32>;

/// Fan-out and store. The lock of the store is a scheduling point as well.
struct Fixture {
    fanout: Fanout<u32>,
    store: sync::Mutex<State>,
}

fn entry(name: &str, version: u32) -> Entry<u32> {
    Entry::new(ObjectKey::cluster_scoped(name), Arc::new(version), 0)
}

impl Fixture {
    fn new(capacity: usize) -> Arc<Self> {
        let fanout = Fanout::with_limits(
            capacity,
            4096,
            Arc::new(|key, _| Arc::new(MetadataOnly::named(key.clone()))),
        );
        Arc::new(Self {
            fanout,
            store: sync::Mutex::default(),
        })
    }

    /// Publishes an empty first list.
    fn list_nothing(&self) {
        self.fanout.write(|publisher| {
            publisher.publish_all([]);
            publisher.synced();
        });
    }

    /// Sets the version of an object, or deletes it.
    fn set(&self, name: &'static str, version: Option<u32>) {
        self.fanout.write(|publisher| {
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
        self.fanout.wake();
    }

    fn subscribe(&self) -> Subscription<u32> {
        self.fanout.subscribe(|| self.counted())
    }

    fn entries(&self) -> Vec<Entry<u32>> {
        self.store
            .lock()
            .iter()
            .map(|(name, version)| entry(name, *version))
            .collect()
    }

    fn counted(&self) -> (usize, Vec<Entry<u32>>) {
        let entries = self.entries();
        (entries.len(), entries)
    }

    fn state(&self) -> BTreeMap<String, u32> {
        self.store
            .lock()
            .iter()
            .map(|(name, version)| ((*name).to_owned(), *version))
            .collect()
    }
}

/// State of a handler, against which every event is checked.
#[derive(Default)]
struct Known(BTreeMap<String, u32>);

impl Known {
    fn apply(&mut self, item: Item<u32>) {
        let Item::Event(event) = item else { return };
        let name = event.key().to_string();
        match event {
            Event::Create { object, .. } => {
                assert!(
                    self.0.insert(name, **object.full()).is_none(),
                    "created twice"
                );
            }
            Event::Update { old, new, .. } => {
                let known = self.0.insert(name, **new.full());
                // The handler may never have received an object that is deleted.
                assert_eq!(
                    known.unwrap_or(DELETED),
                    **old.full(),
                    "not the known state"
                );
            }
            Event::Delete { object, .. } => {
                let known = self.0.remove(&name);
                assert_eq!(
                    known.unwrap_or(DELETED),
                    **object.full(),
                    "not the known state"
                );
            }
        }
    }
}

/// Spawns a handler that subscribes at some time and reads to the end.
fn handler(fixture: &Arc<Fixture>) -> thread::JoinHandle<()> {
    let fixture = fixture.clone();
    thread::spawn(move || {
        let mut subscription = fixture.subscribe();
        let mut known = Known::default();
        while let Some(item) = future::block_on(subscription.next()) {
            known.apply(item);
        }
        assert_eq!(known.0, fixture.state());
        assert!(subscription.is_initial_done());
    })
}

/// Version of `b` that is deleted.
const DELETED: u32 = 2;

fn write(fixture: &Fixture) {
    fixture.list_nothing();
    fixture.set("a", Some(1));
    fixture.set("b", Some(DELETED));
    fixture.set("a", Some(3));
    fixture.set("b", None);
    fixture.set("b", Some(4));
    fixture.fanout.close();
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn soak_no_event_is_lost_or_repeated_between_snapshot_and_log() {
    check(this_test!(), || {
        let fixture = Fixture::new(8);
        let handlers = [handler(&fixture), handler(&fixture)];
        write(&fixture);
        join(handlers);
    });
}

#[test]
fn soak_lagging_handlers_end_with_the_state_of_the_store() {
    check(this_test!(), || {
        let fixture = Fixture::new(1);
        let handlers = [handler(&fixture), handler(&fixture)];
        write(&fixture);
        join(handlers);
        assert_eq!(fixture.fanout.len(), 0);
    });
}

#[test]
fn soak_dropping_a_subscription_loses_no_event_of_others() {
    check(this_test!(), || {
        let fixture = Fixture::new(2);
        let stays = handler(&fixture);
        let leaves = thread::spawn({
            let fixture = fixture.clone();
            move || {
                let mut subscription = fixture.subscribe();
                let mut known = Known::default();
                // Polled once and dropped, as in `select!`, then awaited.
                let polled =
                    pin!(subscription.next()).poll(&mut Context::from_waker(Waker::noop()));
                if let Poll::Ready(Some(item)) = polled {
                    known.apply(item);
                }
                if let Some(item) = future::block_on(subscription.next()) {
                    known.apply(item);
                }
            }
        });
        write(&fixture);
        join([stays, leaves]);
        assert_eq!((fixture.fanout.len(), fixture.fanout.stats().len()), (0, 0));
    });
}

#[test]
fn soak_a_resync_never_delivers_an_outdated_state() {
    check(this_test!(), || {
        let fixture = Fixture::new(2);
        fixture.list_nothing();
        let resyncs = thread::spawn({
            let fixture = fixture.clone();
            move || {
                let mut subscription = fixture.subscribe();
                let mut known = Known::default();
                let mut resyncs = 0;
                while let Some(item) = future::block_on(subscription.next()) {
                    known.apply(item);
                    // Limited, because each resync adds events.
                    if resyncs < 3 {
                        resyncs += 1;
                        subscription.resync(Duration::ZERO, || fixture.counted());
                    }
                }
                assert_eq!(known.0, fixture.state());
            }
        });
        write(&fixture);
        join([resyncs]);
    });
}
