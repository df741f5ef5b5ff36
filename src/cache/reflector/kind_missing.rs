//! Confirmation of a missing kind after a list that failed with 404.
//!
//! One of several reflectors cannot decide that: a proxy may not know one namespace, and serve the
//! others. So it asks the informer's task, which runs discovery.
//!
//! Invariant: if discovery finds the kind, the reflector receives the failure and retries with
//! backoff. If it does not, there is no answer, because all reflectors are stopped.

use super::Failure;
use std::future::pending;
use tokio::sync::{mpsc, oneshot};

/// Channel on which reflectors ask whether the kind is missing.
#[derive(Clone, Debug)]
pub(crate) struct KindChecks(mpsc::UnboundedSender<KindCheck>);

/// Question of a reflector that waits for an answer.
#[derive(Debug)]
pub(crate) struct KindCheck {
    pub(crate) failure: Failure,
    reply: oneshot::Sender<Failure>,
}

impl KindChecks {
    /// Creates the channel, and returns its receiver for the informer's task.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<KindCheck>) {
        let (kind_checks, receiver) = mpsc::unbounded_channel();
        (Self(kind_checks), receiver)
    }

    /// Asks whether the kind is missing. Returns the failure if it is not.
    pub(super) async fn confirm(&self, failure: Failure) -> Failure {
        let (answer, answered) = oneshot::channel();
        // The receiver is dropped when all reflectors are about to be stopped.
        drop(self.0.send(KindCheck {
            failure,
            reply: answer,
        }));
        match answered.await {
            Ok(failure) => failure,
            Err(_) => pending().await,
        }
    }
}

impl KindCheck {
    /// Answers that the kind is served. `failure` converts the rejection.
    pub(crate) fn reply_served(self, failure: impl FnOnce(Failure) -> Failure) {
        // The reflector may have been stopped.
        drop(self.reply.send(failure(self.failure)));
    }
}
