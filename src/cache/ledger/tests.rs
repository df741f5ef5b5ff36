//! The rules one by one, and then against a server that does whatever a server does.

mod random;

use super::{book::Ledger, entries::MOST, *};
use crate::object::ObjectKey;
use parking_lot::Mutex;
use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

fn ready(pending: &mut Pending) -> bool {
    pin!(pending).poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("a", name)
}

/// A ledger with one part for everything, and a client.
struct Scene {
    ledger: Arc<Ledger>,
    client: Token,
}

impl Scene {
    fn new(parts: &[Option<&str>]) -> Self {
        let ledger = Arc::new(Ledger::default());
        for part in parts {
            ledger.join(*part);
        }
        Self { ledger, client: Token::default() }
    }

    fn wrote(&self, key: &ObjectKey, revision: u64) {
        self.wrote_so(key, revision, Some(true), Fate::Gone);
    }

    /// Whether the selectors let it in, and what the informer has under the key.
    fn wrote_so(&self, key: &ObjectKey, revision: u64, selected: Option<bool>, fate: Fate) {
        let version = Version { key, revision, selected };
        self.ledger.wrote(&Writer::of(&self.client), version, &|_, _| fate);
    }

    fn wait(&self, wanted: Wanted<'_>) -> Option<Pending> {
        self.ledger.pending(&self.client, wanted)
    }

    fn waits(&self, wanted: Wanted<'_>) -> bool {
        self.wait(wanted).is_some()
    }
}

