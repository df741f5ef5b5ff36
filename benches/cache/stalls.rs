//! The longest time that somebody waited for somebody else: a writer while another thread lists everything, a reader while a list replaces
//! everything.

use crate::{
    FORMS, Rows, Workload, fed, micros, pick,
    pods::{FIRST_REVISION, shuffled},
    reads::{fill, keys},
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

/// From one update to the next: about what a busy cluster has, and long enough to meet many a list.
pub(crate) const PACE: Duration = Duration::from_micros(100);

pub(crate) fn all() -> Vec<Workload> {
    vec![
        Workload {
            names: &["update-while-list-max"],
            unit: "us",
            forms: FORMS,
            run: |form, quick| fed!(form, update_while_list, quick),
        },
        Workload { names: &["relist-stall-max"], unit: "us", forms: FORMS, run: |form, _| fed!(form, relist_stall) },
    ]
}

fn update_while_list<K: KubeObject>((informer, feed): (Informer<K>, impl Feed), quick: bool) -> Rows {
    fill(&feed);
    let later = FIRST_REVISION + COUNT as u64;
    let updates = decoded(&feed, shuffled(COUNT).take(updates(quick)), later);
    while_others_list(&informer, || {
        let mut longest = Duration::ZERO;
        for (object, revision) in updates.into_iter().zip(later..) {
            let start = Instant::now();
            feed.store(object, revision);
            longest = longest.max(start.elapsed());
            while start.elapsed() < PACE {
                spin_loop();
            }
        }
        longest
    })
}

pub(crate) fn updates(quick: bool) -> usize {
    pick(quick, 5_000, 20_000)
}

/// What this says was longest, while another thread lists everything again and again.
pub(crate) fn while_others_list<K: KubeObject>(informer: &Informer<K>, longest: impl FnOnce() -> Duration) -> Rows {
    let stop = AtomicBool::new(false);
    let longest = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !stop.load(Relaxed) {
                assert_eq!(black_box(informer.list(&Query::default()).expect("synced")).len(), COUNT);
            }
        });
        let longest = longest();
        stop.store(true, Relaxed);
        reader.join().expect("lists do not panic");
        longest
    });
    vec![("update-while-list-max", micros(longest))]
}

fn relist_stall<K: KubeObject>(fed: (Informer<K>, impl Feed)) -> Rows {
    while_all_comes_anew(fed, |informer, key| informer.get(key).expect("synced"))
}

/// The longest read while every object comes anew: nothing of the old state can stay.
pub(crate) fn while_all_comes_anew<K: KubeObject, T>(
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
        // It has begun by then.
        thread::sleep(Duration::from_millis(50));
        feed.all(objects, later + COUNT as u64);
        stop.store(true, Relaxed);
        reader.join().expect("gets do not panic")
    });
    vec![("relist-stall-max", micros(longest))]
}
