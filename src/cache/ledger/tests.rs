//! Tests of the single rules, and random tests against a simulated server.

mod random;

use super::{api::Ledger, entries::MAX_ENTRIES, *};
use crate::object::ObjectKey;
use parking_lot::Mutex;
use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

fn ready(pending: &mut PendingWrites) -> bool {
    pin!(pending).poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("a", name)
}

/// Ledger with one part for all objects, and a client.
struct Fixture {
    ledger: Arc<Ledger>,
    client: Token,
}

impl Fixture {
    fn new(parts: &[Option<&str>]) -> Self {
        let ledger = Arc::new(Ledger::default());
        for part in parts {
            ledger.join(*part);
        }
        Self {
            ledger,
            client: Token::default(),
        }
    }

    fn wrote(&self, key: &ObjectKey, revision: u64) {
        self.wrote_with(key, revision, Some(true), Existence::Gone);
    }

    /// Records a write. `selected` is whether the selectors match, `existence` what the informer
    /// has.
    fn wrote_with(
        &self,
        key: &ObjectKey,
        revision: u64,
        selected: Option<bool>,
        existence: Existence,
    ) {
        let version = WrittenVersion {
            key,
            revision,
            selected,
        };
        self.ledger
            .wrote(&Writer::of(&self.client), version, &|_, _| existence);
    }

    fn wait(&self, wanted: ReadScope<'_>) -> Option<PendingWrites> {
        self.ledger.pending(&self.client, wanted)
    }

    fn waits(&self, wanted: ReadScope<'_>) -> bool {
        self.wait(wanted).is_some()
    }
}

