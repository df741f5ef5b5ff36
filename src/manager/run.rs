//! From the first stage to the last, and back.
//!
//! What holds: a stage is started when those before it are ready, and stopped when those after it are over. Whoever leads goes on renewing until nothing is left of what
//! only a leader does; then the lease is released, or left to run out if something had to be dropped. Told to stop at any moment, it stops.

use super::{
    Manager, ManagerError, ManagerHandle,
    election::{Elector, Fence, Lost},
    stage::{Failed, Group, Stage},
};
use crate::caught::caught;
use parking_lot::Mutex;
use std::{
    convert::Infallible,
    future::pending,
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

/// What stops promptly may do so, however late it is.
const PROMPT: Duration = Duration::from_secs(1);

impl Manager {
    /// Start everything, stage by stage; run until `stop` resolves or somebody fails; stop everything in the opposite order within the grace period. The error says who
    /// failed, also of those who did so at the same time or while they stopped, and who did not stop. When this returns nothing of it is left.
    ///
    /// Whoever was told to stop and fails because what it waited for was stopped, too, has not failed: a task that was cancelled, a watch, a controller or a cache
    /// that has ended, something that was not added any more, a write that was refused because this process does not lead.
    ///
    /// A manager that has lost its lease ends with an error: end the process then.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
        // Dropped, nothing of it is left.
        let Self { handle: owner, mut failed, grace } = self;
        let handle = &owner.0;
        let candidacy = Candidacy::default();
        let mut lead = pin!(handle.start_and_lead(&candidacy));
        let mut errors: Vec<ManagerError> = Vec::new();
        let (mut stop, mut told) = (pin!(stop), false);
        select! {
            biased;
            () = &mut stop => told = true,
            Some(failed) = failed.recv() => {
                errors.push(failed.into());
                // Which may well be why.
                errors.extend(candidacy.lost.get().cloned().map(ManagerError::Lost));
            }
            lost = &mut lead => errors.push(lost.into()),
        }
        tracing::info!("stopping the manager");
        // Who was not told to stop may be told now: a second signal ends the process only after a first one.
        let heard = async {
            if !told {
                stop.await;
            }
            pending::<Infallible>().await
        };
        let Left { of_leader, mut of_rest } = select! {
            biased;
            left = handle.stop_all(&candidacy, grace) => left,
            never = heard => match never {},
        };
        while let Ok(failed) = failed.try_recv() {
            errors.push(failed.into());
        }
        match candidacy.lost.get() {
            Some(lost) => {
                if !errors.iter().any(|error| matches!(error, ManagerError::Lost(_))) {
                    errors.push(lost.clone().into());
                }
                if !of_leader.is_empty() {
                    errors.push(ManagerError::Dropped { left: of_leader });
                }
            }
            None => of_rest.splice(..0, of_leader).for_each(drop),
        }
        if let Some(limit) = grace.filter(|grace| !grace.is_zero() && !of_rest.is_empty()) {
            errors.push(ManagerError::Grace { limit, left: of_rest });
        }
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0).into()),
            _ => Err(ManagerError::Several(errors).into()),
        }
    }
}

