//! What it costs to tell watchers.

use crate::{
    Rows,
    fixture::{PATH, ask, runtime, send, server, widget},
};
use bytes::Bytes;
use http_body_util::BodyExt;
use std::time::Instant;
use steersman_apiserver::{Body, Service};

/// Time per event and watcher, from the first write until the last watcher has read the last event; the writes' own time, measured
/// without watchers in the same run, is taken off.
pub(crate) fn watches(quick: bool) -> Rows {
    let events = if quick { 2_000 } else { 20_000 };
    runtime().block_on(async {
        let alone = run(0, events).await;
        let one = (run(1, events).await - alone).max(0.0);
        let hundred = (run(100, events).await - alone).max(0.0) / 100.0;
        vec![("watch-100-event", "us", hundred), ("watch-1-event", "us", one)]
    })
}

/// Microseconds per event.
async fn run(watchers: usize, events: usize) -> f64 {
    let (_server, mut service) = server(events + 10).await;
    let mut tasks = Vec::new();
    for _ in 0..watchers {
        let watch = send(&mut service, "GET", &format!("{PATH}?watch=1"), Bytes::new()).await.into_body();
        tasks.push(tokio::spawn(read(watch, events)));
    }
    let bodies: Vec<Bytes> = (0..events).map(|n| widget(&format!("widget-{n:06}"), 1_000).to_string().into()).collect();
    let start = Instant::now();
    write(&mut service, bodies).await;
    for task in tasks {
        task.await.expect("a watcher reads on");
    }
    start.elapsed().as_secs_f64() * 1e6 / events as f64
}

async fn write(service: &mut Service, bodies: Vec<Bytes>) {
    for body in bodies {
        ask(service, "POST", PATH, body).await;
        // A writer is not alone on its thread, as in a program.
        tokio::task::yield_now().await;
    }
}

async fn read(mut watch: Body, events: usize) {
    let mut seen = 0;
    while seen < events {
        let frame = watch.frame().await.expect("more events").expect("a frame");
        seen += memchr::memchr_iter(b'\n', frame.data_ref().expect("data")).count();
    }
}
