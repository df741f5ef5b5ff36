//! The revision that the whole publishes, while parts come, go and begin again.

use super::*;

fn part(core: &Arc<Core<MetadataOnly>>, namespace: &str) -> Part<MetadataOnly> {
    core.join(Some(namespace.to_owned()))
}

fn list(part: &Part<MetadataOnly>, revision: u64) {
    part.all(Vec::new(), Vec::new(), revision);
}

#[test]
fn when_the_last_one_that_was_not_listed_leaves_the_revision_is_that_of_the_others() {
    let (core, entry) = metadata_core();
    let (a, _b) = (part(&core, "a"), part(&core, "b"));
    core.all_joined();
    a.all(vec![entry("a", 7)], Vec::new(), 10);
    assert_eq!((core.is_listed(), core.store.revision()), (false, 0));
    core.leave("b");
    assert_eq!((core.is_listed(), core.store.revision(), core.store.len()), (true, 10, 1));
}

#[test]
fn when_all_were_listed_before_all_have_joined_the_revision_is_theirs() {
    let (core, _) = metadata_core();
    let (a, b) = (part(&core, "a"), part(&core, "b"));
    list(&a, 10);
    list(&b, 12);
    assert_eq!((core.is_listed(), core.store.revision()), (false, 0));
    core.all_joined();
    assert_eq!((core.is_listed(), core.store.revision()), (true, 10));
}

#[test]
fn after_a_new_start_the_revision_is_the_old_one_until_all_were_listed_again() {
    let (core, _) = metadata_core();
    core.begin();
    let (a, b) = (part(&core, "a"), part(&core, "b"));
    core.all_joined();
    list(&a, 10);
    list(&b, 12);
    assert_eq!(core.store.revision(), 10);

    core.begin();
    let a = part(&core, "a");
    list(&a, 50);
    assert_eq!(core.store.revision(), 10, "the other one is as it was, and has not even joined");
    let b = part(&core, "b");
    a.nothing_up_to(55);
    core.all_joined();
    assert_eq!(core.store.revision(), 10);
    list(&part(&core, "c"), 60);
    assert_eq!(core.store.revision(), 10, "nor does one that is new change that");
    list(&b, 52);
    assert_eq!(core.store.revision(), 52);

    core.begin();
    list(&part(&core, "a"), 70);
    list(&part(&core, "c"), 71);
    assert_eq!(core.store.revision(), 52);
    core.all_joined();
    assert_eq!(core.store.revision(), 70, "it has left, and its objects with it");
}
