//! Context of one reconcile.

use super::{Priority, Reason};
use futures::future::BoxFuture;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::{fmt, future::pending, sync::Arc, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Context of one reconcile. Clones refer to the same one.
///
/// Use `Context::default()` in unit tests: a first attempt without reasons, deadline and shutdown.
#[derive(Clone)]
pub struct Context(Arc<ReconcileRun<dyn QueueView>>);

/// Data of a reconcile that the controller provides.
pub(crate) struct ReconcileRun<A: ?Sized> {
    pub(crate) id: u128,
    pub(crate) attempt: u32,
    pub(crate) priority: Priority,
    pub(crate) waited: Duration,
    pub(crate) reasons: Vec<Reason>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) shutdown: Option<Arc<CancellationToken>>,
    pub(crate) fencing_token: Option<u64>,
    pub(crate) again: A,
}

/// Reports whether the request was added again since the reconcile started.
pub(crate) trait QueueView: Send + Sync + 'static {
    fn is_queued_again(&self) -> bool;
    /// Waits until the request is added again.
    fn queued_again(&self) -> BoxFuture<'_, ()>;
}

/// Requests of unit tests, never added again.
impl QueueView for () {
    fn is_queued_again(&self) -> bool {
        false
    }

    fn queued_again(&self) -> BoxFuture<'_, ()> {
        Box::pin(pending())
    }
}

impl<A: QueueView> From<ReconcileRun<A>> for Context {
    fn from(run: ReconcileRun<A>) -> Self {
        Self(Arc::new(run))
    }
}

impl Context {
    /// Returns the unique ID of this reconcile, for logs and spans.
    pub fn id(&self) -> impl fmt::Display + use<> {
        Id(self.0.id)
    }

    /// Returns the number of the attempt since the last success, starting with 1.
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// Returns the priority with which the request was queued.
    pub fn priority(&self) -> Priority {
        self.0.priority
    }

    /// Returns how long the request was ready before this reconcile started.
    pub fn waited(&self) -> Duration {
        self.0.waited
    }

    /// Returns the reasons of this reconcile, oldest first: last events, retry or requeue.
    ///
    /// For logs only: events are coalesced, so a decision must not depend on them.
    pub fn reasons(&self) -> &[Reason] {
        &self.0.reasons
    }

    /// Returns the time of the reconcile timeout, if the controller has one.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// Returns whether the request was added again, so that another reconcile follows.
    pub fn superseded(&self) -> bool {
        self.0.again.is_queued_again()
    }

    /// Waits until the request is added again.
    ///
    /// Use it to abort long work that would be repeated.
    pub async fn until_superseded(&self) {
        self.0.again.queued_again().await;
    }

    /// Returns the fencing token of the lease; `None` without one.
    ///
    /// It grows with every change of leader, see
    /// [`Fence::token`](crate::manager::election::Fence::token).
    pub fn fencing_token(&self) -> Option<u64> {
        self.0.fencing_token
    }

    /// Returns the current time, on tokio's clock.
    ///
    /// Use it instead of [`Timestamp::now`] for times that the reconciler writes or compares. In a
    /// test on a paused clock it advances with that clock; elsewhere it equals the system's time.
    pub fn now(&self) -> Timestamp {
        let system = Timestamp::now();
        let monotonic = std::time::Instant::now();
        let tokio = Instant::now().into_std();
        // The two are equal unless tokio's clock is paused.
        let offset = if tokio >= monotonic {
            SignedDuration::try_from(tokio - monotonic)
        } else {
            SignedDuration::try_from(monotonic - tokio).map(|behind| -behind)
        };
        offset
            .ok()
            .and_then(|offset| system.checked_add(offset).ok())
            .unwrap_or(system)
    }

    /// Waits until the controller starts to stop. Finish work that must not be cancelled.
    pub async fn shutdown(&self) {
        match &self.0.shutdown {
            Some(shutdown) => shutdown.cancelled().await,
            None => pending().await,
        }
    }

    /// Whether [`Self::shutdown`] has resolved.
    pub fn is_shutting_down(&self) -> bool {
        self.0
            .shutdown
            .as_ref()
            .is_some_and(|shutdown| shutdown.is_cancelled())
    }
}

impl Default for Context {
    fn default() -> Self {
        Self::from(ReconcileRun {
            id: 0,
            attempt: 1,
            priority: Priority::NORMAL,
            waited: Duration::ZERO,
            reasons: Vec::new(),
            deadline: None,
            shutdown: None,
            fencing_token: None,
            again: (),
        })
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("id", &format_args!("{}", self.id()))
            .field("attempt", &self.attempt())
            .field("reasons", &self.reasons())
            .finish_non_exhaustive()
    }
}

/// Prints the ID in the format of a UUID.
struct Id(u128);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.0;
        let part = |shift: u32, bits: u32| (id >> shift) & ((1 << bits) - 1);
        write!(f, "{:08x}-{:04x}-", part(96, 32), part(80, 16))?;
        write!(
            f,
            "{:04x}-{:04x}-{:012x}",
            part(64, 16),
            part(48, 16),
            part(0, 48)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn now_follows_a_paused_clock() {
        let cx = Context::default();
        let before = cx.now();
        assert!(before.duration_since(Timestamp::now()).abs() < SignedDuration::from_mins(1));
        advance(Duration::from_hours(1)).await;
        let passed = cx.now().duration_since(before);
        // The two clocks of the system are read one after the other.
        let late = (passed - SignedDuration::from_hours(1)).abs();
        assert!(late < SignedDuration::from_secs(1), "{passed:?}");
    }
}