#[test]
fn handlers_are_woken_before_reads_that_wait_for_a_write() {
    struct Heard(Mutex<Vec<&'static str>>);
    impl Wake for Heard {
        fn wake(self: Arc<Self>) {
            self.0.lock().push("read");
        }
    }
    let (fixture, events) = (Fixture::new(&[None]), Arc::new(Heard(Mutex::default())));
    fixture.wrote(&key("x"), 12);
    let mut pending = fixture.wait(ReadScope::All).expect("a write is pending");
    assert!(
        pin!(&mut pending)
            .poll(&mut Context::from_waker(&events.clone().into()))
            .is_pending()
    );
    fixture.ledger.observe(None, 11, &Observation::Other, || {
        unreachable!("no read waits for this revision")
    });
    fixture.ledger.observe(None, 12, &Observation::Other, || {
        events.0.lock().push("handlers");
    });
    assert_eq!(*events.0.lock(), ["handlers", "read"]);
}

#[test]
fn a_read_waits_only_for_earlier_writes_in_its_scope() {
    let fixture = Fixture::new(&[None]);
    fixture.ledger.observe(None, 10, &Observation::Other, || ());
    fixture.wrote(&key("old"), 10);
    assert!(!fixture.waits(ReadScope::All), "the informer was faster");
    fixture.wrote(&key("x"), 12);
    assert!(!fixture.waits(ReadScope::Key(&key("y"))));
    assert!(!fixture.waits(ReadScope::Namespace("b")));
    assert!(fixture.waits(ReadScope::Namespace("a")) && fixture.waits(ReadScope::All));
    assert!(
        fixture
            .ledger
            .pending(&Token::default(), ReadScope::All)
            .is_none(),
        "another client waits for its own"
    );

    let mut one = fixture
        .wait(ReadScope::Key(&key("x")))
        .expect("a write is pending");
    fixture.wrote(&key("x"), 14);
    let mut both = fixture.wait(ReadScope::All).expect("a write is pending");
    fixture.ledger.observe(None, 11, &Observation::Other, || ());
    assert!(!ready(&mut one));
    fixture.ledger.observe(None, 13, &Observation::Other, || ());
    assert!(
        ready(&mut one),
        "a later write does not delay an earlier read"
    );
    assert!(!ready(&mut both));
    fixture.ledger.observe(None, 14, &Observation::Other, || ());
    assert!(ready(&mut both));
    assert_eq!(fixture.ledger.stats().pending, 0);
}

#[test]
fn each_namespace_has_its_own_revision() {
    let fixture = Fixture::new(&[Some("a"), Some("b")]);
    fixture.wrote(&key("x"), 5);
    fixture.wrote(&ObjectKey::new("c", "x"), 5);
    let mut all = fixture.wait(ReadScope::All).expect("a write is pending");
    fixture
        .ledger
        .observe(Some("b"), 9, &Observation::Other, || ());
    assert!(!ready(&mut all));
    fixture
        .ledger
        .observe(Some("a"), 5, &Observation::Other, || ());
    assert!(
        ready(&mut all),
        "objects elsewhere are not pending, and idle namespaces are not waited for"
    );
}

#[test]
fn objects_of_other_namespaces_share_a_part() {
    let fixture = Fixture::new(&[Some("a"), None]);
    fixture.wrote(&key("x"), 5);
    fixture.wrote(&ObjectKey::new("c", "x"), 5);
    fixture.ledger.observe(None, 9, &Observation::Other, || ());
    assert!(fixture.waits(ReadScope::Namespace("a")));
    assert!(!fixture.waits(ReadScope::Namespace("c")));
    fixture.ledger.leave("a");
    assert!(
        !fixture.waits(ReadScope::All),
        "a removed namespace shows no writes"
    );
}

#[test]
fn a_delete_is_observed_when_the_object_with_that_uid_is_gone() {
    let fixture = Fixture::new(&[None]);
    let there = |_: &ObjectKey, _: Option<&str>| Existence::Exists;
    let delete = |uid: &str, selects_all| {
        fixture.ledger.announce_delete(&key("x")).deleted(
            &Writer::of(&fixture.client),
            uid,
            selects_all,
            &there,
        );
    };
    delete("u", true);
    fixture.ledger.observe(None, 20, &Observation::Other, || ());
    fixture.ledger.observe(
        None,
        21,
        &Observation::Exists {
            key: &key("x"),
            uid: "u",
            deleting: true,
        },
        || (),
    );
    fixture.ledger.observe(
        None,
        22,
        &Observation::Gone(&key("x"), Some("other")),
        || (),
    );
    assert!(fixture.waits(ReadScope::Key(&key("x"))));
    fixture
        .ledger
        .observe(None, 23, &Observation::Gone(&key("x"), Some("u")), || ());
    assert!(!fixture.waits(ReadScope::All));

    let another = |_: &ObjectKey, uid: Option<&str>| {
        if uid.is_none() {
            Existence::Exists
        } else {
            Existence::Gone
        }
    };
    fixture.ledger.announce_delete(&key("x")).deleted(
        &Writer::of(&fixture.client),
        "u",
        false,
        &another,
    );
    assert!(
        !fixture.waits(ReadScope::All),
        "no event follows for an unselected object, even if another one has its name"
    );
    delete("u", false);
    assert!(
        fixture.waits(ReadScope::All),
        "an object in the informer is selected"
    );
    fixture
        .ledger
        .observe(None, 23, &Observation::Gone(&key("x"), Some("u")), || ());
    delete("u", true);
    fixture
        .ledger
        .observe(None, 24, &Observation::Gone(&key("x"), None), || ());
    assert!(
        !fixture.waits(ReadScope::All),
        "a deletion without a UID counts as well"
    );
    drop(fixture.ledger.announce_delete(&key("x")));
    assert!(
        !fixture.waits(ReadScope::All),
        "a failed delete is not pending"
    );
}

#[test]
fn a_key_that_is_created_and_deleted_repeatedly_takes_bounded_memory() {
    let fixture = Fixture::new(&[None]);
    let gone = |_: &ObjectKey, _: Option<&str>| Existence::Gone;
    fixture
        .ledger
        .observe(None, 1, &Observation::All(&gone), || ());
    let cycle = |number: u64| {
        fixture.wrote(&key("x"), number * 2);
        let deleting = fixture.ledger.announce_delete(&key("x"));
        deleting.deleted(
            &Writer::of(&fixture.client),
            &number.to_string(),
            true,
            &gone,
        );
    };
    cycle(1);
    let mut first = fixture.wait(ReadScope::All).expect("a write is pending");
    (2..=500).for_each(cycle);
    let pending = fixture.ledger.stats().pending;
    assert_eq!(
        pending, 4,
        "the writes that a read waits for, and the last one"
    );
    fixture.ledger.observe(None, 2, &Observation::Other, || ());
    fixture
        .ledger
        .observe(None, 3, &Observation::Gone(&key("x"), Some("1")), || ());
    assert!(
        ready(&mut first) && fixture.waits(ReadScope::All),
        "the last write is pending"
    );
    fixture
        .ledger
        .observe(None, 1000, &Observation::Other, || ());
    assert!(
        fixture.waits(ReadScope::All),
        "the last deletion is pending too"
    );
    fixture.ledger.observe(
        None,
        1001,
        &Observation::Gone(&key("x"), Some("500")),
        || (),
    );
    assert_eq!(fixture.ledger.stats().pending, 0);
}

#[test]
fn a_delete_replaces_an_older_one_only_if_no_list_can_show_it_alone() {
    let fixture = Fixture::new(&[None]);
    let writer = Writer::of(&fixture.client);
    let shown = std::cell::Cell::new("1");
    let existence = |_: &ObjectKey, uid: Option<&str>| {
        if uid == Some(shown.get()) {
            Existence::Exists
        } else {
            Existence::Gone
        }
    };
    // Another client created both, so the revision of the second one is unknown.
    for uid in ["1", "2"] {
        fixture
            .ledger
            .announce_delete(&key("x"))
            .deleted(&writer, uid, true, &existence);
    }
    fixture
        .ledger
        .observe(None, 10, &Observation::All(&existence), || ());
    assert!(
        fixture.waits(ReadScope::All),
        "the list is from before the first was deleted"
    );
    shown.set("none");
    fixture
        .ledger
        .observe(None, 20, &Observation::All(&existence), || ());
    assert!(!fixture.waits(ReadScope::All));
}

#[test]
fn deletes_of_a_collection_are_observed_as_deleted_or_marked() {
    let fixture = Fixture::new(&[None]);
    let writer = Writer::of(&fixture.client);
    let there = |_: &ObjectKey, _: Option<&str>| Existence::Exists;
    let remove = |name: &str,
                  or_deleting,
                  since,
                  existence: &dyn Fn(&ObjectKey, Option<&str>) -> Existence| {
        fixture.ledger.removed(
            &writer,
            &RemovedObject {
                key: &key(name),
                uid: name,
                or_deleting,
                since,
            },
            existence,
        );
    };
    for name in ["x", "y"] {
        remove(name, true, None, &there);
    }
    remove("left out", true, None, &|_, _| Existence::Gone);
    fixture.ledger.observe(
        None,
        1,
        &Observation::Exists {
            key: &key("x"),
            uid: "x",
            deleting: true,
        },
        || (),
    );
    assert!(!fixture.waits(ReadScope::Key(&key("x"))) && fixture.waits(ReadScope::Key(&key("y"))));
    fixture.ledger.observe(
        None,
        2,
        &Observation::All(&|_, _| Existence::Deleting),
        || (),
    );
    assert!(!fixture.waits(ReadScope::All));

    remove("x", false, None, &|_, _| Existence::Deleting);
    fixture.ledger.observe(
        None,
        3,
        &Observation::All(&|_, _| Existence::Deleting),
        || (),
    );
    assert!(
        fixture.waits(ReadScope::All),
        "an object without finalizers is deleted, not marked"
    );
    fixture
        .ledger
        .observe(None, 4, &Observation::All(&|_, _| Existence::Gone), || ());
    assert!(!fixture.waits(ReadScope::All));

    let gone = |_: &ObjectKey, _: Option<&str>| Existence::Gone;
    remove("x", true, Some(4), &gone);
    assert!(
        !fixture.waits(ReadScope::All),
        "the informer already removed the object"
    );
    remove("x", true, Some(6), &gone);
    fixture
        .ledger
        .observe(None, 5, &Observation::All(&gone), || ());
    assert!(
        fixture.waits(ReadScope::All),
        "the informer has not received it yet"
    );
    fixture.ledger.observe(None, 6, &Observation::Other, || ());
    fixture
        .ledger
        .observe(None, 7, &Observation::Gone(&key("x"), Some("x")), || ());
    assert!(!fixture.waits(ReadScope::All));
    remove("x", true, Some(9), &gone);
    fixture
        .ledger
        .observe(None, 9, &Observation::All(&gone), || ());
    assert!(
        !fixture.waits(ReadScope::All),
        "the object was created and deleted between two lists"
    );
}

#[test]
fn a_delete_is_shown_by_the_first_list_of_an_informer_that_was_declared_before_its_answer() {
    let gone = |_: &ObjectKey, _: Option<&str>| Existence::Gone;
    // A server whose resource versions are not numbers stays at revision 0.
    for revision in [5, 0] {
        let fixture = Fixture::new(&[None]);
        let remove = || {
            let removed = RemovedObject {
                key: &key("x"),
                uid: "u",
                or_deleting: false,
                since: Some(0),
            };
            fixture
                .ledger
                .removed(&Writer::of(&fixture.client), &removed, &gone);
        };
        remove();
        assert!(
            fixture.waits(ReadScope::Key(&key("x"))),
            "the list may have been requested before the delete"
        );
        fixture.ledger.observe(
            None,
            revision,
            &Observation::All(&|_, _| Existence::Exists),
            || (),
        );
        assert!(
            fixture.waits(ReadScope::Key(&key("x"))),
            "the list still has the object"
        );
        fixture.ledger.observe(
            None,
            revision,
            &Observation::Gone(&key("x"), Some("u")),
            || (),
        );
        assert!(!fixture.waits(ReadScope::All));
        remove();
        assert!(
            !fixture.waits(ReadScope::All),
            "the deletion of a listed object was observed"
        );
    }
    let fixture = Fixture::new(&[None]);
    let removed = RemovedObject {
        key: &key("x"),
        uid: "u",
        or_deleting: false,
        since: Some(0),
    };
    fixture
        .ledger
        .removed(&Writer::of(&fixture.client), &removed, &gone);
    fixture
        .ledger
        .observe(None, 0, &Observation::All(&gone), || ());
    assert!(
        !fixture.waits(ReadScope::All),
        "the list was requested after the delete"
    );
}

#[test]
fn writes_outside_the_selectors_count_only_if_the_informer_has_the_object() {
    let fixture = Fixture::new(&[None]);
    let leave = |revision| fixture.wrote_with(&key("x"), revision, Some(false), Existence::Gone);
    leave(5);
    assert!(!fixture.waits(ReadScope::All));
    fixture.wrote(&key("x"), 6);
    leave(7);
    fixture.ledger.observe(None, 6, &Observation::Other, || ());
    assert!(
        fixture.waits(ReadScope::All),
        "an event will report that the object leaves"
    );
    fixture
        .ledger
        .observe(None, 7, &Observation::Gone(&key("x"), Some("u")), || ());
    assert!(!fixture.waits(ReadScope::All));
    fixture.wrote_with(&key("x"), 8, None, Existence::Gone);
    assert!(
        !fixture.waits(ReadScope::All),
        "the scope is unknown, and the informer does not have the object"
    );
    fixture.wrote_with(&key("x"), 8, None, Existence::Exists);
    assert!(
        fixture.waits(ReadScope::All),
        "the informer has the object, so an event will follow"
    );
}

#[test]
fn a_write_outside_the_selectors_is_observed_when_the_object_leaves() {
    let x = &key("x");
    let left = |fixture: &Fixture, revision| {
        fixture.wrote_with(x, revision, Some(false), Existence::Exists);
    };
    let gone = |fixture: &Fixture, revision| {
        fixture
            .ledger
            .observe(None, revision, &Observation::Gone(x, Some("u")), || ());
    };
    let fixture = Fixture::new(&[None]);
    left(&fixture, 5);
    left(&fixture, 6);
    fixture.ledger.observe(None, 4, &Observation::Other, || ());
    assert!(fixture.waits(ReadScope::Key(x)));
    gone(&fixture, 5);
    assert_eq!(fixture.ledger.stats().pending, 0, "no event follows for 6");

    // The object leaves at 10, comes back at 11, leaves at 12, and is written outside at 13.
    left(&fixture, 10);
    fixture.wrote(x, 11);
    left(&fixture, 13);
    gone(&fixture, 10);
    assert!(
        fixture.waits(ReadScope::Key(x)),
        "the object re-enters before the last write"
    );
    fixture.ledger.observe(None, 11, &Observation::Other, || ());
    gone(&fixture, 9);
    assert!(
        fixture.waits(ReadScope::Key(x)),
        "an event of an older deletion shows no write"
    );
    gone(&fixture, 12);
    assert_eq!(fixture.ledger.stats().pending, 0);

    left(&fixture, 20);
    fixture.ledger.observe(
        None,
        19,
        &Observation::All(&|_, _| Existence::Exists),
        || (),
    );
    assert!(fixture.waits(ReadScope::Key(x)), "the list is from before");
    fixture
        .ledger
        .observe(None, 19, &Observation::All(&|_, _| Existence::Gone), || ());
    assert!(
        !fixture.waits(ReadScope::Key(x)),
        "the list does not have the object"
    );
}

#[test]
fn reads_do_not_wait_for_deletes_outside_the_selectors() {
    let (fixture, x) = (Fixture::new(&[None]), &key("x"));
    let writer = Writer::of(&fixture.client);
    let has = |uid: &'static str| {
        move |_: &ObjectKey, wanted: Option<&str>| {
            if wanted.is_none_or(|wanted| wanted == uid) {
                Existence::Exists
            } else {
                Existence::Gone
            }
        }
    };
    // One object is deleted. Another one of that name is created outside and deleted, before the
    // informer receives any of these events.
    fixture
        .ledger
        .announce_delete(x)
        .deleted(&writer, "one", false, &has("one"));
    fixture.wrote_with(x, 7, Some(false), Existence::Exists);
    fixture
        .ledger
        .announce_delete(x)
        .deleted(&writer, "two", false, &has("one"));
    fixture
        .ledger
        .observe(None, 6, &Observation::Gone(x, Some("one")), || ());
    assert_eq!(fixture.ledger.stats().pending, 0);
    // An object that was created inside will arrive and be deleted.
    fixture.wrote(x, 8);
    fixture
        .ledger
        .announce_delete(x)
        .deleted(&writer, "three", false, &|_, _| Existence::Gone);
    fixture.ledger.observe(None, 8, &Observation::Other, || ());
    assert!(fixture.waits(ReadScope::Key(x)));
    fixture
        .ledger
        .observe(None, 9, &Observation::Gone(x, Some("three")), || ());
    assert_eq!(fixture.ledger.stats().pending, 0);
}

