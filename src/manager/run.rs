//! Starts the stages in order, and stops them in reverse order.
//!
//! Invariant: a stage starts when the stages before it are ready, and is stopped when those after
//! it have ended. A leader renews the Lease until all of the leader's work has ended. Then it
//! releases the Lease, or lets it expire if some of the work had to be dropped. A stop is effective
//! at any time, also during the start.

use super::{
    Manager, ManagerError, ManagerHandle,
    election::{Elector, Fence, Lost},
    stage::{Failed, Group, Stage},
};
use crate::panic_message::panic_message;
use futures::FutureExt;
use parking_lot::Mutex;
use std::{
    convert::Infallible,
    future::pending,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{
    select,
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// Time that each stage after the leader's has to stop, even if the grace period is over.
const MIN_STOP_TIMEOUT: Duration = Duration::from_secs(1);

impl Manager {
    /// Runs all stages until `stop` resolves or a task fails, then stops them.
    ///
    /// Stages stop in reverse order, within the
    /// [grace period](super::ManagerBuilder::grace_period) of the builder. When this
    /// returns, no task of the manager is left.
    ///
    /// # Errors
    /// Names every task that failed, also during the shutdown, and every task that did not stop in
    /// time. A lost Lease is an error: end the process.
    ///
    /// During the shutdown, errors that result from it are ignored: a cancelled task, a stopped
    /// watch or controller, a closed cache, a rejected addition to the manager, and a write that is
    /// rejected because this process no longer leads.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
        // Dropping `owner` drops all tasks.
        let Self {
            handle: owner,
            mut failed,
            grace,
        } = self;
        let handle = &owner.0;
        let candidacy = Candidacy::default();
        let mut lead = pin!(handle.start_and_lead(&candidacy));
        let mut errors: Vec<ManagerError> = Vec::new();
        let (mut stop, mut stop_requested) = (pin!(stop), false);
        select! {
            biased;
            () = &mut stop => stop_requested = true,
            Some(failed) = failed.recv() => {
                errors.push(failed.into());
                // A lost Lease may be the cause of the failure.
                errors.extend(candidacy.lost.get().cloned().map(ManagerError::Lost));
            }
            lost = &mut lead => errors.push(lost.into()),
        }
        tracing::info!("stopping manager");
        // Keep polling `stop` during the shutdown: a first signal must be received before a second
        // one can end the process.
        let second_signal = async {
            if !stop_requested {
                stop.await;
            }
            pending::<Infallible>().await
        };
        let Left {
            of_leader,
            mut of_rest,
        } = select! {
            biased;
            left = handle.stop_all(&candidacy, grace) => left,
            never = second_signal => match never {},
        };
        while let Ok(failed) = failed.try_recv() {
            errors.push(failed.into());
        }
        match candidacy.lost.get() {
            Some(lost) => {
                if !errors
                    .iter()
                    .any(|error| matches!(error, ManagerError::Lost(_)))
                {
                    errors.push(lost.clone().into());
                }
                if !of_leader.is_empty() {
                    errors.push(ManagerError::Dropped { left: of_leader });
                }
            }
            None => of_rest.splice(..0, of_leader).for_each(drop),
        }
        if let Some(limit) = grace.filter(|grace| !grace.is_zero() && !of_rest.is_empty()) {
            errors.push(ManagerError::Grace {
                limit,
                left: of_rest,
            });
        }
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0).into()),
            _ => Err(ManagerError::Several(errors).into()),
        }
    }
}

impl ManagerHandle {
    /// Starts all stages and leads. Returns only if the leadership is lost.
    async fn start_and_lead(&self, candidacy: &Candidacy) -> Lost {
        for stage in [Stage::Server, Stage::Cache] {
            self.group(stage).start(None);
            self.group(stage).ready().await;
        }
        self.group(Stage::Other).start(None);
        self.group(Stage::Gate).start(None);
        self.group(Stage::Gate).returned().await;
        self.group(Stage::Controllers).start(None);
        self.0.started.send_replace(true);
        let Some(elector) = &self.0.election else {
            self.group(Stage::Leader).start(None);
            self.0.leads.send_replace(true);
            return pending().await;
        };
        let elected = candidacy.stand(elector.clone(), self.group(Stage::Leader).failures());
        // The sender is dropped only after a stop, or after the failure was reported.
        let Ok(Elected { fence, lost }) = elected.await else {
            return pending().await;
        };
        self.group(Stage::Leader).start(Some(fence));
        self.0.leads.send_replace(true);
        match lost.await {
            Ok(lost) => lost,
            Err(_) => pending().await,
        }
    }

