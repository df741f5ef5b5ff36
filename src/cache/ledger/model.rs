//! The ledger under a scheduler that tries the interleavings, as the fan-out's model does: the files that ship, against a `sync` in which every lock is a
//! point where another thread may run. A reader that sleeps for ever is a deadlock here.

#[path = "book.rs"]
mod book;
#[path = "entries.rs"]
mod entries;
#[path = "../../../tests/model/schedules.rs"]
mod schedules;
#[path = "state.rs"]
mod state;
#[path = "../../../tests/model/sync.rs"]
mod sync;

use super::{OwnWrites, Token, Writer};
use crate::object::ObjectKey;
use book::Ledger;
use shuttle::{future, thread};
use state::{Fate, Removed, Told, Version, Wanted};
use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use steersman_testkit::{Test, this_test};

fn check(test: Test, scenario: fn()) {
    schedules::check(test, 500, scenario);
}

/// An informer of one object, and who writes it.
struct World {
    ledger: Arc<Ledger>,
    /// The object's uid and revision, if it is there.
    store: sync::Mutex<Option<(&'static str, u64)>>,
    client: Token,
    key: ObjectKey,
}

impl World {
    fn new() -> Arc<Self> {
        let ledger = Arc::new(Ledger::default());
        ledger.join(None);
        let key = ObjectKey::cluster_scoped("a");
        Arc::new(Self { ledger, store: sync::Mutex::default(), client: Token::default(), key })
    }

    fn put(&self, uid: &'static str, revision: u64) {
        *self.store.lock() = Some((uid, revision));
        self.ledger.told(None, revision, &Told::There { key: &self.key, uid, deleting: false }, || ());
    }

    fn delete(&self, uid: &str, revision: u64) {
        *self.store.lock() = None;
        self.ledger.told(None, revision, &Told::Gone(&self.key, Some(uid)), || ());
    }

    fn list(&self, revision: u64, object: Option<(&'static str, u64)>) {
        *self.store.lock() = object;
        self.ledger.told(None, revision, &Told::All(&|_, uid| self.fate(uid)), || ());
    }

    fn fate(&self, uid: Option<&str>) -> Fate {
        let is_there = self.store.lock().is_some_and(|(there, _)| uid.is_none_or(|uid| there == uid));
        if is_there { Fate::There } else { Fate::Gone }
    }

    fn wrote(&self, revision: u64) {
        self.wrote_so(revision, Some(true));
    }

    fn wrote_so(&self, revision: u64, selected: Option<bool>) {
        let version = Version { key: &self.key, revision, selected };
        self.ledger.wrote(&Writer::of(&self.client), version, &|_, uid| self.fate(uid));
    }

    fn read(&self) -> Option<(&'static str, u64)> {
        if let Some(pending) = self.ledger.pending(&self.client, Wanted::Key(&self.key)) {
            future::block_on(pending);
        }
        *self.store.lock()
    }

    fn spawn(self: &Arc<Self>, work: fn(&Self)) -> thread::JoinHandle<()> {
        let world = self.clone();
        thread::spawn(move || work(&world))
    }

    fn is_empty(&self) -> bool {
        self.ledger.stats() == OwnWrites { pending: 0, ..self.ledger.stats() }
    }
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn soak_a_read_after_a_write_shows_it_and_never_sleeps_for_ever() {
    check(this_test!(), || {
        let world = World::new();
        let informer = world.spawn(|world| (1..=4).for_each(|revision| world.put("u", revision)));
        let writes = |revision: u64| {
            let world = world.clone();
            thread::spawn(move || {
                world.wrote(revision);
                let read = world.read().expect("it is there");
                assert!(read.1 >= revision, "{read:?} is older than {revision}");
            })
        };
        let writers = [writes(2), writes(4), writes(3)];
        join(writers.into_iter().chain([informer]));
        assert!(world.is_empty());
    });
}

#[test]
fn soak_a_delete_is_shown_whether_its_event_or_its_answer_comes_first() {
    check(this_test!(), || {
        let world = World::new();
        // Announced before the server does it, and so before the informer can know; the object may be unknown until then.
        let deleting = world.ledger.deleting(&world.key);
        let informer = world.spawn(|world| {
            world.put("u", 1);
            world.delete("u", 2);
        });
        let writer = Writer::of(&world.client);
        deleting.deleted(&writer, "u", true, &|_, uid| world.fate(uid));
        assert_eq!(world.read(), None);
        join([informer]);
        assert!(world.is_empty());
    });
}

#[test]
fn soak_a_delete_of_an_object_that_left_the_selectors_and_came_back_is_shown() {
    check(this_test!(), || {
        let world = World::new();
        world.put("u", 1);
        world.wrote_so(2, Some(false));
        let deleting = world.ledger.deleting(&world.key);
        let informer = world.spawn(|world| {
            world.delete("u", 2);
            world.put("u", 3);
            world.delete("u", 4);
        });
        world.wrote(3);
        let writer = Writer::of(&world.client);
        deleting.deleted(&writer, "u", false, &|_, uid| world.fate(uid));
        assert_eq!(world.read(), None);
        join([informer]);
        assert!(world.is_empty());
    });
}

#[test]
fn soak_a_delete_is_shown_by_a_list_too() {
    check(this_test!(), || {
        let world = World::new();
        world.put("u", 1);
        let deleting = world.ledger.deleting(&world.key);
        let informer = world.spawn(|world| world.list(5, None));
        let writer = Writer::of(&world.client);
        deleting.deleted(&writer, "u", true, &|_, uid| world.fate(uid));
        assert_eq!(world.read(), None);
        join([informer]);
        assert!(world.is_empty());
    });
}

#[test]
fn soak_an_informer_that_ends_or_a_server_set_back_lets_readers_go() {
    check(this_test!(), || {
        let world = World::new();
        world.put("u", 5);
        world.wrote(9);
        let reader = world.spawn(|world| _ = world.read());
        let informer = world.spawn(|world| world.list(2, None));
        join([reader, informer]);
        assert!(world.is_empty());
        world.wrote(9);
        let reader = world.spawn(|world| _ = world.read());
        world.ledger.end();
        join([reader]);
        assert!(world.is_empty());
    });
}

#[test]
fn soak_what_is_written_after_an_object_has_left_keeps_nobody_waiting() {
    check(this_test!(), || {
        let world = World::new();
        world.put("u", 1);
        // It leaves at 2; of what is written outside nothing is told.
        let informer = world.spawn(|world| world.delete("u", 2));
        for revision in [2, 3, 4] {
            world.wrote_so(revision, Some(false));
        }
        assert_eq!(world.read(), None);
        join([informer]);
        assert!(world.is_empty());
    });
}

#[test]
fn soak_a_read_that_is_dropped_takes_nothing_from_another() {
    check(this_test!(), || {
        let world = World::new();
        world.wrote(1);
        let informer = world.spawn(|world| world.put("u", 1));
        let dropped = world.spawn(|world| {
            if let Some(pending) = world.ledger.pending(&world.client, Wanted::All) {
                let polled = pin!(pending).poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled == Poll::Pending || world.store.lock().is_some());
            }
        });
        assert!(world.read().is_some());
        join([informer, dropped]);
        assert!(world.is_empty());
    });
}
