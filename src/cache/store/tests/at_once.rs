//! Reads while a list is stored, by the index function, which runs meanwhile.

use super::*;

/// Results of reads by key, namespace and index value, with length and revision.
type Seen = (Vec<Option<Thing>>, [Vec<Thing>; 4], usize, u64);

fn seen(store: &Store<Thing>, index: IndexId<u8>) -> Seen {
    let things = |snapshot: Snapshot<Thing>| {
        assert_eq!(snapshot.len(), snapshot.iter().count());
        let mut things: Vec<_> = snapshot.iter().map(|entry| *entry.object).collect();
        things.sort_unstable();
        things
    };
    let get = |number| store.get(&key(number)).map(|thing| *thing);
    let by_value = |value: u8| things(store.select(None, &[index.of(&value)]));
    let in_a = things(store.select(Some("a"), &[]));
    let both = things(store.select(Some("a"), &[index.of(&2)]));
    (
        (0..9).map(get).collect(),
        [in_a, by_value(1), by_value(2), both],
        store.len(),
        store.revision(),
    )
}

#[test]
fn a_list_becomes_visible_at_once() {
    let store = Arc::new(Store::default());
    let (of, looks) = (Arc::downgrade(&store), Arc::<Mutex<Vec<Seen>>>::default());
    let looked = looks.clone();
    let index = IndexId::new(0);
    let added = store.add_index(move |thing: &Arc<Thing>| {
        looked
            .lock()
            .extend(of.upgrade().map(|store| seen(&store, index)));
        vec![thing.1]
    });
    assert_eq!(added.number, index.number);
    // In namespace `a`: objects that stay, change and are deleted. Others elsewhere.
    for number in [0, 3, 6, 1, 2] {
        store.put(entry(number, (u32::from(number), 1)), 1);
    }
    for about in [
        ListScope::Namespace("a"),
        ListScope::Matching(&|key| key.namespace() == Some("a")),
    ] {
        let before = seen(&store, index);
        looks.lock().clear();
        let revision = before.3 + 1;
        let list = [
            entry(0, (0, 1)),
            entry(3, (30 + u32::try_from(revision).expect("few"), 2)),
            entry(9, (9, 2)),
        ];
        store.replace(about, list.into(), &[], revision, |a, b| a == b);
        let after = seen(&store, index);
        assert_ne!(before, after);
        let times = |what: &Seen| looks.lock().iter().filter(|seen| *seen == what).count();
        let all = looks.lock().len();
        assert_eq!(times(&before) + times(&after), all, "{:?}", looks.lock());
        assert!(
            times(&before) >= 1 && times(&after) >= 1,
            "the observer saw the state before and after"
        );
    }
    store.replace(ListScope::Namespace("a"), Vec::new(), &[], 9, |a, b| a == b);
    assert_eq!((store.len(), seen(&store, index).1[0].len()), (2, 0));
}

#[test]
fn freed_slots_of_a_list_are_reused() {
    let store = Store::default();
    store.add_index(|thing: &Arc<Thing>| vec![thing.1]);
    store.put(entry(1, (1, 1)), 1);
    for version in 2..2000 {
        let list = (0..200).map(|number| entry(number, (version, 1))).collect();
        store.replace(ListScope::Matching(&|_| true), list, &[], 1, |a, b| a == b);
    }
    let slots = store
        .snapshot()
        .slots()
        .map(|(slot, _)| slot)
        .max()
        .expect("some");
    assert!(
        slots < 2 * 200,
        "{slots} slots, but 200 objects need at most twice as many"
    );
}

#[test]
fn a_much_shorter_list_frees_the_slots_of_the_previous_one() {
    const MANY: u32 = 20_000;
    let store = Store::default();
    let index = store.add_index(|thing: &Arc<Thing>| vec![thing.1]);
    let entry = |number: u32| {
        let key = ObjectKey::new(["a", "b"][number as usize % 2], number.to_string());
        Entry::new(
            key,
            Arc::new((number, u8::from(number.is_multiple_of(3)))),
            1,
        )
    };
    let list = |numbers: &mut dyn Iterator<Item = u32>, revision| {
        store
            .replace(
                ListScope::Matching(&|_| true),
                numbers.map(entry).collect(),
                &[],
                revision,
                |a, b| a == b,
            )
            .len()
    };
    let chunks = || store.snapshot().chunks_not_in(&Store::default().snapshot());
    list(&mut (0..MANY), 1);
    let (before, before_in_a) = (store.snapshot(), store.select(Some("a"), &[index.of(&1)]));
    assert_eq!(chunks(), 79);
    assert_eq!(list(&mut (0..MANY).step_by(100), 2), 19_800);
    assert_eq!(
        (chunks(), store.len(), store.bytes(), store.revision()),
        (1, 200, 200, 2)
    );
    let numbers = |snapshot: Snapshot<Thing>| {
        shown(&snapshot)
            .into_values()
            .map(|thing| thing.0)
            .collect::<Vec<_>>()
    };
    assert!(store.get(&entry(300).key).is_some() && store.get(&entry(301).key).is_none());
    assert_eq!(numbers(store.select(Some("a"), &[])).len(), 200);
    assert_eq!(numbers(store.select(Some("a"), &[index.of(&1)])).len(), 67);
    assert_eq!(
        (numbers(before).len(), numbers(before_in_a).len()),
        (20_000, 3334),
        "an earlier snapshot does not change"
    );
    // The compacted store still works.
    store.remove(&entry(300).key, 3);
    store.put(entry(301), 4);
    assert_eq!(list(&mut (0..2000), 5), 180 + 1980);
    assert_eq!(
        (
            store.len(),
            numbers(store.select(None, &[index.of(&1)])).len()
        ),
        (2000, 667)
    );
}