#[test]
fn a_delete_is_not_shown_while_the_informer_expects_a_version_before_it() {
    let x = &key("x");
    let there = Observation::Exists {
        key: x,
        uid: "u",
        deleting: false,
    };
    let gone = Observation::Gone(x, Some("u"));
    // The object leaves the selectors at 2, comes back at 3, and is deleted at 4.
    let write = |fixture: &Fixture| {
        fixture.ledger.observe(None, 1, &there, || ());
        fixture.wrote_with(x, 2, Some(false), Existence::Exists);
        fixture.wrote_with(x, 3, Some(true), Existence::Exists);
    };
    let delete = |fixture: &Fixture, deleting: DeleteAnnouncement, existence: Existence| {
        deleting.deleted(&Writer::of(&fixture.client), "u", false, &|_, _| existence);
    };

    let fixture = Fixture::new(&[None]);
    write(&fixture);
    delete(
        &fixture,
        fixture.ledger.announce_delete(x),
        Existence::Exists,
    );
    fixture.ledger.observe(None, 2, &gone, || ());
    fixture.ledger.observe(None, 3, &there, || ());
    assert!(
        fixture.waits(ReadScope::Key(x)),
        "the store shows the deleted object"
    );
    fixture.ledger.observe(None, 4, &gone, || ());
    assert_eq!(fixture.ledger.stats().pending, 0);

    // The informer receives the first two before the delete is answered.
    for observation in [2, 3] {
        let fixture = Fixture::new(&[None]);
        write(&fixture);
        let deleting = fixture.ledger.announce_delete(x);
        fixture.ledger.observe(None, 2, &gone, || ());
        if observation == 3 {
            fixture.ledger.observe(None, 3, &there, || ());
        }
        delete(
            &fixture,
            deleting,
            if observation == 3 {
                Existence::Exists
            } else {
                Existence::Gone
            },
        );
        fixture.ledger.observe(None, 3, &there, || ());
        assert!(
            fixture.waits(ReadScope::Key(x)),
            "{observation} was observed before the response"
        );
        fixture.ledger.observe(None, 4, &gone, || ());
        assert_eq!(fixture.ledger.stats().pending, 0);
    }
}

