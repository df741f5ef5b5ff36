//! The floor: what is left when the cache is taken away. A target that this misses is one that the machine forbids.
//!
//! * `get`: one of 100,000 shared objects whose place is known. Its count goes up and down; there is no key, no hash, no table and no lock. The next get
//!   begins when this one has its object, as it does for whoever wants to look into it: a processor fetches several of them at once if it is let.
//! * `store-update`: a new object goes to the place of an old one, whose count goes down. Again nothing has to be found.
//! * `update-while-list-max`: the longest time between two readings of the clock by a thread that does nothing else, while another lists everything.
//! * `relist-stall-max`: a thread that reads nothing but the clock, while a list replaces everything in an informer beside it.

use crate::{
    Rows, nanos, per_call,
    pods::{FIRST_REVISION, shuffled},
    reads::{BATCH, fill, of_two},
    stalls::{PACE, updates as paced, while_all_comes_anew, while_others_list},
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

/// The floor of one or several workloads.
pub(crate) struct Floor {
    pub(crate) names: &'static [&'static str],
    pub(crate) unit: &'static str,
    pub(crate) run: fn(quick: bool) -> Rows,
}

pub(crate) fn all() -> [Floor; 4] {
    [
        Floor { names: &["get", "get-2t"], unit: "ns", run: gets },
        Floor { names: &["store-update"], unit: "ns", run: |_| updates() },
        Floor { names: &["update-while-list-max"], unit: "us", run: update_stall },
        Floor { names: &["relist-stall-max"], unit: "us", run: |_| relist_stall() },
    ]
}

/// 100,000 pods as an informer has them.
fn pods() -> Vec<Arc<Pod>> {
    let (informer, feed) = bench::typed::<Pod>();
    fill(&feed);
    informer.list(&Query::default()).expect("synced")
}

fn gets(quick: bool) -> Rows {
    let pods = pods();
    let order: Vec<usize> = shuffled(COUNT).take(COUNT).collect();
    // Nobody else holds one: what is added to the next place is 0, but has to be waited for.
    let batch = |places: &[usize]| {
        places.iter().fold(0, |held, place| Arc::strong_count(&black_box(pods[place + held].clone())) - 2);
    };
    let mut next = order.chunks(BATCH).cycle();
    let one = per_call(quick, || batch(next.next().expect("for ever"))) / BATCH as f64;
    vec![("get", one), ("get-2t", of_two(&order, quick, batch))]
}

fn updates() -> Rows {
    let (_, feed) = bench::typed::<Pod>();
    let mut there = decoded(&feed, 0..COUNT, FIRST_REVISION);
    let held = there.clone();
    let new = decoded(&feed, shuffled(COUNT).take(UPDATES), FIRST_REVISION + COUNT as u64);
    let start = Instant::now();
    for (object, number) in new.into_iter().zip(shuffled(COUNT)) {
        drop(mem::replace(&mut there[number], object));
    }
    let update = nanos(start.elapsed(), UPDATES);
    drop(held);
    vec![("store-update", update)]
}

fn update_stall(quick: bool) -> Rows {
    let (informer, feed) = bench::typed::<Pod>();
    fill(&feed);
    while_others_list(&informer, || {
        let begun = Instant::now();
        let (mut last, mut longest) = (begun, Duration::ZERO);
        while last - begun < PACE * paced(quick) as u32 {
            let now = Instant::now();
            longest = longest.max(now - last);
            last = now;
        }
        longest
    })
}

fn relist_stall() -> Rows {
    while_all_comes_anew(bench::typed::<Pod>(), |_, _| Some(()))
}
