//! One run of a reconciler, as it sees it.

use super::{Priority, Reason};
use futures_util::future::BoxFuture;
use std::{fmt, future::pending, sync::Arc, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// One run. A clone is the same run. `Context::default()` serves in unit tests: a first attempt for no reason, which nobody interrupts.
#[derive(Clone)]
pub struct Context(Arc<Run<dyn Again>>);

/// What a controller says of a run.
pub(crate) struct Run<A: ?Sized> {
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

/// Whether the request was made again since the run began.
pub(crate) trait Again: Send + Sync + 'static {
    fn is_queued_again(&self) -> bool;
    /// Until it is.
    fn queued_again(&self) -> BoxFuture<'_, ()>;
}

/// Never.
impl Again for () {
    fn is_queued_again(&self) -> bool {
        false
    }

    fn queued_again(&self) -> BoxFuture<'_, ()> {
        Box::pin(pending())
    }
}

impl<A: Again> From<Run<A>> for Context {
    fn from(run: Run<A>) -> Self {
        Self(Arc::new(run))
    }
}

impl Context {
    /// Tells this run from all others, in logs and spans.
    pub fn id(&self) -> impl fmt::Display + use<> {
        Id(self.0.id)
    }

    /// 1 on the first run since the last success.
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// What the request was queued with.
    pub fn priority(&self) -> Priority {
        self.0.priority
    }

    /// How long the request was ready before this run began.
    pub fn waited(&self) -> Duration {
        self.0.waited
    }

    /// Reasons of this reconcile, oldest first: the last events, and the retry or requeue that it is.
    ///
    /// For logs only: events are coalesced, so a decision must not depend on them.
    pub fn reasons(&self) -> &[Reason] {
        &self.0.reasons
    }

    /// When the run will be dropped, if the controller has a reconcile timeout.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// Whether the request was made again since this run began: another one follows.
    pub fn superseded(&self) -> bool {
        self.0.again.is_queued_again()
    }

    /// Resolves when the request is made again: for long work that would begin anew anyway.
    pub async fn until_superseded(&self) {
        self.0.again.queued_again().await;
    }

    /// Grows with every change of leader: see [`Fence::token`](crate::manager::election::Fence::token). `None` if the controller does not run under a lease.
    pub fn fencing_token(&self) -> Option<u64> {
        self.0.fencing_token
    }

    /// Resolves when the controller begins to stop: finish what must not be cut off.
    pub async fn shutdown(&self) {
        match &self.0.shutdown {
            Some(shutdown) => shutdown.cancelled().await,
            None => pending().await,
        }
    }

    /// Whether [`Self::shutdown`] has resolved.
    pub fn is_shutting_down(&self) -> bool {
        self.0.shutdown.as_ref().is_some_and(|shutdown| shutdown.is_cancelled())
    }
}

impl Default for Context {
    fn default() -> Self {
        Self::from(Run {
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

/// As a UUID is written.
struct Id(u128);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.0;
        let part = |shift: u32, bits: u32| (id >> shift) & ((1 << bits) - 1);
        write!(f, "{:08x}-{:04x}-", part(96, 32), part(80, 16))?;
        write!(f, "{:04x}-{:04x}-{:012x}", part(64, 16), part(48, 16), part(0, 48))
    }
}
