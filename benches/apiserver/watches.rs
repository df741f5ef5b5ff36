//! Cost and latency of watch events.

use crate::{
    Rows,
    fixture::{PATH, fill, request, runtime, send, server},
};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use steersman_apiserver::{Body, Service};
use tokio::sync::mpsc;

/// Number of events in the median of the latency.
const TIMED_EVENTS: usize = 200;

/// Time per event and watcher, and the latency until the last watcher has an event. 100,000 objects
/// are stored.
pub(crate) fn watches(quick: bool) -> Rows {
    let (count, events) = if quick {
        (10_000, 500)
    } else {
        (100_000, 2_000)
    };
    runtime().block_on(async {
        let (_server, mut service) = server(10_000).await;
        fill(&mut service, count, 1_000).await;
        let mut bench = WatchBench {
            service,
            count,
            written: 0,
        };
        let hundred = bench.backlog(100, events).await / 100.0;
        let one = bench.backlog(1, events).await;
        let latency = bench.latency(100).await;
        vec![
            ("watch-100-event", "us", hundred),
            ("watch-1-event", "us", one),
            ("watch-100-latency", "us", latency),
        ]
    })
}

struct WatchBench {
    service: Service,
    count: usize,
    written: usize,
}

impl WatchBench {
    /// Microseconds per event for concurrent watchers to read events that were written before.
    async fn backlog(&mut self, watchers: usize, events: usize) -> f64 {
        let open = self.watch(watchers).await;
        for _ in 0..events {
            self.write().await;
        }
        let start = Instant::now();
        let tasks: Vec<_> = open
            .into_iter()
            .map(|watch| tokio::spawn(read(watch, events, || ())))
            .collect();
        for task in tasks {
            task.await.expect("the watcher does not panic");
        }
        micros(start.elapsed()) / events as f64
    }

    /// Median microseconds from the response of a write until the last watcher has the event.
    async fn latency(&mut self, watchers: usize) -> f64 {
        let (sender, mut seen) = mpsc::unbounded_channel();
        for watch in self.watch(watchers).await {
            let sender = sender.clone();
            tokio::spawn(read(watch, TIMED_EVENTS, move || {
                sender.send(Instant::now()).expect("the receiver exists");
            }));
        }
        let mut times = Vec::with_capacity(TIMED_EVENTS);
        for _ in 0..TIMED_EVENTS {
            self.write().await;
            let answered = Instant::now();
            let mut last = answered;
            for _ in 0..watchers {
                last = last.max(seen.recv().await.expect("the watcher does not panic"));
            }
            times.push(last - answered);
        }
        times.sort_unstable();
        micros(times[TIMED_EVENTS / 2])
    }

    /// Opens watches from the current resource version.
    async fn watch(&mut self, watchers: usize) -> Vec<Body> {
        let list = request(
            &mut self.service,
            "GET",
            &format!("{PATH}?limit=1"),
            Bytes::new(),
        )
        .await;
        let list: Value = serde_json::from_slice(&list).expect("a list");
        let revision = list["metadata"]["resourceVersion"]
            .as_str()
            .expect("a revision");
        let path = format!("{PATH}?watch=1&resourceVersion={revision}");
        let mut open = Vec::with_capacity(watchers);
        for _ in 0..watchers {
            open.push(
                send(&mut self.service, "GET", &path, Bytes::new())
                    .await
                    .into_body(),
            );
        }
        open
    }

    /// Changes an object that was not changed before, since repeating a change causes no event.
    async fn write(&mut self) {
        let name = self.written * 7919 % self.count;
        self.written += 1;
        let patch = json!({"spec": {"replicas": 2}}).to_string().into();
        request(
            &mut self.service,
            "PATCH",
            &format!("{PATH}/widget-{name:06}"),
            patch,
        )
        .await;
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Reads exactly `events` events, since the server may be dropped after them.
async fn read(mut watch: Body, events: usize, mut each: impl FnMut()) {
    let mut seen = 0;
    while seen < events {
        let frame = watch.frame().await.expect("more events").expect("a frame");
        for _ in memchr::memchr_iter(b'\n', frame.data_ref().expect("data")) {
            seen += 1;
            each();
        }
    }
}
