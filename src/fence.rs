//! What leader work is guarded by.
//!
//! What holds: a fence that is closed stays closed. It closes when its deadline passes, whether or not anybody runs to notice, or earlier when it is told.
//! The deadline is before the moment from which somebody else may lead.

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

/// One time of leading: what is done only as long as it lasts is done in its [`scope`](Self::scope). A clone is the same one.
///
/// In a scope, a [`Client`](crate::client::Client) refuses writes once the fence is closed, and a [controller](crate::controller) starts no reconcile. That
/// holds for a process that was stopped and continued, too: what counts is the time when the write is to be sent. A write that is on its way when
/// the fence closes cannot be taken back: it is given up, logged and [counted](Self::late_writes). What must not happen even then, the server has to refuse:
/// write with the `resourceVersion` that was read under the same token, as `update` and `patch_from` do, or keep the [token](Self::token) where it is compared.
///
/// Events of a [`Recorder`](crate::recorder::Recorder) are written later and by somebody else, and what is sent by [`Client::kube`](crate::client::Client::kube) is nobody's: neither is
/// held back.
///
/// A scope is a task's: what is spawned in it has none, unless it is given one by [`Fence::current`].
///
/// Time is the monotonic clock's. It goes on while a process is stopped, but not on every system while the whole machine is suspended.
#[derive(Clone)]
pub struct Fence(Arc<Inner>);

struct Inner {
    lease: Arc<str>,
    token: u64,
    deadline: Mutex<Instant>,
    lost: CancellationToken,
    late: AtomicU64,
    refused: AtomicU64,
}

/// The work was to be done by the leader, and this process is not, or not for certain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process no longer leads by Lease {lease} (token {token}): stop this work, the next leader does it anew")]
#[non_exhaustive]
pub struct Fenced {
    /// The Lease, `namespace/name`.
    pub lease: Arc<str>,
    /// The token of the time that is over.
    pub token: u64,
}

/// Why a write has no answer.
pub(crate) enum Unanswered {
    /// It was not sent.
    Unsent(Fenced),
    /// It may have been.
    OnItsWay(Fenced),
}

impl Fence {
    pub(crate) fn new(lease: Arc<str>, token: u64, deadline: Instant) -> Self {
        let (late, refused) = Default::default();
        Self(Arc::new(Inner {
            lease,
            token,
            deadline: Mutex::new(deadline),
            lost: CancellationToken::new(),
            late,
            refused,
        }))
    }

    /// Grows with every change of leader: whoever keeps the highest one that they saw can tell writes of an earlier leader. It is the `resourceVersion` by
    /// which the Lease was taken, which the server counts up with every write, also when a Lease is deleted and made anew.
    pub fn token(&self) -> u64 {
        self.0.token
    }

    /// The Lease, `namespace/name`.
    pub fn lease(&self) -> &str {
        &self.0.lease
    }

    /// When it closes, unless it is extended before.
    pub fn deadline(&self) -> Instant {
        *self.0.deadline.lock()
    }

    /// An error once it is closed. For work that is no write of the client's: look right before what must not be done twice.
    pub fn check(&self) -> Result<(), Fenced> {
        if self.0.lost.is_cancelled() || Instant::now() >= self.deadline() {
            return Err(Fenced { lease: self.0.lease.clone(), token: self.0.token });
        }
        Ok(())
    }

    /// Resolves when it is told to close: when the leadership was lost or given up. Its deadline may have passed before, if nobody was there to renew it.
    pub async fn lost(&self) {
        self.0.lost.cancelled().await;
    }

    /// Guard `work` by this fence.
    pub async fn scope<F: Future>(&self, work: F) -> F::Output {
        CURRENT.scope(self.clone(), work).await
    }

    /// The fence of the scope that this is called in.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Writes that were on their way, unanswered, when it closed, or were answered after that.
    pub fn late_writes(&self) -> u64 {
        self.0.late.load(Relaxed)
    }

    /// Writes that were not sent, because it was closed.
    pub fn refused_writes(&self) -> u64 {
        self.0.refused.load(Relaxed)
    }

    /// As [`Self::scope`], if there is a fence.
    pub(crate) async fn scope_if<F: Future>(fence: Option<Self>, work: F) -> F::Output {
        match fence {
            Some(fence) => fence.scope(work).await,
            None => work.await,
        }
    }

    /// Not if it is closed.
    pub(crate) fn extend(&self, until: Instant) -> Result<(), Fenced> {
        self.check()?;
        let mut deadline = self.0.deadline.lock();
        *deadline = until.max(*deadline);
        Ok(())
    }

    pub(crate) fn close(&self) {
        self.0.lost.cancel();
    }

