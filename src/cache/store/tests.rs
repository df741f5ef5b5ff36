mod at_once;
mod faulty;
mod operation_counts;

use super::*;
use proptest::prelude::*;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    hash::{Hash, Hasher},
    sync::{Weak, mpsc::channel},
    thread,
    time::Duration,
};

impl<P: 'static> Store<P> {
    /// Adds an index by the values of a function.
    fn add_index<V: Hash + Eq + Send + Sync + 'static>(
        &self,
        values: impl Fn(&Arc<P>) -> Vec<V> + Send + Sync + 'static,
    ) -> IndexId<V> {
        IndexId::new(
            self.add_indexer(Arc::new(FnIndexer::new(move |object: &Arc<P>| {
                Ok(values(object))
            }))),
        )
    }
}

/// Payload: a number and its group.
type Thing = (u32, u8);

fn key(number: u8) -> ObjectKey {
    ObjectKey::new(
        ["a", "b", ""][usize::from(number) % 3],
        format!("o{number}"),
    )
}

fn entry(number: u8, thing: Thing) -> Entry<Thing> {
    Entry::new(key(number), Arc::new(thing), 1 + thing.0)
}

fn shown(snapshot: &Snapshot<Thing>) -> BTreeMap<ObjectKey, Thing> {
    let shown: BTreeMap<_, _> = snapshot
        .iter()
        .map(|entry| (entry.key.clone(), *entry.object))
        .collect();
    assert_eq!(
        (shown.len(), shown.len()),
        (snapshot.iter().count(), snapshot.len()),
        "none twice"
    );
    shown
}

#[test]
fn a_consumed_snapshot_yields_the_same_entries() {
    let store = Store::default();
    (0..200).for_each(|number| drop(store.put(entry(number, (1, number % 2)), 1)));
    (0..50).for_each(|number| drop(store.remove(&key(number), 2)));
    let keys = |entries: &mut dyn Iterator<Item = Entry<Thing>>| {
        entries.map(|entry| entry.key).collect::<Vec<_>>()
    };
    for snapshot in [
        |store: &Store<Thing>| store.snapshot(),
        |store: &Store<Thing>| store.select(Some("a"), &[]),
    ] {
        let seen = keys(&mut snapshot(&store).iter().cloned());
        assert_eq!(keys(&mut snapshot(&store).into_entries()), seen);
    }
}

#[test]
fn a_replacing_object_replaces_the_key() {
    let store = Store::default();
    store.put(entry(1, (1, 0)), 1);
    let second = entry(1, (2, 0));
    let texts = |key: &ObjectKey| key.name().as_ptr();
    let new = texts(&second.key);
    store.put(second, 2);
    assert_eq!(
        store
            .snapshot()
            .iter()
            .map(|entry| texts(&entry.key))
            .collect::<Vec<_>>(),
        [new]
    );
}

#[test]
fn an_object_is_found_until_it_is_removed() {
    let store = Store::default();
    assert!(store.put(entry(1, (1, 0)), 5).is_none());
    assert_eq!(
        store.put(entry(1, (2, 0)), 6).as_deref(),
        Some(&(1, 0)),
        "the previous object"
    );
    assert_eq!(
        (store.get(&key(1)).as_deref(), store.len(), store.revision()),
        (Some(&(2, 0)), 1, 6)
    );
    assert_eq!(
        store.remove(&key(1), 7).map(|entry| *entry.object),
        Some((2, 0))
    );
    assert!(store.get(&key(1)).is_none() && store.remove(&key(1), 8).is_none());
    assert_eq!((store.len(), store.revision()), (0, 8));
}

#[test]
fn a_snapshot_does_not_change() {
    let store = Store::default();
    for number in 0..200 {
        store.put(entry(number, (1, 0)), 1);
    }
    let before = store.snapshot();
    let of_a = store.select(Some("a"), &[]);
    for number in 0..200 {
        if number % 2 == 0 {
            store.put(entry(number, (2, 0)), 2);
        } else {
            store.remove(&key(number), 2);
        }
    }
    assert_eq!(shown(&before).len(), 200);
    assert!(shown(&before).values().all(|thing| *thing == (1, 0)));
    assert!(
        shown(&of_a)
            .iter()
            .all(|(key, thing)| key.namespace() == Some("a") && *thing == (1, 0))
    );
    assert_eq!(shown(&store.snapshot()).len(), 100);
}

