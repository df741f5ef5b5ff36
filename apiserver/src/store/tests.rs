//! The store against a model that remembers everything and works everything out anew each time it is asked.

mod watchers;

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
        let next = self.cursor.try_next(limit, usize::MAX);
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

steersman_testkit::properties! {

    cases = 400;

    #[test]
    fn the_store_does_what_a_model_that_forgets_nothing_says(
        history in prop_oneof![0..4usize, 4..40usize],
        ops in prop::collection::vec((op(), any::<usize>()), 1..120),
    ) {
        let mut worlds = vec![(Store::new(HistoryLimits { changes: history, bytes: usize::MAX }, |_, _, _| true), Model { revision: 1, history, lives: Vec::new(), tables: BTreeMap::new() })];
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
