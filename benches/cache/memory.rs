//! The heap that an object takes once it is in the store, by how the informer keeps it. What is needed only to decode it is gone by then.

use crate::{
    FORMS, Form, Workload, fed,
    pods::{FIRST_REVISION, Pods},
};
use cap::Cap;
use k8s_openapi::api::core::v1::Pod;
use std::alloc::System;
use steersman::cache::{Informer, bench::Feed};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// More make no difference to each.
const COUNT: usize = 20_000;

pub(crate) fn all() -> Vec<Workload> {
    vec![
        Workload {
            names: &["heap-per-object"],
            unit: "B",
            forms: FORMS,
            run: |form, _| vec![("heap-per-object", fed!(form, per_object, &Pods::new()))],
        },
        Workload {
            names: &["heap-per-object-managed"],
            unit: "B",
            forms: FORMS,
            run: |form, _| vec![("heap-per-object-managed", fed!(form, per_object, &Pods::with_managed_fields()))],
        },
        // Over the least that the type can take: a clone, whose lists have room for what is in them and no more. What serde reads takes a quarter more.
        Workload {
            names: &["heap-over-type"],
            unit: "B",
            forms: &[Form::Typed],
            run: |form, _| {
                let over = fed!(form, per_object, &Pods::new()) - of_type(&Pods::new());
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
    let mut held = Vec::with_capacity(COUNT);
    let before = ALLOCATOR.allocated();
    for (number, revision) in (0..COUNT).zip(FIRST_REVISION..) {
        let pod: Pod = serde_json::from_str(&pods.json(number, revision)).expect("a pod");
        held.push(Box::new(pod.clone()));
    }
    (ALLOCATOR.allocated() - before) as f64 / COUNT as f64
}