#[test]
fn a_namespace_selects_its_objects_and_the_empty_one_cluster_scoped_ones() {
    let store = Store::default();
    (0..9).for_each(|number| drop(store.put(entry(number, (1, 0)), 1)));
    let names = |namespace| {
        shown(&store.select(Some(namespace), &[]))
            .into_keys()
            .map(|key| key.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("a"), ["a/o0", "a/o3", "a/o6"]);
    assert_eq!(names(""), ["o2", "o5", "o8"]);
    assert!(names("c").is_empty());
}

#[test]
fn an_index_finds_existing_and_later_objects() {
    let store = Store::default();
    store.put(entry(1, (1, 7)), 1);
    let index = store.add_index(|thing: &Arc<Thing>| vec![thing.1]);
    store.put(entry(2, (1, 7)), 2);
    store.put(entry(3, (1, 8)), 3);
    let found = |value: u8| {
        shown(&store.select(None, &[index.of(&value)]))
            .into_keys()
            .collect::<Vec<_>>()
    };
    assert_eq!(found(7), [key(2), key(1)]);
    store.put(entry(1, (1, 8)), 4);
    store.remove(&key(2), 5);
    assert!(found(7).is_empty());
    assert_eq!(found(8), [key(3), key(1)]);
}

#[test]
fn indexes_and_a_namespace_are_intersected() {
    let store = Store::default();
    (0..60)
        .for_each(|number| drop(store.put(entry(number, (u32::from(number) % 2, number % 5)), 1)));
    let (even, fifth) = (
        store.add_index(|thing: &Arc<Thing>| vec![thing.0 == 0]),
        store.add_index(|thing: &Arc<Thing>| vec![thing.1]),
    );
    let found = store.select(Some("a"), &[even.of(&true), fifth.of(&0)]);
    assert_eq!(
        shown(&found)
            .into_keys()
            .map(|key| key.to_string())
            .collect::<Vec<_>>(),
        ["a/o0", "a/o30"]
    );
}

#[test]
fn an_object_may_have_several_values_or_none() {
    let store = Store::default();
    let index = store.add_index(|thing: &Arc<Thing>| (0..thing.1).collect());
    store.put(entry(1, (1, 0)), 1);
    store.put(entry(2, (1, 3)), 2);
    for value in 0..3 {
        assert_eq!(store.select(None, &[index.of(&value)]).iter().count(), 1);
    }
    assert_eq!(store.select(None, &[index.of(&3)]).iter().count(), 0);
}

#[test]
fn an_index_function_that_panics_omits_only_its_object() {
    let store = Store::default();
    let index = store.add_index(|thing: &Arc<Thing>| {
        if thing.1 == 9 {
            panic!("on purpose")
        } else {
            vec![thing.1]
        }
    });
    store.put(entry(1, (1, 9)), 1);
    store.put(entry(2, (1, 1)), 2);
    assert_eq!(
        (
            store.len(),
            store.select(None, &[index.of(&1)]).iter().count()
        ),
        (2, 1)
    );
    assert_eq!(
        store.index_errors.read(),
        (1, Some("index function panicked".into())),
        "the panic is counted"
    );
    store.remove(&key(1), 3);
    store.replace(
        ListScope::Matching(&|_| true),
        vec![entry(1, (1, 9))],
        &[],
        4,
        |a, b| a == b,
    );
    assert_eq!(
        store.index_errors.read().0,
        2,
        "counted once for each added version"
    );
}

#[test]
fn a_removed_index_finds_nothing_and_its_slot_is_reused() {
    let store = Store::default();
    store.put(entry(1, (1, 1)), 1);
    let first = store.add_index(|thing: &Arc<Thing>| vec![thing.1]);
    store.remove_index(first.number);
    assert_eq!(store.select(None, &[first.of(&1)]).iter().count(), 0);
    let second = store.add_index(|thing: &Arc<Thing>| vec![thing.0]);
    assert_eq!(store.select(None, &[second.of(&1)]).iter().count(), 1);
    assert_eq!(
        store.select(None, &[first.of(&1)]).iter().count(),
        0,
        "a removed index stays empty when its number is reused"
    );
}

#[test]
fn replace_returns_the_changes_only() {
    let store = Store::default();
    (1..=3).for_each(|number| drop(store.put(entry(number, (1, 0)), 1)));
    let kept = store.get(&key(1)).expect("the object exists");
    let list = vec![entry(1, (1, 0)), entry(2, (2, 0)), entry(4, (1, 0))];
    let mut changes: Vec<_> = store
        .replace(ListScope::Matching(&|_| true), list, &[], 9, |a, b| a == b)
        .into_iter()
        .map(|change| match change {
            Change::Created(entry) => format!("created {}", entry.key),
            Change::Updated { old, new } => {
                format!("updated {} from {} to {}", new.key, old.0, new.object.0)
            }
            Change::Deleted(entry) => format!("deleted {}", entry.key),
        })
        .collect();
    changes.sort();
    assert_eq!(
        changes,
        ["created b/o4", "deleted a/o3", "updated o2 from 1 to 2"]
    );
    assert!(
        Arc::ptr_eq(&kept, &store.get(&key(1)).expect("the object exists")),
        "the same object, not an equal one"
    );
    assert_eq!(store.revision(), 9);
}

#[test]
fn a_replacement_in_one_namespace_leaves_the_others_alone() {
    let store = Store::default();
    let index = store.add_index(|thing: &Arc<Thing>| vec![thing.1]);
    (0..6).for_each(|number| drop(store.put(entry(number, (1, number)), 1)));
    let kept = store.get(&key(1)).expect("the object exists");
    let changes = store.replace(
        ListScope::Namespace("a"),
        vec![entry(0, (2, 0))],
        &[],
        2,
        |a, b| a == b,
    );
    assert_eq!(changes.len(), 2, "one is another, one is gone: {changes:?}");
    let names: Vec<_> = shown(&store.snapshot())
        .into_keys()
        .map(|key| key.to_string())
        .collect();
    assert_eq!(names, ["o2", "o5", "a/o0", "b/o1", "b/o4"]);
    assert!(Arc::ptr_eq(
        &kept,
        &store.get(&key(1)).expect("the object exists")
    ));
    assert_eq!(
        [1, 3].map(|value| store.select(None, &[index.of(&value)]).iter().count()),
        [1, 0],
        "indexes return the same objects"
    );
}

#[test]
fn of_an_object_that_a_list_names_twice_the_last_counts() {
    let store = Store::default();
    let index = store.add_index(|thing: &Arc<Thing>| vec![thing.1]);
    let changes = store.replace(
        ListScope::Matching(&|_| true),
        vec![entry(1, (1, 1)), entry(1, (2, 2))],
        &[],
        1,
        |a, b| a == b,
    );
    assert_eq!(
        (changes.len(), store.len(), store.get(&key(1)).as_deref()),
        (1, 1, Some(&(2, 2)))
    );
    assert_eq!(
        [1, 2].map(|value| store.select(None, &[index.of(&value)]).iter().count()),
        [0, 1]
    );
}

/// Runs `work` on a thread. Panics if it blocks.
fn run_on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, answer) = channel();
    thread::spawn(move || done.send(work()));
    answer
        .recv_timeout(Duration::from_secs(30))
        .expect("the index function does not block")
}

