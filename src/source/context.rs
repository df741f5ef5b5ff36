//! One watch, from inside: what it may ask and say, and what becomes of that.
//!
//! What holds: `end` is set once, when no call of a handler can begin any more; `synced` never goes back.

use super::{WatchError, WatchState, WatchStats};
use crate::{cache::Cache, handler::Laters};
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

/// What a running source may ask and say. Clones mean the same watch.
#[derive(Clone)]
pub struct SourceContext(pub(super) Arc<Watching>);

impl SourceContext {
    /// The controller's cache, if it has one.
    pub fn cache(&self) -> Option<&Cache> {
        self.0.cache.as_ref()
    }

    /// The initial events are through. What they left to [`Enqueue::later`](crate::handler::Enqueue::later) is waited for.
    pub fn synced(&self) {
        self.0.status.send_modify(|status| {
            status.claimed = true;
            status.trouble = None;
        });
    }

    /// Something is wrong, and being tried again: the watch's state until the next [`Self::synced`].
    pub fn degraded(&self, error: impl Into<anyhow::Error>) {
        let error = format!("{:#}", error.into());
        self.0.status.send_modify(|status| {
            status.known = true;
            let since = status.trouble.as_ref().map_or_else(SystemTime::now, |(since, _)| *since);
            status.trouble = Some((since, error));
        });
    }

    /// How things are is known, though it is not synced: who can do without it waits for nothing more.
    pub(super) fn known(&self) {
        self.0.status.send_modify(|status| status.known = true);
    }

    /// Resolves when the source is to end. Soon after, its future is dropped.
    pub async fn stopped(&self) {
        self.0.stop.cancelled().await;
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.0.stop.is_cancelled()
    }

    /// Ask this how things are, instead of being told.
    pub(super) fn ask(&self, health: impl Fn() -> Health + Send + Sync + 'static) {
        drop(self.0.health.set(Box::new(health)));
    }

    pub(super) fn name(&self) -> &str {
        self.0.name()
    }

    pub(super) fn controller(&self) -> Option<&str> {
        self.0.controller()
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.0.counters
    }
}

impl fmt::Debug for SourceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SourceContext").field(&self.0.name).finish()
    }
}

/// How what a source depends on is.
pub(super) enum Health {
    Good,
    /// Not there yet, and nobody's fault.
    Waiting(String),
    Bad {
        since: SystemTime,
        error: String,
    },
}

pub(crate) struct Watching {
    pub(super) name: String,
    /// Whose it is, if it is a controller's.
    pub(super) controller: OnceLock<Arc<str>>,
    pub(super) cache: Option<Cache>,
    pub(super) sync_timeout: Duration,
    pub(super) optional: bool,
    pub(super) stop: CancellationToken,
    pub(super) status: watch::Sender<Status>,
    pub(super) counters: Counters,
    pub(super) laters: Laters,
    health: OnceLock<Box<dyn Fn() -> Health + Send + Sync>>,
}

#[derive(Default)]
pub(super) struct Status {
    /// When it began to run.
    pub(super) begun: Option<Instant>,
    /// The source says that it is synced.
    pub(super) claimed: bool,
    /// It is, and what handlers left for later was attempted.
    pub(super) synced: bool,
    /// There was something to say of it, good or bad.
    pub(super) known: bool,
    pub(super) trouble: Option<(SystemTime, String)>,
    pub(super) end: Option<End>,
}

#[derive(Clone)]
pub(super) enum End {
    Stopped,
    Failed(Arc<anyhow::Error>),
}

impl Status {
    /// Nothing is left to wait for.
    pub(super) fn is_settled(&self) -> bool {
        self.synced || self.end.is_some()
    }

    /// Nothing is left to wait for by who can do without.
    pub(super) fn is_known(&self) -> bool {
        self.known || self.is_settled()
    }
}

impl Watching {
    pub(super) fn new(name: String, cache: Option<Cache>, sync_timeout: Duration, optional: bool) -> Self {
        Self {
            name,
            controller: OnceLock::new(),
            cache,
            sync_timeout,
            optional,
            stop: CancellationToken::new(),
            status: watch::Sender::default(),
            counters: Counters::default(),
            laters: Laters::default(),
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
        let Counters { events, dropped, panics, undecoded } = &self.counters;
        WatchStats {
            events: events.load(Relaxed),
            dropped: dropped.load(Relaxed),
            panics: panics.load(Relaxed),
            undecoded: undecoded.load(Relaxed),
            failures: self.laters.failures(),
            given_up: self.laters.given_up(),
        }
    }

    pub(super) fn changes(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    pub(super) fn state(&self) -> WatchState {
        let status = self.status.borrow();
        if let Some(end) = status.end.clone() {
            return end.into();
        }
        if let Some((since, error)) = status.trouble.clone() {
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

    /// Told to stop; over already if it never began.
    pub(super) fn stop(&self) {
        self.stop.cancel();
        self.status.send_if_modified(|status| {
            let over = status.begun.is_none() && status.end.is_none();
            if over {
                status.end = Some(End::Stopped);
            }
            over
        });
    }

    pub(super) async fn until_claimed(&self) {
        drop(self.changes().wait_for(|status| status.claimed).await);
    }

    pub(super) fn publish_synced(&self) {
        self.status.send_modify(|status| status.synced = true);
    }

    /// False if it was stopped before.
    pub(super) fn begin(&self) -> bool {
        self.status.send_if_modified(|status| {
            let begins = status.end.is_none();
            if begins {
                status.begun = Some(Instant::now());
            }
            begins
        })
    }

    pub(super) fn end(&self, end: End) {
        self.status.send_if_modified(|status| {
            let first = status.end.is_none();
            if first {
                status.end = Some(end);
            }
            first
        });
    }

    /// What whoever waited for a sync is told.
    pub(super) fn outcome(&self) -> Result<(), WatchError> {
        let status = self.status.borrow();
        match &status.end {
            Some(End::Failed(error)) => {
                Err(WatchError::Failed { source_name: self.name.clone(), error: error.clone() })
            }
            Some(End::Stopped) if !status.synced => Err(WatchError::Stopped { source_name: self.name.clone() }),
            _ => Ok(()),
        }
    }

    pub(super) fn timed_out(&self) -> WatchError {
        let trouble = self.status.borrow().trouble.clone();
        let last_error = match (trouble, self.health()) {
            (Some((_, error)), _) | (None, Health::Bad { error, .. } | Health::Waiting(error)) => error,
            (None, Health::Good) if self.status.borrow().claimed => {
                "what its handler left for later was not attempted yet: is `Enqueue::later` given something that hangs?"
                    .into()
            }
            (None, Health::Good) if self.health.get().is_some() => {
                "its handler is not through with the first events".into()
            }
            (None, Health::Good) => {
                "the first events are not through yet: a source says so by `SourceContext::synced`, \
                                     or by returning"
                    .into()
            }
        };
        WatchError::Timeout { source_name: self.name.clone(), limit: self.sync_timeout, last_error }
    }
}

/// What a source has counted.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) events: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) panics: AtomicU64,
    pub(super) undecoded: AtomicU64,
}
