//! Writes, reads and heap of the reflector's store. Its writer clones the object of an event.

use crate::{
    minimum_duration, nanos, per_call,
    pods::{FIRST_REVISION, Pods, key, shuffled},
};
use anyhow::{Result, ensure};
use cap::Cap;
use k8s_openapi::api::core::v1::Pod;
use kube_client::{
    ResourceExt,
    core::{Expression, Selector},
};
use kube_runtime::{
    reflector::{
        ObjectRef, Store,
        store::{Writer, store},
    },
    watcher::Event,
};
use std::{alloc::System, hint::black_box, thread, time::Instant};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

pub(crate) const COUNT: usize = 100_000;
const UPDATES: usize = 20_000;
const HEAP_COUNT: usize = 20_000;
/// Gets between two readings of the clock.
const BATCH: usize = 100;

pub(crate) fn decoded(numbers: impl Iterator<Item = usize>, revision: u64) -> Vec<Event<Pod>> {
    let pods = Pods::new();
    numbers
        .zip(revision..)
        .map(|(number, revision)| Event::Apply(pod(&pods, number, revision)))
        .collect()
}

fn pod(pods: &Pods, number: usize, revision: u64) -> Pod {
    serde_json::from_str(&pods.json(number, revision)).expect("a pod")
}

/// Returns a store with 100,000 pods.
pub(crate) fn filled() -> (Store<Pod>, Writer<Pod>) {
    let (reader, mut writer) = store();
    let pods = Pods::new();
    for (number, revision) in (0..COUNT).zip(FIRST_REVISION..) {
        writer.apply_watcher_event(&Event::Apply(pod(&pods, number, revision)));
    }
    (reader, writer)
}

/// Returns every key once, in a scattered order.
pub(crate) fn keys() -> Vec<ObjectRef<Pod>> {
    let key = |number| {
        let (namespace, name) = key(number);
        ObjectRef::new(&name).within(&namespace)
    };
    shuffled(COUNT).take(COUNT).map(key).collect()
}

pub(crate) fn heap(managed: bool) -> Result<Vec<f64>> {
    let pods = if managed {
        Pods::with_managed_fields()
    } else {
        Pods::new()
    };
    let (reader, mut writer) = store();
    let before = ALLOCATOR.allocated();
    for (number, revision) in (0..HEAP_COUNT).zip(FIRST_REVISION..) {
        writer.apply_watcher_event(&Event::Apply(pod(&pods, number, revision)));
    }
    let taken = ALLOCATOR.allocated() - before;
    ensure!(
        reader.len() == HEAP_COUNT,
        "{} pods instead of {HEAP_COUNT}",
        reader.len()
    );
    Ok(vec![taken as f64 / HEAP_COUNT as f64])
}

pub(crate) fn writes() -> Vec<f64> {
    let (reader, mut writer) = store();
    let mut put = |events: &[Event<Pod>]| {
        let start = Instant::now();
        for event in events {
            writer.apply_watcher_event(event);
        }
        nanos(start.elapsed(), events.len())
    };
    let add = put(&decoded(0..COUNT, FIRST_REVISION));
    // Replaced objects are freed after the measurement, as in the other implementations.
    let held = reader.state();
    let update = put(&decoded(
        shuffled(COUNT).take(UPDATES),
        FIRST_REVISION + COUNT as u64,
    ));
    drop(held);
    vec![add, update]
}

pub(crate) fn gets(quick: bool) -> Vec<f64> {
    let (reader, _writer) = filled();
    let keys = keys();
    let work = |keys: &[ObjectRef<Pod>]| {
        let (start, mut count, mut found) = (Instant::now(), 0, 0);
        let mut batches = keys.chunks(BATCH).cycle();
        while start.elapsed() < minimum_duration(quick) {
            for key in batches.next().expect("an endless iterator") {
                found += usize::from(black_box(reader.get(key)).is_some());
            }
            count += BATCH;
        }
        assert_eq!(found, count);
        count
    };
    work(&keys);
    let start = Instant::now();
    let count = work(&keys);
    let one = nanos(start.elapsed(), count);
    let start = Instant::now();
    let (first, second) = keys.split_at(keys.len() / 2);
    let count = thread::scope(|scope| {
        let other = scope.spawn(|| work(second));
        work(first) + other.join().expect("gets do not panic")
    });
    vec![one, nanos(start.elapsed(), count)]
}

/// The store has no indexes, so the index workloads filter all objects.
pub(crate) fn lists(quick: bool) -> Vec<f64> {
    let (reader, _writer) = filled();
    let measure = |expected: usize, list: &dyn Fn() -> usize| {
        per_call(quick, || assert_eq!(list(), expected, "pods are missing")) / 1e3
    };
    let tenth: Selector = Expression::Equal("app".into(), "app-3".into()).into();
    let with = |name: &'static str, value: &'static str| {
        let reader = reader.clone();
        move || {
            reader
                .state_filter(|pod| pod.labels().get(name).is_some_and(|found| found == value))
                .len()
        }
    };
    vec![
        measure(COUNT, &|| black_box(reader.state()).len()),
        measure(COUNT / 10, &|| {
            black_box(reader.state_filter_selector(&tenth)).len()
        }),
        measure(1_000, &with("node", "node-042")),
        measure(100, &with("set", "set-0042")),
    ]
}
