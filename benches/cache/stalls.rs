//! The longest waits: of a writer while another thread lists, and of a reader during a relist.

use crate::{
    REPRESENTATIONS, Rows, Workload, micros, pick,
    pods::{FIRST_REVISION, shuffled},
    reads::{fill, keys},
    with_informer,
    writes::{COUNT, decoded},
};
use std::{
    hint::{black_box, spin_loop},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};
use steersman::{
    cache::{Informer, Query, bench::Feed},
    object::{KubeObject, ObjectKey},
};

/// Interval of updates: about that of a busy cluster, and long enough to overlap many lists.
pub(crate) const UPDATE_INTERVAL: Duration = Duration::from_micros(100);

pub(crate) fn all() -> Vec<Workload> {
    vec![
        Workload {
            names: &["update-while-list-max"],
            unit: "us",
            representations: REPRESENTATIONS,
            run: |representation, quick| with_informer!(representation, update_while_list, quick),
        },
        Workload {
            names: &["relist-stall-max"],
            unit: "us",
            representations: REPRESENTATIONS,
            run: |representation, _| with_informer!(representation, relist_stall),
        },
    ]
}

fn update_while_list<K: KubeObject>(
    (informer, feed): (Informer<K>, impl Feed),
    quick: bool,
) -> Rows {
    fill(&feed);
    let later = FIRST_REVISION + COUNT as u64;
    let updates = decoded(&feed, shuffled(COUNT).take(updates(quick)), later);
    longest_while_listing(&informer, || {
        let mut longest = Duration::ZERO;
        for (object, revision) in updates.into_iter().zip(later..) {
            let start = Instant::now();
            feed.store(object, revision);
            longest = longest.max(start.elapsed());
            while start.elapsed() < UPDATE_INTERVAL {
                spin_loop();
            }
        }
        longest
    })
}

pub(crate) fn updates(quick: bool) -> usize {
    pick(quick, 5_000, 20_000)
}

/// Runs `longest`, which measures a duration, while another thread lists all objects in a loop.
pub(crate) fn longest_while_listing<K: KubeObject>(
    informer: &Informer<K>,
    longest: impl FnOnce() -> Duration,
) -> Rows {
    let stop = AtomicBool::new(false);
    let longest = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !stop.load(Relaxed) {
                assert_eq!(
                    black_box(informer.list(&Query::default()).expect("synced")).len(),
                    COUNT
                );
            }
        });
        let longest = longest();
        stop.store(true, Relaxed);
        reader.join().expect("lists do not panic");
        longest
    });
    vec![("update-while-list-max", micros(longest))]
}

fn relist_stall<K: KubeObject>(informer: (Informer<K>, impl Feed)) -> Rows {
    longest_read_during_relist(informer, |informer, key| informer.get(key).expect("synced"))
}

/// Measures the longest read while a relist replaces every object.
pub(crate) fn longest_read_during_relist<K: KubeObject, T>(
    (informer, feed): (Informer<K>, impl Feed),
    read: impl Fn(&Informer<K>, &ObjectKey) -> Option<T> + Sync,
) -> Rows {
    fill(&feed);
    let keys = keys();
    let later = FIRST_REVISION + 2 * COUNT as u64;
    let objects = decoded(&feed, 0..COUNT, later);
    let stop = AtomicBool::new(false);
    let longest = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            for key in keys.iter().cycle() {
                if stop.load(Relaxed) {
                    break;
                }
                let start = Instant::now();
                let found = black_box(read(&informer, key));
                longest = longest.max(start.elapsed());
                assert!(found.is_some());
            }
            longest
        });
        // The reader starts meanwhile.
        thread::sleep(Duration::from_millis(50));
        feed.all(objects, later + COUNT as u64);
        stop.store(true, Relaxed);
        reader.join().expect("gets do not panic")
    });
    vec![("relist-stall-max", micros(longest))]
}
