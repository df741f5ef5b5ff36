//! A controller that is fed by a source of ours.

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

/// As many reconciles as are expected have happened: costs each of them one atomic operation.
#[derive(Default)]
pub(crate) struct Countdown {
    left: AtomicUsize,
    over: Notify,
}

impl Countdown {
    pub(crate) fn expect(&self, count: usize) {
        self.left.store(count, Ordering::Relaxed);
    }

    pub(crate) fn one(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.over.notify_one();
        }
    }

    pub(crate) async fn wait(&self) {
        self.over.notified().await;
    }
}

/// Runs a controller until `feed` has come to an end, which its source calls once the workers work.
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
    let fed = runtime.block_on(async {
        let (ready, (done, fed)) = (Arc::new(Notify::new()), oneshot::channel());
        let source = source::from_fn("feed", {
            let ready = ready.clone();
            async move |queue: Enqueue<Request>, cx| {
                cx.synced();
                queue.add(Request::cluster_scoped("first"));
                ready.notified().await;
                // Who waits for it is there.
                let _ = done.send(feed(queue).await);
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
            .options(Options { max_concurrent: Some(workers), ..Options::default() })
            .metrics(&metrics)
            .build(reconciler)
            .expect("it can be built");
        // As a task, and not on the thread that waits: what wakes the latter is dear.
        tokio::spawn(task.run_until(std::future::pending()));
        fed.await.expect("the source does not panic")
    });
    // What sleeps is not waited for.
    runtime.shutdown_background();
    fed
}