#[test]
fn readers_and_bookmarks_do_not_wait_for_an_index_function() {
    let store = Arc::new(Store::default());
    store.put(entry(1, (1, 1)), 1);
    let ((begun, begins), (end, ends)) = (channel(), channel::<()>());
    let ends = Mutex::new(ends);
    let slow = move |thing: &Arc<Thing>| {
        begun.send(()).expect("the test waits for it");
        // Blocks until the test continues.
        let _ = ends.lock().recv();
        vec![thing.1]
    };
    let check = |revision| {
        begins.recv().expect("the index function is called");
        let advanced = store.clone();
        run_on_thread(move || advanced.advance(revision));
        let read = store.clone();
        assert_eq!(
            run_on_thread(move || (read.get(&key(1)).is_some(), read.revision())),
            (true, revision)
        );
        end.send(()).expect("the other thread waits");
    };
    let adding = store.clone();
    let adding = thread::spawn(move || adding.add_index(slow));
    check(2);
    let index = adding.join().expect("the index is added");
    let replacing = store.clone();
    let list = vec![entry(1, (2, 2))];
    let replacing = thread::spawn(move || {
        replacing
            .replace(ListScope::Matching(&|_| true), list, &[], 4, |a, b| a == b)
            .len()
    });
    check(3);
    // The function is also called for the old object, after the new one is visible.
    begins.recv().expect("the index function is called");
    let read = store.clone();
    assert_eq!(
        run_on_thread(move || (read.get(&key(1)).as_deref().copied(), read.revision())),
        (Some((2, 2)), 4)
    );
    end.send(()).expect("the other thread waits");
    assert_eq!(
        (
            replacing.join().expect("the list is stored"),
            store.revision()
        ),
        (1, 4)
    );
    assert_eq!(store.select(None, &[index.of(&2)]).iter().count(), 1);
}

