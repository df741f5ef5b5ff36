//! Requests whose own writes the caches do not show yet.
//!
//! What holds: a request is in `held` before the run that wrote has ended, and taken out before it is unparked: so no run of it begins in between, and
//! none is parked for good.

use crate::{
    cache::{Cache, CacheError, ledger::Token},
    client::OWN_WRITES_BOUND,
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
    /// How many: to know without a lock that there are none.
    many: AtomicUsize,
    /// What waits for caches.
    waiting: Mutex<JoinSet<()>>,
    pub(super) deferred: AtomicU64,
    pub(super) timeouts: AtomicU64,
}

impl<R> Default for Deferrals<R> {
    fn default() -> Self {
        Self {
            held: Mutex::default(),
            many: AtomicUsize::new(0),
            waiting: Mutex::default(),
            deferred: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
        }
    }
}

impl<R: Key> Deferrals<R> {
    /// Hold a request back until these caches show what was written under the token. To be called before its run ends.
    pub(super) fn hold(
        self: &Arc<Self>,
        controller: &Arc<str>,
        queue: &WorkQueue<R>,
        request: &R,
        (token, caches): (Token, Vec<Cache>),
    ) {
        let mut held = self.held.lock();
        held.insert(request.clone(), token.clone());
        self.many.store(held.len(), Relaxed);
        drop(held);
        let (deferrals, controller) = (self.clone(), controller.clone());
        let (queue, request) = (queue.clone(), request.clone());
        let mut waiting = self.waiting.lock();
        while waiting.try_join_next().is_some() {}
        waiting.spawn(async move {
            let begun = Instant::now();
            for cache in caches {
                let left = OWN_WRITES_BOUND.saturating_sub(begun.elapsed());
                if let Err(CacheError::Behind { .. }) = cache.caught_up(&token, left).await {
                    deferrals.timeouts.fetch_add(1, Relaxed);
                    tracing::warn!(
                        controller = &*controller,
                        ?request,
                        "the cache does not show what was written; reconciling all the same"
                    );
                    break;
                }
            }
            // The events of what was written are told at the same time. Who hears of them is given the time to ask for the request: then it is run once, not
            // once for the write and once more for its event.
            yield_now().await;
            deferrals.release(&request, &token);
            queue.unpark(&request);
        });
    }

    fn release(&self, request: &R, token: &Token) {
        let mut held = self.held.lock();
        // A later run has written meanwhile if this one was not waited for.
        if held.get(request) == Some(token) {
            held.remove(request);
        }
        self.many.store(held.len(), Relaxed);
    }

    /// Whether a request is to be parked now.
    #[inline]
    pub(super) fn holds(&self, request: &R) -> bool {
        let holds = self.many.load(Relaxed) > 0 && self.held.lock().contains_key(request);
        if holds {
            self.deferred.fetch_add(1, Relaxed);
        }
        holds
    }

    /// Nobody waits any longer.
    pub(super) fn end(&self) {
        self.held.lock().clear();
        self.waiting.lock().abort_all();
    }

    /// [`Self::end`], and nothing of it is left.
    pub(super) async fn over(&self) {
        self.end();
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
    async fn when_a_controller_has_ended_nothing_waits_for_its_writes() {
        let alive = || Handle::current().metrics().num_alive_tasks();
        let before = alive();
        let reconciler = reconcile::from_fn(|_: Request, _| ready(Ok(Outcome::done())));
        let (controller, task) = Controller::builder("writes").build(reconciler).expect("it is built");
        controller.work().deferrals.waiting.lock().spawn(pending());
        assert_eq!(alive(), before + 1);
        task.run_until(async {}).await.expect("it has started");
        assert_eq!(alive(), before);
    }
}
