//! State of one watch, shared by its source and its handles.
//!
//! Invariant: `end` is set once, when no further call of a handler can start. `synced` is never
//! reset.

use super::{WatchError, WatchState, WatchStats};
use crate::{cache::Cache, handler::Retrier};
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

/// Interface of a running source to its watch. Clones refer to the same watch.
#[derive(Clone)]
pub struct SourceContext(pub(super) Arc<WatchInner>);

impl SourceContext {
    /// Returns the cache of the controller, if it has one.
    pub fn cache(&self) -> Option<&Cache> {
        self.0.cache.as_ref()
    }

    /// Reports that the initial events were delivered.
    ///
    /// The watch is synced once the first attempts of their
    /// [`Enqueue::add_async`](crate::handler::Enqueue::add_async) are made.
    pub fn synced(&self) {
        self.0.status.send_modify(|status| {
            status.reported_synced = true;
            status.degraded = None;
        });
    }

    /// Reports an error that is being retried.
    ///
    /// It is the state of the watch until the next [`Self::synced`].
    pub fn degraded(&self, error: impl Into<anyhow::Error>) {
        let error = format!("{:#}", error.into());
        self.0.status.send_modify(|status| {
            status.reported = true;
            let since = status
                .degraded
                .as_ref()
                .map_or_else(SystemTime::now, |(since, _)| *since);
            status.degraded = Some((since, error));
        });
    }

    /// Ends the state of [`Self::degraded`].
    #[cfg(feature = "kube-runtime")]
    pub(super) fn recovered(&self) {
        self.0.status.send_modify(|status| status.degraded = None);
    }

    /// Reports that the state is known but not synced, so an optional watch is ready.
    pub(super) fn reported(&self) {
        self.0.status.send_modify(|status| status.reported = true);
    }

    /// Waits until the source should end. Its future is dropped shortly afterwards.
    pub async fn stopped(&self) {
        self.0.stop.cancelled().await;
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.0.stop.is_cancelled()
    }

    /// Sets a function that returns the state of the source.
    pub(super) fn set_health(&self, health: impl Fn() -> Health + Send + Sync + 'static) {
        drop(self.0.health.set(Box::new(health)));
    }

    pub(super) fn name(&self) -> &str {
        self.0.name()
    }

    pub(super) fn controller(&self) -> Option<&str> {
        self.0.controller()
    }

    pub(super) fn counters(&self) -> &WatchCounters {
        &self.0.counters
    }
}

impl fmt::Debug for SourceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SourceContext").field(&self.0.name).finish()
    }
}

/// State of what a source depends on.
pub(super) enum Health {
    Good,
    /// The dependency is not available yet, which is not an error.
    Waiting(String),
    Bad {
        since: SystemTime,
        error: String,
    },
}

pub(crate) struct WatchInner {
    pub(super) name: String,
    /// Name of the controller, if the source has one.
    pub(super) controller: OnceLock<Arc<str>>,
    pub(super) cache: Option<Cache>,
    pub(super) sync_timeout: Duration,
    pub(super) optional: bool,
    pub(super) stop: CancellationToken,
    pub(super) status: watch::Sender<WatchStatus>,
    pub(super) counters: WatchCounters,
    pub(super) retrier: Retrier,
    health: OnceLock<Box<dyn Fn() -> Health + Send + Sync>>,
}

#[derive(Default)]
pub(super) struct WatchStatus {
    /// Time at which the source started to run.
    pub(super) started_at: Option<Instant>,
    /// Whether the source has reported that it is synced.
    pub(super) reported_synced: bool,
    /// Whether the source is synced and first attempts of asynchronous mappings are made.
    pub(super) synced: bool,
    /// Whether the source has reported success or an error.
    pub(super) reported: bool,
    pub(super) degraded: Option<(SystemTime, String)>,
    pub(super) end: Option<WatchEnd>,
}

#[derive(Clone)]
pub(super) enum WatchEnd {
    Stopped,
    Failed(Arc<anyhow::Error>),
}

impl WatchStatus {
    /// Returns whether the watch is synced or ended.
    pub(super) fn is_settled(&self) -> bool {
        self.synced || self.end.is_some()
    }

    /// Returns whether an optional watch need not be waited for any longer.
    pub(super) fn is_reported(&self) -> bool {
        self.reported || self.is_settled()
    }
}

