//! Faulty indexes: they find too little or too much, and affect nothing else.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn keys(snapshot: &Snapshot<Thing>) -> Vec<ObjectKey> {
    shown(snapshot).into_keys().collect()
}

#[test]
fn a_nondeterministic_index_never_finds_empty_slots() {
    let store = Store::default();
    let later = Arc::<AtomicBool>::default();
    let is_later = later.clone();
    let index = store.add_index(move |thing: &Arc<Thing>| {
        vec![if is_later.load(Relaxed) { 99 } else { thing.1 }]
    });
    for number in [0, 1, 3, 4] {
        store.put(entry(number, (1, 7)), 1);
    }
    later.store(true, Relaxed);
    store.remove(&key(0), 2);
    store.replace(
        ListScope::Matching(&|key| *key == self::key(1)),
        Vec::new(),
        &[],
        3,
        |a, b| a == b,
    );
    let found = store.select(None, &[index.of(&7)]);
    assert_eq!(
        keys(&found),
        [key(3), key(4)],
        "the length of the snapshot agrees"
    );
    assert_eq!(found.into_entries().count(), 2);
    assert_eq!(
        keys(&store.select(Some("a"), &[index.of(&7)])),
        [key(3)],
        "nor combined with a namespace"
    );
}

#[test]
fn a_snapshot_of_slots_that_show_nothing_skips_them() {
    let store = Store::default();
    store.put(entry(1, (1, 1)), 1);
    let some = || store.snapshot().only(Arc::new(vec![0, 1, 100_000]));
    assert_eq!(
        (some().iter().count(), some().into_entries().count()),
        (1, 1)
    );
}

/// Value that panics when it is hashed or compared as 13.
#[derive(Debug)]
struct PanicsAt13(u8);

impl Hash for PanicsAt13 {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert_ne!(self.0, 13, "on purpose");
        self.0.hash(state);
    }
}

impl PartialEq for PanicsAt13 {
    fn eq(&self, other: &Self) -> bool {
        assert!(self.0 != 13 && other.0 != 13, "on purpose");
        self.0 == other.0
    }
}

impl Eq for PanicsAt13 {}

#[test]
fn a_list_is_stored_although_a_value_of_an_index_panics() {
    let store = Store::default();
    let index = store.add_index(|thing: &Arc<Thing>| [1, thing.1, 2].map(PanicsAt13).into());
    let found = |value: u8| keys(&store.select(None, &[index.of(&PanicsAt13(value))]));
    let list = |version| {
        [(0, 5), (3, 13), (6, 6)]
            .map(|(number, value)| entry(number, (version, value)))
            .into()
    };
    let replace = |entries, revision| {
        store.replace(
            ListScope::Matching(&|_| true),
            entries,
            &[],
            revision,
            |a, b| a == b,
        )
    };
    let errors = || store.index_errors.read();
    assert_eq!(replace(list(1), 1).len(), 3);
    assert_eq!(
        (store.len(), found(1).len(), found(2).len(), found(6)),
        (3, 3, 3, vec![key(6)])
    );
    assert_eq!(
        errors(),
        (
            1,
            Some("hashing or comparing values of the index panicked".into())
        )
    );
    assert_eq!(replace(list(2), 2).len(), 3);
    assert_eq!(
        (store.revision(), found(1).len(), found(2).len(), found(5)),
        (2, 3, 3, vec![key(0)])
    );
    assert_eq!(
        errors().0,
        2,
        "counted when the object is added, not when it is removed"
    );
    store.put(entry(3, (3, 13)), 3);
    assert_eq!((store.remove(&key(3), 4).is_some(), errors().0), (true, 3));
    assert_eq!(
        (found(1), found(2)),
        (vec![key(0), key(6)], vec![key(0), key(6)])
    );
    assert_eq!(replace(vec![entry(3, (4, 13))], 5).len(), 3);
    assert!(
        !store.state.read().has_empty_slots,
        "the list was stored completely"
    );
    store.add_index(|thing: &Arc<Thing>| vec![PanicsAt13(thing.1)]);
    assert_eq!(
        (found(1), errors().0),
        (vec![key(3)], 5),
        "a new index that panics is added"
    );
}
