//! From the first stage to the last, and back.
//!
//! What holds: a stage is started when those before it are ready, and stopped when those after it are over. Whoever leads goes on renewing until nothing is left of what
//! only a leader does; then the lease is released. Told to stop at any moment, it stops.

use super::{
    Manager, ManagerError, ManagerHandle,
    election::{Elector, Fence, Lost},
    stage::{Failed, Stage},
};
use std::{future::pending, pin::pin, time::Duration};
use tokio::{
    select,
    sync::oneshot,
    task::JoinHandle,
    time::Instant,
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// What stops promptly may do so, however late it is.
const PROMPT: Duration = Duration::from_secs(1);

/// Why it ends.
enum Cause {
    Told,
    Failed(ManagerError),
    /// With until when there can be no other leader.
    Lost(Lost, Fence),
}

impl Manager {
    /// Start everything, stage by stage; run until `stop` resolves or somebody fails; stop everything in the opposite order within the grace period. The error says who
    /// failed, and who did not stop. When this returns nothing of it is left.
    ///
    /// A manager that has lost its lease ends with an error: end the process then.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
        // Dropped, nothing of it is left.
        let Self { handle: owner, mut failed, grace } = self;
        let handle = &owner.0;
        let candidacy = Candidacy::default();
        let mut lead = pin!(handle.start_and_lead(&candidacy));
        let cause = select! {
            biased;
            () = stop => Cause::Told,
            Some(Failed { name, error }) = failed.recv() => {
                Cause::Failed(ManagerError::Failed { name: name.to_string(), error })
            }
            cause = &mut lead => cause,
        };
        tracing::info!("stopping the manager");
        let left = handle.stop_all(&candidacy, grace, &cause).await;
        let first = match cause {
            Cause::Told => None,
            Cause::Failed(error) => Some(error),
            Cause::Lost(lost, _) => Some(lost.into()),
        };
        let limit = grace.filter(|grace| !grace.is_zero());
        let then = limit.filter(|_| !left.is_empty()).map(|limit| ManagerError::Grace { limit, left });
        match (first, then) {
            (None, None) => Ok(()),
            (Some(error), None) | (None, Some(error)) => Err(error.into()),
            (Some(first), Some(then)) => {
                Err(ManagerError::Both { first: Box::new(first), then: Box::new(then) }.into())
            }
        }
    }
}

impl ManagerHandle {
    /// Never ready, unless it cannot lead any more.
    async fn start_and_lead(&self, candidacy: &Candidacy) -> Cause {
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
        let elected = candidacy.stand(elector.clone());
        match elected.await {
            Ok(Elected { fence, lost }) => {
                self.group(Stage::Leader).start(Some(fence.clone()));
                self.0.leads.send_replace(true);
                match lost.await {
                    Ok(lost) => Cause::Lost(lost, fence),
                    Err(_) => pending().await,
                }
            }
            // Its task is over, which it is only when told.
            Err(_) => pending().await,
        }
    }

    /// Gives who did not stop in time.
    async fn stop_all(&self, candidacy: &Candidacy, grace: Option<Duration>, cause: &Cause) -> Vec<String> {
        let deadline = grace.map(|grace| Instant::now() + grace);
        // What only a leader does is over before another one can lead.
        let leading = match cause {
            Cause::Lost(_, fence) => Some(deadline.map_or(fence.deadline(), |deadline| deadline.min(fence.deadline()))),
            Cause::Told | Cause::Failed(_) => deadline,
        };
        let mut left = self.group(Stage::Leader).stop(leading).await;
        self.0.leads.send_replace(false);
        candidacy.withdraw().await;
        for stage in [Stage::Controllers, Stage::Gate, Stage::Other, Stage::Cache, Stage::Server] {
            // Who was kept waiting by others is not to blame.
            let moment = if grace.is_some_and(|grace| grace.is_zero()) { Duration::ZERO } else { PROMPT };
            let deadline = deadline.map(|deadline| deadline.max(Instant::now() + moment));
            left.extend(self.group(stage).stop(deadline).await);
        }
        left
    }
}

/// Standing for election, beside everything else: who leads has to go on renewing while it stops.
#[derive(Default)]
struct Candidacy {
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// What the others need to know of leading.
struct Elected {
    fence: Fence,
    /// Resolves if it is over; an error if that was wanted.
    lost: oneshot::Receiver<Lost>,
}

impl Candidacy {
    fn stand(&self, elector: Elector) -> oneshot::Receiver<Elected> {
        let (tell, elected) = oneshot::channel();
        let stop = self.stop.clone();
        let stand = async move {
            let Some(mut leadership) = elector.acquire(stop.cancelled()).await else { return };
            let (tell_lost, lost) = oneshot::channel();
            if tell.send(Elected { fence: leadership.fence(), lost }).is_ok()
                && let Err(lost) = leadership.hold(stop.cancelled()).await
            {
                // Nobody listens if it is stopping anyway.
                drop(tell_lost.send(lost));
                return;
            }
            if let Err(error) = leadership.release().await {
                tracing::warn!(error = %error, "the lease was not released");
            }
        };
        *self.task.lock() = Some(tokio::spawn(stand));
        elected
    }

    /// Over, and the lease released, if it was held.
    async fn withdraw(&self) {
        self.stop.cancel();
        let task = self.task.lock().take();
        if let Some(task) = task {
            drop(task.await);
        }
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