#[test]
fn handlers_are_woken_before_those_who_wait_for_a_write() {
    struct Heard(Mutex<Vec<&'static str>>);
    impl Wake for Heard {
        fn wake(self: Arc<Self>) {
            self.0.lock().push("who waits");
        }
    }
    let (scene, heard) = (Scene::new(&[None]), Arc::new(Heard(Mutex::default())));
    scene.wrote(&key("x"), 12);
    let mut pending = scene.wait(Wanted::All).expect("it is pending");
    assert!(pin!(&mut pending).poll(&mut Context::from_waker(&heard.clone().into())).is_pending());
    scene.ledger.told(None, 11, &Told::Other, || unreachable!("nobody has waited for that"));
    scene.ledger.told(None, 12, &Told::Other, || heard.0.lock().push("handlers"));
    assert_eq!(*heard.0.lock(), ["handlers", "who waits"]);
}

#[test]
fn a_read_waits_for_what_concerns_it_and_was_there_when_it_began() {
    let scene = Scene::new(&[None]);
    scene.ledger.told(None, 10, &Told::Other, || ());
    scene.wrote(&key("old"), 10);
    assert!(!scene.waits(Wanted::All), "the informer was faster");
    scene.wrote(&key("x"), 12);
    assert!(!scene.waits(Wanted::Key(&key("y"))));
    assert!(!scene.waits(Wanted::Namespace("b")));
    assert!(scene.waits(Wanted::Namespace("a")) && scene.waits(Wanted::All));
    assert!(scene.ledger.pending(&Token::default(), Wanted::All).is_none(), "another client waits for its own");

    let mut one = scene.wait(Wanted::Key(&key("x"))).expect("it is pending");
    scene.wrote(&key("x"), 14);
    let mut both = scene.wait(Wanted::All).expect("it is pending");
    scene.ledger.told(None, 11, &Told::Other, || ());
    assert!(!ready(&mut one));
    scene.ledger.told(None, 13, &Told::Other, || ());
    assert!(ready(&mut one), "a later write does not delay an earlier read");
    assert!(!ready(&mut both));
    scene.ledger.told(None, 14, &Told::Other, || ());
    assert!(ready(&mut both));
    assert_eq!(scene.ledger.stats().pending, 0);
}

#[test]
fn each_namespace_has_a_revision_of_its_own() {
    let scene = Scene::new(&[Some("a"), Some("b")]);
    scene.wrote(&key("x"), 5);
    scene.wrote(&ObjectKey::new("c", "x"), 5);
    let mut all = scene.wait(Wanted::All).expect("it is pending");
    scene.ledger.told(Some("b"), 9, &Told::Other, || ());
    assert!(!ready(&mut all));
    scene.ledger.told(Some("a"), 5, &Told::Other, || ());
    assert!(ready(&mut all), "what is elsewhere is not kept, and the quiet one is not waited for");
}

#[test]
fn what_has_no_part_of_its_own_is_in_the_one_of_all_others() {
    let scene = Scene::new(&[Some("a"), None]);
    scene.wrote(&key("x"), 5);
    scene.wrote(&ObjectKey::new("c", "x"), 5);
    scene.ledger.told(None, 9, &Told::Other, || ());
    assert!(scene.waits(Wanted::Namespace("a")));
    assert!(!scene.waits(Wanted::Namespace("c")));
    scene.ledger.leave("a");
    assert!(!scene.waits(Wanted::All), "a namespace that left shows nothing any more");
}

#[test]
fn a_delete_is_shown_when_this_very_object_is_gone() {
    let scene = Scene::new(&[None]);
    let there = |_: &ObjectKey, _: Option<&str>| Fate::There;
    let delete = |uid: &str, selects_all| {
        scene.ledger.deleting(&key("x")).deleted(&Writer::of(&scene.client), uid, selects_all, &there);
    };
    delete("u", true);
    scene.ledger.told(None, 20, &Told::Other, || ());
    scene.ledger.told(None, 21, &Told::There { key: &key("x"), uid: "u", deleting: true }, || ());
    scene.ledger.told(None, 22, &Told::Gone(&key("x"), Some("other")), || ());
    assert!(scene.waits(Wanted::Key(&key("x"))));
    scene.ledger.told(None, 23, &Told::Gone(&key("x"), Some("u")), || ());
    assert!(!scene.waits(Wanted::All));

    let another = |_: &ObjectKey, uid: Option<&str>| if uid.is_none() { Fate::There } else { Fate::Gone };
    scene.ledger.deleting(&key("x")).deleted(&Writer::of(&scene.client), "u", false, &another);
    assert!(!scene.waits(Wanted::All), "nobody will tell of what is not selected, whatever has the name");
    delete("u", false);
    assert!(scene.waits(Wanted::All), "it is there, and so it is selected");
    scene.ledger.told(None, 23, &Told::Gone(&key("x"), Some("u")), || ());
    delete("u", true);
    scene.ledger.told(None, 24, &Told::Gone(&key("x"), None), || ());
    assert!(!scene.waits(Wanted::All), "one that cannot be read is gone all the same");
    drop(scene.ledger.deleting(&key("x")));
    assert!(!scene.waits(Wanted::All), "one that failed deletes nothing");
}

#[test]
fn one_key_that_comes_and_goes_while_nothing_is_heard_leaves_no_heap() {
    let scene = Scene::new(&[None]);
    let gone = |_: &ObjectKey, _: Option<&str>| Fate::Gone;
    scene.ledger.told(None, 1, &Told::All(&gone), || ());
    let cycle = |number: u64| {
        scene.wrote(&key("x"), number * 2);
        let deleting = scene.ledger.deleting(&key("x"));
        deleting.deleted(&Writer::of(&scene.client), &number.to_string(), true, &gone);
    };
    cycle(1);
    let mut first = scene.wait(Wanted::All).expect("it is pending");
    (2..=500).for_each(cycle);
    let pending = scene.ledger.stats().pending;
    assert_eq!(pending, 4, "what is waited for, and the last");
    scene.ledger.told(None, 2, &Told::Other, || ());
    scene.ledger.told(None, 3, &Told::Gone(&key("x"), Some("1")), || ());
    assert!(ready(&mut first) && scene.waits(Wanted::All), "the last one is still to come");
    scene.ledger.told(None, 1000, &Told::Other, || ());
    assert!(scene.waits(Wanted::All), "and so is its deletion");
    scene.ledger.told(None, 1001, &Told::Gone(&key("x"), Some("500")), || ());
    assert_eq!(scene.ledger.stats().pending, 0);
}

#[test]
fn a_delete_stands_for_an_older_one_only_if_no_list_can_show_it_alone() {
    let scene = Scene::new(&[None]);
    let writer = Writer::of(&scene.client);
    let shown = std::cell::Cell::new("1");
    let fates = |_: &ObjectKey, uid: Option<&str>| if uid == Some(shown.get()) { Fate::There } else { Fate::Gone };
    // Made by somebody else, so that nobody knows since when the second one is there.
    for uid in ["1", "2"] {
        scene.ledger.deleting(&key("x")).deleted(&writer, uid, true, &fates);
    }
    scene.ledger.told(None, 10, &Told::All(&fates), || ());
    assert!(scene.waits(Wanted::All), "the list is from before the first was deleted");
    shown.set("none");
    scene.ledger.told(None, 20, &Told::All(&fates), || ());
    assert!(!scene.waits(Wanted::All));
}

#[test]
fn objects_of_a_collection_are_shown_gone_or_marked() {
    let scene = Scene::new(&[None]);
    let writer = Writer::of(&scene.client);
    let there = |_: &ObjectKey, _: Option<&str>| Fate::There;
    let remove = |name: &str, or_deleting, since, fates: &dyn Fn(&ObjectKey, Option<&str>) -> Fate| {
        scene.ledger.removed(&writer, &Removed { key: &key(name), uid: name, or_deleting, since }, fates);
    };
    for name in ["x", "y"] {
        remove(name, true, None, &there);
    }
    remove("left out", true, None, &|_, _| Fate::Gone);
    scene.ledger.told(None, 1, &Told::There { key: &key("x"), uid: "x", deleting: true }, || ());
    assert!(!scene.waits(Wanted::Key(&key("x"))) && scene.waits(Wanted::Key(&key("y"))));
    scene.ledger.told(None, 2, &Told::All(&|_, _| Fate::Deleting), || ());
    assert!(!scene.waits(Wanted::All));

    remove("x", false, None, &|_, _| Fate::Deleting);
    scene.ledger.told(None, 3, &Told::All(&|_, _| Fate::Deleting), || ());
    assert!(scene.waits(Wanted::All), "without its last finalizer it is gone, not marked");
    scene.ledger.told(None, 4, &Told::All(&|_, _| Fate::Gone), || ());
    assert!(!scene.waits(Wanted::All));

    let gone = |_: &ObjectKey, _: Option<&str>| Fate::Gone;
    remove("x", true, Some(4), &gone);
    assert!(!scene.waits(Wanted::All), "it was there, and is not any more");
    remove("x", true, Some(6), &gone);
    scene.ledger.told(None, 5, &Told::All(&gone), || ());
    assert!(scene.waits(Wanted::All), "it has not come yet");
    scene.ledger.told(None, 6, &Told::Other, || ());
    scene.ledger.told(None, 7, &Told::Gone(&key("x"), Some("x")), || ());
    assert!(!scene.waits(Wanted::All));
    remove("x", true, Some(9), &gone);
    scene.ledger.told(None, 9, &Told::All(&gone), || ());
    assert!(!scene.waits(Wanted::All), "it came and went between two lists");
}

#[test]
fn a_delete_is_shown_by_the_first_list_of_an_informer_that_was_declared_before_its_answer() {
    let gone = |_: &ObjectKey, _: Option<&str>| Fate::Gone;
    // A server whose versions are no numbers is at 0 for ever.
    for revision in [5, 0] {
        let scene = Scene::new(&[None]);
        let remove = || {
            let removed = Removed { key: &key("x"), uid: "u", or_deleting: false, since: Some(0) };
            scene.ledger.removed(&Writer::of(&scene.client), &removed, &gone);
        };
        remove();
        assert!(scene.waits(Wanted::Key(&key("x"))), "the list may have been asked for before");
        scene.ledger.told(None, revision, &Told::All(&|_, _| Fate::There), || ());
        assert!(scene.waits(Wanted::Key(&key("x"))), "and so it was");
        scene.ledger.told(None, revision, &Told::Gone(&key("x"), Some("u")), || ());
        assert!(!scene.waits(Wanted::All));
        remove();
        assert!(!scene.waits(Wanted::All), "it was listed, and shows that it is gone");
    }
    let scene = Scene::new(&[None]);
    let removed = Removed { key: &key("x"), uid: "u", or_deleting: false, since: Some(0) };
    scene.ledger.removed(&Writer::of(&scene.client), &removed, &gone);
    scene.ledger.told(None, 0, &Told::All(&gone), || ());
    assert!(!scene.waits(Wanted::All), "the list was asked for later");
}

#[test]
fn what_is_outside_counts_only_if_more_is_expected_of_it() {
    let scene = Scene::new(&[None]);
    let leave = |revision| scene.wrote_so(&key("x"), revision, Some(false), Fate::Gone);
    leave(5);
    assert!(!scene.waits(Wanted::All));
    scene.wrote(&key("x"), 6);
    leave(7);
    scene.ledger.told(None, 6, &Told::Other, || ());
    assert!(scene.waits(Wanted::All), "that it leaves will be told");
    scene.ledger.told(None, 7, &Told::Gone(&key("x"), Some("u")), || ());
    assert!(!scene.waits(Wanted::All));
    scene.wrote_so(&key("x"), 8, None, Fate::Gone);
    assert!(!scene.waits(Wanted::All), "nobody knows whether it is inside, and the informer does not have it");
    scene.wrote_so(&key("x"), 8, None, Fate::There);
    assert!(scene.waits(Wanted::All), "it has it, and so it will be told");
}

#[test]
fn what_is_written_after_an_object_has_left_is_shown_when_it_has() {
    let x = &key("x");
    let left = |scene: &Scene, revision| scene.wrote_so(x, revision, Some(false), Fate::There);
    let gone = |scene: &Scene, revision| scene.ledger.told(None, revision, &Told::Gone(x, Some("u")), || ());
    let scene = Scene::new(&[None]);
    left(&scene, 5);
    left(&scene, 6);
    scene.ledger.told(None, 4, &Told::Other, || ());
    assert!(scene.waits(Wanted::Key(x)));
    gone(&scene, 5);
    assert_eq!(scene.ledger.stats().pending, 0, "nothing will be told of 6");

    // It leaves at 10, comes back at 11 and leaves at 12, and is written outside at 13.
    left(&scene, 10);
    scene.wrote(x, 11);
    left(&scene, 13);
    gone(&scene, 10);
    assert!(scene.waits(Wanted::Key(x)), "it comes back before that");
    scene.ledger.told(None, 11, &Told::Other, || ());
    gone(&scene, 9);
    assert!(scene.waits(Wanted::Key(x)), "told too late, that says nothing");
    gone(&scene, 12);
    assert_eq!(scene.ledger.stats().pending, 0);

    left(&scene, 20);
    scene.ledger.told(None, 19, &Told::All(&|_, _| Fate::There), || ());
    assert!(scene.waits(Wanted::Key(x)), "the list is from before");
    scene.ledger.told(None, 19, &Told::All(&|_, _| Fate::Gone), || ());
    assert!(!scene.waits(Wanted::Key(x)), "the list does not have it");
}

#[test]
fn a_delete_of_what_has_left_is_not_waited_for() {
    let (scene, x) = (Scene::new(&[None]), &key("x"));
    let writer = Writer::of(&scene.client);
    let has = |uid: &'static str| {
        move |_: &ObjectKey, asked: Option<&str>| {
            if asked.is_none_or(|asked| asked == uid) { Fate::There } else { Fate::Gone }
        }
    };
    // One is deleted, and another one of that name is made outside and deleted, before the informer hears of any.
    scene.ledger.deleting(x).deleted(&writer, "one", false, &has("one"));
    scene.wrote_so(x, 7, Some(false), Fate::There);
    scene.ledger.deleting(x).deleted(&writer, "two", false, &has("one"));
    scene.ledger.told(None, 6, &Told::Gone(x, Some("one")), || ());
    assert_eq!(scene.ledger.stats().pending, 0);
    // One that was made inside is to come, and to go.
    scene.wrote(x, 8);
    scene.ledger.deleting(x).deleted(&writer, "three", false, &|_, _| Fate::Gone);
    scene.ledger.told(None, 8, &Told::Other, || ());
    assert!(scene.waits(Wanted::Key(x)));
    scene.ledger.told(None, 9, &Told::Gone(x, Some("three")), || ());
    assert_eq!(scene.ledger.stats().pending, 0);
}

