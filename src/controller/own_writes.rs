//! Holds requests back until the caches have observed their own writes.
//!
//! Invariant: a request is inserted into `held` before the reconcile with the writes ends, and
//! removed before it is unparked. So no reconcile of the request starts in between, and no request stays
//! parked.

use crate::{
    cache::{Cache, CacheError, ledger::Token},
    client::OWN_WRITES_TIMEOUT,
    workqueue::{Key, WorkQueue},
};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};
use tokio::{
    task::{JoinSet, yield_now},
    time::Instant,
};

pub(super) struct Deferrals<R> {
    held: Mutex<HashMap<R, Token>>,
    /// Number of held requests, to skip the lock while there are none.
    held_count: AtomicUsize,
    /// Tasks that wait for the caches.
    waiting: Mutex<JoinSet<()>>,
    pub(super) deferred: AtomicU64,
    pub(super) timeouts: AtomicU64,
}

impl<R> Default for Deferrals<R> {
    fn default() -> Self {
        Self {
            held: Mutex::default(),
            held_count: AtomicUsize::new(0),
            waiting: Mutex::default(),
            deferred: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
        }
    }
}

impl<R: Key> Deferrals<R> {
    /// Holds a request back until `caches` have observed the token's writes.
    ///
    /// Must be called before the request is finished.
    pub(super) fn hold(
        self: &Arc<Self>,
        controller: &Arc<str>,
        queue: &WorkQueue<R>,
        request: &R,
        (token, caches): (Token, Vec<Cache>),
    ) {
        let mut held = self.held.lock();
        held.insert(request.clone(), token.clone());
        self.held_count.store(held.len(), Relaxed);
        drop(held);
        let (deferrals, controller) = (self.clone(), controller.clone());
        let (queue, request) = (queue.clone(), request.clone());
        let mut waiting = self.waiting.lock();
        while waiting.try_join_next().is_some() {}
        waiting.spawn(async move {
            let started = Instant::now();
            for cache in caches {
                let left = OWN_WRITES_TIMEOUT.saturating_sub(started.elapsed());
                if let Err(CacheError::WriteNotObserved { .. }) =
                    cache.caught_up(&token, left).await
                {
                    deferrals.timeouts.fetch_add(1, Relaxed);
                    tracing::warn!(
                        controller = &*controller,
                        ?request,
                        "cache has not observed own write, reconciling anyway"
                    );
                    break;
                }
            }
            // The cache delivers the events of these writes at the same time. Yield, so that their
            // handlers can add the request first. It is then reconciled once, instead of once for
            // the deferral and again for the event.
            yield_now().await;
            deferrals.release(&request, &token);
            queue.unpark(&request);
        });
    }

    fn release(&self, request: &R, token: &Token) {
        let mut held = self.held.lock();
        // A later reconcile may have replaced the token if its wait timed out.
        if held.get(request) == Some(token) {
            held.remove(request);
        }
        self.held_count.store(held.len(), Relaxed);
    }

    /// Returns whether the request must be parked now, and counts the deferral.
    #[inline]
    pub(super) fn holds(&self, request: &R) -> bool {
        let holds = self.held_count.load(Relaxed) > 0 && self.held.lock().contains_key(request);
        if holds {
            self.deferred.fetch_add(1, Relaxed);
        }
        holds
    }

    /// Drops all held requests and aborts the tasks.
    pub(super) fn abort(&self) {
        self.held.lock().clear();
        self.waiting.lock().abort_all();
    }

    /// Calls [`Self::abort`] and waits until the tasks have ended.
    pub(super) async fn shut_down(&self) {
        self.abort();
        let mut waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        controller::Controller,
        reconcile::{self, Outcome, Request},
    };
    use std::future::{pending, ready};
    use tokio::runtime::Handle;

    #[tokio::test(start_paused = true)]
    async fn a_stopped_controller_does_not_wait_for_writes() {
        let alive = || Handle::current().metrics().num_alive_tasks();
        let before = alive();
        let reconciler = reconcile::from_fn(|_: Request, _| ready(Ok(Outcome::done())));
        let (controller, task) = Controller::builder("writes")
            .build(reconciler)
            .expect("a valid controller");
        controller
            .workers()
            .deferrals
            .waiting
            .lock()
            .spawn(pending());
        assert_eq!(alive(), before + 1);
        task.run_until(async {}).await.expect("started");
        assert_eq!(alive(), before);
    }
}
