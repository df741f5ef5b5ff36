//! The store against a model that remembers everything and works everything out anew each time it is asked.

use super::*;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;
use std::{thread, time::Duration};

fn content(value: u8) -> Content {
    Content::encode(json!({"value": value}).as_object().unwrap())
}

/// An object as its revision and value.
type Shown = (u64, String);

fn shown(object: &Object) -> Shown {
    (object.revision, String::from_utf8(object.content().tail().to_vec()).unwrap())
}

/// A change as its revision and key, and the object before and after.
type ShownChange = (u64, String, Option<Shown>, Option<Shown>);

fn shown_change(change: &Arc<Change>) -> ShownChange {
    let [before, after] = [&change.before, &change.after].map(|object| object.as_deref().map(shown));
    (change.revision, change.key().as_str().to_owned(), before, after)
}

/// A table from when it was made until it was dropped.
#[derive(Clone)]
struct Life {
    changes: Vec<(u64, &'static str, Option<u8>)>,
    floor: u64,
    dropped: bool,
}

#[derive(Clone)]
struct Model {
    revision: u64,
    history: usize,
    lives: Vec<Life>,
    tables: BTreeMap<&'static str, usize>,
}

impl Life {
    fn at(&self, revision: u64) -> BTreeMap<&'static str, Shown> {
        let mut objects = BTreeMap::new();
        for (at, key, value) in self.changes.iter().filter(|(at, _, _)| *at <= revision) {
            match value {
                Some(value) => _ = objects.insert(*key, shown(&Object::new(Key::from_text(key), *at, content(*value)))),
                None => _ = objects.remove(key),
            }
        }
        objects
    }

    fn change(&self, (revision, key, _): (u64, &str, Option<u8>)) -> ShownChange {
        let state = |revision| self.at(revision).get(key).cloned();
        (revision, key.to_owned(), state(revision - 1), state(revision))
    }
}

impl Model {
    fn life(&self, table: &str) -> Option<&Life> {
        Some(&self.lives[*self.tables.get(table)?])
    }

    fn write(&mut self, table: &str, key: &'static str, value: Option<u8>) -> ShownChange {
        self.revision += 1;
        let life = &mut self.lives[self.tables[table]];
        let change = (self.revision, key, value);
        life.changes.push(change);
        let kept: Vec<u64> = life.changes.iter().map(|(at, _, _)| *at).filter(|at| *at > life.floor).collect();
        if kept.len() > self.history {
            life.floor = kept[kept.len() - self.history - 1];
        }
        life.change(change)
    }

    fn scan(&self, table: &str, range: Range<'_>, at: u64) -> Result<(Vec<Shown>, usize), Expired> {
        let Some(life) = self.life(table) else { return Ok((Vec::new(), 0)) };
        if at < life.floor {
            return Err(Expired { floor: life.floor });
        }
        let inside = |key: &str| {
            let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
            (range.namespace.is_empty() || range.namespace == namespace) && key >= range.from
        };
        let mut objects: Vec<Shown> = life.at(at).into_iter().filter(|(key, _)| inside(key)).map(|(_, o)| o).collect();
        let rest = objects.split_off(objects.len().min(range.limit.unwrap_or(usize::MAX)));
        Ok((objects, rest.len()))
    }
}

/// A watcher of life `life` in store `world`.
struct Watcher {
    cursor: Cursor,
    world: usize,
    life: usize,
    seen: u64,
}

impl Watcher {
    /// Whether there is nothing more for now.
    fn poll(&mut self, worlds: &[(Store, Model)], limit: usize) -> bool {
        let (_, model) = &worlds[self.world];
        let life = &model.lives[self.life];
        let unseen: Vec<_> = life.changes.iter().filter(|(at, _, _)| *at > self.seen).copied().collect();
        let next = self.cursor.try_next(limit);
        if unseen.iter().any(|(at, _, _)| *at <= life.floor) {
            assert!(matches!(next, Some(Next::Expired(Expired { floor })) if floor == life.floor), "{next:?}");
            return true;
        }
        let expected: Vec<_> = unseen.into_iter().take(limit).map(|change| life.change(change)).collect();
        match next {
            Some(Next::Changes(changes)) => {
                assert!(!changes.is_empty());
                assert_eq!(changes.iter().map(shown_change).collect::<Vec<_>>(), expected);
                self.seen = changes[changes.len() - 1].revision;
            }
            None | Some(Next::End) => {
                assert!(expected.is_empty(), "{expected:?}");
                assert_eq!(next.is_some(), life.dropped);
                if !life.dropped {
                    self.seen = self.seen.max(model.revision);
                }
            }
            Some(Next::Expired(_)) => panic!("{next:?}, but nothing was forgotten"),
        }
        assert_eq!(self.cursor.seen(), self.seen);
        expected.is_empty()
    }
}

