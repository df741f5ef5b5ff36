//! Stages, in which a manager runs its tasks.
//!
//! Invariant: each stage is waiting, running or stopped, in this order, and nothing starts in a
//! stopped stage. A running task is listed by name, and is joined before the stage is stopped unless
//! it blocks its thread. Tasks of this crate join the tasks that they have spawned.

use super::ManagerError;
use crate::{
    cache::CacheError,
    client,
    fencing::{Fence, Fenced},
    panic_message::panic_message,
    source::WatchError,
};
use futures::FutureExt;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::{fmt, panic::AssertUnwindSafe, pin::Pin, sync::Arc, time::Duration};
use tokio::{
    runtime::Handle,
    select,
    sync::{mpsc, watch},
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// Stage of the manager in which a task runs.
///
/// Stages start in this order, each when the previous one is ready, and stop in reverse order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Servers for other processes, such as probes and webhooks.
    ///
    /// The next stage waits until they are [ready](RunContext::ready).
    Server,
    /// Caches that other tasks read from.
    ///
    /// The next stage waits until they are [ready](RunContext::ready).
    Cache,
    /// Tasks that need synced caches but not the leadership.
    Other,
    /// Tasks that must return before any controller reconciles.
    ///
    /// Examples are warming a registry, or waiting for another installation. A gate runs in every
    /// process, also in standbys, and in several at the same time. Work that only one process may
    /// do, such as migrating data, belongs to [`Stage::Leader`].
    Gate,
    /// Controllers that do not need the leadership, and tasks that belong to them.
    Controllers,
    /// Tasks that run only while this process leads.
    ///
    /// This is the default for controllers.
    Leader,
}

impl Stage {
    pub(super) const ALL: [Self; 6] = [
        Self::Server,
        Self::Cache,
        Self::Other,
        Self::Gate,
        Self::Controllers,
        Self::Leader,
    ];
}

/// Context of a task: notifies it of the shutdown, and reports that it is ready.
#[derive(Clone)]
pub struct RunContext {
    stop: CancellationToken,
    abort: CancellationToken,
    progress: Arc<watch::Sender<Progress>>,
}

/// Progress of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Starting,
    Ready,
    Returned,
}

impl RunContext {
    /// Waits until the task must stop. After the grace period it is dropped.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Waits until the manager stops waiting for the task.
    ///
    /// A task with [subtasks](Runnable::with_subtasks) then ends its own tasks, for which it has one
    /// second.
    pub(crate) async fn aborted(&self) {
        self.abort.cancelled().await;
    }

    /// Reports that the task is ready, so that the next stage may start.
    ///
    /// A task that returns counts as ready.
    pub fn ready(&self) {
        self.progress.send_if_modified(|progress| {
            let first = *progress == Progress::Starting;
            if first {
                *progress = Progress::Ready;
            }
            first
        });
    }
}

impl fmt::Debug for RunContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext")
            .field("progress", &*self.progress.borrow())
            .finish_non_exhaustive()
    }
}

type RunFuture = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// Task that waits for its stage.
pub(super) struct Runnable {
    name: Arc<str>,
    run: Box<dyn FnOnce(RunContext) -> RunFuture + Send>,
    subtasks: Option<Subtasks>,
}

/// Returns the names of the subtasks that a task still runs.
pub(super) type Subtasks = Box<dyn Fn() -> Vec<String> + Send + Sync>;

impl Runnable {
    pub(super) fn new<F, Fut>(name: &str, run: F) -> Self
    where
        F: FnOnce(RunContext) -> Fut + Send + 'static,
        Fut: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        Self {
            name: name.into(),
            run: Box::new(move |cx| Box::pin(run(cx))),
            subtasks: None,
        }
    }

    /// Marks a task that has tasks of its own.
    ///
    /// It must return soon after [`RunContext::aborted`] resolves, when its own tasks have
    /// ended.
    pub(super) fn with_subtasks(
        mut self,
        subtasks: impl Fn() -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.subtasks = Some(Box::new(subtasks));
        self
    }
}

/// A failed task, which ends the manager.
pub(super) struct Failed {
    pub(super) name: Arc<str>,
    pub(super) error: anyhow::Error,
}

impl From<Failed> for ManagerError {
    fn from(Failed { name, error }: Failed) -> Self {
        Self::Failed {
            name: name.to_string(),
            error,
        }
    }
}

