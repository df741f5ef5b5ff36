//! An event's way from the informer through the store to 1, 4 and 16 handlers, each a task of its own. Objects are
//! decoded before the clock starts and freed after it has stopped, when every handler has seen the last one.

use crate::{
    FORMS, Form, Rows, Workload, fed, nanos, pick,
    pods::{self, FIRST_REVISION},
    runtime,
    writes::decoded,
};
use std::{hint::black_box, time::Instant};
use steersman::{
    cache::{Informer, Notice, bench::Feed},
    object::{KubeObject, ObjectKey},
};
use tokio::task::{JoinSet, consume_budget};

pub(crate) fn all() -> Vec<Workload> {
    fn run(name: &'static str, form: Form, quick: bool, handlers: usize) -> Rows {
        vec![(name, fed!(form, events, quick, handlers))]
    }
    vec![
        Workload { names: &["handlers-1"], unit: "ns", forms: FORMS, run: |f, q| run("handlers-1", f, q, 1) },
        Workload { names: &["handlers-4"], unit: "ns", forms: FORMS, run: |f, q| run("handlers-4", f, q, 4) },
        Workload { names: &["handlers-16"], unit: "ns", forms: FORMS, run: |f, q| run("handlers-16", f, q, 16) },
    ]
}

/// Of `count` objects each comes and then changes; and then comes one more, the last.
fn events<K: KubeObject>((informer, feed): (Informer<K>, impl Feed), quick: bool, handlers: usize) -> f64 {
    let count = pick(quick, 5_000, 10_000);
    let objects = decoded(&feed, (0..count).chain(0..=count), FIRST_REVISION + 1);
    let held = objects.clone();
    let last = {
        let (namespace, name) = pods::key(count);
        ObjectKey::new(&namespace, &name)
    };
    feed.all(Vec::new(), FIRST_REVISION);
    runtime().block_on(async {
        let mut tasks = JoinSet::new();
        let mut ready = JoinSet::new();
        for _ in 0..handlers {
            let (mut events, last) = (informer.events(), last.clone());
            let (told, begun) = tokio::sync::oneshot::channel::<()>();
            ready.spawn(begun);
            let mut told = Some(told);
            tasks.spawn(async move {
                while let Some(notice) = events.next().await {
                    match notice {
                        Notice::InitialDone => drop(told.take().map(|told| told.send(()))),
                        Notice::Event(event) if *event.object().key() == last => return,
                        Notice::Event(event) => drop(black_box(event)),
                    }
                }
            });
        }
        while ready.join_next().await.is_some() {}
        let start = Instant::now();
        tasks.spawn(async move {
            for (object, revision) in objects.into_iter().zip(FIRST_REVISION + 1..) {
                feed.put(object, revision);
                // As often as what waits for a socket.
                consume_budget().await;
            }
        });
        while let Some(ended) = tasks.join_next().await {
            ended.expect("nothing panics");
        }
        nanos(start.elapsed(), held.len())
    })
}
