//! Compares the store with a model that keeps all changes and recomputes every answer.

mod watchers;

use super::*;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;
use std::{thread, time::Duration};

fn content(value: u8) -> Content {
    Content::encode(json!({"value": value}).as_object().unwrap())
}

/// Revision and content of an object.
type Shown = (u64, String);

fn shown(object: &Object) -> Shown {
    (
        object.revision,
        String::from_utf8(object.content().tail().to_vec()).unwrap(),
    )
}

/// Revision and key of a change, and the object before and after.
type ShownChange = (u64, String, Option<Shown>, Option<Shown>);

fn shown_change(change: &Arc<Change>) -> ShownChange {
    let [before, after] =
        [&change.before, &change.after].map(|object| object.as_deref().map(shown));
    (
        change.revision,
        change.key().as_str().to_owned(),
        before,
        after,
    )
}

/// Model of a table from its creation until it is dropped.
#[derive(Clone)]
struct TableModel {
    changes: Vec<(u64, &'static str, Option<u8>)>,
    floor: u64,
    dropped: bool,
}

#[derive(Clone)]
struct Model {
    revision: u64,
    history: usize,
    table_models: Vec<TableModel>,
    tables: BTreeMap<&'static str, usize>,
}

impl TableModel {
    fn at(&self, revision: u64) -> BTreeMap<&'static str, Shown> {
        let mut objects = BTreeMap::new();
        for (at, key, value) in self.changes.iter().filter(|(at, _, _)| *at <= revision) {
            match value {
                Some(value) => {
                    _ = objects.insert(
                        *key,
                        shown(&Object::new(Key::from_text(key), *at, content(*value))),
                    );
                }
                None => _ = objects.remove(key),
            }
        }
        objects
    }

    fn change(&self, (revision, key, _): (u64, &str, Option<u8>)) -> ShownChange {
        let state = |revision| self.at(revision).get(key).cloned();
        (
            revision,
            key.to_owned(),
            state(revision - 1),
            state(revision),
        )
    }
}

impl Model {
    fn table_model(&self, table: &str) -> Option<&TableModel> {
        Some(&self.table_models[*self.tables.get(table)?])
    }

    fn write(&mut self, table: &str, key: &'static str, value: Option<u8>) -> ShownChange {
        self.revision += 1;
        let table_model = &mut self.table_models[self.tables[table]];
        let change = (self.revision, key, value);
        table_model.changes.push(change);
        let kept: Vec<u64> = table_model
            .changes
            .iter()
            .map(|(at, _, _)| *at)
            .filter(|at| *at > table_model.floor)
            .collect();
        if kept.len() > self.history {
            table_model.floor = kept[kept.len() - self.history - 1];
        }
        table_model.change(change)
    }

    fn scan(&self, table: &str, range: Range<'_>, at: u64) -> Result<(Vec<Shown>, usize), Expired> {
        let Some(table_model) = self.table_model(table) else {
            return Ok((Vec::new(), 0));
        };
        if at < table_model.floor {
            return Err(Expired {
                floor: table_model.floor,
            });
        }
        let inside = |key: &str| {
            let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
            (range.namespace.is_empty() || range.namespace == namespace) && key >= range.from
        };
        let mut objects: Vec<Shown> = table_model
            .at(at)
            .into_iter()
            .filter(|(key, _)| inside(key))
            .map(|(_, o)| o)
            .collect();
        let rest = objects.split_off(objects.len().min(range.limit.unwrap_or(usize::MAX)));
        Ok((objects, rest.len()))
    }
}

/// A watcher of table `table_model` of store `store_index`.
struct Watcher {
    cursor: Cursor,
    store_index: usize,
    table_model: usize,
    seen: u64,
}

