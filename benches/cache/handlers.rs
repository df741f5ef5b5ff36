//! Events from the informer through the store to 1, 4 and 16 handlers, each in its own task.
//!
//! The time ends when every handler has received the last event. Objects are decoded before the
//! measurement and freed after it.

use crate::{
    REPRESENTATIONS, Representation, Rows, Workload, nanos, pick,
    pods::{self, FIRST_REVISION},
    runtime, with_informer,
    writes::decoded,
};
use std::{hint::black_box, time::Instant};
use steersman::{
    cache::{Informer, InformerEvent, bench::Feed},
    object::{KubeObject, ObjectKey},
};
use tokio::task::{JoinSet, consume_budget};

pub(crate) fn all() -> Vec<Workload> {
    fn run(
        name: &'static str,
        representation: Representation,
        quick: bool,
        handlers: usize,
    ) -> Rows {
        vec![(
            name,
            with_informer!(representation, events, quick, handlers),
        )]
    }
    vec![
        Workload {
            names: &["handlers-1"],
            unit: "ns",
            representations: REPRESENTATIONS,
            run: |f, q| run("handlers-1", f, q, 1),
        },
        Workload {
            names: &["handlers-4"],
            unit: "ns",
            representations: REPRESENTATIONS,
            run: |f, q| run("handlers-4", f, q, 4),
        },
        Workload {
            names: &["handlers-16"],
            unit: "ns",
            representations: REPRESENTATIONS,
            run: |f, q| run("handlers-16", f, q, 16),
        },
    ]
}

/// Creates `count` objects, updates each, and creates one more as the last event.
fn events<K: KubeObject>(
    (informer, feed): (Informer<K>, impl Feed),
    quick: bool,
    handlers: usize,
) -> f64 {
    let count = pick(quick, 5_000, 10_000);
    let objects = decoded(&feed, (0..count).chain(0..=count), FIRST_REVISION + 1);
    let kept_alive = objects.clone();
    let last = {
        let (namespace, name) = pods::key(count);
        ObjectKey::new(&namespace, &name)
    };
    feed.all(Vec::new(), FIRST_REVISION);
    runtime().block_on(async {
        let mut tasks = JoinSet::new();
        let mut ready = JoinSet::new();
        for _ in 0..handlers {
            let mut events = informer.events();
            let last = last.clone();
            let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
            ready.spawn(receiver);
            let mut sender = Some(sender);
            tasks.spawn(async move {
                while let Some(item) = events.next().await {
                    match item {
                        InformerEvent::Synced => drop(sender.take().map(|sender| sender.send(()))),
                        InformerEvent::Event(event) if *event.object().key() == last => return,
                        InformerEvent::Event(event) => drop(black_box(event)),
                    }
                }
            });
        }
        while ready.join_next().await.is_some() {}
        let start = Instant::now();
        tasks.spawn(async move {
            for (object, revision) in objects.into_iter().zip(FIRST_REVISION + 1..) {
                feed.put(object, revision);
                // Yields as often as a task that reads from a socket.
                consume_budget().await;
            }
        });
        while let Some(ended) = tasks.join_next().await {
            ended.expect("nothing panics");
        }
        nanos(start.elapsed(), kept_alive.len())
    })
}
