//! Model check of the ledger under a scheduler that explores interleavings.
//!
//! Compiles the production files with a `sync` in which every lock is a scheduling point, like the
//! model of the fan-out. A read that is never woken is a deadlock here.

#[path = "api.rs"]
mod api;
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
use api::Ledger;
use shuttle::{future, thread};
use state::{Existence, Observation, ReadScope, RemovedObject, WrittenVersion};
use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use steersman_testkit::{Test, this_test};

fn check(test: Test, scenario: fn()) {
    schedules::check(test, 500, scenario);
}

/// Informer of one object, and its writer.
struct Fixture {
    ledger: Arc<Ledger>,
    /// Uid and revision of the object, if it exists.
    store: sync::Mutex<Option<(&'static str, u64)>>,
    client: Token,
    key: ObjectKey,
}

impl Fixture {
    fn new() -> Arc<Self> {
        let ledger = Arc::new(Ledger::default());
        ledger.join(None);
        let key = ObjectKey::cluster_scoped("a");
        Arc::new(Self {
            ledger,
            store: sync::Mutex::default(),
            client: Token::default(),
            key,
        })
    }

    fn put(&self, uid: &'static str, revision: u64) {
        *self.store.lock() = Some((uid, revision));
        self.ledger.observe(
            None,
            revision,
            &Observation::Exists {
                key: &self.key,
                uid,
                deleting: false,
            },
            || (),
        );
    }

    fn delete(&self, uid: &str, revision: u64) {
        *self.store.lock() = None;
        self.ledger.observe(
            None,
            revision,
            &Observation::Gone(&self.key, Some(uid)),
            || (),
        );
    }

    fn list(&self, revision: u64, object: Option<(&'static str, u64)>) {
        *self.store.lock() = object;
        self.ledger.observe(
            None,
            revision,
            &Observation::All(&|_, uid| self.existence(uid)),
            || (),
        );
    }

    fn existence(&self, uid: Option<&str>) -> Existence {
        let is_there = self
            .store
            .lock()
            .is_some_and(|(there, _)| uid.is_none_or(|uid| there == uid));
        if is_there {
            Existence::Exists
        } else {
            Existence::Gone
        }
    }

    fn wrote(&self, revision: u64) {
        self.wrote_with(revision, Some(true));
    }

    fn wrote_with(&self, revision: u64, selected: Option<bool>) {
        let version = WrittenVersion {
            key: &self.key,
            revision,
            selected,
        };
        self.ledger
            .wrote(&Writer::of(&self.client), version, &|_, uid| {
                self.existence(uid)
            });
    }

    fn read(&self) -> Option<(&'static str, u64)> {
        if let Some(pending) = self.ledger.pending(&self.client, ReadScope::Key(&self.key)) {
            future::block_on(pending);
        }
        *self.store.lock()
    }

    fn spawn(self: &Arc<Self>, work: fn(&Self)) -> thread::JoinHandle<()> {
        let fixture = self.clone();
        thread::spawn(move || work(&fixture))
    }

    fn is_empty(&self) -> bool {
        self.ledger.stats()
            == OwnWrites {
                pending: 0,
                ..self.ledger.stats()
            }
    }
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn soak_a_read_after_a_write_returns_it() {
    check(this_test!(), || {
        let fixture = Fixture::new();
        let informer =
            fixture.spawn(|fixture| (1..=4).for_each(|revision| fixture.put("u", revision)));
        let writes = |revision: u64| {
            let fixture = fixture.clone();
            thread::spawn(move || {
                fixture.wrote(revision);
                let read = fixture.read().expect("a pending write");
                assert!(read.1 >= revision, "{read:?} is older than {revision}");
            })
        };
        let writers = [writes(2), writes(4), writes(3)];
        join(writers.into_iter().chain([informer]));
        assert!(fixture.is_empty());
    });
}

#[test]
fn soak_a_delete_is_observed_if_its_event_precedes_or_follows_its_response() {
    check(this_test!(), || {
        let fixture = Fixture::new();
        // Announced before the server deletes the object, and so before the informer is notified.
        // The informer may not have received the object before.
        let deleting = fixture.ledger.announce_delete(&fixture.key);
        let informer = fixture.spawn(|fixture| {
            fixture.put("u", 1);
            fixture.delete("u", 2);
        });
        let writer = Writer::of(&fixture.client);
        deleting.deleted(&writer, "u", true, &|_, uid| fixture.existence(uid));
        assert_eq!(fixture.read(), None);
        join([informer]);
        assert!(fixture.is_empty());
    });
}

#[test]
fn soak_a_delete_of_an_object_that_left_and_reentered_the_selectors_is_observed() {
    check(this_test!(), || {
        let fixture = Fixture::new();
        fixture.put("u", 1);
        fixture.wrote_with(2, Some(false));
        let deleting = fixture.ledger.announce_delete(&fixture.key);
        let informer = fixture.spawn(|fixture| {
            fixture.delete("u", 2);
            fixture.put("u", 3);
            fixture.delete("u", 4);
        });
        fixture.wrote(3);
        let writer = Writer::of(&fixture.client);
        deleting.deleted(&writer, "u", false, &|_, uid| fixture.existence(uid));
        assert_eq!(fixture.read(), None);
        join([informer]);
        assert!(fixture.is_empty());
    });
}

#[test]
fn soak_a_delete_is_shown_by_a_list_too() {
    check(this_test!(), || {
        let fixture = Fixture::new();
        fixture.put("u", 1);
        let deleting = fixture.ledger.announce_delete(&fixture.key);
        let informer = fixture.spawn(|fixture| fixture.list(5, None));
        let writer = Writer::of(&fixture.client);
        deleting.deleted(&writer, "u", true, &|_, uid| fixture.existence(uid));
        assert_eq!(fixture.read(), None);
        join([informer]);
        assert!(fixture.is_empty());
    });
}

#[test]
fn soak_a_closed_informer_or_restored_server_releases_reads() {
    check(this_test!(), || {
        let fixture = Fixture::new();
        fixture.put("u", 5);
        fixture.wrote(9);
        let reader = fixture.spawn(|fixture| _ = fixture.read());
        let informer = fixture.spawn(|fixture| fixture.list(2, None));
        join([reader, informer]);
        assert!(fixture.is_empty());
        fixture.wrote(9);
        let reader = fixture.spawn(|fixture| _ = fixture.read());
        fixture.ledger.end();
        join([reader]);
        assert!(fixture.is_empty());
    });
}

#[test]
fn soak_writes_after_an_object_has_left_the_selectors_block_no_read() {
    check(this_test!(), || {
        let fixture = Fixture::new();
        fixture.put("u", 1);
        // The object leaves the selectors at 2. The informer does not receive the later versions.
        let informer = fixture.spawn(|fixture| fixture.delete("u", 2));
        for revision in [2, 3, 4] {
            fixture.wrote_with(revision, Some(false));
        }
        assert_eq!(fixture.read(), None);
        join([informer]);
        assert!(fixture.is_empty());
    });
}

#[test]
fn soak_dropping_a_read_does_not_affect_others() {
    check(this_test!(), || {
        let fixture = Fixture::new();
        fixture.wrote(1);
        let informer = fixture.spawn(|fixture| fixture.put("u", 1));
        let dropped = fixture.spawn(|fixture| {
            if let Some(pending) = fixture.ledger.pending(&fixture.client, ReadScope::All) {
                let polled = pin!(pending).poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled == Poll::Pending || fixture.store.lock().is_some());
            }
        });
        assert!(fixture.read().is_some());
        join([informer, dropped]);
        assert!(fixture.is_empty());
    });
}
