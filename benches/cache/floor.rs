//! Lower bounds of the workloads on this machine, measured without a cache.
//!
//! A target below these values cannot be met.
//!
//! - `get`: clones an `Arc` at a known index, without key, hash, table or lock. Each get depends on
//!   the previous one, so that the processor cannot overlap them.
//! - `store-update`: replaces an `Arc` at a known index.
//! - `update-while-list-max`: the longest time between two readings of the clock, while another
//!   thread lists all objects.
//! - `relist-stall-max`: the longest reading of the clock while a relist replaces all objects.

use crate::{
    Rows, nanos, per_call,
    pods::{FIRST_REVISION, shuffled},
    reads::{BATCH, fill, per_get_on_two_threads},
    stalls::{
        UPDATE_INTERVAL, longest_read_during_relist, longest_while_listing, updates as update_count,
    },
    writes::{COUNT, UPDATES, decoded},
};
use k8s_openapi::api::core::v1::Pod;
use std::{
    hint::black_box,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};
use steersman::cache::{Query, bench};

/// The lower bound of one or several workloads.
pub(crate) struct Floor {
    pub(crate) names: &'static [&'static str],
    pub(crate) unit: &'static str,
    pub(crate) run: fn(quick: bool) -> Rows,
}

pub(crate) fn all() -> [Floor; 4] {
    [
        Floor {
            names: &["get", "get-2t"],
            unit: "ns",
            run: gets,
        },
        Floor {
            names: &["store-update"],
            unit: "ns",
            run: |_| updates(),
        },
        Floor {
            names: &["update-while-list-max"],
            unit: "us",
            run: update_stall,
        },
        Floor {
            names: &["relist-stall-max"],
            unit: "us",
            run: |_| relist_stall(),
        },
    ]
}

/// Returns the 100,000 pods of an informer.
fn pods() -> Vec<Arc<Pod>> {
    let (informer, feed) = bench::typed::<Pod>();
    fill(&feed);
    informer.list(&Query::default()).expect("synced")
}

fn gets(quick: bool) -> Rows {
    let pods = pods();
    let order: Vec<usize> = shuffled(COUNT).take(COUNT).collect();
    // The offset is always 0, but the next index depends on it.
    let batch = |indexes: &[usize]| {
        indexes.iter().fold(0, |offset, index| {
            Arc::strong_count(&black_box(pods[index + offset].clone())) - 2
        });
    };
    let mut next = order.chunks(BATCH).cycle();
    let one = per_call(quick, || batch(next.next().expect("an endless iterator"))) / BATCH as f64;
    vec![
        ("get", one),
        ("get-2t", per_get_on_two_threads(&order, quick, batch)),
    ]
}

fn updates() -> Rows {
    let (_, feed) = bench::typed::<Pod>();
    let mut stored = decoded(&feed, 0..COUNT, FIRST_REVISION);
    let kept_alive = stored.clone();
    let new = decoded(
        &feed,
        shuffled(COUNT).take(UPDATES),
        FIRST_REVISION + COUNT as u64,
    );
    let start = Instant::now();
    for (object, number) in new.into_iter().zip(shuffled(COUNT)) {
        drop(mem::replace(&mut stored[number], object));
    }
    let update = nanos(start.elapsed(), UPDATES);
    drop(kept_alive);
    vec![("store-update", update)]
}

fn update_stall(quick: bool) -> Rows {
    let (informer, feed) = bench::typed::<Pod>();
    fill(&feed);
    longest_while_listing(&informer, || {
        let begun = Instant::now();
        let mut last = begun;
        let mut longest = Duration::ZERO;
        while last - begun < UPDATE_INTERVAL * update_count(quick) as u32 {
            let now = Instant::now();
            longest = longest.max(now - last);
            last = now;
        }
        longest
    })
}

fn relist_stall() -> Rows {
    longest_read_during_relist(bench::typed::<Pod>(), |_, _| Some(()))
}
