//! Adds and updates of the store. Objects are decoded before the measurement and freed after it.

use crate::{
    REPRESENTATIONS, Rows, Workload, nanos,
    pods::{FIRST_REVISION, Pods, shuffled},
    with_informer,
};
use std::time::Instant;
use steersman::cache::{Informer, bench::Feed};

pub(crate) const COUNT: usize = 100_000;
pub(crate) const UPDATES: usize = 20_000;

pub(crate) fn all() -> Vec<Workload> {
    vec![Workload {
        names: &["store-add-100k", "store-update"],
        unit: "ns",
        representations: REPRESENTATIONS,
        run: |representation, _| with_informer!(representation, add_and_update),
    }]
}

fn add_and_update<K>((informer, feed): (Informer<K>, impl Feed)) -> Rows {
    let put = |objects: Vec<_>, revision: u64| {
        let start = Instant::now();
        let count = objects.len();
        for (object, revision) in objects.into_iter().zip(revision..) {
            feed.store(object, revision);
        }
        nanos(start.elapsed(), count)
    };
    let first = decoded(&feed, 0..COUNT, FIRST_REVISION);
    let kept_alive = first.clone();
    let add = put(first, FIRST_REVISION);
    assert_eq!(informer.stats().objects, COUNT);
    let later = FIRST_REVISION + COUNT as u64;
    let update = put(decoded(&feed, shuffled(COUNT).take(UPDATES), later), later);
    drop(kept_alive);
    assert_eq!(informer.stats().objects, COUNT);
    vec![("store-add-100k", add), ("store-update", update)]
}

/// Decodes the pods with these numbers, with increasing revisions from `revision` on.
pub(crate) fn decoded<F: Feed>(
    feed: &F,
    numbers: impl Iterator<Item = usize>,
    revision: u64,
) -> Vec<F::Object> {
    let pods = Pods::new();
    numbers
        .zip(revision..)
        .map(|(number, revision)| feed.decode(pods.json(number, revision).as_bytes()))
        .collect()
}