#[test]
fn a_delete_is_not_shown_while_the_informer_expects_a_version_before_it() {
    let x = &key("x");
    let there = Told::There { key: x, uid: "u", deleting: false };
    let gone = Told::Gone(x, Some("u"));
    // The object leaves the selectors at 2, comes back at 3, and is deleted at 4.
    let write = |scene: &Scene| {
        scene.ledger.told(None, 1, &there, || ());
        scene.wrote_so(x, 2, Some(false), Fate::There);
        scene.wrote_so(x, 3, Some(true), Fate::There);
    };
    let delete = |scene: &Scene, deleting: Deleting, fate: Fate| {
        deleting.deleted(&Writer::of(&scene.client), "u", false, &|_, _| fate);
    };

    let scene = Scene::new(&[None]);
    write(&scene);
    delete(&scene, scene.ledger.deleting(x), Fate::There);
    scene.ledger.told(None, 2, &gone, || ());
    scene.ledger.told(None, 3, &there, || ());
    assert!(scene.waits(Wanted::Key(x)), "the store shows the deleted object");
    scene.ledger.told(None, 4, &gone, || ());
    assert_eq!(scene.ledger.stats().pending, 0);

    // The informer is told of the first two before the delete is answered.
    for told in [2, 3] {
        let scene = Scene::new(&[None]);
        write(&scene);
        let deleting = scene.ledger.deleting(x);
        scene.ledger.told(None, 2, &gone, || ());
        if told == 3 {
            scene.ledger.told(None, 3, &there, || ());
        }
        delete(&scene, deleting, if told == 3 { Fate::There } else { Fate::Gone });
        scene.ledger.told(None, 3, &there, || ());
        assert!(scene.waits(Wanted::Key(x)), "told up to {told} before the answer");
        scene.ledger.told(None, 4, &gone, || ());
        assert_eq!(scene.ledger.stats().pending, 0);
    }
}