/// The tasks of one stage.
pub(super) struct Group {
    stop: CancellationToken,
    abort: CancellationToken,
    state: Mutex<State>,
    failures: mpsc::UnboundedSender<Failed>,
}

enum State {
    Waiting(Vec<Runnable>),
    Running(Box<Tasks>),
    Stopped,
}

struct Tasks {
    runtime: Handle,
    fence: Option<Fence>,
    running: JoinSet<()>,
    named: HashMap<Id, Named>,
    /// Progress of tasks that have not returned. May include some that have.
    progress: Vec<watch::Receiver<Progress>>,
    /// Set when no further tasks are accepted.
    closed: bool,
}

/// A running task with its name.
struct Named {
    name: Arc<str>,
    subtasks: Option<Subtasks>,
    task: AbortHandle,
}

impl Group {
    pub(super) fn new(failures: mpsc::UnboundedSender<Failed>) -> Self {
        let (stop, abort) = Default::default();
        Self {
            stop,
            abort,
            state: Mutex::new(State::Waiting(Vec::new())),
            failures,
        }
    }

    /// Returns the sender for failed tasks.
    pub(super) fn failures(&self) -> mpsc::UnboundedSender<Failed> {
        self.failures.clone()
    }

    /// Starts the task, or queues it until the stage starts.
    pub(super) fn add(&self, runnable: Runnable) -> Result<(), ManagerError> {
        match &mut *self.state.lock() {
            State::Waiting(waiting) => waiting.push(runnable),
            State::Running(tasks) if !tasks.closed => self.spawn(tasks, runnable),
            State::Running(_) | State::Stopped => {
                return Err(ManagerError::Stopping(runnable.name.to_string()));
            }
        }
        Ok(())
    }

    /// Starts the stage, under a fence if it needs the leadership.
    pub(super) fn start(&self, fence: Option<Fence>) {
        let mut state = self.state.lock();
        let State::Waiting(waiting) = &mut *state else {
            return;
        };
        let waiting = std::mem::take(waiting);
        let (running, named, progress) = (JoinSet::new(), HashMap::new(), Vec::new());
        let mut started = Box::new(Tasks {
            runtime: Handle::current(),
            fence,
            running,
            named,
            progress,
            closed: false,
        });
        for runnable in waiting {
            self.spawn(&mut started, runnable);
        }
        *state = State::Running(started);
    }

    fn spawn(
        &self,
        tasks: &mut Tasks,
        Runnable {
            name,
            run,
            subtasks,
        }: Runnable,
    ) {
        while let Some(closed) = tasks.running.try_join_next_with_id() {
            tasks.forget(closed);
        }
        tasks.progress.retain(|progress| {
            *progress.borrow() < Progress::Returned && progress.has_changed().is_ok()
        });
        let (progress_sender, progress) = watch::channel(Progress::Starting);
        tasks.progress.push(progress);
        let (stop, abort) = (self.stop.clone(), self.abort.clone());
        let cx = RunContext {
            stop: stop.clone(),
            abort,
            progress: Arc::new(progress_sender),
        };
        let (failures, named) = (self.failures.clone(), name.clone());
        let run = async move {
            let progress = cx.progress.clone();
            // Calls the function inside the future, to catch its panics as well.
            let run = AssertUnwindSafe(async { run(cx).await });
            let closed = run.catch_unwind().await.unwrap_or_else(|panic| {
                Err(anyhow::anyhow!("panicked: {}", panic_message(&*panic)))
            });
            if let Err(error) = closed
                && !(stop.is_cancelled() && is_caused_by_shutdown(&error))
            {
                tracing::error!(name = &*named, error = format!("{error:#}"), "task failed");
                // The receiver is dropped if the manager has ended.
                drop(failures.send(Failed { name: named, error }));
            }
            progress.send_replace(Progress::Returned);
        };
        let task = tasks
            .running
            .spawn_on(Fence::scope_if(tasks.fence.clone(), run), &tasks.runtime);
        tasks.named.insert(
            task.id(),
            Named {
                name,
                subtasks,
                task,
            },
        );
    }

    /// Waits until all tasks are ready or have returned, also those added meanwhile.
    pub(super) async fn ready(&self) {
        self.wait_for(Progress::Ready).await;
    }