impl Watcher {
    /// Polls the watcher and compares the result with the model. Returns whether there is nothing
    /// more.
    fn poll(&mut self, stores: &[(Store, Model)], limit: usize) -> bool {
        let (_, model) = &stores[self.store_index];
        let table_model = &model.table_models[self.table_model];
        let unseen: Vec<_> = table_model
            .changes
            .iter()
            .filter(|(at, _, _)| *at > self.seen)
            .copied()
            .collect();
        let next = self.cursor.try_next(limit, usize::MAX);
        if unseen.iter().any(|(at, _, _)| *at <= table_model.floor) {
            assert!(
                matches!(next, Some(Next::Expired(Expired { floor })) if floor == table_model.floor),
                "{next:?}"
            );
            return true;
        }
        let expected: Vec<_> = unseen
            .into_iter()
            .take(limit)
            .map(|change| table_model.change(change))
            .collect();
        match next {
            Some(Next::Changes(changes)) => {
                assert!(!changes.is_empty());
                assert_eq!(
                    changes.iter().map(shown_change).collect::<Vec<_>>(),
                    expected
                );
                self.seen = changes[changes.len() - 1].revision;
            }
            None | Some(Next::End) => {
                assert!(expected.is_empty(), "{expected:?}");
                assert_eq!(next.is_some(), table_model.dropped);
                if !table_model.dropped {
                    self.seen = self.seen.max(model.revision);
                }
            }
            Some(Next::Expired(_)) => panic!("{next:?}, but no unread change was dropped"),
        }
        assert_eq!(self.cursor.seen(), self.seen);
        expected.is_empty()
    }
}

/// Distance of a revision from the current one.
type Distance = u64;

