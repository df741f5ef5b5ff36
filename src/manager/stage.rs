//! What runs beside controllers, in stages.
//!
//! What holds, for each stage: it waits, runs, or is over, in this order; nothing is started in one that is over. A task of it is named for as long as it lives, and
//! joined before the stage is over, with those that it has started itself if they are ours, unless it blocks its thread.

use super::ManagerError;
use crate::{
    cache::CacheError,
    caught::caught,
    client,
    fence::{Fence, Fenced},
    source::WatchError,
};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::{
    fmt,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};
use tokio::{
    runtime::Handle,
    select,
    sync::{mpsc, watch},
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// When something long-running runs. Stages start in this order, each when the one before is ready, and stop in the opposite order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Serves others: probes, webhooks. Waited for until it is [ready](RunContext::ready).
    Server,
    /// Feeds others. Waited for until it is [ready](RunContext::ready).
    Cache,
    /// Anything that needs synced caches, leading or not.
    Other,
    /// Has to return before any controller reconciles: warming a registry, waiting for what others install. It runs in every process, also in those that do not
    /// lead, and in several at once: what only one may do, as migrating data, is the leader's.
    Gate,
    /// Controllers that do not need to lead, and what belongs to them.
    Controllers,
    /// Only while leading. Controllers run here unless they are told otherwise.
    Leader,
}

impl Stage {
    pub(super) const ALL: [Self; 6] =
        [Self::Server, Self::Cache, Self::Other, Self::Gate, Self::Controllers, Self::Leader];
}

/// What a runnable is told, and may say.
#[derive(Clone)]
pub struct RunContext {
    stop: CancellationToken,
    forsaken: CancellationToken,
    progress: Arc<watch::Sender<Progress>>,
}

/// How far a runnable has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Starting,
    Ready,
    Returned,
}

impl RunContext {
    /// Resolves when it is to stop. After the grace period it is dropped.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Resolves when nobody waits any longer. Those who were added as having [parts](Runnable::with_parts) see their own tasks off then, for which they have a moment.
    pub(crate) async fn forsaken(&self) {
        self.forsaken.cancelled().await;
    }

    /// Up and serving: the next stage may start. Returning says the same.
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
        f.debug_struct("RunContext").field("progress", &*self.progress.borrow()).finish_non_exhaustive()
    }
}

type Running = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// What waits for its stage.
pub(super) struct Runnable {
    name: Arc<str>,
    run: Box<dyn FnOnce(RunContext) -> Running + Send>,
    parts: Option<Parts>,
}

/// What of somebody is still there, in words.
pub(super) type Parts = Box<dyn Fn() -> Vec<String> + Send + Sync>;

impl Runnable {
    pub(super) fn new<F, Fut>(name: &str, run: F) -> Self
    where
        F: FnOnce(RunContext) -> Fut + Send + 'static,
        Fut: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        Self { name: name.into(), run: Box::new(move |cx| Box::pin(run(cx))), parts: None }
    }

    /// One that has tasks of its own, and returns soon after it is [forsaken](RunContext::forsaken), when they are over.
    pub(super) fn with_parts(mut self, parts: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Self {
        self.parts = Some(Box::new(parts));
        self
    }
}

/// Somebody who has failed, which ends the manager.
pub(super) struct Failed {
    pub(super) name: Arc<str>,
    pub(super) error: anyhow::Error,
}

impl From<Failed> for ManagerError {
    fn from(Failed { name, error }: Failed) -> Self {
        Self::Failed { name: name.to_string(), error }
    }
}

/// One stage.
pub(super) struct Group {
    stop: CancellationToken,
    forsaken: CancellationToken,
    state: Mutex<State>,
    failures: mpsc::UnboundedSender<Failed>,
}

enum State {
    Waiting(Vec<Runnable>),
    Running(Box<Tasks>),
    Over,
}

struct Tasks {
    runtime: Handle,
    fence: Option<Fence>,
    running: JoinSet<()>,
    named: HashMap<Id, Named>,
    /// Of those that have not returned, as far as is known.
    progress: Vec<watch::Receiver<Progress>>,
    /// Nothing more is taken.
    closed: bool,
}

/// A task.
struct Named {
    name: Arc<str>,
    parts: Option<Parts>,
    task: AbortHandle,
}

impl Group {
    pub(super) fn new(failures: mpsc::UnboundedSender<Failed>) -> Self {
        let (stop, forsaken) = Default::default();
        Self { stop, forsaken, state: Mutex::new(State::Waiting(Vec::new())), failures }
    }

    /// Where it is told who has failed.
    pub(super) fn failures(&self) -> mpsc::UnboundedSender<Failed> {
        self.failures.clone()
    }

    /// At once if its stage has come; with it otherwise.
    pub(super) fn add(&self, runnable: Runnable) -> Result<(), ManagerError> {
        match &mut *self.state.lock() {
            State::Waiting(waiting) => waiting.push(runnable),
            State::Running(tasks) if !tasks.closed => self.spawn(tasks, runnable),
            State::Running(_) | State::Over => return Err(ManagerError::Stopping(runnable.name.to_string())),
        }
        Ok(())
    }

    /// Its stage has come. Under a fence, if it is about leading.
    pub(super) fn start(&self, fence: Option<Fence>) {
        let mut state = self.state.lock();
        let State::Waiting(waiting) = &mut *state else { return };
        let waiting = std::mem::take(waiting);
        let (running, named, progress) = (JoinSet::new(), HashMap::new(), Vec::new());
        let mut started =
            Box::new(Tasks { runtime: Handle::current(), fence, running, named, progress, closed: false });
        for runnable in waiting {
            self.spawn(&mut started, runnable);
        }
        *state = State::Running(started);
    }

