//! One watch, from outside.

use super::context::{End, Status, Watching};
use crate::cache::CacheError;
use std::{
    fmt,
    ops::AddAssign,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::time::timeout_at;

/// One watch. Dropping it changes nothing; [`Self::stop`] ends the watch, [`Self::scoped`] ties it to a scope. Clones mean the same one.
#[derive(Clone)]
pub struct WatchHandle(pub(super) Arc<Watching>);

impl WatchHandle {
    /// The source's.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Whether a controller starts without it. See [`Select::optional`](crate::cache::Select::optional).
    pub fn is_optional(&self) -> bool {
        self.0.optional
    }

    /// How it is.
    pub fn state(&self) -> WatchState {
        self.0.state()
    }

    /// What it has done.
    pub fn stats(&self) -> WatchStats {
        self.0.stats()
    }

    /// Until the initial events went through the handler; waits for a controller that does not run yet. After the sync timeout, counted from when the source
    /// began, it is an error that says why, in the server's words if it has said something; the watch goes on trying.
    pub async fn await_synced(&self) -> Result<(), WatchError> {
        if self.in_time(Status::is_settled).await { self.0.outcome() } else { Err(self.0.timed_out()) }
    }

    /// Until there is nothing to wait for by who can do without it: it is synced, in trouble or over, or the sync timeout is.
    pub(crate) async fn await_known(&self) {
        self.in_time(Status::is_known).await;
    }

    /// Until it is so; false if the sync timeout, counted from when the source began, was over before.
    async fn in_time(&self, is_so: fn(&Status) -> bool) -> bool {
        let mut changes = self.0.changes();
        let begun = changes.wait_for(|status| is_so(status) || status.begun.is_some()).await;
        let deadline = begun.ok().and_then(|status| status.begun?.checked_add(self.0.sync_timeout));
        let so = changes.wait_for(is_so);
        match deadline {
            Some(deadline) => timeout_at(deadline, so).await.is_ok(),
            None => so.await.is_ok(),
        }
    }

    /// When this returns, no call of its handler will begin. Its informer goes, too, if nobody else uses it. Not from within its own handler: it would wait
    /// for itself.
    pub async fn stop(&self) {
        self.0.stop();
        drop(self.0.changes().wait_for(|status| status.end.is_some()).await);
    }

    /// Told to stop, and not waited for.
    pub(crate) fn end(&self) {
        self.0.stop();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.changes().borrow().end.is_some()
    }

    /// By being stopped, or because it had nothing more to tell.
    pub(crate) fn has_stopped(&self) -> bool {
        matches!(self.0.changes().borrow().end, Some(End::Stopped))
    }

    /// Stop it when this is dropped.
    pub fn scoped(self) -> ScopedWatch {
        ScopedWatch(self)
    }
}

impl fmt::Debug for WatchHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchHandle").field("name", &self.name()).field("state", &self.state()).finish()
    }
}

/// See [`WatchHandle::scoped`].
#[derive(Debug)]
#[must_use = "the watch stops when this is dropped"]
pub struct ScopedWatch(WatchHandle);

impl ScopedWatch {
    /// The watch itself.
    pub fn handle(&self) -> &WatchHandle {
        &self.0
    }
}

impl Drop for ScopedWatch {
    fn drop(&mut self) {
        self.0.0.stop();
    }
}

/// How a watch is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WatchState {
    /// Waiting for its controller to run, or for the first events to be through; also of a kind that does not exist yet.
    Starting,
    /// The initial events are through, and all is well.
    Synced,
    /// Something is wrong, and being tried again.
    Degraded {
        /// Since when.
        since: SystemTime,
        /// In the server's own words.
        error: String,
    },
    /// It ended with an error, and is not tried again.
    Failed(Arc<anyhow::Error>),
    /// It was stopped, or had nothing more to tell.
    Stopped,
}

/// What a watch has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct WatchStats {
    /// Events that came.
    pub events: u64,
    /// Those of them that a predicate rejected.
    pub dropped: u64,
    /// Panics of predicates and handlers; the event is lost each time.
    pub panics: u64,
    /// Events of deleted objects that a predicate or handler could not decode, because only their metadata was kept. [`Event`](crate::event::Event) describes when
    /// that is so.
    pub undecoded: u64,
    /// Attempts of [`Enqueue::later`](crate::handler::Enqueue::later) that failed.
    pub failures: u64,
    /// What is not attempted any more, because too much of one object failed, or because the object is deleted and cannot be decoded.
    pub given_up: u64,
}

impl AddAssign for WatchStats {
    fn add_assign(&mut self, other: Self) {
        let Self { events, dropped, panics, undecoded, failures, given_up } = other;
        self.events += events;
        self.dropped += dropped;
        self.panics += panics;
        self.undecoded += undecoded;
        self.failures += failures;
        self.given_up += given_up;
    }
}

/// Why there is no watch, or none that works.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The controller ended before.
    #[error("controller {0} has stopped: nothing can be watched by it any more")]
    ControllerStopped(String),
    /// Its handle was taken from a builder that was dropped.
    #[error("controller {0} was never built: finish its builder with `build`")]
    NeverBuilt(String),
    /// A kind has to come from a cache.
    #[error("{source_name}: no cache: use `Kind::with_cache`, or give the builder one")]
    NoCache {
        /// Of the source.
        source_name: String,
    },
    /// It may still sync later.
    #[error("{source_name}: not synced within {} s: {last_error}", limit.as_secs_f64())]
    Timeout {
        /// Of the source.
        source_name: String,
        /// The sync timeout.
        limit: Duration,
        /// Why, in the server's words if it has said something.
        last_error: String,
    },
    /// The cache does not take the selection.
    #[error("{source_name}: {error}")]
    Cache {
        /// Of the source.
        source_name: String,
        /// What it says.
        #[source]
        error: Arc<CacheError>,
    },
    /// It ended with an error.
    #[error("{source_name}: {error:#}")]
    Failed {
        /// Of the source.
        source_name: String,
        /// What it ended with.
        error: Arc<anyhow::Error>,
    },
    /// It was stopped before.
    #[error("{source_name}: stopped before it was synced")]
    Stopped {
        /// Of the source.
        source_name: String,
    },
}

impl From<End> for WatchState {
    fn from(end: End) -> Self {
        match end {
            End::Stopped => Self::Stopped,
            End::Failed(error) => Self::Failed(error),
        }
    }
}