#[test]
fn a_delete_is_shown_once_the_expected_version_turns_out_to_be_of_another_object() {
    let (fixture, x) = (Fixture::new(&[None]), &key("x"));
    let deleting = fixture.ledger.announce_delete(x);
    // Deleted at 4 and created again at 5. The response to the create arrives first.
    fixture.wrote(x, 5);
    deleting.deleted(&Writer::of(&fixture.client), "old", true, &|_, _| {
        Existence::Exists
    });
    fixture
        .ledger
        .observe(None, 4, &Observation::Gone(x, Some("old")), || ());
    assert!(fixture.waits(ReadScope::Key(x)));
    fixture.ledger.observe(
        None,
        5,
        &Observation::Exists {
            key: x,
            uid: "new",
            deleting: false,
        },
        || (),
    );
    assert_eq!(fixture.ledger.stats().pending, 0);
}

#[test]
fn every_read_waits_for_writes_beyond_the_maximum() {
    let fixture = Fixture::new(&[Some("a"), Some("b")]);
    let most = MAX_ENTRIES as u64;
    (1..=most + 1000).for_each(|number| fixture.wrote(&key(&number.to_string()), number));
    assert_eq!(
        fixture.ledger.stats().pending,
        MAX_ENTRIES + 1,
        "one entry represents all others"
    );
    let other = Token::default();
    let waits = |wanted: ReadScope<'_>| fixture.ledger.pending(&other, wanted).is_some();
    assert!(
        waits(ReadScope::Key(&key("any")))
            && waits(ReadScope::Namespace("a"))
            && waits(ReadScope::All)
    );
    assert!(
        !waits(ReadScope::Key(&ObjectKey::new("b", "any"))) && !waits(ReadScope::Namespace("b")),
        "no write in this namespace"
    );
    let last = key(&(most + 1000).to_string());
    let mut read = fixture
        .wait(ReadScope::Key(&last))
        .expect("a write is pending");
    fixture.wrote(&key("later"), most + 1001);
    fixture
        .ledger
        .observe(Some("a"), most, &Observation::Other, || ());
    assert_eq!(
        (ready(&mut read), fixture.ledger.stats().pending),
        (false, 2)
    );
    fixture
        .ledger
        .observe(Some("a"), most + 1000, &Observation::Other, || ());
    assert!(
        ready(&mut read) && waits(ReadScope::Key(&last)),
        "an earlier read does not wait for later writes"
    );
    fixture
        .ledger
        .observe(Some("a"), most + 1001, &Observation::Other, || ());
    assert_eq!(fixture.ledger.stats().pending, 0);
    fixture.wrote(&key("again"), most + 1002);
    assert!(
        !waits(ReadScope::Key(&last)) && fixture.waits(ReadScope::Key(&key("again"))),
        "keys are distinguished again"
    );
}