impl WatchInner {
    pub(super) fn new(
        name: String,
        cache: Option<Cache>,
        sync_timeout: Duration,
        optional: bool,
    ) -> Self {
        Self {
            name,
            controller: OnceLock::new(),
            cache,
            sync_timeout,
            optional,
            stop: CancellationToken::new(),
            status: watch::Sender::default(),
            counters: WatchCounters::default(),
            retrier: Retrier::default(),
            health: OnceLock::new(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn controller(&self) -> Option<&str> {
        self.controller.get().map(|name| &**name)
    }

    pub(super) fn stats(&self) -> WatchStats {
        let WatchCounters {
            events,
            dropped,
            panics,
            undecoded,
        } = &self.counters;
        WatchStats {
            events: events.load(Relaxed),
            dropped: dropped.load(Relaxed),
            panics: panics.load(Relaxed),
            undecoded: undecoded.load(Relaxed),
            failures: self.retrier.failed_attempts(),
            dropped_mappings: self.retrier.dropped_mappings(),
        }
    }

    pub(super) fn changes(&self) -> watch::Receiver<WatchStatus> {
        self.status.subscribe()
    }

    pub(super) fn state(&self) -> WatchState {
        let status = self.status.borrow();
        if let Some(end) = status.end.clone() {
            return end.into();
        }
        if let Some((since, error)) = status.degraded.clone() {
            return WatchState::Degraded { since, error };
        }
        let synced = status.synced;
        drop(status);
        match self.health() {
            Health::Bad { since, error } => WatchState::Degraded { since, error },
            Health::Good if synced => WatchState::Synced,
            Health::Good | Health::Waiting(_) => WatchState::Starting,
        }
    }

    fn health(&self) -> Health {
        self.health.get().map_or(Health::Good, |health| health())
    }

    /// Stops the watch. One that has not started ends immediately.
    pub(super) fn stop(&self) {
        self.stop.cancel();
        self.status.send_if_modified(|status| {
            let not_started = status.started_at.is_none() && status.end.is_none();
            if not_started {
                status.end = Some(WatchEnd::Stopped);
            }
            not_started
        });
    }

    pub(super) async fn wait_reported_synced(&self) {
        drop(
            self.changes()
                .wait_for(|status| status.reported_synced)
                .await,
        );
    }

    pub(super) fn publish_synced(&self) {
        self.status.send_modify(|status| status.synced = true);
    }

    /// Marks the watch as started; returns false if it was stopped before.
    pub(super) fn start(&self) -> bool {
        self.status.send_if_modified(|status| {
            let begins = status.end.is_none();
            if begins {
                status.started_at = Some(Instant::now());
            }
            begins
        })
    }

    pub(super) fn end(&self, end: WatchEnd) {
        self.status.send_if_modified(|status| {
            let first = status.end.is_none();
            if first {
                status.end = Some(end);
            }
            first
        });
    }

    /// Returns the result for callers that wait until the watch is synced.
    pub(super) fn outcome(&self) -> Result<(), WatchError> {
        let status = self.status.borrow();
        match &status.end {
            Some(WatchEnd::Failed(error)) => Err(WatchError::Failed {
                source_name: self.name.clone(),
                error: error.clone(),
            }),
            Some(WatchEnd::Stopped) if !status.synced => Err(WatchError::Stopped {
                source_name: self.name.clone(),
            }),
            _ => Ok(()),
        }
    }

    pub(super) fn timed_out(&self) -> WatchError {
        let degraded = self.status.borrow().degraded.clone();
        let last_error = match (degraded, self.health()) {
            (Some((_, error)), _) | (None, Health::Bad { error, .. } | Health::Waiting(error)) => {
                error
            }
            (None, Health::Good) if self.status.borrow().reported_synced => {
                "an async mapping of its handler is not attempted yet; check the futures of \
                 `Enqueue::add_async`"
                    .into()
            }
            (None, Health::Good) if self.health.get().is_some() => {
                "its handler has not processed the initial events".into()
            }
            (None, Health::Good) => {
                "the initial events are not complete; a source reports them by \
                 `SourceContext::synced` or by returning"
                    .into()
            }
        };
        WatchError::Timeout {
            source_name: self.name.clone(),
            limit: self.sync_timeout,
            last_error,
        }
    }
}

/// Counters of a source.
#[derive(Default)]
pub(super) struct WatchCounters {
    pub(super) events: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) panics: AtomicU64,
    pub(super) undecoded: AtomicU64,
}
