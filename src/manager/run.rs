//! From the first stage to the last, and back.
//!
//! What holds: a stage is started when those before it are ready, and stopped when those after it are over. Whoever leads goes on renewing until nothing is left of what
//! only a leader does; then the lease is released. Told to stop at any moment, it stops.

use super::{
    Manager, ManagerError, ManagerHandle,
    election::{Fence, Leadership},
    stage::{Failed, Stage},
};
use std::{future::pending, pin::pin, sync::Arc, time::Duration};
use tokio::{
    select,
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// Why it ends.
enum Cause {
    Told,
    Failed(ManagerError),
    /// With who may still work until when.
    Lost(Fence),
}

impl Manager {
    /// Start everything, stage by stage; run until `stop` resolves or somebody fails; stop everything in the opposite order within the grace period. The error says who
    /// failed, and who did not stop. When this returns nothing of it is left.
    ///
    /// A manager that has lost its lease ends with an error: end the process then.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
        let Self { handle, mut failed, failures, grace } = self;
        let candidacy = Candidacy::default();
        let mut lead = pin!(handle.start_and_lead(&candidacy, failures));
        let cause = select! {
            biased;
            () = stop => Cause::Told,
            Some(Failed { name, error }) = failed.recv() => {
                Cause::Failed(ManagerError::Failed { name: name.to_string(), error })
            }
            cause = &mut lead => cause,
        };
        tracing::info!("stopping the manager");
        let deadline = grace.map(|grace| Instant::now() + grace);
        let left = handle.stop_all(&candidacy, deadline, &cause).await;
        let first = match cause {
            Cause::Told => None,
            Cause::Failed(error) => Some(error),
            Cause::Lost(fence) => Some(ManagerError::Lost(fence.why_lost())),
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
    async fn start_and_lead(&self, candidacy: &Candidacy, failures: mpsc::UnboundedSender<Failed>) -> Cause {
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
                    Ok(()) => Cause::Lost(fence),
                    Err(_) => pending().await,
                }
            }
            // Its task is over, which it is only when told.
            Err(_) => {
                drop(failures);
                pending().await
            }
        }
    }

    /// Gives who did not stop in time.
    async fn stop_all(&self, candidacy: &Candidacy, deadline: Option<Instant>, cause: &Cause) -> Vec<String> {
        // What only a leader does is over before another one can lead.
        let leading = match cause {
            Cause::Lost(fence) => Some(deadline.map_or(fence.deadline(), |deadline| deadline.min(fence.deadline()))),
            Cause::Told | Cause::Failed(_) => deadline,
        };
        let mut left = self.group(Stage::Leader).stop(leading).await;
        self.0.leads.send_replace(false);
        candidacy.withdraw().await;
        for stage in [Stage::Controllers, Stage::Gate, Stage::Other, Stage::Cache, Stage::Server] {
            left.extend(self.group(stage).stop(deadline).await);
        }
        left
    }
}
