//! Reports about a controller for the debug pages.

use super::{Controller, ControllerStats, TerminalOutcome};
use crate::{
    source::{WatchHandle, WatchState, WatchStats},
    workqueue::{Entry, EntryState, Key, Stats, serialize_seconds},
};
use kube_core::GroupVersionKind;
use serde::Serialize;
use std::{
    cmp::Reverse, collections::BTreeMap, fmt, sync::atomic::Ordering::Relaxed, time::Duration,
};

/// State of a controller at one moment: see [`Controller::report`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ControllerReport {
    /// Name of the controller.
    pub name: String,
    /// Kind that the controller reconciles, if known.
    pub kind: Option<GroupVersionKind>,
    /// Number of requests reconciled concurrently.
    pub max_concurrent: usize,
    /// Counts of reconciles by result.
    pub stats: ControllerStats,
    /// Reconciles that have been running for longer than
    /// [`Options::stuck_after`](super::Options::stuck_after), longest first.
    pub stuck: Vec<StuckReconcile>,
    /// Statistics of the work queue.
    pub queue: Stats,
    /// Watches that were not stopped.
    pub watches: Vec<WatchReport>,
    /// Statistics of watches by name.
    ///
    /// Watches of one name are added up. Stopped ones are included while another watch has the same
    /// name.
    pub sources: BTreeMap<String, WatchStats>,
}

/// Reconcile that is reported as stuck.
///
/// It has been running for longer than [`Options::stuck_after`](super::Options::stuck_after).
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct StuckReconcile {
    /// Request, as text.
    pub key: String,
    /// Time since the reconcile started. Serialized in seconds.
    #[serde(serialize_with = "serialize_seconds")]
    pub running_for: Duration,
}

impl fmt::Display for StuckReconcile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {} s", self.key, self.running_for.as_secs())
    }
}

/// State of a watch at one moment.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct WatchReport {
    /// Name of the source.
    pub name: String,
    /// `starting`, `synced`, `degraded`, `failed` or `stopped`.
    pub state: &'static str,
    /// Error of a degraded or failed watch, with the message of the API server.
    pub error: Option<String>,
    /// Statistics of the watch.
    pub stats: WatchStats,
}

/// Statistics of a controller's queue.
///
/// See [`ManagerHandle::queues`](crate::manager::ManagerHandle::queues).
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct QueueReport {
    /// Name of the controller.
    pub controller: String,
    /// Statistics of the queue.
    pub stats: Stats,
    /// Requests whose last reconcile ended with a terminal error: the last 100, newest first.
    pub terminal: Vec<TerminalOutcome>,
}

/// Contents of a controller's queue as text: see [`Controller::queue_snapshot`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct QueueSnapshot {
    /// Name of the controller.
    pub controller: String,
    /// Statistics of the queue, read before the entries.
    pub stats: Stats,
    /// Number of keys in the queue, including those that are not in `entries`.
    pub keys: usize,
    /// Running requests, then ready, parked and delayed ones.
    ///
    /// Requests in the same state are ordered by their wait, longest first.
    pub entries: Vec<Entry<String>>,
    /// Requests whose last reconcile ended with a terminal error: the last 100, newest first.
    ///
    /// They are not queued. A request is removed when a later reconcile ends with another result.
    pub terminal: Vec<TerminalOutcome>,
}

impl From<&WatchHandle> for WatchReport {
    fn from(watch: &WatchHandle) -> Self {
        let (state, error) = match watch.state() {
            WatchState::Starting => ("starting", None),
            WatchState::Synced => ("synced", None),
            WatchState::Degraded { error, .. } => ("degraded", Some(error)),
            WatchState::Failed(error) => ("failed", Some(format!("{error:#}"))),
            WatchState::Stopped => ("stopped", None),
        };
        Self {
            name: watch.name().to_owned(),
            state,
            error,
            stats: watch.stats(),
        }
    }
}