    /// Send a write and wait for its answer. `write` is not polled once the fence is closed: a poll may be what sends it, or sends it again.
    pub(crate) async fn write<F: Future>(&self, write: F) -> Result<F::Output, Unanswered> {
        self.check().map_err(|fenced| {
            self.0.refused.fetch_add(1, Relaxed);
            Unanswered::Unsent(fenced)
        })?;
        let mut write = pin!(write);
        let mut timer = pin!(sleep_until(self.deadline()));
        let mut lost = pin!(self.lost());
        let answer = poll_fn(|cx| {
            loop {
                if let Err(fenced) = self.check() {
                    return Poll::Ready(Err(Unanswered::OnItsWay(fenced)));
                }
                if let Poll::Ready(answer) = write.as_mut().poll(cx) {
                    return Poll::Ready(Ok(answer));
                }
                if lost.as_mut().poll(cx).is_pending() && timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                // It was extended meanwhile, or the check says that it is closed.
                timer.as_mut().reset(self.deadline());
            }
        });
        let mut on_the_wire = OnTheWire { fence: self, answered: false };
        let answer = answer.await;
        on_the_wire.answered = true;
        if answer.is_err() || self.check().is_err() {
            self.0.late.fetch_add(1, Relaxed);
        }
        answer
    }
}

/// A write that may have been sent: one whose task is dropped after the fence was closed is reported, too.
struct OnTheWire<'a> {
    fence: &'a Fence,
    answered: bool,
}

impl Drop for OnTheWire<'_> {
    fn drop(&mut self) {
        if !self.answered
            && let Err(fenced) = self.fence.check()
        {
            self.fence.0.late.fetch_add(1, Relaxed);
            tracing::warn!(
                lease = &*fenced.lease,
                token = fenced.token,
                "a write was on its way when its task was dropped, and may have been written"
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
        Fence::new("default/web".into(), 7, Instant::now() + Duration::from_secs(10))
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_closes_at_its_deadline_and_stays_closed() {
        let fence = fence();
        advance(Duration::from_secs(9)).await;
        assert!(fence.check().is_ok());
        fence.extend(Instant::now() + Duration::from_secs(10)).expect("it is open");
        advance(Duration::from_secs(9)).await;
        assert!(fence.check().is_ok(), "it was extended");
        advance(Duration::from_secs(1)).await;
        let fenced = fence.check().expect_err("its time is over");
        assert!(fenced.to_string().contains("default/web (token 7): stop this work"), "{fenced}");
        assert_eq!(fence.extend(Instant::now() + Duration::from_secs(10)), Err(fenced));
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_deadline_does_not_replace_a_later_one() {
        let fence = fence();
        let deadline = fence.deadline();
        fence.extend(Instant::now() + Duration::from_secs(5)).expect("it is open");
        assert_eq!(fence.deadline(), deadline);
    }

    #[tokio::test(start_paused = true)]
    async fn a_scope_is_its_tasks_and_what_it_spawns_is_outside() {
        assert!(Fence::current().is_none());
        let fence = fence();
        fence
            .scope(async {
                assert_eq!(Fence::current().map(|fence| fence.token()), Some(7));
                assert!(tokio::spawn(async { Fence::current().is_none() }).await.expect("no panic"));
            })
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_not_polled_once_the_fence_is_closed() {
        let fence = fence();
        fence.close();
        fence.lost().await;
        let polled = fence.write(async { unreachable!("it would be sent") }).await;
        assert!(matches!(polled, Err(Unanswered::Unsent(_))));
        assert_eq!((fence.refused_writes(), fence.late_writes()), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_on_its_way_at_the_deadline_is_given_up_and_counted() {
        let fence = fence();
        let answer = fence.write(sleep(Duration::from_secs(11))).await;
        assert!(matches!(answer, Err(Unanswered::OnItsWay(_))));
        assert_eq!((fence.refused_writes(), fence.late_writes()), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_on_its_way_when_the_fence_is_closed_is_given_up_at_once() {
        let (fence, began) = (fence(), Instant::now());
        let closing = async {
            sleep(Duration::from_secs(2)).await;
            fence.close();
        };
        let (answer, ()) = tokio::join!(fence.write(sleep(Duration::from_secs(5))), closing);
        assert!(matches!(answer, Err(Unanswered::OnItsWay(_))));
        assert_eq!((began.elapsed().as_secs(), fence.late_writes()), (2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_goes_on_if_the_fence_is_extended_meanwhile() {
        let fence = fence();
        let extending = async {
            sleep(Duration::from_secs(5)).await;
            fence.extend(Instant::now() + Duration::from_secs(10)).expect("it is open");
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
        // A minute passes in which nothing runs: the timer of the write and that of the fence are both over.
        advance(Duration::from_mins(1)).await;
        assert!(matches!(writing.await, Err(Unanswered::OnItsWay(_))));
        assert!(fence.write(ready(())).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_whose_task_is_dropped_when_the_fence_is_closed_is_late_too() {
        for (closes, late) in [(true, 1), (false, 0)] {
            let fence = fence();
            let mut write = Box::pin(fence.write(std::future::pending::<()>()));
            assert!(futures::poll!(write.as_mut()).is_pending(), "it is on its way");
            if closes {
                fence.close();
            }
            drop(write);
            assert_eq!(fence.late_writes(), late);
        }
    }
}
