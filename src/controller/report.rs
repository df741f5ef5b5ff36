//! A controller as debug pages show it.

use super::{Controller, ControllerStats, TerminalOutcome};
use crate::{
    source::{WatchHandle, WatchState, WatchStats},
    workqueue::{Entry, EntryState, Key, Stats, serialize_seconds},
};
use kube_core::GroupVersionKind;
use serde::Serialize;
use std::{cmp::Reverse, collections::BTreeMap, fmt, sync::atomic::Ordering::Relaxed, time::Duration};

/// A controller at one moment: see [`Controller::report`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ControllerReport {
    /// Its name.
    pub name: String,
    /// What it reconciles, if it was told.
    pub kind: Option<GroupVersionKind>,
    /// How many requests are reconciled at once.
    pub max_concurrent: usize,
    /// How its runs ended.
    pub stats: ControllerStats,
    /// Reconciles that have been running for longer than
    /// [`Options::stuck_after`](super::Options::stuck_after), longest first.
    pub stuck: Vec<StuckReconcile>,
    /// Its queue's numbers.
    pub queue: Stats,
    /// Its watches.
    pub watches: Vec<WatchReport>,
    /// What its watches have done, by name: of several of one name together, those that have stopped included as long as there is one.
    pub sources: BTreeMap<String, WatchStats>,
}

/// A reconcile that has been running for longer than [`Options::stuck_after`](super::Options::stuck_after).
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct StuckReconcile {
    /// Request, as text.
    pub key: String,
    /// Time since the reconcile started. Serialised in seconds.
    #[serde(serialize_with = "serialize_seconds")]
    pub running_for: Duration,
}

impl fmt::Display for StuckReconcile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {} s", self.key, self.running_for.as_secs())
    }
}

/// One watch at one moment.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct WatchReport {
    /// The source's name.
    pub name: String,
    /// `starting`, `synced`, `degraded`, `failed` or `stopped`.
    pub state: &'static str,
    /// What is wrong, in the server's own words.
    pub error: Option<String>,
    /// What it has done.
    pub stats: WatchStats,
}

/// A controller's queue in numbers: see [`ManagerHandle::queues`](crate::manager::ManagerHandle::queues).
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct QueueReport {
    /// The controller's name.
    pub controller: String,
    /// At one moment.
    pub stats: Stats,
    /// Requests whose last reconcile ended with a terminal error: the last 100, newest first.
    pub terminal: Vec<TerminalOutcome>,
}

/// A controller's queue with its keys as text: see [`Controller::queue_snapshot`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct QueueSnapshot {
    /// The controller's name.
    pub controller: String,
    /// Its numbers, of the moment before.
    pub stats: Stats,
    /// How many keys there are; more than entries, if not all were asked for.
    pub keys: usize,
    /// Those that run first, then those that are ready, parked, delayed; each longest waiting first.
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
        Self { name: watch.name().to_owned(), state, error, stats: watch.stats() }
    }
}

impl<R: Key> Controller<R> {
    /// How its runs ended.
    ///
    /// # Panics
    /// Before the controller is built.
    pub fn stats(&self) -> ControllerStats {
        let work = self.work();
        ControllerStats {
            deferred: work.deferrals.deferred.load(Relaxed),
            deferral_timeouts: work.deferrals.timeouts.load(Relaxed),
            ..work.numbers.read()
        }
    }

    /// Returns the reconciles that have been running for longer than
    /// [`Options::stuck_after`](super::Options::stuck_after), longest first.
    ///
    /// # Panics
    /// Before the controller is built.
    pub fn stuck(&self) -> Vec<StuckReconcile> {
        let longer = self.queue().running_longer_than(self.work().settings.stuck_after);
        longer.into_iter().map(|(key, running_for)| StuckReconcile { key: format!("{key:?}"), running_for }).collect()
    }

    /// All its numbers, for debug pages: as JSON or as they are. What is queued is in [`queue().snapshot()`](crate::workqueue::WorkQueue::snapshot).
    ///
    /// # Panics
    /// Before the controller is built.
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
        QueueReport { controller, stats, terminal: self.work().terminal.report() }
    }

    /// Its runs and sources that have not ended since it was told to stop, in words.
    pub(crate) fn left(&self) -> Vec<String> {
        let watches = self.watches();
        let sources = watches.iter().filter(|watch| !watch.has_ended()).map(|watch| format!("source {}", watch.name()));
        self.work().ending.left().into_iter().chain(sources).collect()
    }

    /// What is in its queue, at most so many keys, as text. It looks at every key: in async code call it from a blocking task.
    ///
    /// # Panics
    /// Before the controller is built.
    pub fn queue_snapshot(&self, most: usize) -> QueueSnapshot {
        let stats = self.queue().stats();
        let mut entries = self.queue().snapshot();
        let keys = entries.len();
        entries.sort_by_key(|entry| (rank(entry.state), Reverse(entry.added_ago)));
        entries.truncate(most);
        let entries = entries.into_iter().map(in_words).collect();
        let terminal = self.work().terminal.report();
        QueueSnapshot { controller: self.name().to_owned(), stats, keys, entries, terminal }
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

fn in_words<R: Key>(entry: Entry<R>) -> Entry<String> {
    let Entry { key, state, priority, added_ago, attempts, last_error, reasons } = entry;
    Entry { key: format!("{key:?}"), state, priority, added_ago, attempts, last_error, reasons }
}