/// How far back a revision is: so many before the store's.
type Back = u64;

#[derive(Clone, Debug)]
enum Op {
    Write { table: &'static str, key: &'static str, value: Option<u8> },
    Stale { table: &'static str, key: &'static str, value: Option<u8>, off: i8 },
    Scan { table: &'static str, namespace: &'static str, from: &'static str, limit: Option<usize>, back: Option<Back> },
    Compact(Back),
    Watch { table: &'static str, back: Back, ahead: u64 },
    ScanAndWatch(&'static str),
    Poll { watcher: usize, limit: usize },
    Create(&'static str),
    Drop(&'static str),
    Fork,
}

const KEYS: [&str; 9] = ["a/x", "a/y", "a/z", "a-b/x", "a-b/y", "b/x", "b/z", "x", "a"];

fn op() -> impl Strategy<Value = Op> {
    let table = || prop::sample::select(&["pods", "widgets"][..]);
    let key = || prop::sample::select(&KEYS[..]);
    let value = || prop::option::weighted(0.6, any::<u8>());
    let back = || 0..30u64;
    prop_oneof![
        30 => (table(), key(), value()).prop_map(|(table, key, value)| Op::Write { table, key, value }),
        3 => (table(), key(), value(), -2..=2i8).prop_map(|(table, key, value, off)| Op::Stale { table, key, value, off }),
        10 => (table(), prop::sample::select(&["", "a", "a-b", "b", "c"][..]), prop::sample::select(&["", "a-b/x", "a/y", "a/z", "b", "x", "z"][..]),
            prop::option::of(0..5usize), prop::option::of(back()))
            .prop_map(|(table, namespace, from, limit, back)| Op::Scan { table, namespace, from, limit, back }),
        2 => back().prop_map(Op::Compact),
        5 => (table(), back(), prop_oneof![4 => Just(0), 1 => 0..40u64]).prop_map(|(table, back, ahead)| Op::Watch { table, back, ahead }),
        3 => table().prop_map(Op::ScanAndWatch),
        12 => (any::<usize>(), 1..5usize).prop_map(|(watcher, limit)| Op::Poll { watcher, limit }),
        2 => table().prop_map(Op::Create),
        1 => table().prop_map(Op::Drop),
        1 => Just(Op::Fork),
    ]
}

fn compare_scan(found: Result<Scan, Expired>, expected: Result<(Vec<Shown>, usize), Expired>, revision: u64) {
    let found = found.map(|scan| {
        assert_eq!(scan.revision, revision);
        (scan.objects.iter().map(|object| shown(object)).collect(), scan.remaining)
    });
    assert_eq!(found, expected);
}

fn run(op: &Op, world: usize, worlds: &mut Vec<(Store, Model)>, watchers: &mut Vec<Watcher>) {
    let (store, model) = &mut worlds[world];
    let stored = |table, key: &str| model.life(table)?.at(model.revision).get(key).map(|(revision, _)| *revision);
    match *op {
        Op::Write { table, key, value } => {
            let seen = stored(table, key);
            let written = store.write(table, &Key::from_text(key), seen, value.map(content));
            if model.life(table).is_none() {
                assert!(matches!(written, Err(Refused::NoTable)));
            } else if seen.is_none() && value.is_none() {
                assert!(matches!(written, Err(Refused::Moved)));
            } else {
                assert_eq!(shown_change(&written.unwrap()), model.write(table, key, value));
            }
        }
        Op::Stale { table, key, value, off } => {
            let now = stored(table, key);
            let seen = now.map_or(Some(1), |now| if off == 0 { None } else { now.checked_add_signed(off.into()) });
            let written = store.write(table, &Key::from_text(key), seen, value.map(content));
            match model.life(table) {
                Some(_) => assert!(matches!(written, Err(Refused::Moved))),
                None => assert!(matches!(written, Err(Refused::NoTable))),
            }
        }
        Op::Scan { table, namespace, from, limit, back } => {
            let range = Range { namespace, from, limit };
            let at = back.map(|back| model.revision.saturating_sub(back));
            let revision = at.unwrap_or(model.revision);
            compare_scan(store.scan(table, range, at), model.scan(table, range, revision), revision);
        }
        Op::Compact(back) => {
            let revision = model.revision.saturating_sub(back);
            store.compact(revision);
            for life in model.lives.iter_mut().filter(|life| !life.dropped) {
                life.floor = life.floor.max(revision);
            }
        }
        Op::Watch { table, back, ahead } => {
            let from = model.revision.saturating_sub(back) + ahead;
            match (store.watch(table, from), model.life(table)) {
                (None, None) => {}
                (Some(Err(expired)), Some(life)) => assert!(from < life.floor && expired.floor == life.floor),
                (Some(Ok(cursor)), Some(life)) => {
                    assert!(from >= life.floor);
                    watchers.push(Watcher { cursor, world, life: model.tables[table], seen: from });
                }
                (found, _) => panic!("there is a table: {}", found.is_some()),
            }
        }
        Op::ScanAndWatch(table) => {
            let found = store.scan_and_watch(table, Range::default());
            assert_eq!(found.is_some(), model.life(table).is_some());
            if let Some((scan, cursor)) = found {
                let expected = model.scan(table, Range::default(), model.revision);
                compare_scan(Ok(scan), expected, model.revision);
                watchers.push(Watcher { cursor, world, life: model.tables[table], seen: model.revision });
            }
        }
        Op::Poll { watcher, limit } => {
            if !watchers.is_empty() {
                let watcher = watcher % watchers.len();
                watchers[watcher].poll(worlds, limit);
            }
        }
        Op::Create(table) => {
            store.create_table(&table.into());
            model.tables.entry(table).or_insert_with(|| {
                model.lives.push(Life { changes: Vec::new(), floor: model.revision, dropped: false });
                model.lives.len() - 1
            });
        }
        Op::Drop(table) => {
            store.drop_table(table).unwrap();
            // What is left goes first.
            let left: Vec<_> =
                model.life(table).map(|life| life.at(model.revision)).unwrap_or_default().into_keys().collect();
            for key in left {
                model.write(table, key, None);
            }
            if let Some(life) = model.tables.remove(table) {
                model.lives[life].dropped = true;
            }
        }
        Op::Fork => {
            let fork = (store.fork(), model.clone());
            worlds.push(fork);
        }
    }
    let (store, model) = &worlds[world];
    assert_eq!(store.revision(), model.revision);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_a_model_that_forgets_nothing_says(
        history in prop_oneof![0..4usize, 4..40usize],
        ops in prop::collection::vec((op(), any::<usize>()), 1..120),
    ) {
        let mut worlds = vec![(Store::new(history, |_, _, _| true), Model { revision: 1, history, lives: Vec::new(), tables: BTreeMap::new() })];
        let mut watchers = Vec::new();
        for table in ["pods", "widgets"] {
            run(&Op::Create(table), 0, &mut worlds, &mut watchers);
        }
        for (op, world) in &ops {
            let world = world % worlds.len();
            run(op, world, &mut worlds, &mut watchers);
        }
        for watcher in &mut watchers {
            while !watcher.poll(&worlds, 3) {}
        }
    }
}

fn store(history: usize) -> Store {
    let store = Store::new(history, |_, _, _| true);
    store.create_table(&"pods".into());
    store
}

/// Put an object, whatever is there.
fn put(store: &Store, key: &str, value: u8) -> Arc<Change> {
    let seen = store.get("pods", key).map(|object| object.revision);
    store.write("pods", &Key::from_text(key), seen, Some(content(value))).unwrap()
}

fn revisions(next: Option<Next>) -> Vec<u64> {
    match next {
        Some(Next::Changes(changes)) => changes.iter().map(|change| change.revision).collect(),
        next => panic!("{next:?}"),
    }
}

#[test]
fn a_slow_watcher_gets_expired_and_never_a_gap() {
    let store = store(3);
    let mut slow = store.watch("pods", 1).unwrap().unwrap();
    for value in 0..3 {
        put(&store, "a/x", value);
    }
    assert_eq!(revisions(slow.try_next(1)), [2]);
    put(&store, "a/x", 3);
    assert_eq!(revisions(slow.try_next(1)), [3]);
    put(&store, "a/x", 4);
    put(&store, "a/x", 5);
    assert!(matches!(slow.try_next(1), Some(Next::Expired(Expired { floor: 4 }))));
    assert_eq!(slow.seen(), 3);
}

#[test]
fn a_slow_watcher_of_a_dropped_table_gets_expired_and_never_a_gap() {
    let store = store(2);
    let mut slow = store.watch("pods", 1).unwrap().unwrap();
    for value in 0..5 {
        put(&store, "a/x", value);
    }
    store.drop_table("pods").unwrap();
    assert!(matches!(slow.try_next(10), Some(Next::Expired(_))));
}

#[test]
fn compaction_does_not_expire_a_watcher_that_saw_everything() {
    let store = store(10);
    store.create_table(&"widgets".into());
    put(&store, "a/x", 1);
    let mut idle = store.watch("pods", 2).unwrap().unwrap();
    for number in 0..5 {
        store.write("widgets", &Key::new("a", &number.to_string()), None, Some(content(1))).unwrap();
    }
    store.compact(store.revision());
    assert!(store.watch("pods", 2).unwrap().is_err());
    put(&store, "a/x", 2);
    assert_eq!(revisions(idle.try_next(10)), [8]);
}

#[tokio::test]
async fn watchers_of_a_dropped_table_read_everything_and_then_end() {
    let store = store(10);
    let mut cursor = store.watch("pods", 1).unwrap().unwrap();
    put(&store, "a/x", 1);
    put(&store, "a/x", 2);
    store.drop_table("pods").unwrap();
    // The table that has its name now is another one.
    store.create_table(&"pods".into());
    put(&store, "a/x", 3);
    cursor.grown().await;
    assert_eq!(revisions(cursor.try_next(1)), [2]);
    assert_eq!(revisions(cursor.try_next(1)), [3]);
    // The removal of what was left.
    assert_eq!(revisions(cursor.try_next(1)), [4]);
    cursor.grown().await;
    assert!(matches!(cursor.try_next(1), Some(Next::End)));
}

/// What a watcher got until the table was dropped.
async fn follow(mut cursor: Cursor, limit: usize) -> Vec<Arc<Change>> {
    let mut all = Vec::new();
    loop {
        match cursor.try_next(limit) {
            Some(Next::Changes(changes)) => all.extend(changes),
            Some(Next::End) => return all,
            Some(Next::Expired(expired)) => panic!("{expired:?}"),
            None => cursor.grown().await,
        }
    }
}

/// Some threads that put and remove the same few objects, until each has done `writes`. All that was done, in order.
fn write_from_threads(store: &Store, writes: usize) -> Vec<Arc<Change>> {
    let mut all: Vec<Arc<Change>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|seed| {
                scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(seed);
                    let mut done = Vec::new();
                    while done.len() < writes {
                        let key = Key::from_text(KEYS[random.random_range(0..KEYS.len())]);
                        let seen = store.get("pods", key.as_str()).map(|object| object.revision);
                        let put = seen.is_none() || random.random_range(0..2) == 0;
                        // Who loses the race tries another one.
                        done.extend(store.write("pods", &key, seen, put.then(|| content(random.random()))));
                        if random.random_range(0..50) == 0 {
                            thread::yield_now();
                        }
                    }
                    done
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_by_key(|change| change.revision);
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn every_watcher_sees_the_same_gapless_sequence_and_no_deletion_is_lost() {
    let store = store(usize::MAX);
    let watchers: Vec<_> =
        (1..5).map(|limit| tokio::spawn(follow(store.watch("pods", 1).unwrap().unwrap(), limit * limit))).collect();
    let writer = tokio::task::spawn_blocking({
        let store = store.clone();
        move || write_from_threads(&store, 700)
    });
    // Some who come later, at any moment.
    let mut late = Vec::new();
    while !writer.is_finished() && late.len() < 200 {
        let (scan, cursor) = store.scan_and_watch("pods", Range::default()).unwrap();
        late.push((scan, tokio::spawn(follow(cursor, 7))));
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    let all = writer.await.unwrap();
    let left = store.scan("pods", Range::default(), None).unwrap();
    // What is left is removed with the table, and that is seen too.
    let dropped = left.objects.len();
    store.drop_table("pods").unwrap();

    assert!(all.iter().map(|change| change.revision).eq(2..2 + all.len() as u64));
    let same = |seen: &[Arc<Change>], all: &[Arc<Change>]| {
        seen.len() == all.len() + dropped && seen.iter().zip(all).all(|(seen, change)| Arc::ptr_eq(seen, change))
    };
    for watcher in watchers {
        assert!(same(&watcher.await.unwrap(), &all));
    }
    for (scan, watcher) in late {
        let changes = watcher.await.unwrap();
        assert!(same(&changes, &all[scan.revision as usize - 1..]));
        let mut objects: BTreeMap<Key, Arc<Object>> =
            scan.objects.into_iter().map(|object| (object.key.clone(), object)).collect();
        for change in changes {
            let before = match &change.after {
                Some(object) => objects.insert(object.key.clone(), object.clone()),
                None => objects.remove(change.key()),
            };
            assert_eq!(before.as_deref().map(shown), change.before.as_deref().map(shown));
        }
        assert!(objects.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_slower_than_a_short_history_see_no_gap_before_they_expire() {
    let store = store(20);
    let writer = tokio::task::spawn_blocking({
        let store = store.clone();
        move || write_from_threads(&store, 700)
    });
    let mut expired = 0;
    while !writer.is_finished() {
        let (scan, mut cursor) = store.scan_and_watch("pods", Range::default()).unwrap();
        let mut seen = scan.revision;
        for _ in 0..20 {
            match cursor.try_next(2) {
                Some(Next::Changes(changes)) => {
                    for change in changes {
                        assert_eq!(change.revision, seen + 1);
                        seen = change.revision;
                    }
                }
                Some(Next::Expired(Expired { floor })) => {
                    assert!(seen < floor);
                    expired += 1;
                    break;
                }
                Some(Next::End) => panic!("the table is there"),
                None => tokio::task::yield_now().await,
            }
        }
    }
    writer.await.unwrap();
    println!("{expired} expired");
}