#[derive(Clone, Debug)]
enum Op {
    Write {
        table: &'static str,
        key: &'static str,
        value: Option<u8>,
    },
    Stale {
        table: &'static str,
        key: &'static str,
        value: Option<u8>,
        off: i8,
    },
    Scan {
        table: &'static str,
        namespace: &'static str,
        from: &'static str,
        limit: Option<usize>,
        distance: Option<Distance>,
    },
    Compact(Distance),
    Watch {
        table: &'static str,
        distance: Distance,
        ahead: u64,
    },
    ScanAndWatch(&'static str),
    Poll {
        watcher: usize,
        limit: usize,
    },
    Create(&'static str),
    Drop(&'static str),
    Fork,
}

const KEYS: [&str; 9] = [
    "a/x", "a/y", "a/z", "a-b/x", "a-b/y", "b/x", "b/z", "x", "a",
];

fn op() -> impl Strategy<Value = Op> {
    let table = || prop::sample::select(&["pods", "widgets"][..]);
    let key = || prop::sample::select(&KEYS[..]);
    let value = || prop::option::weighted(0.6, any::<u8>());
    let distance = || 0..30u64;
    prop_oneof![
        30 => (table(), key(), value()).prop_map(|(table, key, value)| Op::Write { table, key, value }),
        3 => (table(), key(), value(), -2..=2i8).prop_map(|(table, key, value, off)| Op::Stale { table, key, value, off }),
        10 => (table(), prop::sample::select(&["", "a", "a-b", "b", "c"][..]), prop::sample::select(&["", "a-b/x", "a/y", "a/z", "b", "x", "z"][..]),
            prop::option::of(0..5usize), prop::option::of(distance()))
            .prop_map(|(table, namespace, from, limit, distance)| Op::Scan { table, namespace, from, limit, distance }),
        2 => distance().prop_map(Op::Compact),
        5 => (table(), distance(), prop_oneof![4 => Just(0), 1 => 0..40u64]).prop_map(|(table, distance, ahead)| Op::Watch { table, distance, ahead }),
        3 => table().prop_map(Op::ScanAndWatch),
        12 => (any::<usize>(), 1..5usize).prop_map(|(watcher, limit)| Op::Poll { watcher, limit }),
        2 => table().prop_map(Op::Create),
        1 => table().prop_map(Op::Drop),
        1 => Just(Op::Fork),
    ]
}

fn compare_scan(
    found: Result<Scan, Expired>,
    expected: Result<(Vec<Shown>, usize), Expired>,
    revision: u64,
) {
    let found = found.map(|scan| {
        assert_eq!(scan.revision, revision);
        (
            scan.objects.iter().map(|object| shown(object)).collect(),
            scan.remaining,
        )
    });
    assert_eq!(found, expected);
}

fn run(op: &Op, store_index: usize, stores: &mut Vec<(Store, Model)>, watchers: &mut Vec<Watcher>) {
    let (store, model) = &mut stores[store_index];
    let stored = |table, key: &str| {
        model
            .table_model(table)?
            .at(model.revision)
            .get(key)
            .map(|(revision, _)| *revision)
    };
    match *op {
        Op::Write { table, key, value } => {
            let seen = stored(table, key);
            let written = store.write(table, &Key::from_text(key), seen, value.map(content));
            if model.table_model(table).is_none() {
                assert!(matches!(written, Err(WriteError::NoTable)));
            } else if seen.is_none() && value.is_none() {
                assert!(matches!(written, Err(WriteError::Conflict)));
            } else {
                assert_eq!(
                    shown_change(&written.unwrap()),
                    model.write(table, key, value)
                );
            }
        }
        Op::Stale {
            table,
            key,
            value,
            off,
        } => {
            let now = stored(table, key);
            let seen = now.map_or(Some(1), |now| {
                if off == 0 {
                    None
                } else {
                    now.checked_add_signed(off.into())
                }
            });
            let written = store.write(table, &Key::from_text(key), seen, value.map(content));
            match model.table_model(table) {
                Some(_) => assert!(matches!(written, Err(WriteError::Conflict))),
                None => assert!(matches!(written, Err(WriteError::NoTable))),
            }
        }
        Op::Scan {
            table,
            namespace,
            from,
            limit,
            distance,
        } => {
            let range = Range {
                namespace,
                from,
                limit,
            };
            let at = distance.map(|distance| model.revision.saturating_sub(distance));
            let revision = at.unwrap_or(model.revision);
            compare_scan(
                store.scan(table, range, at),
                model.scan(table, range, revision),
                revision,
            );
        }
        Op::Compact(distance) => {
            let revision = model.revision.saturating_sub(distance);
            store.compact(revision);
            for table_model in model
                .table_models
                .iter_mut()
                .filter(|table_model| !table_model.dropped)
            {
                table_model.floor = table_model.floor.max(revision);
            }
        }
        Op::Watch {
            table,
            distance,
            ahead,
        } => {
            let from = model.revision.saturating_sub(distance) + ahead;
            match (store.watch(table, from), model.table_model(table)) {
                (None, None) => {}
                (Some(Err(expired)), Some(table_model)) => {
                    assert!(from < table_model.floor && expired.floor == table_model.floor);
                }
                (Some(Ok(cursor)), Some(table_model)) => {
                    assert!(from >= table_model.floor);
                    watchers.push(Watcher {
                        cursor,
                        store_index,
                        table_model: model.tables[table],
                        seen: from,
                    });
                }
                (found, _) => panic!("store and model disagree, table found: {}", found.is_some()),
            }
        }
        Op::ScanAndWatch(table) => {
            let found = store.scan_and_watch(table, Range::default());
            assert_eq!(found.is_some(), model.table_model(table).is_some());
            if let Some((scan, cursor)) = found {
                let expected = model.scan(table, Range::default(), model.revision);
                compare_scan(Ok(scan), expected, model.revision);
                watchers.push(Watcher {
                    cursor,
                    store_index,
                    table_model: model.tables[table],
                    seen: model.revision,
                });
            }
        }
        Op::Poll { watcher, limit } => {
            if !watchers.is_empty() {
                let watcher = watcher % watchers.len();
                watchers[watcher].poll(stores, limit);
            }
        }
        Op::Create(table) => {
            store.create_table(&table.into());
            model.tables.entry(table).or_insert_with(|| {
                model.table_models.push(TableModel {
                    changes: Vec::new(),
                    floor: model.revision,
                    dropped: false,
                });
                model.table_models.len() - 1
            });
        }
        Op::Drop(table) => {
            store.drop_table(table).unwrap();
            // Dropping a table removes its objects first.
            let left: Vec<_> = model
                .table_model(table)
                .map(|table_model| table_model.at(model.revision))
                .unwrap_or_default()
                .into_keys()
                .collect();
            for key in left {
                model.write(table, key, None);
            }
            if let Some(table_model) = model.tables.remove(table) {
                model.table_models[table_model].dropped = true;
            }
        }
        Op::Fork => {
            let fork = (store.fork(), model.clone());
            stores.push(fork);
        }
    }
    let (store, model) = &stores[store_index];
    assert_eq!(store.revision(), model.revision);
}

steersman_testkit::properties! {

    cases = 400;

    #[test]
    fn the_store_agrees_with_a_model_that_keeps_all_changes(
        history in prop_oneof![0..4usize, 4..40usize],
        ops in prop::collection::vec((op(), any::<usize>()), 1..120),
    ) {
        let mut stores = vec![(Store::new(HistoryLimits { changes: history, bytes: usize::MAX }, |_, _, _| true), Model { revision: 1, history, table_models: Vec::new(), tables: BTreeMap::new() })];
        let mut watchers = Vec::new();
        for table in ["pods", "widgets"] {
            run(&Op::Create(table), 0, &mut stores, &mut watchers);
        }
        for (op, store_index) in &ops {
            let store_index = store_index % stores.len();
            run(op, store_index, &mut stores, &mut watchers);
        }
        for watcher in &mut watchers {
            while !watcher.poll(&stores, 3) {}
        }
    }
}
