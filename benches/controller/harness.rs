//! Runs a controller whose source is a function of the bench.

use crate::runtime;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use steersman::{
    controller::{Controller, ControllerMetrics, Options},
    handler::Enqueue,
    reconcile::{self, Outcome, Request},
    source,
};
use tokio::sync::{Notify, oneshot};

/// Waits for a number of reconciles, at the cost of one atomic operation for each.
#[derive(Default)]
pub(crate) struct Countdown {
    remaining: AtomicUsize,
    reached_zero: Notify,
}

impl Countdown {
    pub(crate) fn expect(&self, count: usize) {
        self.remaining.store(count, Ordering::Relaxed);
    }

    pub(crate) fn decrement(&self) {
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.reached_zero.notify_one();
        }
    }

    pub(crate) async fn wait(&self) {
        self.reached_zero.notified().await;
    }
}

/// Runs a controller until `feed` returns. The source calls `feed` after a first reconcile.
pub(crate) fn run<T, Reconciled, Fed>(
    workers: usize,
    reconcile: impl Fn(Request) -> Reconciled + Send + Sync + 'static,
    feed: impl FnOnce(Enqueue<Request>) -> Fed + Send + 'static,
) -> T
where
    T: Send + 'static,
    Reconciled: Future<Output = ()> + Send + 'static,
    Fed: Future<Output = T> + Send,
{
    let runtime = runtime();
    let result = runtime.block_on(async {
        let ready = Arc::new(Notify::new());
        let (sender, receiver) = oneshot::channel();
        let source = source::from_fn("feed", {
            let ready = ready.clone();
            async move |queue: Enqueue<Request>, cx| {
                cx.synced();
                queue.add(Request::cluster_scoped("first"));
                ready.notified().await;
                // The receiver lives until it has the value.
                let _ = sender.send(feed(queue).await);
                Ok(())
            }
        });
        let reconciler = reconcile::from_fn(move |request: Request, _cx| {
            let is_first = request.namespace().is_none();
            if is_first {
                ready.notify_one();
            }
            let run = (!is_first).then(|| reconcile(request));
            async move {
                if let Some(run) = run {
                    run.await;
                }
                Ok(Outcome::done())
            }
        });
        let metrics = ControllerMetrics::default();
        let (_controller, task) = Controller::builder("bench")
            .watches_source(source)
            .options(Options {
                max_concurrent: Some(workers),
                ..Options::default()
            })
            .metrics(&metrics)
            .build(reconciler)
            .expect("a valid controller");
        // In a task, because waking the thread of `block_on` is expensive.
        tokio::spawn(task.run_until(std::future::pending()));
        receiver.await.expect("the source does not panic")
    });
    // Does not wait for sleeping reconciles.
    runtime.shutdown_background();
    result
}
