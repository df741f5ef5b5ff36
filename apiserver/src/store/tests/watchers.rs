//! Slow watchers, watchers of dropped tables, and watchers beside many writers.

use super::*;
use steersman_testkit::{Seeds, this_test};

fn store(history: usize) -> Store {
    let store = Store::new(
        HistoryLimits {
            changes: history,
            bytes: usize::MAX,
        },
        |_, _, _| true,
    );
    store.create_table(&"pods".into());
    store
}

/// Writes an object, overwriting the existing one.
fn put(store: &Store, key: &str, value: u8) -> Arc<Change> {
    let seen = store.get("pods", key).map(|object| object.revision);
    store
        .write("pods", &Key::from_text(key), seen, Some(content(value)))
        .unwrap()
}

fn revisions(next: Option<Next>) -> Vec<u64> {
    match next {
        Some(Next::Changes(changes)) => changes.iter().map(|change| change.revision).collect(),
        next => panic!("{next:?}"),
    }
}

/// Returns content of about `size` bytes.
fn large(size: usize) -> Content {
    let data = serde_json::json!({"metadata": {}, "data": "x".repeat(size)});
    Content::encode(data.as_object().unwrap())
}

#[test]
fn history_bytes_are_limited_at_the_expense_of_the_largest_table() {
    const BUDGET: usize = 1 << 20;
    let store = Store::new(
        HistoryLimits {
            changes: 1000,
            bytes: BUDGET,
        },
        |_, _, _| true,
    );
    for table in ["pods", "events"] {
        store.create_table(&table.into());
    }
    let write = |table: &str, size| {
        let seen = store.get(table, "a/x").map(|object| object.revision);
        store
            .write(table, &Key::from_text("a/x"), seen, Some(large(size)))
            .unwrap()
    };
    for _ in 0..10 {
        write("events", 10);
    }
    for _ in 0..50 {
        write("pods", 100_000);
    }
    let kept = |table: &str| store.0.read().tables[table].changes.list.len();
    assert!(store.0.read().history_bytes <= BUDGET);
    assert_eq!((kept("events"), kept("pods")), (10, 10));
    assert!(store.watch("events", 1).unwrap().is_ok());
    assert!(store.watch("pods", 11).unwrap().is_err());
    store.compact(u64::MAX);
    assert_eq!(store.0.read().history_bytes, 0);
}

#[test]
fn the_last_change_of_a_table_is_kept_whatever_the_limit() {
    let store = Store::new(
        HistoryLimits {
            changes: 1000,
            bytes: 0,
        },
        |_, _, _| true,
    );
    store.create_table(&"pods".into());
    let mut watcher = store.watch("pods", 1).unwrap().unwrap();
    for value in 0..3 {
        let revision = put(&store, "a/x", value).revision;
        assert_eq!(revisions(watcher.try_next(10, usize::MAX)), [revision]);
    }
    store.drop_table("pods").unwrap();
    assert_eq!(store.0.read().history_bytes, 0);
}

#[test]
fn logs_of_dropped_tables_are_within_the_budget_while_watchers_read_them() {
    const BUDGET: usize = 1 << 20;
    const SIZE: usize = 100_000;
    let store = Store::new(
        HistoryLimits {
            changes: 1000,
            bytes: BUDGET,
        },
        |_, _, _| true,
    );
    let mut slow = Vec::new();
    for _ in 0..5 {
        store.create_table(&"pods".into());
        slow.push(store.watch("pods", store.revision()).unwrap().unwrap());
        for number in 0..8 {
            let key = Key::new("a", &number.to_string());
            store.write("pods", &key, None, Some(large(SIZE))).unwrap();
        }
        store.drop_table("pods").unwrap();
    }
    let kept = || -> usize {
        let state = store.0.read();
        let logs = state.dropped.iter().filter_map(Weak::upgrade);
        state.history_bytes + logs.map(|log| log.lock().bytes).sum::<usize>()
    };
    assert!(kept() <= BUDGET, "{} bytes", kept());
    assert!(kept() > BUDGET - 2 * SIZE, "{} bytes", kept());
    for watcher in &mut slow {
        assert!(matches!(
            watcher.try_next(1, usize::MAX),
            Some(Next::Expired(_))
        ));
    }
    // The history is freed with its last watcher.
    drop(slow);
    assert_eq!(kept(), 0);
    store.create_table(&"pods".into());
    put(&store, "a/x", 1);
    assert!(store.0.read().dropped.is_empty());
}

