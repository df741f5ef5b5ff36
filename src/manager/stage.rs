//! What runs beside controllers, in stages.
//!
//! What holds, for each stage: it waits, runs, or is over, in this order; nothing is started in one that is over. A task of it is named for as long as it lives, and
//! joined before the stage is over, unless it blocks its thread.

use super::ManagerError;
use crate::{caught::caught, fence::Fence};
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
    task::{Id, JoinSet},
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
    /// Has to return before any controller reconciles: warming a registry, migrating data.
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
}

impl Runnable {
    pub(super) fn new<F, Fut>(name: &str, run: F) -> Self
    where
        F: FnOnce(RunContext) -> Fut + Send + 'static,
        Fut: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        Self { name: name.into(), run: Box::new(move |cx| Box::pin(run(cx))) }
    }
}

/// Somebody who has failed, which ends the manager.
pub(super) struct Failed {
    pub(super) name: Arc<str>,
    pub(super) error: anyhow::Error,
}

/// One stage.
pub(super) struct Group {
    stop: CancellationToken,
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
    names: HashMap<Id, Arc<str>>,
    /// Of those that have not returned, as far as is known.
    progress: Vec<watch::Receiver<Progress>>,
}

impl Group {
    pub(super) fn new(failures: mpsc::UnboundedSender<Failed>) -> Self {
        Self { stop: CancellationToken::new(), state: Mutex::new(State::Waiting(Vec::new())), failures }
    }

    /// At once if its stage has come; with it otherwise.
    pub(super) fn add(&self, runnable: Runnable) -> Result<(), ManagerError> {
        match &mut *self.state.lock() {
            State::Waiting(waiting) => waiting.push(runnable),
            State::Running(tasks) => self.spawn(tasks, runnable),
            State::Over => return Err(ManagerError::Stopping(runnable.name.to_string())),
        }
        Ok(())
    }

    /// Its stage has come. Under a fence, if it is about leading.
    pub(super) fn start(&self, fence: Option<Fence>) {
        let mut state = self.state.lock();
        let State::Waiting(waiting) = &mut *state else { return };
        let waiting = std::mem::take(waiting);
        let (running, names, progress) = (JoinSet::new(), HashMap::new(), Vec::new());
        let mut started = Box::new(Tasks { runtime: Handle::current(), fence, running, names, progress });
        for runnable in waiting {
            self.spawn(&mut started, runnable);
        }
        *state = State::Running(started);
    }

    fn spawn(&self, tasks: &mut Tasks, Runnable { name, run }: Runnable) {
        while let Some(ended) = tasks.running.try_join_next_with_id() {
            tasks.forget(ended.map_or_else(|error| error.id(), |(id, ())| id));
        }
        tasks.progress.retain(|one| *one.borrow() < Progress::Returned && one.has_changed().is_ok());
        let (tell, progress) = watch::channel(Progress::Starting);
        tasks.progress.push(progress);
        let cx = RunContext { stop: self.stop.clone(), progress: Arc::new(tell) };
        let (failures, named) = (self.failures.clone(), name.clone());
        let run = async move {
            let progress = cx.progress.clone();
            let ended = caught(pin!(async { run(cx).await })).await;
            if let Err(error) = ended.unwrap_or_else(|panic| Err(anyhow::anyhow!("panicked: {panic}"))) {
                tracing::error!(name = &*named, error = format!("{error:#}"), "a runnable has failed");
                // Nobody listens when all is over.
                drop(failures.send(Failed { name: named, error }));
            }
            progress.send_replace(Progress::Returned);
        };
        let task = tasks.running.spawn_on(Fence::scope_if(tasks.fence.clone(), run), &tasks.runtime);
        tasks.names.insert(task.id(), name);
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

    /// Tell them to stop, and wait for them; those that are left when `patience` resolves are dropped. Gives their names.
    pub(super) async fn stop(&self, patience: impl Future<Output = ()>) -> Vec<String> {
        let state = std::mem::replace(&mut *self.state.lock(), State::Over);
        self.stop.cancel();
        let State::Running(mut tasks) = state else { return Vec::new() };
        let joined = async {
            while let Some(ended) = tasks.running.join_next_with_id().await {
                tasks.names.remove(&ended.map_or_else(|error| error.id(), |(id, ())| id));
            }
        };
        select! {
            biased;
            () = joined => {}
            () = patience => {}
        }
        let mut left: Vec<_> = tasks.names.values().map(ToString::to_string).collect();
        left.sort();
        // What is dropped ends at its next await; who blocks a thread instead is not waited for.
        tasks.running.abort_all();
        let dropped = async { while tasks.running.join_next().await.is_some() {} };
        drop(timeout(DROPPING, dropped).await);
        left
    }
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

impl Tasks {
    fn forget(&mut self, id: Id) {
        self.names.remove(&id);
    }
}
