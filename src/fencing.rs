//! Fence that rejects writes of a process that no longer leads.
//!
//! Invariant: a closed fence stays closed. It closes when its deadline passes, even if no task runs
//! at that time, or when it is closed explicitly. The deadline precedes the time at which another
//! process may lead.

use parking_lot::Mutex;
use std::{
    fmt,
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

tokio::task_local! {
    static CURRENT: Fence;
}

/// Guard of one term of leadership. Clones refer to the same term.
///
/// Run the leader's work in its [`scope`](Self::scope). In a scope, a
/// [`Client`](crate::client::Client) rejects writes once the fence is closed, and a
/// [controller](crate::controller) starts no reconcile. This also holds for a process that was
/// suspended, because the time is checked when the write is sent.
///
/// A write that is in flight when the fence closes cannot be undone. It is abandoned, logged and
/// [counted](Self::late_writes). To prevent its effect, let the API server reject it: write with
/// the `resourceVersion` that was read under the same token, as `update` and `patch_from` do, or
/// compare the [token](Self::token) where the data is stored.
///
/// Events of a [`Recorder`](crate::recorder::Recorder) and requests of
/// [`Client::kube`](crate::client::Client::kube) are not fenced.
///
/// A scope belongs to one task. Tasks spawned in it are outside of the scope, unless they enter it
/// with [`Fence::current`].
///
/// The fence uses the monotonic clock. It advances while a process is suspended, but on some
/// systems not while the machine is.
#[derive(Clone)]
pub struct Fence(Arc<Inner>);

struct Inner {
    lease: Arc<str>,
    token: u64,
    deadline: Mutex<Instant>,
    lost: CancellationToken,
    late: AtomicU64,
    rejected_writes: AtomicU64,
}

/// Error of work that needs the leadership while this process may not lead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process no longer leads by Lease {lease} (token {token}); stop this work, the next \
     leader repeats it"
)]
#[non_exhaustive]
pub struct Fenced {
    /// `namespace/name` of the Lease.
    pub lease: Arc<str>,
    /// Fencing token of the term that is over.
    pub token: u64,
}

/// Reason why a write has no response.
pub(crate) enum WriteError {
    /// The write was not sent.
    Unsent(Fenced),
    /// The write may have been sent.
    InFlight(Fenced),
}

impl Fence {
    pub(crate) fn new(lease: Arc<str>, token: u64, deadline: Instant) -> Self {
        let (late, rejected_writes) = Default::default();
        Self(Arc::new(Inner {
            lease,
            token,
            deadline: Mutex::new(deadline),
            lost: CancellationToken::new(),
            late,
            rejected_writes,
        }))
    }

    /// Returns the fencing token, which grows with every change of the leader.
    ///
    /// A store that keeps the highest token can reject writes of an earlier leader. The token is
    /// the `resourceVersion` at which the Lease was taken. The API server increases it with every
    /// write, also if the Lease is deleted and created again.
    pub fn token(&self) -> u64 {
        self.0.token
    }

    /// Returns `namespace/name` of the Lease.
    pub fn lease(&self) -> &str {
        &self.0.lease
    }

    /// Returns the time at which the fence closes unless it is extended.
    pub fn deadline(&self) -> Instant {
        *self.0.deadline.lock()
    }

    /// Returns an error once the fence is closed.
    ///
    /// Call it right before an operation that must not be done twice and is not a write of the
    /// client.
    pub fn check(&self) -> Result<(), Fenced> {
        if self.0.lost.is_cancelled() || Instant::now() >= self.deadline() {
            return Err(Fenced {
                lease: self.0.lease.clone(),
                token: self.0.token,
            });
        }
        Ok(())
    }

    /// Waits until the leadership is lost or released.
    ///
    /// The deadline may have passed before, if the process was suspended.
    pub async fn lost(&self) {
        self.0.lost.cancelled().await;
    }

    /// Runs `work` in the scope of this fence.
    pub async fn scope<F: Future>(&self, work: F) -> F::Output {
        CURRENT.scope(self.clone(), work).await
    }

    /// Returns the fence of the current scope.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Returns the number of writes that were in flight when the fence closed.
    ///
    /// Includes writes whose response arrived after that.
    pub fn late_writes(&self) -> u64 {
        self.0.late.load(Relaxed)
    }

    /// Returns the number of writes that were rejected because the fence was closed.
    pub fn rejected_writes(&self) -> u64 {
        self.0.rejected_writes.load(Relaxed)
    }

    /// Runs `work` in the scope of the fence, if there is one.
    pub(crate) async fn scope_if<F: Future>(fence: Option<Self>, work: F) -> F::Output {
        match fence {
            Some(fence) => fence.scope(work).await,
            None => work.await,
        }
    }

    /// Extends the deadline. Fails if the fence is closed.
    pub(crate) fn extend(&self, until: Instant) -> Result<(), Fenced> {
        self.check()?;
        let mut deadline = self.0.deadline.lock();
        *deadline = until.max(*deadline);
        Ok(())
    }

    pub(crate) fn close(&self) {
        self.0.lost.cancel();
    }