#[test]
fn logs_of_a_closed_store_are_within_the_budget_while_watchers_read_them() {
    const BUDGET: usize = 1 << 20;
    let limits = HistoryLimits {
        changes: 1000,
        bytes: BUDGET,
    };
    let store = Store::new(limits, |_, _, _| true);
    let fill = || {
        store.create_table(&"pods".into());
        for number in 0..20 {
            let key = Key::new("a", &number.to_string());
            let written = store.write("pods", &key, None, Some(large(100_000)));
            store
                .write("pods", &key, Some(written.unwrap().revision), None)
                .unwrap();
        }
    };
    fill();
    let slow = store.watch("pods", store.0.read().tables["pods"].changes.floor);
    store.close();
    let kept = || -> usize {
        let state = store.0.read();
        let logs = state.dropped.iter().filter_map(Weak::upgrade);
        state.history_bytes + logs.map(|log| log.lock().bytes).sum::<usize>()
    };
    assert!(kept() > BUDGET / 2, "{} bytes", kept());
    fill();
    assert!(kept() <= BUDGET, "{} bytes", kept());
    drop(slow);
    store.close();
    assert_eq!(kept(), 0);
}

#[test]
fn try_next_returns_changes_up_to_a_size() {
    let store = store(100);
    let mut watcher = store.watch("pods", 1).unwrap().unwrap();
    for _ in 0..10 {
        let seen = store.get("pods", "a/x").map(|object| object.revision);
        store
            .write("pods", &Key::from_text("a/x"), seen, Some(large(1000)))
            .unwrap();
    }
    assert_eq!(revisions(watcher.try_next(10, 1)), [2]);
    assert_eq!(revisions(watcher.try_next(10, 2500)), [3, 4, 5]);
    assert_eq!(revisions(watcher.try_next(3, usize::MAX)), [6, 7, 8]);
}

#[test]
fn a_slow_watcher_expires_without_a_gap() {
    let store = store(3);
    let mut slow = store.watch("pods", 1).unwrap().unwrap();
    for value in 0..3 {
        put(&store, "a/x", value);
    }
    assert_eq!(revisions(slow.try_next(1, usize::MAX)), [2]);
    put(&store, "a/x", 3);
    assert_eq!(revisions(slow.try_next(1, usize::MAX)), [3]);
    put(&store, "a/x", 4);
    put(&store, "a/x", 5);
    assert!(matches!(
        slow.try_next(1, usize::MAX),
        Some(Next::Expired(Expired { floor: 4 }))
    ));
    assert_eq!(slow.seen(), 3);
}

#[test]
fn a_slow_watcher_of_a_dropped_table_expires_without_a_gap() {
    let store = store(2);
    let mut slow = store.watch("pods", 1).unwrap().unwrap();
    for value in 0..5 {
        put(&store, "a/x", value);
    }
    store.drop_table("pods").unwrap();
    assert!(matches!(
        slow.try_next(10, usize::MAX),
        Some(Next::Expired(_))
    ));
}

#[test]
fn compaction_does_not_expire_a_watcher_that_has_read_everything() {
    let store = store(10);
    store.create_table(&"widgets".into());
    put(&store, "a/x", 1);
    let mut idle = store.watch("pods", 2).unwrap().unwrap();
    for number in 0..5 {
        store
            .write(
                "widgets",
                &Key::new("a", &number.to_string()),
                None,
                Some(content(1)),
            )
            .unwrap();
    }
    store.compact(store.revision());
    assert!(store.watch("pods", 2).unwrap().is_err());
    put(&store, "a/x", 2);
    assert_eq!(revisions(idle.try_next(10, usize::MAX)), [8]);
}

#[tokio::test]
async fn watchers_of_a_dropped_table_read_everything_and_then_end() {
    let store = store(10);
    let mut cursor = store.watch("pods", 1).unwrap().unwrap();
    put(&store, "a/x", 1);
    put(&store, "a/x", 2);
    store.drop_table("pods").unwrap();
    // A new table of the same name is unrelated.
    store.create_table(&"pods".into());
    put(&store, "a/x", 3);
    cursor.wait_for_changes().await;
    assert_eq!(revisions(cursor.try_next(1, usize::MAX)), [2]);
    assert_eq!(revisions(cursor.try_next(1, usize::MAX)), [3]);
    // The removal of the remaining object.
    assert_eq!(revisions(cursor.try_next(1, usize::MAX)), [4]);
    cursor.wait_for_changes().await;
    assert!(matches!(cursor.try_next(1, usize::MAX), Some(Next::End)));
}

