//! Reads through the informer's handle: single objects, all objects, by label, and by index.
//!
//! Lists return views, and a `Vec` in the workloads whose name ends with `-vec`.

use crate::{
    REPRESENTATIONS, Rows, Workload, nanos, per_call, pick,
    pods::{self, FIRST_REVISION, shuffled},
    with_informer,
    writes::{COUNT, decoded},
};
use kube::ResourceExt;
use std::{
    hint::black_box,
    thread,
    time::{Duration, Instant},
};
use steersman::{
    cache::{Index, Informer, Query, View, bench::Feed},
    object::{KubeObject, ObjectKey},
};

/// Gets between two readings of the clock.
pub(crate) const BATCH: usize = 100;

pub(crate) fn all() -> Vec<Workload> {
    vec![
        Workload {
            names: &["get", "get-2t"],
            unit: "ns",
            representations: REPRESENTATIONS,
            run: |representation, quick| with_informer!(representation, gets, quick),
        },
        Workload {
            names: &[
                "list-100k",
                "list-100k-vec",
                "list-label",
                "index-1000",
                "index-1000-vec",
                "index-100",
                "index-100-vec",
            ],
            unit: "us",
            representations: REPRESENTATIONS,
            run: |representation, quick| with_informer!(representation, lists, quick),
        },
    ]
}

/// Adds 100,000 pods to the informer.
pub(crate) fn fill(feed: &impl Feed) {
    feed.all(
        decoded(feed, 0..COUNT, FIRST_REVISION),
        FIRST_REVISION + COUNT as u64,
    );
}

/// Returns every key once, in a scattered order.
pub(crate) fn keys() -> Vec<ObjectKey> {
    let key = |number| {
        let (namespace, name) = pods::key(number);
        ObjectKey::new(&namespace, &name)
    };
    shuffled(COUNT).take(COUNT).map(key).collect()
}

fn gets<K: KubeObject>((informer, feed): (Informer<K>, impl Feed), quick: bool) -> Rows {
    fill(&feed);
    let keys = keys();
    let mut next = keys.chunks(BATCH).cycle();
    let batch = |keys: &[ObjectKey]| {
        for key in keys {
            assert!(black_box(informer.get(key).expect("synced")).is_some());
        }
    };
    let one = per_call(quick, || batch(next.next().expect("an endless iterator"))) / BATCH as f64;
    vec![
        ("get", one),
        ("get-2t", per_get_on_two_threads(&keys, quick, batch)),
    ]
}

/// Returns the wall time per get when two threads get different objects.
pub(crate) fn per_get_on_two_threads<T: Sync>(
    all: &[T],
    quick: bool,
    batch: impl Fn(&[T]) + Sync,
) -> f64 {
    let duration = pick(
        quick,
        Duration::from_millis(100),
        Duration::from_millis(400),
    );
    let start = Instant::now();
    let work = |some: &[T]| {
        let mut count = 0;
        let mut batches = some.chunks(BATCH).cycle();
        while start.elapsed() < duration {
            batch(batches.next().expect("an endless iterator"));
            count += BATCH;
        }
        count
    };
    let (first, second) = all.split_at(all.len() / 2);
    let count = thread::scope(|scope| {
        let other = scope.spawn(|| work(second));
        work(first) + other.join().expect("gets do not panic")
    });
    nanos(start.elapsed(), count)
}

fn lists<K: KubeObject>((informer, feed): (Informer<K>, impl Feed), quick: bool) -> Rows {
    fill(&feed);
    let label = |name: &'static str| {
        move |object: &K| object.labels().get(name).cloned().into_iter().collect()
    };
    let by_node = informer.index(label("node"));
    let by_set = informer.index(label("set"));
    let everything = Query::default();
    let tenth = Query::default().labels("app=app-3").expect("a selector");
    // Accesses every entry of a view.
    let iterate = |view: View<K>| view.iter().map(black_box).count();
    let view = |query: &Query<K>, expected| {
        per_call(quick, || {
            assert_eq!(iterate(informer.view(query).expect("synced")), expected);
        })
    };
    let list = |query: &Query<K>, expected| {
        per_call(quick, || {
            assert_eq!(
                black_box(informer.list(query).expect("synced")).len(),
                expected
            );
        })
    };
    let by = |index: &Index<K, String>, value: &str, expected| {
        let value = value.to_owned();
        let view = per_call(quick, || {
            assert_eq!(iterate(index.view(&value).expect("synced")), expected);
        });
        let vec = per_call(quick, || {
            assert_eq!(
                black_box(index.get(&value).expect("synced")).len(),
                expected
            );
        });
        (view, vec)
    };
    let thousand = by(&by_node, "node-042", 1_000);
    let hundred = by(&by_set, "set-0042", 100);
    let rows = [
        ("list-100k", view(&everything, COUNT)),
        ("list-100k-vec", list(&everything, COUNT)),
        ("list-label", list(&tenth, COUNT / 10)),
        ("index-1000", thousand.0),
        ("index-1000-vec", thousand.1),
        ("index-100", hundred.0),
        ("index-100-vec", hundred.1),
    ];
    rows.map(|(name, nanos)| (name, nanos / 1e3)).into()
}