#[test]
fn a_delete_is_shown_once_the_expected_version_turns_out_to_be_of_another_object() {
    let (scene, x) = (Scene::new(&[None]), &key("x"));
    let deleting = scene.ledger.deleting(x);
    // Deleted at 4 and created again at 5. The answer to the create overtakes that to the delete.
    scene.wrote(x, 5);
    deleting.deleted(&Writer::of(&scene.client), "old", true, &|_, _| Fate::There);
    scene.ledger.told(None, 4, &Told::Gone(x, Some("old")), || ());
    assert!(scene.waits(Wanted::Key(x)));
    scene.ledger.told(None, 5, &Told::There { key: x, uid: "new", deleting: false }, || ());
    assert_eq!(scene.ledger.stats().pending, 0);
}

#[test]
fn of_more_writes_than_are_told_apart_all_are_waited_for_by_everybody() {
    let scene = Scene::new(&[Some("a"), Some("b")]);
    let most = MOST as u64;
    (1..=most + 1000).for_each(|number| scene.wrote(&key(&number.to_string()), number));
    assert_eq!(scene.ledger.stats().pending, MOST + 1, "one stands for all others");
    let other = Token::default();
    let waits = |wanted: Wanted<'_>| scene.ledger.pending(&other, wanted).is_some();
    assert!(waits(Wanted::Key(&key("any"))) && waits(Wanted::Namespace("a")) && waits(Wanted::All));
    assert!(
        !waits(Wanted::Key(&ObjectKey::new("b", "any"))) && !waits(Wanted::Namespace("b")),
        "nothing was written there"
    );
    let last = key(&(most + 1000).to_string());
    let mut read = scene.wait(Wanted::Key(&last)).expect("it is pending");
    scene.wrote(&key("later"), most + 1001);
    scene.ledger.told(Some("a"), most, &Told::Other, || ());
    assert_eq!((ready(&mut read), scene.ledger.stats().pending), (false, 2));
    scene.ledger.told(Some("a"), most + 1000, &Told::Other, || ());
    assert!(ready(&mut read) && waits(Wanted::Key(&last)), "who began before does not wait for what came later");
    scene.ledger.told(Some("a"), most + 1001, &Told::Other, || ());
    assert_eq!(scene.ledger.stats().pending, 0);
    scene.wrote(&key("again"), most + 1002);
    assert!(!waits(Wanted::Key(&last)) && scene.waits(Wanted::Key(&key("again"))), "they are told apart again");
}

