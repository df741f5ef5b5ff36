//! Handle of one watch.

use super::context::{WatchEnd, WatchInner, WatchStatus};
use crate::cache::CacheError;
use std::{
    fmt,
    ops::AddAssign,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::time::timeout_at;

/// Handle of one watch. Clones refer to the same watch.
///
/// Dropping it does not stop the watch. Use [`Self::stop`] or [`Self::scoped`].
#[derive(Clone)]
pub struct WatchHandle(pub(super) Arc<WatchInner>);

impl WatchHandle {
    /// Returns the name of the source.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns whether a controller starts without the watch.
    ///
    /// True if the watch is [`optional`](crate::cache::Select::optional), or uses the cache of an
    /// [added cluster](crate::manager::ManagerHandle::add_cluster).
    pub fn is_optional(&self) -> bool {
        self.0.optional
    }

    /// Returns the current state of the watch.
    pub fn state(&self) -> WatchState {
        self.0.state()
    }

    /// Returns the counters of the watch.
    pub fn stats(&self) -> WatchStats {
        self.0.stats()
    }

    /// Waits until the handler has processed the initial events.
    ///
    /// If the controller does not run yet, this also waits for its start.
    ///
    /// # Errors
    /// After the sync timeout, counted from the start of the source, the last error. The watch
    /// continues to retry.
    pub async fn await_synced(&self) -> Result<(), WatchError> {
        if self.within_sync_timeout(WatchStatus::is_settled).await {
            self.0.outcome()
        } else {
            Err(self.0.timed_out())
        }
    }

    /// Waits until the watch is synced, degraded or ended.
    ///
    /// Returns after the sync timeout at the latest.
    pub(crate) async fn await_reported(&self) {
        self.within_sync_timeout(WatchStatus::is_reported).await;
    }

    /// Waits for a condition; returns false after the sync timeout.
    ///
    /// The timeout is counted from the start of the source.
    async fn within_sync_timeout(&self, is_so: fn(&WatchStatus) -> bool) -> bool {
        let mut changes = self.0.changes();
        let begun = changes
            .wait_for(|status| is_so(status) || status.started_at.is_some())
            .await;
        let deadline = begun
            .ok()
            .and_then(|status| status.started_at?.checked_add(self.0.sync_timeout));
        let so = changes.wait_for(is_so);
        match deadline {
            Some(deadline) => timeout_at(deadline, so).await.is_ok(),
            None => so.await.is_ok(),
        }
    }

    /// Stops the watch, and waits until its handler is not called any more.
    ///
    /// An informer without other users stops, too. Do not call it from the handler of the watch: it
    /// would wait for itself.
    pub async fn stop(&self) {
        self.0.stop();
        drop(
            self.0
                .changes()
                .wait_for(|status| status.end.is_some())
                .await,
        );
    }

    /// Stops the watch without waiting.
    pub(crate) fn end(&self) {
        self.0.stop();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.changes().borrow().end.is_some()
    }

    /// Returns whether the watch was stopped, or its source ended without an error.
    pub(crate) fn has_stopped(&self) -> bool {
        matches!(self.0.changes().borrow().end, Some(WatchEnd::Stopped))
    }

    /// Returns a guard that stops the watch when it is dropped.
    pub fn scoped(self) -> ScopedWatch {
        ScopedWatch(self)
    }
}

impl fmt::Debug for WatchHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchHandle")
            .field("name", &self.name())
            .field("state", &self.state())
            .finish()
    }
}

/// Guard that stops a watch when it is dropped, see [`WatchHandle::scoped`].
#[derive(Debug)]
#[must_use = "the watch stops when this is dropped"]
pub struct ScopedWatch(WatchHandle);

impl ScopedWatch {
    /// Returns the handle of the watch.
    pub fn handle(&self) -> &WatchHandle {
        &self.0
    }
}

impl Drop for ScopedWatch {
    fn drop(&mut self) {
        self.0.0.stop();
    }
}

/// State of a watch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WatchState {
    /// Waits for the controller, the initial events, or a missing kind.
    Starting,
    /// The initial events were processed, and there is no error.
    Synced,
    /// An error is being retried.
    Degraded {
        /// Time of the first error.
        since: SystemTime,
        /// Last error, with the message of the API server if there is one.
        error: String,
    },
    /// The source failed and is not retried.
    Failed(Arc<anyhow::Error>),
    /// The watch was stopped, or its source has ended.
    Stopped,
}

/// Counters of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct WatchStats {
    /// Events that were received.
    pub events: u64,
    /// Events that a predicate rejected.
    pub dropped: u64,
    /// Panics of predicates and handlers, each of which dropped an event.
    pub panics: u64,
    /// Events that a predicate or handler could not decode.
    ///
    /// Their body was dropped, see
    /// [`DecodeError::BodyDropped`](crate::object::DecodeError::BodyDropped).
    pub undecoded: u64,
    /// Failed attempts of [`Enqueue::add_async`](crate::handler::Enqueue::add_async).
    pub failures: u64,
    /// Asynchronous mappings that were dropped after they failed.
    ///
    /// A failing [`Enqueue::add_async`](crate::handler::Enqueue::add_async) is dropped if an object
    /// of its event cannot be decoded. Outside of an event, it is dropped if 1,024 others are
    /// failing. The events between the oldest and the newest failing one of an object, which the
    /// retry does not need, are not counted.
    pub dropped_mappings: u64,
}

impl AddAssign for WatchStats {
    fn add_assign(&mut self, other: Self) {
        let Self {
            events,
            dropped,
            panics,
            undecoded,
            failures,
            dropped_mappings,
        } = other;
        self.events += events;
        self.dropped += dropped;
        self.panics += panics;
        self.undecoded += undecoded;
        self.failures += failures;
        self.dropped_mappings += dropped_mappings;
    }
}

/// Error of a watch.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The controller has stopped.
    #[error("cannot add a source to controller {0}: the controller has stopped")]
    ControllerStopped(String),
    /// The builder of the controller was dropped.
    #[error(
        "cannot add a source to controller {0}: it was never built; finish its builder with `build`"
    )]
    NeverBuilt(String),
    /// The source needs a cache.
    #[error(
        "cannot start {source_name}: no cache set; use `Kind::with_cache`, or pass a cache to the \
         builder"
    )]
    NoCache {
        /// Name of the source.
        source_name: String,
    },
    /// The watch was not synced in time. It continues to retry.
    #[error("{source_name} not synced after {} s: {last_error}", limit.as_secs_f64())]
    Timeout {
        /// Name of the source.
        source_name: String,
        /// Sync timeout.
        limit: Duration,
        /// Last error, with the message of the API server if there is one.
        last_error: String,
    },
    /// The cache rejects the selectors or options of the watch.
    #[error("{source_name}: {error}")]
    Cache {
        /// Name of the source.
        source_name: String,
        /// Error of the cache.
        error: Arc<CacheError>,
    },
    /// The source failed.
    #[error("{source_name}: {error:#}")]
    Failed {
        /// Name of the source.
        source_name: String,
        /// Error of the source.
        error: Arc<anyhow::Error>,
    },
    /// The watch was stopped before it was synced.
    #[error("{source_name} stopped before it was synced")]
    Stopped {
        /// Name of the source.
        source_name: String,
    },
}

impl From<WatchEnd> for WatchState {
    fn from(end: WatchEnd) -> Self {
        match end {
            WatchEnd::Stopped => Self::Stopped,
            WatchEnd::Failed(error) => Self::Failed(error),
        }
    }
}