/// Value that records whether it was freed under the store's lock.
struct Freed {
    value: u8,
    store: Weak<Store<Thing>>,
    /// Number of drops with the lock held, and without.
    times: Arc<Mutex<[usize; 2]>>,
}

impl Drop for Freed {
    fn drop(&mut self) {
        if let Some(store) = self.store.upgrade() {
            self.times.lock()[usize::from(store.state.try_read().is_some())] += 1;
        }
    }
}

impl PartialEq for Freed {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Eq for Freed {}

impl Hash for Freed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value.hash(state);
    }
}

#[test]
fn index_values_are_freed_without_the_lock() {
    let store = Arc::new(Store::default());
    let (of, times) = (Arc::downgrade(&store), Arc::<Mutex<[usize; 2]>>::default());
    let noted = times.clone();
    let freed = move |value| Freed {
        value,
        store: of.clone(),
        times: noted.clone(),
    };
    let index =
        store.add_index(move |thing: &Arc<Thing>| vec![freed(thing.1), freed(thing.1), freed(9)]);
    store.put(entry(1, (1, 1)), 1);
    store.put(entry(2, (1, 1)), 2);
    store.put(entry(2, (2, 1)), 3);
    store.put(entry(2, (3, 2)), 4);
    store.remove(&key(1), 5);
    store.replace(
        ListScope::Matching(&|_| true),
        vec![entry(2, (4, 3))],
        &[],
        6,
        |a, b| a == b,
    );
    store.remove(&key(2), 7);
    store.remove_index(index.number);
    assert_eq!(
        *times.lock(),
        [0, 3 * 10],
        "every value is freed without the lock"
    );
}

/// Value that counts how often it is hashed while readers are blocked.
#[derive(PartialEq, Eq)]
struct Hashed(u32);

thread_local! {
    static WATCHED: RefCell<Weak<Store<Thing>>> = RefCell::default();
    static HASHED: Cell<usize> = const { Cell::new(0) };
}

impl Hash for Hashed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let store = WATCHED
            .with_borrow(Weak::upgrade)
            .expect("the store exists");
        HASHED.set(HASHED.get() + usize::from(store.state.try_read().is_none()));
        self.0.hash(state);
    }
}