#[test]
fn a_namespace_that_gets_a_part_of_its_own_takes_its_writes_along() {
    let scene = Scene::new(&[None]);
    scene.wrote(&key("x"), 5);
    scene.ledger.join(Some("a"));
    scene.ledger.told(None, 9, &Told::Other, || ());
    assert!(scene.waits(Wanted::Key(&key("x"))), "the others say nothing of it any more");
    scene.ledger.told(Some("a"), 5, &Told::Other, || ());
    assert_eq!(scene.ledger.stats().pending, 0);
}

#[tokio::test(start_paused = true)]
async fn writes_of_one_reconcile_are_told_apart_and_numbers_are_kept() {
    let scene = Scene::new(&[None]);
    let (one, other) = (Token::default(), Token::default());
    one.clone().scope(async { scene.wrote(&key("x"), 5) }).await;
    other.clone().scope(async { scene.wrote(&key("y"), 6) }).await;
    scene.wrote(&key("z"), 7);
    let is_caught_up = |token| scene.ledger.is_caught_up(token);
    assert!(!is_caught_up(&one) && !is_caught_up(&other) && !is_caught_up(&scene.client));
    tokio::time::advance(Duration::from_millis(30)).await;
    scene.ledger.told(None, 5, &Told::Other, || ());
    assert!(is_caught_up(&one) && !is_caught_up(&other));
    let waiting = scene.wait(Wanted::All).expect("two are pending");
    assert_eq!(waiting.give_up(), Some(key("y")));
    tokio::time::advance(Duration::from_millis(70)).await;
    scene.ledger.told(None, 6, &Told::Other, || ());
    let stats = scene.ledger.stats();
    assert_eq!((stats.pending, stats.writes, stats.waits, stats.timeouts), (1, 3, 1, 1));
    assert_eq!((stats.last_lag, stats.longest_lag), (Duration::from_millis(100), Duration::from_millis(100)));
}

