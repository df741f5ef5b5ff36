//! Tests of snapshots: every key, in every state.

use crate::support::{ByHand, Random, at, because, ms, rate_limited, secs, soon, strict, take};
use serde_json::json;
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use steersman::workqueue::{Add, Entry, EntryState, Key, Outcome, Priority, WorkQueue};
use tokio::time::advance;

#[track_caller]
fn entry<K: Key>(queue: &WorkQueue<K>, key: &K) -> Entry<K> {
    let mut found: Vec<_> = queue
        .snapshot()
        .into_iter()
        .filter(|entry| entry.key == *key)
        .collect();
    assert_eq!(found.len(), 1, "once");
    found.remove(0)
}

#[test]
fn an_empty_queue_has_an_empty_snapshot() {
    assert!(WorkQueue::<u8>::default().snapshot().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_ready_key_has_its_waiting_time() {
    let queue = strict();
    queue.add_with(
        "a",
        Add {
            after: Some(ms(10)),
            reason: Some("created".into()),
            ..at(7)
        },
    );
    advance(ms(10)).await;
    assert_eq!(queue.len(), 1);
    advance(ms(5)).await;
    let a = entry(&queue, &"a");
    assert_eq!(a.state, EntryState::Ready { ready_ago: ms(5) });
    assert_eq!(
        (a.priority, a.added_ago, a.attempts),
        (Priority(7), ms(15), 0)
    );
    assert_eq!((a.last_error, a.reasons), (None, vec!["created".into()]));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_has_its_remaining_delay() {
    let queue = strict();
    queue.add_after("a", secs(2));
    advance(ms(500)).await;
    let a = entry(&queue, &"a");
    assert_eq!(
        (a.state, a.added_ago),
        (EntryState::Delayed { ready_in: ms(1500) }, ms(500))
    );
}

/// Inspecting the queue makes due keys ready, as `get` and `len` do.
#[tokio::test(start_paused = true)]
async fn a_due_key_is_shown_as_ready() {
    let queue = strict();
    queue.add_after("a", secs(2));
    advance(secs(3)).await;
    assert_eq!(
        entry(&queue, &"a").state,
        EntryState::Ready { ready_ago: secs(1) }
    );
}

#[tokio::test(start_paused = true)]
async fn a_parked_key_whose_bound_has_passed_is_shown_as_ready() {
    let queue = strict();
    queue.add("a");
    take(&queue).park_for(secs(2));
    advance(secs(3)).await;
    assert_eq!(
        entry(&queue, &"a").state,
        EntryState::Ready { ready_ago: secs(1) }
    );
}

#[tokio::test(start_paused = true)]
async fn a_running_key_has_its_worker_and_whether_it_runs_again() {
    let queue = strict();
    queue.add_with(
        "a",
        Add {
            reason: Some("one".into()),
            ..at(5)
        },
    );
    advance(ms(3)).await;
    let item = take(&queue);
    advance(ms(4)).await;
    let a = entry(&queue, &"a");
    assert_eq!(
        a.state,
        EntryState::Running {
            worker: 0,
            started_ago: ms(4),
            again: false,
            again_in: None
        }
    );
    assert_eq!(
        (a.priority, a.added_ago, a.reasons),
        (Priority(5), ms(7), vec!["one".into()])
    );

    queue.add_with(
        "a",
        Add {
            reason: Some("two".into()),
            ..at(3)
        },
    );
    advance(ms(2)).await;
    let a = entry(&queue, &"a");
    assert_eq!(
        a.state,
        EntryState::Running {
            worker: 0,
            started_ago: ms(6),
            again: true,
            again_in: None
        }
    );
    assert_eq!(
        (a.priority, a.added_ago, a.reasons),
        (Priority(3), ms(2), vec!["two".into()]),
        "the priority of the queued key"
    );
    drop(item);
}

#[tokio::test(start_paused = true)]
async fn a_running_key_keeps_its_data_after_its_next_run_was_cancelled() {
    let queue = strict();
    queue.add_with(
        "a",
        Add {
            reason: Some("one".into()),
            ..at(5)
        },
    );
    advance(ms(3)).await;
    let item = take(&queue);
    queue.add_with(
        "a",
        Add {
            reason: Some("two".into()),
            ..at(9)
        },
    );
    assert!(queue.cancel(&"a"));
    let a = entry(&queue, &"a");
    assert_eq!(
        a.state,
        EntryState::Running {
            worker: 0,
            started_ago: ms(0),
            again: false,
            again_in: None
        }
    );
    assert_eq!(
        (a.priority, a.reasons),
        (Priority(5), vec!["one".into()]),
        "the key runs and is not queued"
    );
    drop(item);
}

#[test]
fn worker_numbers_are_unique_and_reused() {
    let queue = strict();
    queue.add_all(0..20, Add::default());
    let worker = |key: u32| match entry(&queue, &key).state {
        EntryState::Running { worker, .. } => worker,
        state => panic!("{state:?}"),
    };
    let mut items: HashMap<u32, _> = (0..5).map(|key| (key, take(&queue))).collect();
    assert_eq!((0..5).map(worker).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    for key in [1, 3] {
        drop(items.remove(&key));
    }
    for key in 5..8 {
        items.insert(key, take(&queue));
        assert!(worker(key) <= 5, "there are six workers at most");
    }
    let workers: HashSet<_> = items.keys().map(|key| worker(*key)).collect();
    assert_eq!(workers.len(), items.len());
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_shows_attempts_and_last_error_until_it_succeeds() {
    let queue = strict();
    queue.add("a");
    for (attempts, error) in [(1, "first"), (2, "second")] {
        let mut item = soon(queue.get()).await.expect("open");
        item.set_error("replaced by the next");
        item.set_error(error);
        item.finish(Outcome::requeue());
        let a = entry(&queue, &"a");
        assert_eq!(
            (a.attempts, a.last_error.as_deref()),
            (attempts, Some(error))
        );
    }
    // An unsuccessful run without an error of its own keeps the previous error.
    soon(queue.get())
        .await
        .expect("open")
        .finish(Outcome::requeue());
    assert_eq!(entry(&queue, &"a").last_error.as_deref(), Some("second"));
    let mut item = soon(queue.get()).await.expect("open");
    assert_eq!(
        entry(&queue, &"a").last_error.as_deref(),
        Some("second"),
        "also while the key runs"
    );
    queue.add("a");
    item.set_error("gone with the success");
    item.finish(Outcome::done());
    let a = entry(&queue, &"a");
    assert_eq!((a.attempts, a.last_error), (0, None));
}

#[tokio::test(start_paused = true)]
async fn forget_removes_the_last_error() {
    let queue = strict();
    queue.add("a");
    let mut item = take(&queue);
    item.set_error("broken");
    item.finish(Outcome::requeue());
    queue.forget(&"a");
    let a = entry(&queue, &"a");
    assert_eq!((a.attempts, a.last_error), (0, None));
}

#[test]
fn a_reused_slot_has_no_error_of_the_previous_key() {
    let queue = strict();
    queue.add("a");
    let mut item = take(&queue);
    item.set_error("broken");
    item.finish(Outcome::requeue());
    queue.cancel(&"a");
    queue.forget(&"a");
    queue.add("b");
    assert_eq!(entry(&queue, &"b").last_error, None);
}

#[tokio::test(start_paused = true)]
async fn a_key_with_only_failed_attempts_is_idle() {
    let queue = strict();
    queue.add_with("a", rate_limited());
    assert!(queue.cancel(&"a"));
    let a = entry(&queue, &"a");
    assert_eq!((a.state, a.attempts), (EntryState::Idle, 1));
}

/// Creates a queue with one key per state, named after the state.
async fn one_of_each() -> (
    WorkQueue<&'static str>,
    steersman::workqueue::Item<&'static str>,
) {
    let queue = strict();
    queue.add("idle");
    take(&queue).finish(Outcome::requeue());
    queue.cancel(&"idle");
    for (key, bound) in [("parked", None), ("bounded", Some(secs(8)))] {
        queue.add_with(key, because("waits"));
        let item = take(&queue);
        match bound {
            None => item.park(),
            Some(bound) => item.park_for(bound),
        }
    }
    queue.add("running");
    let running = take(&queue);
    queue.add_after("delayed", secs(8));
    queue.add_with(
        "ready",
        Add {
            reason: Some("created".into()),
            ..at(100)
        },
    );
    advance(ms(500)).await;
    (queue, running)
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_serializes_to_json() {
    let (queue, running) = one_of_each().await;
    let json = serde_json::to_value(queue.snapshot()).expect("valid JSON");
    let of = |key: &str| {
        let entries = json.as_array().expect("a list");
        entries
            .iter()
            .find(|entry| entry["key"] == key)
            .cloned()
            .expect("every key is there")
    };
    assert_eq!(json.as_array().map(Vec::len), Some(6));
    assert_eq!(
        of("ready"),
        json!({
            "key": "ready", "state": "ready", "ready_ago": 0.5, "priority": 100, "added_ago": 0.5,
            "attempts": 0, "last_error": null, "reasons": ["created"],
        })
    );
    assert_eq!(
        of("running"),
        json!({
            "key": "running", "state": "running", "worker": 0, "started_ago": 0.5, "again": false,
            "again_in": null, "priority": 0,
            "added_ago": 0.5, "attempts": 0, "last_error": null, "reasons": [],
        })
    );
    for (key, state, field, value) in [
        ("delayed", "delayed", "ready_in", json!(7.5)),
        ("bounded", "parked", "ready_in", json!(7.5)),
        ("parked", "parked", "ready_in", json!(null)),
        ("parked", "parked", "reasons", json!(["waits"])),
        ("idle", "idle", "attempts", json!(1)),
    ] {
        assert_eq!(
            (&of(key)["state"], &of(key)[field]),
            (&json!(state), &value),
            "{key}"
        );
    }
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn an_error_is_text_in_json() {
    let queue = strict();
    queue.add("a");
    let mut item = take(&queue);
    item.set_error(String::from("no such host"));
    item.finish(Outcome::requeue());
    let json = serde_json::to_value(queue.snapshot()).expect("valid JSON");
    assert_eq!(
        (&json[0]["last_error"], &json[0]["ready_in"]),
        (&json!("no such host"), &json!(0.005))
    );
}

#[test]
fn a_snapshot_of_many_keys_has_each_of_them_once() {
    let queue = strict();
    queue.add_all(0..5000u32, Add::default());
    for key in (0..5000).step_by(3) {
        queue.cancel(&key);
    }
    let keys: Vec<u32> = queue
        .snapshot()
        .into_iter()
        .map(|entry| entry.key)
        .collect();
    let distinct: HashSet<u32> = keys.iter().copied().collect();
    assert_eq!(keys.len(), distinct.len());
    assert_eq!(distinct, (0..5000).filter(|key| key % 3 != 0).collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_snapshot_during_changes_has_each_key_at_most_once() {
    let queue: WorkQueue<u32> = strict();
    let stop = Arc::new(AtomicBool::new(false));
    // These keys stay, and are spread over the table.
    for key in 0..600 {
        let after = if key % 2 == 0 {
            secs(3600)
        } else {
            Duration::ZERO
        };
        queue.add_with(
            key,
            Add {
                after: Some(after),
                ..at(-5)
            },
        );
    }
    let busy: Vec<_> = (0..3u32)
        .map(|n| {
            let (queue, stop) = (queue.clone(), stop.clone());
            tokio::task::spawn_blocking(move || {
                // Enough keys that one that is added again finds its slot taken and gets another.
                let mut random = Random::new(n.into());
                while !stop.load(Ordering::Relaxed) {
                    let key = 10_000 + random.below(3000) as u32;
                    if random.one_in(2) {
                        queue.add(key);
                    } else {
                        queue.cancel(&key);
                    }
                }
            })
        })
        .collect();
    let (mut twice, mut missing) = (0, 0);
    for _ in 0..40 {
        let entries = queue.snapshot();
        let keys: HashSet<u32> = entries.iter().map(|entry| entry.key).collect();
        twice += entries.len() - keys.len();
        missing += (0..600).filter(|key| !keys.contains(key)).count();
    }
    stop.store(true, Ordering::Relaxed);
    for task in busy {
        task.await.expect("no panic");
    }
    assert_eq!((twice, missing), (0, 0));
}

/// Key whose `clone` advances the time by a millisecond.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Slow(u32);

impl Clone for Slow {
    fn clone(&self) -> Self {
        let _ = ByHand::new(advance(ms(1))).poll();
        Self(self.0)
    }
}

/// The clock is read once per slice, so keys with equal ages were read under one lock.
#[tokio::test(start_paused = true)]
async fn a_snapshot_reads_few_keys_under_one_lock() {
    let queue = strict();
    queue.add_all((0..1000).map(Slow), Add::default());
    let mut of_one_slice: HashMap<Duration, u32> = HashMap::new();
    for entry in queue.snapshot() {
        *of_one_slice.entry(entry.added_ago).or_default() += 1;
    }
    assert_eq!(of_one_slice.values().sum::<u32>(), 1000);
    assert!(
        of_one_slice.values().all(|keys| *keys <= 64),
        "{of_one_slice:?}"
    );
}