impl<R: Key> Controller<R> {
    /// Returns the counts of reconciles by result.
    ///
    /// # Panics
    /// Panics before the controller is built.
    pub fn stats(&self) -> ControllerStats {
        let work = self.workers();
        ControllerStats {
            deferred: work.deferrals.deferred.load(Relaxed),
            deferral_timeouts: work.deferrals.timeouts.load(Relaxed),
            ..work.counters.read()
        }
    }

    /// Returns the reconciles that have been running for longer than
    /// [`Options::stuck_after`](super::Options::stuck_after), longest first.
    ///
    /// # Panics
    /// Panics before the controller is built.
    pub fn stuck(&self) -> Vec<StuckReconcile> {
        let longer = self
            .queue()
            .running_longer_than(self.workers().settings.stuck_after);
        longer
            .into_iter()
            .map(|(key, running_for)| StuckReconcile {
                key: format!("{key:?}"),
                running_for,
            })
            .collect()
    }

    /// Returns the state of the controller, for debug pages.
    ///
    /// The queued requests are in [`queue().snapshot()`](crate::workqueue::WorkQueue::snapshot).
    ///
    /// # Panics
    /// Panics before the controller is built.
    pub fn report(&self) -> ControllerReport {
        ControllerReport {
            name: self.name().to_owned(),
            kind: self.built().and_then(|built| built.gvk.clone()),
            max_concurrent: self.max_concurrent(),
            stats: self.stats(),
            stuck: self.stuck(),
            queue: self.queue().stats(),
            watches: self.watches().iter().map(WatchReport::from).collect(),
            sources: self.0.state.lock().sources(),
        }
    }

    pub(super) fn queue_report(&self) -> QueueReport {
        let (controller, stats) = (self.name().to_owned(), self.queue().stats());
        QueueReport {
            controller,
            stats,
            terminal: self.workers().terminal.report(),
        }
    }

    /// Returns the reconciles and sources that a shutdown waits for, as text.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        let watches = self.watches();
        let sources = watches
            .iter()
            .filter(|watch| !watch.has_ended())
            .map(|watch| format!("source {}", watch.name()));
        self.workers()
            .running_at_shutdown
            .unfinished()
            .into_iter()
            .chain(sources)
            .collect()
    }

    /// Returns the requests in the queue as text, at most `most` of them: running ones first, then
    /// those that have waited longest.
    ///
    /// With a `key`, only the request with that text (`NAMESPACE/NAME`) is returned, and only its
    /// terminal error. The call reads every request: in async code, make it from a blocking task.
    ///
    /// # Panics
    /// Panics before the controller is built.
    pub fn queue_snapshot(&self, most: usize, key: Option<&str>) -> QueueSnapshot {
        let stats = self.queue().stats();
        let mut entries = self.queue().snapshot();
        let keys = entries.len();
        let mut terminal = self.workers().terminal.report();
        if let Some(key) = key {
            entries.retain(|entry| format!("{:?}", entry.key) == key);
            terminal.retain(|outcome| outcome.key == key);
        }
        entries.sort_by_key(|entry| (rank(entry.state), Reverse(entry.added_ago)));
        entries.truncate(most);
        let entries = entries.into_iter().map(describe).collect();
        QueueSnapshot {
            controller: self.name().to_owned(),
            stats,
            keys,
            entries,
            terminal,
        }
    }
}

fn rank(state: EntryState) -> u8 {
    match state {
        EntryState::Running { .. } => 0,
        EntryState::Ready { .. } => 1,
        EntryState::Parked { .. } => 2,
        EntryState::Delayed { .. } => 3,
        EntryState::Idle => 4,
    }
}

fn describe<R: Key>(entry: Entry<R>) -> Entry<String> {
    let Entry {
        key,
        state,
        priority,
        added_ago,
        attempts,
        last_error,
        reasons,
    } = entry;
    Entry {
        key: format!("{key:?}"),
        state,
        priority,
        added_ago,
        attempts,
        last_error,
        reasons,
    }
}
