//! Heap per object in the store, by representation. Temporary memory of decoding is not included.

use crate::{
    REPRESENTATIONS, Representation, Workload,
    pods::{FIRST_REVISION, Pods},
    with_informer,
};
use cap::Cap;
use k8s_openapi::api::core::v1::Pod;
use std::alloc::System;
use steersman::cache::{Informer, bench::Feed};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Number of objects. The heap per object does not change with more of them.
const COUNT: usize = 20_000;

pub(crate) fn all() -> Vec<Workload> {
    vec![
        Workload {
            names: &["heap-per-object"],
            unit: "B",
            representations: REPRESENTATIONS,
            run: |representation, _| {
                vec![(
                    "heap-per-object",
                    with_informer!(representation, per_object, &Pods::new()),
                )]
            },
        },
        Workload {
            names: &["heap-per-object-managed"],
            unit: "B",
            representations: REPRESENTATIONS,
            run: |representation, _| {
                vec![(
                    "heap-per-object-managed",
                    with_informer!(representation, per_object, &Pods::with_managed_fields()),
                )]
            },
        },
        // Compared with a clone, whose collections have no spare capacity. Objects decoded by serde
        // take a quarter more.
        Workload {
            names: &["heap-over-type"],
            unit: "B",
            representations: &[Representation::Typed],
            run: |representation, _| {
                let over = with_informer!(representation, per_object, &Pods::new())
                    - of_type(&Pods::new());
                vec![("heap-over-type", over)]
            },
        },
    ]
}

fn per_object<K>((informer, feed): (Informer<K>, impl Feed), pods: &Pods) -> f64 {
    feed.all(Vec::new(), FIRST_REVISION);
    let before = ALLOCATOR.allocated();
    for (number, revision) in (0..COUNT).zip(FIRST_REVISION..) {
        let object = feed.decode(pods.json(number, revision).as_bytes());
        feed.store(object, revision);
    }
    let taken = ALLOCATOR.allocated() - before;
    assert_eq!(informer.stats().objects, COUNT);
    taken as f64 / COUNT as f64
}

fn of_type(pods: &Pods) -> f64 {
    let mut kept_alive = Vec::with_capacity(COUNT);
    let before = ALLOCATOR.allocated();
    for (number, revision) in (0..COUNT).zip(FIRST_REVISION..) {
        let pod: Pod = serde_json::from_str(&pods.json(number, revision)).expect("a pod");
        kept_alive.push(Box::new(pod.clone()));
    }
    (ALLOCATOR.allocated() - before) as f64 / COUNT as f64
}