impl ManagerHandle {
    /// Never ready, unless it cannot lead any more.
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
        // Its task is over only when told, or after it has said why.
        let Ok(Elected { fence, lost }) = elected.await else { return pending().await };
        self.group(Stage::Leader).start(Some(fence));
        self.0.leads.send_replace(true);
        match lost.await {
            Ok(lost) => lost,
            Err(_) => pending().await,
        }
    }

    /// Gives who did not stop in time.
    async fn stop_all(&self, candidacy: &Candidacy, grace: Option<Duration>) -> Left {
        self.0.started.send_replace(false);
        self.0.groups.iter().for_each(Group::close);
        // Longer than a clock can count is for ever.
        let deadline = grace.and_then(|grace| Instant::now().checked_add(grace));
        // What only a leader does is over before another one can lead, also if the lease is lost only now.
        let patience = async {
            select! {
                () = until(deadline) => {}
                () = candidacy.lost() => {}
            }
        };
        let of_leader = self.group(Stage::Leader).stop(patience).await;
        self.0.leads.send_replace(false);
        // Who was kept waiting by others is not to blame.
        let moment = if grace.is_some_and(|grace| grace.is_zero()) { Duration::ZERO } else { PROMPT };
        let prompt = || deadline.map(|deadline| deadline.max(Instant::now() + moment));
        // Of those that were dropped something may still be at work: the lease is left to run out.
        candidacy.withdraw(of_leader.is_empty(), until(prompt())).await;
        let mut of_rest = Vec::new();
        for stage in [Stage::Controllers, Stage::Gate, Stage::Other, Stage::Cache, Stage::Server] {
            of_rest.extend(self.group(stage).stop(until(prompt())).await);
        }
        Left { of_leader, of_rest }
    }
}

/// Who was dropped.
struct Left {
    /// Of what only a leader does.
    of_leader: Vec<String>,
    of_rest: Vec<String>,
}

/// For ever if there is no deadline.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

/// Standing for election, beside everything else: who leads has to go on renewing while it stops.
#[derive(Default)]
struct Candidacy {
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
    /// Since it leads.
    fence: Arc<OnceLock<Fence>>,
    /// Since it does not any more.
    lost: Arc<OnceLock<Lost>>,
}

/// What the others need to know of leading.
struct Elected {
    fence: Fence,
    /// Resolves if it is over; an error if that was wanted.
    lost: oneshot::Receiver<Lost>,
}

impl Candidacy {
    fn stand(&self, elector: Elector, failures: mpsc::UnboundedSender<Failed>) -> oneshot::Receiver<Elected> {
        let (tell, elected) = oneshot::channel();
        let (stop, leads, is_lost) = (self.stop.clone(), self.fence.clone(), self.lost.clone());
        let stand = async move {
            let Some(mut leadership) = elector.acquire(stop.cancelled()).await else { return };
            let (tell_lost, lost) = oneshot::channel();
            let fence = leads.get_or_init(|| leadership.fence()).clone();
            if tell.send(Elected { fence, lost }).is_ok()
                && let Err(lost) = leadership.hold(stop.cancelled()).await
            {
                is_lost.get_or_init(|| lost.clone());
                // Nobody listens if it is stopping anyway.
                drop(tell_lost.send(lost));
                // With the leadership goes the time that is left.
                stop.cancelled().await;
                return;
            }
            if let Err(error) = leadership.release().await {
                tracing::warn!(error = %error, "the lease was not released");
            }
        };
        // With a panic goes the leadership, and the fence is closed.
        let stand = async move {
            if let Err(panic) = caught(pin!(stand)).await {
                tracing::error!(panic, "leader election has panicked");
                let error = anyhow::anyhow!("panicked, and does not lead any more: {panic}");
                // Nobody listens when all is over.
                drop(failures.send(Failed { name: "leader election".into(), error }));
            }
        };
        *self.task.lock() = Some(tokio::spawn(stand));
        elected
    }

    /// Resolves when somebody else may lead; never if it did not lead.
    async fn lost(&self) {
        match self.fence.get() {
            Some(fence) => fence.lost().await,
            None => pending().await,
        }
    }

    /// Over; the lease is released if it was held and that is wanted, for which `patience` is had.
    async fn withdraw(&self, release: bool, patience: impl Future<Output = ()>) {
        let task = self.task.lock().take();
        let Some(mut task) = task else { return };
        if release {
            self.stop.cancel();
            select! {
                biased;
                _ = &mut task => return,
                () = patience => {}
            }
        }
        task.abort();
        drop(task.await);
    }
}

/// If whoever ran the manager was dropped.
impl Drop for Candidacy {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().take() {
            task.abort();
        }
    }
}