    fn spawn(&self, tasks: &mut Tasks, Runnable { name, run, parts }: Runnable) {
        while let Some(ended) = tasks.running.try_join_next_with_id() {
            tasks.forget(ended);
        }
        tasks.progress.retain(|one| *one.borrow() < Progress::Returned && one.has_changed().is_ok());
        let (tell, progress) = watch::channel(Progress::Starting);
        tasks.progress.push(progress);
        let (stop, forsaken) = (self.stop.clone(), self.forsaken.clone());
        let cx = RunContext { stop: stop.clone(), forsaken, progress: Arc::new(tell) };
        let (failures, named) = (self.failures.clone(), name.clone());
        let run = async move {
            let progress = cx.progress.clone();
            let ended = caught(pin!(async { run(cx).await })).await;
            let ended = ended.unwrap_or_else(|panic| Err(anyhow::anyhow!("panicked: {panic}")));
            if let Err(error) = ended
                && !(stop.is_cancelled() && is_of_a_stop(&error))
            {
                tracing::error!(name = &*named, error = format!("{error:#}"), "a runnable has failed");
                // Nobody listens when all is over.
                drop(failures.send(Failed { name: named, error }));
            }
            progress.send_replace(Progress::Returned);
        };
        let task = tasks.running.spawn_on(Fence::scope_if(tasks.fence.clone(), run), &tasks.runtime);
        tasks.named.insert(task.id(), Named { name, parts, task });
    }

    /// Until all are ready, or have returned: those that were started with the stage, and what was added meanwhile.
    pub(super) async fn ready(&self) {
        self.all(Progress::Ready).await;
    }

    /// Until all have returned.
    pub(super) async fn returned(&self) {
        self.all(Progress::Returned).await;
    }

    async fn all(&self, wanted: Progress) {
        loop {
            let behind = match &*self.state.lock() {
                State::Running(tasks) => {
                    tasks.progress.iter().find(|one| *one.borrow() < wanted && one.has_changed().is_ok()).cloned()
                }
                State::Waiting(_) | State::Over => None,
            };
            let Some(mut behind) = behind else { return };
            // Who was dropped is not waited for.
            drop(behind.wait_for(|progress| *progress >= wanted).await);
        }
    }

    /// The manager is stopping: nothing more is taken, and what waits for its stage is dropped.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        let waited = match &mut *state {
            State::Running(tasks) => {
                tasks.closed = true;
                None
            }
            waits_or_over => Some(std::mem::replace(waits_or_over, State::Over)),
        };
        drop(state);
        drop(waited);
    }

    /// Tell them to stop, and wait for them; those that are left when `patience` resolves are dropped. Says who they are, and what of them was at work.
    pub(super) async fn stop(&self, patience: impl Future<Output = ()>) -> Vec<String> {
        let state = std::mem::replace(&mut *self.state.lock(), State::Over);
        self.stop.cancel();
        let State::Running(mut tasks) = state else { return Vec::new() };
        select! {
            biased;
            () = tasks.joined() => return Vec::new(),
            () = patience => {}
        }
        let mut left: Vec<_> = tasks.named.values().map(ToString::to_string).collect();
        left.sort();
        // What is dropped ends at its next await. Who has tasks of its own sees them off first.
        self.forsaken.cancel();
        tasks.named.values().filter(|named| named.parts.is_none()).for_each(|named| named.task.abort());
        if timeout(DROPPING, tasks.joined()).await.is_err() {
            tasks.running.abort_all();
            // Who blocks a thread instead is not waited for.
            if timeout(DROPPING, tasks.joined()).await.is_err() {
                let names: Vec<_> = tasks.named.values().map(|named| named.name.clone()).collect();
                tracing::error!(?names, "blocked threads: these are left behind, and may go on");
            }
        }
        left
    }
}

/// Whoever was told to stop may say that what it waited for was stopped, too: that is no failure.
fn is_of_a_stop(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cancelled = cause.downcast_ref().is_some_and(JoinError::is_cancelled);
        let watch = matches!(cause.downcast_ref(), Some(WatchError::ControllerStopped(_) | WatchError::Stopped { .. }));
        let late = matches!(cause.downcast_ref(), Some(ManagerError::Stopping(_)));
        let ended = matches!(cause.downcast_ref(), Some(CacheError::Ended));
        let fenced = cause.is::<Fenced>() || cause.downcast_ref().is_some_and(client::Error::is_fenced);
        cancelled || watch || late || ended || fenced
    })
}

impl Group {
    /// Whatever waits or runs is dropped.
    pub(super) fn end(&self) {
        self.stop.cancel();
        let state = std::mem::replace(&mut *self.state.lock(), State::Over);
        drop(state);
    }
}

/// How long tasks that are dropped may take for it.
const DROPPING: Duration = Duration::from_secs(1);

/// How much of one that is left is told.
const TOLD: usize = 10;

impl Tasks {
    fn forget(&mut self, ended: Result<(Id, ()), JoinError>) {
        self.named.remove(&ended.map_or_else(|error| error.id(), |(id, ())| id));
    }

    async fn joined(&mut self) {
        while let Some(ended) = self.running.join_next_with_id().await {
            self.forget(ended);
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.parts.as_ref().map(|parts| parts()).unwrap_or_default();
        f.write_str(&self.name)?;
        if parts.is_empty() {
            return Ok(());
        }
        let more = parts.len().saturating_sub(TOLD);
        parts.truncate(TOLD);
        write!(f, " ({}", parts.join(", "))?;
        if more > 0 {
            write!(f, " and {more} more")?;
        }
        f.write_str(")")
    }
}