#[test]
fn writes_while_nothing_comes_take_no_more_memory_than_their_keys() {
    let scene = Scene::new(&[None]);
    (1..1000).for_each(|revision| scene.wrote(&key("x"), revision));
    assert_eq!(scene.ledger.stats().pending, 1);
    let waiting = scene.wait(Wanted::All);
    scene.wrote(&key("x"), 1000);
    assert_eq!(scene.ledger.stats().pending, 2, "who waits does not wait for more");
    drop(waiting);
    scene.wrote(&key("x"), 1001);
    assert!(scene.ledger.stats().pending <= 2);
    scene.ledger.told(None, 1001, &Told::Other, || ());
    assert_eq!(scene.ledger.stats().pending, 0);
}

#[test]
fn a_delete_on_its_way_hears_of_the_list_of_a_server_that_was_set_back() {
    let scene = Scene::new(&[None]);
    scene.ledger.told(None, 9, &Told::Other, || ());
    let gone: &dyn Fn(&ObjectKey, Option<&str>) -> Fate = &|_, _| Fate::Gone;
    let deleting = scene.ledger.deleting(&key("x"));
    scene.ledger.told(None, 3, &Told::All(gone), || ());
    deleting.deleted(&Writer::of(&scene.client), "u", true, gone);
    assert!(!scene.waits(Wanted::All), "the list does not have it, and nothing more will be told of it");
}

#[tokio::test]
async fn reconciles_that_are_over_leave_no_more_than_one_entry_for_a_key() {
    let scene = Scene::new(&[None]);
    let wrote = async |scope: &Token, revision| scope.clone().scope(async { scene.wrote(&key("x"), revision) }).await;
    for revision in 1..1000 {
        wrote(&Token::of_reconcile(Reads::DoNotWait), revision).await;
    }
    assert_eq!(scene.ledger.stats().pending, 1, "nobody has the tokens any more");

    let (one, other) = (Token::default(), Token::default());
    wrote(&one, 1000).await;
    wrote(&other, 1001).await;
    assert_eq!(scene.ledger.stats().pending, 2, "each may ask for its own");
    scene.ledger.told(None, 1000, &Told::Other, || ());
    assert!(scene.ledger.is_caught_up(&one) && !scene.ledger.is_caught_up(&other));
    wrote(&one, 1002).await;
    drop((one, other));
    scene.wrote(&key("x"), 1003);
    assert_eq!(scene.ledger.stats().pending, 1);
    assert!(scene.waits(Wanted::All));
}

#[test]
fn before_it_begins_and_after_it_has_ended_nothing_is_waited_for() {
    let scene = Scene::new(&[]);
    scene.wrote(&key("x"), 5);
    assert!(!scene.waits(Wanted::All), "its first list will show it");
    scene.ledger.join(None);
    scene.wrote(&key("x"), 5);
    let mut pending = scene.wait(Wanted::All).expect("it is pending");
    scene.ledger.end();
    assert!(ready(&mut pending));
    scene.wrote(&key("x"), 6);
    assert!(!scene.waits(Wanted::All));
}