#[test]
fn adding_a_namespace_moves_its_writes() {
    let fixture = Fixture::new(&[None]);
    fixture.wrote(&key("x"), 5);
    fixture.ledger.join(Some("a"));
    fixture.ledger.observe(None, 9, &Observation::Other, || ());
    assert!(
        fixture.waits(ReadScope::Key(&key("x"))),
        "the other namespaces do not show it"
    );
    fixture
        .ledger
        .observe(Some("a"), 5, &Observation::Other, || ());
    assert_eq!(fixture.ledger.stats().pending, 0);
}

#[tokio::test(start_paused = true)]
async fn writes_of_a_reconcile_are_distinguished_and_counted() {
    let fixture = Fixture::new(&[None]);
    let (one, other) = (Token::default(), Token::default());
    one.clone()
        .scope(async { fixture.wrote(&key("x"), 5) })
        .await;
    other
        .clone()
        .scope(async { fixture.wrote(&key("y"), 6) })
        .await;
    fixture.wrote(&key("z"), 7);
    let is_caught_up = |token| fixture.ledger.is_caught_up(token);
    assert!(!is_caught_up(&one) && !is_caught_up(&other) && !is_caught_up(&fixture.client));
    tokio::time::advance(Duration::from_millis(30)).await;
    fixture.ledger.observe(None, 5, &Observation::Other, || ());
    assert!(is_caught_up(&one) && !is_caught_up(&other));
    let waiting = fixture.wait(ReadScope::All).expect("two are pending");
    assert_eq!(waiting.time_out(), Some(key("y")));
    tokio::time::advance(Duration::from_millis(70)).await;
    fixture.ledger.observe(None, 6, &Observation::Other, || ());
    let stats = fixture.ledger.stats();
    assert_eq!(
        (stats.pending, stats.writes, stats.waits, stats.timeouts),
        (1, 3, 1, 1)
    );
    assert_eq!(
        (stats.last_lag, stats.longest_lag),
        (Duration::from_millis(100), Duration::from_millis(100))
    );
}

