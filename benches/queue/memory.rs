//! Bytes per key of a queue with a million keys, or a quarter of it with `--quick`.
//!
//! Every key has a reason. The heap of the keys is shared with the bench and not counted.

use crate::{Setup, Workload, keys, timers::delay};
use cap::Cap;
use std::alloc::System;
use steersman::{
    object::ObjectKey,
    workqueue::{Add, Reason, WorkQueue},
};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const MILLION: usize = 1_000_000;
/// Gives the hash tables the same load factor as a million.
const QUICK: usize = 250_000;

pub(crate) fn all() -> Vec<Workload> {
    vec![
        Workload {
            names: &["bytes-ready"],
            unit: "B",
            run: |setup| vec![("bytes-ready", bytes_per_key(setup, |_| Add::default()))],
        },
        Workload {
            names: &["bytes-delayed"],
            unit: "B",
            run: |setup| {
                vec![(
                    "bytes-delayed",
                    bytes_per_key(setup, |i| Add {
                        after: Some(delay(i)),
                        ..Add::default()
                    }),
                )]
            },
        },
        Workload {
            names: &["bytes-limited"],
            unit: "B",
            run: |setup| {
                vec![(
                    "bytes-limited",
                    bytes_per_key(setup, |_| Add {
                        rate_limited: true,
                        ..Add::default()
                    }),
                )]
            },
        },
    ]
}

fn bytes_per_key(setup: &Setup, add: impl Fn(usize) -> Add) -> f64 {
    let reasons: Vec<Reason> = (0..16)
        .map(|i| format!("Deployment changed, reason {i}").into())
        .collect();
    let keys = keys(setup.pick(QUICK, MILLION));
    let before = ALLOCATOR.allocated();
    let queue: WorkQueue<ObjectKey> = setup.queue();
    for (i, key) in keys.iter().enumerate() {
        queue.add_with(
            key.clone(),
            Add {
                reason: Some(reasons[i % 16].clone()),
                ..add(i)
            },
        );
    }
    // Wait until rate-limited keys are ready, as the peers do.
    while add(0).rate_limited && queue.len() < keys.len() {}
    (ALLOCATOR.allocated() - before) as f64 / keys.len() as f64
}