    /// Sends a write and waits for its response.
    ///
    /// `write` is not polled once the fence is closed, because a poll may send it.
    pub(crate) async fn write<F: Future>(&self, write: F) -> Result<F::Output, WriteError> {
        self.check().map_err(|fenced| {
            self.0.rejected_writes.fetch_add(1, Relaxed);
            WriteError::Unsent(fenced)
        })?;
        let mut write = pin!(write);
        let mut timer = pin!(sleep_until(self.deadline()));
        let mut lost = pin!(self.lost());
        let answer = poll_fn(|cx| {
            loop {
                if let Err(fenced) = self.check() {
                    return Poll::Ready(Err(WriteError::InFlight(fenced)));
                }
                if let Poll::Ready(answer) = write.as_mut().poll(cx) {
                    return Poll::Ready(Ok(answer));
                }
                if lost.as_mut().poll(cx).is_pending() && timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                // The fence was extended meanwhile, or the next check fails.
                timer.as_mut().reset(self.deadline());
            }
        });
        let mut in_flight = InFlightWrite {
            fence: self,
            answered: false,
        };
        let answer = answer.await;
        in_flight.answered = true;
        if answer.is_err() || self.check().is_err() {
            self.0.late.fetch_add(1, Relaxed);
        }
        answer
    }
}

/// Guard of a write in flight, which also counts it if its task is dropped.
struct InFlightWrite<'a> {
    fence: &'a Fence,
    answered: bool,
}

impl Drop for InFlightWrite<'_> {
    fn drop(&mut self) {
        if !self.answered
            && let Err(fenced) = self.fence.check()
        {
            self.fence.0.late.fetch_add(1, Relaxed);
            tracing::warn!(
                lease = &*fenced.lease,
                token = fenced.token,
                "task dropped before response to write, write may have been applied"
            );
        }
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let closed = self.check().is_err();
        f.debug_struct("Fence")
            .field("lease", &self.0.lease)
            .field("token", &self.0.token)
            .field("closed", &closed)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::ready, time::Duration};
    use tokio::time::{advance, sleep};

    fn fence() -> Fence {
        Fence::new(
            "default/web".into(),
            7,
            Instant::now() + Duration::from_secs(10),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_closes_at_its_deadline_and_stays_closed() {
        let fence = fence();
        advance(Duration::from_secs(9)).await;
        assert!(fence.check().is_ok());
        fence
            .extend(Instant::now() + Duration::from_secs(10))
            .expect("the fence is open");
        advance(Duration::from_secs(9)).await;
        assert!(fence.check().is_ok(), "the fence was extended");
        advance(Duration::from_secs(1)).await;
        let fenced = fence.check().expect_err("its time is over");
        assert!(
            fenced
                .to_string()
                .contains("default/web (token 7); stop this work"),
            "{fenced}"
        );
        assert_eq!(
            fence.extend(Instant::now() + Duration::from_secs(10)),
            Err(fenced)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_deadline_does_not_replace_a_later_one() {
        let fence = fence();
        let deadline = fence.deadline();
        fence
            .extend(Instant::now() + Duration::from_secs(5))
            .expect("the fence is open");
        assert_eq!(fence.deadline(), deadline);
    }

    #[tokio::test(start_paused = true)]
    async fn a_scope_covers_its_task_and_not_spawned_tasks() {
        assert!(Fence::current().is_none());
        let fence = fence();
        fence
            .scope(async {
                assert_eq!(Fence::current().map(|fence| fence.token()), Some(7));
                assert!(
                    tokio::spawn(async { Fence::current().is_none() })
                        .await
                        .expect("no panic")
                );
            })
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_not_polled_once_the_fence_is_closed() {
        let fence = fence();
        fence.close();
        fence.lost().await;
        let polled = fence
            .write(async { unreachable!("it would be sent") })
            .await;
        assert!(matches!(polled, Err(WriteError::Unsent(_))));
        assert_eq!((fence.rejected_writes(), fence.late_writes()), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_in_flight_at_the_deadline_is_dropped_and_counted() {
        let fence = fence();
        let answer = fence.write(sleep(Duration::from_secs(11))).await;
        assert!(matches!(answer, Err(WriteError::InFlight(_))));
        assert_eq!((fence.rejected_writes(), fence.late_writes()), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_in_flight_when_the_fence_closes_is_dropped_at_once() {
        let (fence, began) = (fence(), Instant::now());
        let closing = async {
            sleep(Duration::from_secs(2)).await;
            fence.close();
        };
        let (answer, ()) = tokio::join!(fence.write(sleep(Duration::from_secs(5))), closing);
        assert!(matches!(answer, Err(WriteError::InFlight(_))));
        assert_eq!((began.elapsed().as_secs(), fence.late_writes()), (2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_goes_on_if_the_fence_is_extended_meanwhile() {
        let fence = fence();
        let extending = async {
            sleep(Duration::from_secs(5)).await;
            fence
                .extend(Instant::now() + Duration::from_secs(10))
                .expect("the fence is open");
        };
        let (answer, ()) = tokio::join!(fence.write(sleep(Duration::from_secs(11))), extending);
        assert!(answer.is_ok());
        assert_eq!(fence.late_writes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_was_not_sent_before_a_stop_is_not_sent_after_it() {
        let fence = fence();
        let mut writing = pin!(fence.write(async {
            sleep(Duration::from_secs(1)).await;
            unreachable!("it would be sent")
        }));
        assert!(futures::poll!(writing.as_mut()).is_pending());
        // No task runs for a minute: the timers of the write and of the fence are both over.
        advance(Duration::from_mins(1)).await;
        assert!(matches!(writing.await, Err(WriteError::InFlight(_))));
        assert!(fence.write(ready(())).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_whose_task_is_dropped_when_the_fence_is_closed_is_late_too() {
        for (closes, late) in [(true, 1), (false, 0)] {
            let fence = fence();
            let mut write = Box::pin(fence.write(std::future::pending::<()>()));
            assert!(
                futures::poll!(write.as_mut()).is_pending(),
                "the write may have been sent"
            );
            if closes {
                fence.close();
            }
            drop(write);
            assert_eq!(fence.late_writes(), late);
        }
    }
}
