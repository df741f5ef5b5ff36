//! What it costs to tell watchers.

use crate::{
    Rows,
    fixture::{PATH, ask, fill, runtime, send, server},
};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use steersman_apiserver::{Body, Service};
use tokio::sync::mpsc;

/// Of how many events the latency is the median.
const TIMED: usize = 200;

/// With 100,000 objects stored: what an event costs each watcher, and how long after a write the last one has it.
pub(crate) fn watches(quick: bool) -> Rows {
    let (count, events) = if quick { (10_000, 500) } else { (100_000, 2_000) };
    runtime().block_on(async {
        let (_server, mut service) = server(10_000).await;
        fill(&mut service, count, 1_000).await;
        let mut table = Table { service, count, written: 0 };
        let hundred = table.backlog(100, events).await / 100.0;
        let one = table.backlog(1, events).await;
        let latency = table.latency(100).await;
        vec![("watch-100-event", "us", hundred), ("watch-1-event", "us", one), ("watch-100-latency", "us", latency)]
    })
}

struct Table {
    service: Service,
    count: usize,
    written: usize,
}

impl Table {
    /// Microseconds per event that watchers, all at once, take to read what was written before they began to read.
    async fn backlog(&mut self, watchers: usize, events: usize) -> f64 {
        let open = self.watch(watchers).await;
        for _ in 0..events {
            self.write().await;
        }
        let start = Instant::now();
        let tasks: Vec<_> = open.into_iter().map(|watch| tokio::spawn(read(watch, events, || ()))).collect();
        for task in tasks {
            task.await.expect("a watcher reads on");
        }
        micros(start.elapsed()) / events as f64
    }

    /// Microseconds from a write's answer until the last watcher has the event: the median.
    async fn latency(&mut self, watchers: usize) -> f64 {
        let (told, mut seen) = mpsc::unbounded_channel();
        for watch in self.watch(watchers).await {
            let told = told.clone();
            tokio::spawn(read(watch, TIMED, move || told.send(Instant::now()).expect("it is waited for")));
        }
        let mut times = Vec::with_capacity(TIMED);
        for _ in 0..TIMED {
            self.write().await;
            let answered = Instant::now();
            let mut last = answered;
            for _ in 0..watchers {
                last = last.max(seen.recv().await.expect("a watcher reads on"));
            }
            times.push(last - answered);
        }
        times.sort_unstable();
        micros(times[TIMED / 2])
    }

    /// Watchers from now on.
    async fn watch(&mut self, watchers: usize) -> Vec<Body> {
        let list = ask(&mut self.service, "GET", &format!("{PATH}?limit=1"), Bytes::new()).await;
        let list: Value = serde_json::from_slice(&list).expect("a list");
        let revision = list["metadata"]["resourceVersion"].as_str().expect("a revision");
        let path = format!("{PATH}?watch=1&resourceVersion={revision}");
        let mut open = Vec::with_capacity(watchers);
        for _ in 0..watchers {
            open.push(send(&mut self.service, "GET", &path, Bytes::new()).await.into_body());
        }
        open
    }

    /// Change an object that was not changed before, as the same change again would be no event.
    async fn write(&mut self) {
        let name = self.written * 7919 % self.count;
        self.written += 1;
        let patch = json!({"spec": {"replicas": 2}}).to_string().into();
        ask(&mut self.service, "PATCH", &format!("{PATH}/widget-{name:06}"), patch).await;
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Reads so many events and no more, as the server may be gone after them.
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
