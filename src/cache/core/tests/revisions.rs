//! Tests of the published revision and of the sync while parts are added, removed and restarted.

use super::*;
use crate::cache::ledger::WrittenVersion;

fn part(core: &Arc<Core<MetadataOnly>>, namespace: &str) -> NamespaceCore<MetadataOnly> {
    core.add_namespace(Some(namespace.to_owned()))
}

fn list(part: &NamespaceCore<MetadataOnly>, revision: u64) {
    part.replace(Vec::new(), Vec::new(), revision);
}

#[test]
fn removing_the_last_unlisted_namespace_publishes_the_revision_of_the_others() {
    let (core, entry) = metadata_core();
    let (a, _b) = (part(&core, "a"), part(&core, "b"));
    core.namespaces_complete();
    a.replace(vec![entry("a", 7)], Vec::new(), 10);
    assert_eq!((core.is_listed(), core.store.revision()), (false, 0));
    core.remove_namespace("b");
    assert_eq!(
        (core.is_listed(), core.store.revision(), core.store.len()),
        (true, 10, 1)
    );
}

#[test]
fn the_revision_is_that_of_namespaces_listed_before_all_were_known() {
    let (core, _) = metadata_core();
    let (a, b) = (part(&core, "a"), part(&core, "b"));
    list(&a, 10);
    list(&b, 12);
    assert_eq!((core.is_listed(), core.store.revision()), (false, 0));
    core.namespaces_complete();
    assert_eq!((core.is_listed(), core.store.revision()), (true, 10));
}

#[test]
fn after_a_restart_the_revision_stays_until_all_namespaces_were_listed() {
    let (core, _) = metadata_core();
    core.restart();
    let (a, b) = (part(&core, "a"), part(&core, "b"));
    core.namespaces_complete();
    list(&a, 10);
    list(&b, 12);
    assert_eq!(core.store.revision(), 10);

    core.restart();
    let a = part(&core, "a");
    list(&a, 50);
    assert_eq!(
        core.store.revision(),
        10,
        "the other namespace keeps its revision before it is added"
    );
    let b = part(&core, "b");
    a.advance(55);
    core.namespaces_complete();
    assert_eq!(core.store.revision(), 10);
    list(&part(&core, "c"), 60);
    assert_eq!(
        core.store.revision(),
        10,
        "a new namespace does not change the revision"
    );
    list(&b, 52);
    assert_eq!(core.store.revision(), 52);

    core.restart();
    list(&part(&core, "a"), 70);
    list(&part(&core, "c"), 71);
    assert_eq!(core.store.revision(), 52);
    core.namespaces_complete();
    assert_eq!(
        core.store.revision(),
        70,
        "the namespace and its objects are removed"
    );
}

#[test]
fn a_namespace_does_not_publish_the_sync_before_the_ledger_has_the_list_of_another() {
    let (core, _) = metadata_core();
    let (a, b) = (part(&core, "a"), part(&core, "b"));
    core.namespaces_complete();
    list(&a, 10);
    let ((locked, is_locked), (release, released)) = (channel(), channel::<()>());
    let core = &core;
    let published_early = thread::scope(|scope| {
        scope.spawn(move || {
            let version = WrittenVersion {
                key: &ObjectKey::new("a", "o"),
                revision: 1,
                selected: None,
            };
            // The ledger calls the function with its lock held.
            let writer = Writer::of(&Token::default());
            core.ledger.wrote(&writer, version, &|_, _| {
                locked.send(()).expect("the test waits");
                released.recv().expect_err("the test drops the sender");
                Existence::Gone
            });
        });
        is_locked.recv().expect("the ledger is asked");
        scope.spawn(|| list(&b, 12));
        scope.spawn(|| {
            while !core.is_listed() {
                a.succeeded();
                thread::sleep(Duration::from_millis(1));
            }
        });
        let published_early = (0..50).any(|_| {
            thread::sleep(Duration::from_millis(1));
            core.is_listed()
        });
        drop(release);
        published_early
    });
    assert!(!published_early && core.is_listed());
}