#[test]
fn unobserved_writes_take_memory_per_key_only() {
    let fixture = Fixture::new(&[None]);
    (1..1000).for_each(|revision| fixture.wrote(&key("x"), revision));
    assert_eq!(fixture.ledger.stats().pending, 1);
    let waiting = fixture.wait(ReadScope::All);
    fixture.wrote(&key("x"), 1000);
    assert_eq!(
        fixture.ledger.stats().pending,
        2,
        "a waiting read does not wait for later writes"
    );
    drop(waiting);
    fixture.wrote(&key("x"), 1001);
    assert!(fixture.ledger.stats().pending <= 2);
    fixture
        .ledger
        .observe(None, 1001, &Observation::Other, || ());
    assert_eq!(fixture.ledger.stats().pending, 0);
}

#[test]
fn a_delete_in_flight_observes_the_list_of_a_restored_server() {
    let fixture = Fixture::new(&[None]);
    fixture.ledger.observe(None, 9, &Observation::Other, || ());
    let gone: &dyn Fn(&ObjectKey, Option<&str>) -> Existence = &|_, _| Existence::Gone;
    let deleting = fixture.ledger.announce_delete(&key("x"));
    fixture
        .ledger
        .observe(None, 3, &Observation::All(gone), || ());
    deleting.deleted(&Writer::of(&fixture.client), "u", true, gone);
    assert!(
        !fixture.waits(ReadScope::All),
        "the list does not have the object, and no event follows"
    );
}