#[test]
fn tables_grow_while_readers_read() {
    let store = Arc::new(Store::default());
    WATCHED.set(Arc::downgrade(&store));
    let index = store.add_index(|thing: &Arc<Thing>| vec![Hashed(thing.0)]);
    for number in 0..2000 {
        let key = ObjectKey::cluster_scoped(number.to_string());
        HASHED.set(0);
        store.put(Entry::new(key, Arc::new((number, 0)), 1), 1);
        assert!(
            (1..4).contains(&HASHED.get()),
            "object {number}: {} hashes",
            HASHED.get()
        );
    }
    for number in [0, 1000, 1999] {
        assert_eq!(
            store
                .select(None, &[index.of(&Hashed(number))])
                .iter()
                .count(),
            1
        );
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, Thing),
    Remove(u8),
    Replace(Option<&'static str>, Vec<(u8, Thing)>),
    Snapshot,
}

fn step() -> impl Strategy<Value = Step> {
    let thing = || (0u32..4, 0u8..4);
    prop_oneof![
        8 => (any::<u8>(), thing()).prop_map(|(number, thing)| Step::Put(number, thing)),
        4 => any::<u8>().prop_map(Step::Remove),
        1 => proptest::collection::vec((any::<u8>(), thing()), 0..40).prop_map(|list| Step::Replace(None, list)),
        1 => proptest::collection::vec((any::<u8>(), thing()), 0..40).prop_map(|list| Step::Replace(Some("a"), list)),
        2 => Just(Step::Snapshot),
    ]
}

steersman_testkit::properties! {
    /// Compares the store with a map, and checks all snapshots again at the end.
    #[test]
    fn a_store_behaves_like_a_map_with_snapshots(steps in proptest::collection::vec(step(), 1..200)) {
        let store = Store::default();
        let index = store.add_index(|thing: &Arc<Thing>| vec![thing.1]);
        let mut model = BTreeMap::<ObjectKey, Thing>::new();
        let mut past = Vec::new();
        for (revision, step) in (1..).zip(steps) {
            match step {
                Step::Put(number, thing) => {
                    let old = store.put(entry(number, thing), revision);
                    prop_assert_eq!(old.map(|old| *old), model.insert(key(number), thing));
                }
                Step::Remove(number) => {
                    let old = store.remove(&key(number), revision);
                    prop_assert_eq!(old.map(|old| *old.object), model.remove(&key(number)));
                }
                Step::Replace(namespace, mut list) => {
                    let elsewhere = |key: &ObjectKey| namespace.is_some() && key.namespace() != namespace;
                    list.retain(|(number, _)| !elsewhere(&key(*number)));
                    let entries = list.iter().map(|(number, thing)| entry(*number, *thing)).collect();
                    let about = namespace.map_or(ListScope::Matching(&|_| true), ListScope::Namespace);
                    let changes = store.replace(about, entries, &[], revision, |a, b| a == b);
                    let kept = model.iter().filter(|(key, _)| elsewhere(key)).map(|(key, thing)| (key.clone(), *thing));
                    let next: BTreeMap<_, _> =
                        kept.chain(list.into_iter().map(|(number, thing)| (key(number), thing))).collect();
                    let changed = next.iter().filter(|(key, thing)| model.get(*key) != Some(*thing)).count();
                    let gone = model.keys().filter(|key| !next.contains_key(*key)).count();
                    prop_assert_eq!(changes.len(), changed + gone);
                    model = next;
                }
                Step::Snapshot => past.push((store.snapshot(), store.select(Some("a"), &[index.of(&1)]), model.clone())),
            }
            prop_assert_eq!(store.len(), model.len());
            prop_assert_eq!(store.bytes(), model.values().map(|thing| 1 + u64::from(thing.0)).sum::<u64>());
            store.advance(revision);
            prop_assert_eq!(store.revision(), revision);
        }
        past.push((store.snapshot(), store.select(Some("a"), &[index.of(&1)]), model));
        for (all, some, model) in &past {
            prop_assert_eq!(&shown(all), model);
            let mut wanted = model.clone();
            wanted.retain(|key, thing| key.namespace() == Some("a") && thing.1 == 1);
            prop_assert_eq!(shown(some), wanted);
        }
    }
}