    /// Stops all stages, and returns the tasks that did not stop in time.
    async fn stop_all(&self, candidacy: &Candidacy, grace: Option<Duration>) -> Left {
        self.0.started.send_replace(false);
        self.0.groups.iter().for_each(Group::close);
        // A deadline that overflows the clock is treated as none.
        let deadline = grace.and_then(|grace| Instant::now().checked_add(grace));
        // The leader's work must end before another process can lead, also if the Lease is lost
        // now.
        let timeout = async {
            select! {
                () = until(deadline) => {}
                () = candidacy.lost() => {}
            }
        };
        let of_leader = self.group(Stage::Leader).stop(timeout).await;
        self.0.leads.send_replace(false);
        // A stage is not blamed for the time that the stages before it took.
        let min_timeout = if grace.is_some_and(|grace| grace.is_zero()) {
            Duration::ZERO
        } else {
            MIN_STOP_TIMEOUT
        };
        let stage_deadline = || deadline.map(|deadline| deadline.max(Instant::now() + min_timeout));
        // Dropped tasks may still be running: let the Lease expire instead.
        candidacy
            .withdraw(of_leader.is_empty(), until(stage_deadline()))
            .await;
        let mut of_rest = Vec::new();
        for stage in [
            Stage::Controllers,
            Stage::Gate,
            Stage::Other,
            Stage::Cache,
            Stage::Server,
        ] {
            of_rest.extend(self.group(stage).stop(until(stage_deadline())).await);
        }
        Left { of_leader, of_rest }
    }
}

/// Tasks that did not stop in time.
struct Left {
    /// Tasks of [`Stage::Leader`].
    of_leader: Vec<String>,
    of_rest: Vec<String>,
}

/// Waits until the deadline; forever if there is none.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

/// Task of the leader election, which renews the Lease during the shutdown too.
#[derive(Default)]
struct Candidacy {
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
    /// Set once this process leads.
    fence: Arc<OnceLock<Fence>>,
    /// Set once this process has lost the Lease.
    lost: Arc<OnceLock<Lost>>,
}

/// Notification that this process leads.
struct Elected {
    fence: Fence,
    /// Receives the reason if the Lease is lost.
    ///
    /// Fails if the leadership ends on purpose.
    lost: oneshot::Receiver<Lost>,
}

impl Candidacy {
    fn stand(
        &self,
        elector: Elector,
        failures: mpsc::UnboundedSender<Failed>,
    ) -> oneshot::Receiver<Elected> {
        let (sender, elected) = oneshot::channel();
        let (stop, leads, is_lost) = (self.stop.clone(), self.fence.clone(), self.lost.clone());
        let stand = async move {
            let Some(mut leadership) = elector.acquire(stop.cancelled()).await else {
                return;
            };
            let (lost_sender, lost) = oneshot::channel();
            let fence = leads.get_or_init(|| leadership.fence()).clone();
            if sender.send(Elected { fence, lost }).is_ok()
                && let Err(lost) = leadership.hold(stop.cancelled()).await
            {
                is_lost.get_or_init(|| lost.clone());
                // The receiver is dropped if the manager is already stopping.
                drop(lost_sender.send(lost));
                // Keep the leadership until the manager stops.
                stop.cancelled().await;
                return;
            }
            if let Err(error) = leadership.release().await {
                tracing::warn!(%error, "releasing lease failed");
            }
        };
        // A panic drops the leadership, which closes the fence.
        let stand = async move {
            if let Err(panic) = AssertUnwindSafe(stand).catch_unwind().await {
                let panic = panic_message(&*panic);
                tracing::error!(error = panic, "leader election panicked");
                let error = anyhow::anyhow!("panicked and lost the lease: {panic}");
                // The receiver is dropped if the manager has ended.
                drop(failures.send(Failed {
                    name: "leader election".into(),
                    error,
                }));
            }
        };
        *self.task.lock() = Some(tokio::spawn(stand));
        elected
    }

    /// Waits until another process may lead.
    ///
    /// Never resolves if this process did not lead.
    async fn lost(&self) {
        match self.fence.get() {
            Some(fence) => fence.lost().await,
            None => pending().await,
        }
    }

    /// Ends the candidacy.
    ///
    /// If `release` is set, releases a held Lease until `timeout` resolves.
    async fn withdraw(&self, release: bool, timeout: impl Future<Output = ()>) {
        let task = self.task.lock().take();
        let Some(mut task) = task else { return };
        if release {
            self.stop.cancel();
            select! {
                biased;
                _ = &mut task => return,
                () = timeout => {}
            }
        }
        task.abort();
        drop(task.await);
    }
}

/// Ends the task if the future that ran the manager is dropped.
impl Drop for Candidacy {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().take() {
            task.abort();
        }
    }
}
