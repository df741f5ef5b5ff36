//! The floor: what is left when the cache is taken away. A target that this misses is one that the machine forbids.
//!
//! * `get`: one of 100,000 shared objects whose place is known. Its count goes up and down; there is no key, no hash, no table and no lock.
//! * `store-update`: a new object goes to the place of an old one, whose count goes down. Again nothing has to be found.
//! * `relist-stall-max`: a thread that reads nothing but the clock, while a list replaces everything in an informer beside it.

use crate::{
    Form, Rows, Workload, nanos, per_call,
    pods::{FIRST_REVISION, shuffled},
    reads::{BATCH, fill, of_two},
    stalls::while_all_comes_anew,
    writes::{COUNT, UPDATES, decoded},
};
use k8s_openapi::api::core::v1::Pod;
use std::{hint::black_box, mem, sync::Arc, time::Instant};
use steersman::cache::{
    Query,
    bench::{self, Feed},
};

const FLOOR: &[Form] = &[Form::Floor];

pub(crate) fn all() -> Vec<Workload> {
    vec![
        Workload { names: &["get", "get-2t"], unit: "ns", forms: FLOOR, run: |_, quick| gets(quick) },
        Workload { names: &["store-update"], unit: "ns", forms: FLOOR, run: |_, _| updates() },
        Workload { names: &["relist-stall-max"], unit: "us", forms: FLOOR, run: |_, _| relist_stall() },
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
    let shared: Vec<&Arc<Pod>> = shuffled(COUNT).take(COUNT).map(|number| &pods[number]).collect();
    let get = |pod: &&Arc<Pod>| drop(black_box(Arc::clone(pod)));
    let mut next = shared.chunks(BATCH).cycle();
    let one = per_call(quick, || next.next().expect("for ever").iter().for_each(get)) / BATCH as f64;
    vec![("get", one), ("get-2t", of_two(&shared, quick, get))]
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

fn relist_stall() -> Rows {
    while_all_comes_anew(bench::typed::<Pod>(), |_, _| Some(()))
}