    /// Waits until all tasks have returned.
    pub(super) async fn returned(&self) {
        self.wait_for(Progress::Returned).await;
    }

    async fn wait_for(&self, wanted: Progress) {
        loop {
            let behind = match &*self.state.lock() {
                State::Running(tasks) => tasks
                    .progress
                    .iter()
                    .find(|progress| *progress.borrow() < wanted && progress.has_changed().is_ok())
                    .cloned(),
                State::Waiting(_) | State::Stopped => None,
            };
            let Some(mut behind) = behind else { return };
            // Fails if the task was dropped, which is not waited for.
            drop(behind.wait_for(|progress| *progress >= wanted).await);
        }
    }

    /// Rejects further tasks, and drops those that wait for the stage.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        let waited = match &mut *state {
            State::Running(tasks) => {
                tasks.closed = true;
                None
            }
            other => Some(std::mem::replace(other, State::Stopped)),
        };
        drop(state);
        drop(waited);
    }

    /// Stops the tasks and waits for them.
    ///
    /// Drops those that are left when `deadline` resolves.
    ///
    /// Returns the dropped tasks, with the work they had left.
    pub(super) async fn stop(&self, deadline: impl Future<Output = ()>) -> Vec<String> {
        let state = std::mem::replace(&mut *self.state.lock(), State::Stopped);
        self.stop.cancel();
        let State::Running(mut tasks) = state else {
            return Vec::new();
        };
        select! {
            biased;
            () = tasks.joined() => return Vec::new(),
            () = deadline => {}
        }
        let mut dropped: Vec<_> = tasks.named.values().map(ToString::to_string).collect();
        dropped.sort();
        // An aborted task ends at its next `await`. Tasks with subtasks end those first.
        self.abort.cancel();
        tasks
            .named
            .values()
            .filter(|named| named.subtasks.is_none())
            .for_each(|named| named.task.abort());
        if timeout(ABORT_TIMEOUT, tasks.joined()).await.is_err() {
            tasks.running.abort_all();
            // Do not wait for a task that blocks its thread.
            if timeout(ABORT_TIMEOUT, tasks.joined()).await.is_err() {
                let names: Vec<_> = tasks
                    .named
                    .values()
                    .map(|named| named.name.clone())
                    .collect();
                tracing::error!(?names, "tasks block their threads, exiting without them");
            }
        }
        dropped
    }
}

/// Returns whether an error of a stopping task results from the shutdown.
fn is_caused_by_shutdown(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cancelled = cause.downcast_ref().is_some_and(JoinError::is_cancelled);
        let watch = matches!(
            cause.downcast_ref(),
            Some(WatchError::ControllerStopped(_) | WatchError::Stopped { .. })
        );
        let after_stop = matches!(cause.downcast_ref(), Some(ManagerError::Stopping(_)));
        let closed = matches!(cause.downcast_ref(), Some(CacheError::Closed));
        let fenced =
            cause.is::<Fenced>() || cause.downcast_ref().is_some_and(client::Error::is_fenced);
        cancelled || watch || after_stop || closed || fenced
    })
}

impl Group {
    /// Drops all waiting and running tasks.
    pub(super) fn abort(&self) {
        self.stop.cancel();
        let state = std::mem::replace(&mut *self.state.lock(), State::Stopped);
        drop(state);
    }
}

/// Time that dropped tasks have to end.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Subtasks listed per dropped task.
const MAX_LISTED_SUBTASKS: usize = 10;

impl Tasks {
    fn forget(&mut self, closed: Result<(Id, ()), JoinError>) {
        self.named
            .remove(&closed.map_or_else(|error| error.id(), |(id, ())| id));
    }

    async fn joined(&mut self) {
        while let Some(closed) = self.running.join_next_with_id().await {
            self.forget(closed);
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut subtasks = self
            .subtasks
            .as_ref()
            .map(|subtasks| subtasks())
            .unwrap_or_default();
        f.write_str(&self.name)?;
        if subtasks.is_empty() {
            return Ok(());
        }
        let more = subtasks.len().saturating_sub(MAX_LISTED_SUBTASKS);
        subtasks.truncate(MAX_LISTED_SUBTASKS);
        write!(f, " ({}", subtasks.join(", "))?;
        if more > 0 {
            write!(f, " and {more} more")?;
        }
        f.write_str(")")
    }
}
