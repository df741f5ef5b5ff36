//! A list was refused because there is no such kind. Whether that is so, one loop of several cannot tell: what is between it and the server may not know one
//! namespace, and serve the others.
//!
//! What holds: who asks is told what the failure is once the kind is known to be there, and goes on at its own pace. That there is no such kind nobody is told: all are
//! stopped then.

use super::Failure;
use std::future::pending;
use tokio::sync::{mpsc, oneshot};

/// Whom the loops of an informer ask.
#[derive(Clone, Debug)]
pub(crate) struct Doubts(mpsc::UnboundedSender<Doubt>);

/// One that waits for an answer.
#[derive(Debug)]
pub(crate) struct Doubt {
    pub(crate) refused: Failure,
    answer: oneshot::Sender<Failure>,
}

impl Doubts {
    /// And where they are answered.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Doubt>) {
        let (doubts, raised) = mpsc::unbounded_channel();
        (Self(doubts), raised)
    }

    /// The kind is there: what the failure is.
    pub(super) async fn settled(&self, refused: Failure) -> Failure {
        let (answer, answered) = oneshot::channel();
        // Nobody answers any more if all are about to be stopped.
        drop(self.0.send(Doubt { refused, answer }));
        match answered.await {
            Ok(failure) => failure,
            Err(_) => pending().await,
        }
    }
}

impl Doubt {
    /// The kind is there: what that makes of the refusal.
    pub(crate) fn settle(self, failure: impl FnOnce(Failure) -> Failure) {
        // Who has asked may be gone.
        drop(self.answer.send(failure(self.refused)));
    }
}