/// Returns everything that a watcher reads until the table is dropped.
async fn follow(mut cursor: Cursor, limit: usize) -> Vec<Arc<Change>> {
    let mut all = Vec::new();
    loop {
        match cursor.try_next(limit, usize::MAX) {
            Some(Next::Changes(changes)) => all.extend(changes),
            Some(Next::End) => return all,
            Some(Next::Expired(expired)) => panic!("{expired:?}"),
            None => cursor.wait_for_changes().await,
        }
    }
}

/// Writes and removes a few objects from several threads, `writes` times each. Returns all changes
/// in order.
///
/// `seed` determines what the threads write.
fn write_from_threads(store: &Store, writes: usize, seed: u64) -> Vec<Arc<Change>> {
    let mut all: Vec<Arc<Change>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(seed.wrapping_add(thread));
                    let mut done = Vec::new();
                    while done.len() < writes {
                        let key = Key::from_text(KEYS[random.random_range(0..KEYS.len())]);
                        let seen = store
                            .get("pods", key.as_str())
                            .map(|object| object.revision);
                        let put = seen.is_none() || random.random_range(0..2) == 0;
                        // After a conflict, try another key.
                        done.extend(store.write(
                            "pods",
                            &key,
                            seen,
                            put.then(|| content(random.random())),
                        ));
                        if random.random_range(0..50) == 0 {
                            thread::yield_now();
                        }
                    }
                    done
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    all.sort_by_key(|change| change.revision);
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn soak_every_watcher_sees_the_same_gapless_sequence_and_no_deletion_is_lost() {
    for seed in Seeds::new(this_test!(), 1) {
        watch_while_threads_write(seed).await;
    }
}

async fn watch_while_threads_write(seed: u64) {
    let store = store(usize::MAX);
    let watchers: Vec<_> = (1..5)
        .map(|limit| {
            tokio::spawn(follow(
                store.watch("pods", 1).unwrap().unwrap(),
                limit * limit,
            ))
        })
        .collect();
    let writer = tokio::task::spawn_blocking({
        let store = store.clone();
        move || write_from_threads(&store, 700, seed)
    });
    // Watchers that start at any time.
    let mut late = Vec::new();
    while !writer.is_finished() && late.len() < 200 {
        let (scan, cursor) = store.scan_and_watch("pods", Range::default()).unwrap();
        late.push((scan, tokio::spawn(follow(cursor, 7))));
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    let all = writer.await.unwrap();
    let left = store.scan("pods", Range::default(), None).unwrap();
    // Watchers also see the removal of the remaining objects.
    let dropped = left.objects.len();
    store.drop_table("pods").unwrap();

    assert!(
        all.iter()
            .map(|change| change.revision)
            .eq(2..2 + all.len() as u64)
    );
    let same = |seen: &[Arc<Change>], all: &[Arc<Change>]| {
        seen.len() == all.len() + dropped
            && seen
                .iter()
                .zip(all)
                .all(|(seen, change)| Arc::ptr_eq(seen, change))
    };
    for watcher in watchers {
        assert!(same(&watcher.await.unwrap(), &all));
    }
    for (scan, watcher) in late {
        let changes = watcher.await.unwrap();
        assert!(same(&changes, &all[scan.revision as usize - 1..]));
        let mut objects: BTreeMap<Key, Arc<Object>> = scan
            .objects
            .into_iter()
            .map(|object| (object.key.clone(), object))
            .collect();
        for change in changes {
            let before = match &change.after {
                Some(object) => objects.insert(object.key.clone(), object.clone()),
                None => objects.remove(change.key()),
            };
            assert_eq!(
                before.as_deref().map(shown),
                change.before.as_deref().map(shown)
            );
        }
        assert!(objects.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_watchers_slower_than_a_short_history_see_no_gap_before_they_expire() {
    for seed in Seeds::new(this_test!(), 1) {
        expire_while_threads_write(seed).await;
    }
}

async fn expire_while_threads_write(seed: u64) {
    let store = store(20);
    let writer = tokio::task::spawn_blocking({
        let store = store.clone();
        move || write_from_threads(&store, 700, seed)
    });
    let mut expired = 0;
    while !writer.is_finished() {
        let (scan, mut cursor) = store.scan_and_watch("pods", Range::default()).unwrap();
        let mut seen = scan.revision;
        for _ in 0..20 {
            match cursor.try_next(2, usize::MAX) {
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
                Some(Next::End) => panic!("the table was not dropped"),
                None => tokio::task::yield_now().await,
            }
        }
    }
    writer.await.unwrap();
    println!("{expired} expired");
}