#[tokio::test]
async fn reconciles_that_are_over_leave_no_more_than_one_entry_for_a_key() {
    let fixture = Fixture::new(&[None]);
    let wrote = async |scope: &Token, revision| {
        scope
            .clone()
            .scope(async { fixture.wrote(&key("x"), revision) })
            .await;
    };
    for revision in 1..1000 {
        wrote(&Token::of_reconcile(ReadPolicy::DoNotWait), revision).await;
    }
    assert_eq!(fixture.ledger.stats().pending, 1, "all tokens are dropped");

    let (one, other) = (Token::default(), Token::default());
    wrote(&one, 1000).await;
    wrote(&other, 1001).await;
    assert_eq!(
        fixture.ledger.stats().pending,
        2,
        "each token has its own entry"
    );
    fixture
        .ledger
        .observe(None, 1000, &Observation::Other, || ());
    assert!(fixture.ledger.is_caught_up(&one) && !fixture.ledger.is_caught_up(&other));
    wrote(&one, 1002).await;
    drop((one, other));
    fixture.wrote(&key("x"), 1003);
    assert_eq!(fixture.ledger.stats().pending, 1);
    assert!(fixture.waits(ReadScope::All));
}

#[test]
fn reads_wait_for_no_write_before_the_first_part_joins_and_after_the_close() {
    let fixture = Fixture::new(&[]);
    fixture.wrote(&key("x"), 5);
    assert!(
        !fixture.waits(ReadScope::All),
        "the first list will show the write"
    );
    fixture.ledger.join(None);
    fixture.wrote(&key("x"), 5);
    let mut pending = fixture.wait(ReadScope::All).expect("a write is pending");
    fixture.ledger.end();
    assert!(ready(&mut pending));
    fixture.wrote(&key("x"), 6);
    assert!(!fixture.waits(ReadScope::All));
}
