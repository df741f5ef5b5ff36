//! A time of leading: renewed, lost or given up.
//!
//! What holds: the fence is closed before anybody is told of a loss, and before the Lease is given up. Time is looked at before a renewal is sent and
//! after it is answered: a process that was stopped meanwhile has lost, whatever the answer was.

use super::{
    ElectionError, Lost,
    elector::Shared,
    lease::Failure,
    record::{Lease, Record},
};
use crate::fence::Fence;
use std::{fmt, pin::pin, sync::Arc};
use tokio::{
    select,
    time::{Instant, sleep_until, timeout_at},
};

/// This process leads, as long as it [holds](Self::hold) this. From [`Elector::acquire`](super::Elector::acquire). Dropped, its fence is closed, and others wait until
/// the Lease is over.
#[must_use = "a leadership that nobody holds is soon lost"]
pub struct Leadership {
    shared: Arc<Shared>,
    /// As the server had it last.
    lease: Lease,
    /// What was written into it last.
    record: Record,
    /// When the last renewal that succeeded was sent.
    renewed: Instant,
    fence: Fence,
}

impl Leadership {
    pub(super) fn new(shared: Arc<Shared>, lease: Lease, record: Record, renewed: Instant, fence: Fence) -> Self {
        Self { shared, lease, record, renewed, fence }
    }

    /// What the leader's work is to be guarded by.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Renew the Lease until `stop` resolves: then end the work, and [release](Self::release) it. It is not renewed after this has returned, so the work has to end
    /// within the [deadline](Fence::deadline): for work that takes longer, let `stop` resolve when the work has ended.
    ///
    /// # Errors
    /// When it is lost. The fence is closed then.
    pub async fn hold(&mut self, stop: impl Future<Output = ()> + Send) -> Result<(), Lost> {
        let mut stop = pin!(stop);
        let period = self.shared.options.retry_period;
        let mut next = self.renewed + period;
        loop {
            let held = select! {
                biased;
                () = &mut stop => return Ok(()),
                held = self.renew_at(next) => held,
            };
            if let Err(lost) = held {
                self.fence.close();
                let lease = &*self.shared.lease;
                tracing::error!(lease, token = self.fence.token(), error = %lost, "leader election lost");
                return Err(lost);
            }
            next = Instant::now() + period;
        }
    }

    /// Let somebody else lead at once: call it when the work has ended. Nothing but the end of the fence, if
    /// [`release_on_cancel`](super::LeaderElection::release_on_cancel) is off; and no error if somebody else has it already.
    pub async fn release(mut self) -> Result<(), ElectionError> {
        self.fence.close();
        let (shared, options) = (self.shared.clone(), &self.shared.options.clone());
        if !options.release_on_cancel {
            return Ok(());
        }
        let record = self.record.released();
        let mut released = shared.door.update(&self.lease, options, &record).await;
        // A renewal that was not answered may have succeeded.
        if matches!(released, Err(Failure::Conflict(_))) {
            released = match shared.door.get().await {
                Ok(Some(lease)) if lease.record().is_of(&self.record) => {
                    self.lease = lease;
                    shared.door.update(&self.lease, options, &record).await
                }
                Ok(_) => return Ok(()),
                Err(failure) => Err(failure),
            };
        }
        match released {
            Ok(_) => {
                tracing::info!(lease = &*shared.lease, token = self.fence.token(), "released");
                shared.status.lock().saw(&record);
                Ok(())
            }
            Err(failure) => {
                shared.write_failed(&failure);
                let (lease, error) = (shared.lease.to_string(), failure.to_string());
                Err(ElectionError::NotReleased { lease, error, wait: options.lease_duration })
            }
        }
    }

    /// From when on it is lost.
    fn renew_by(&self) -> Instant {
        self.renewed + self.shared.options.renew_deadline
    }

    async fn renew_at(&mut self, next: Instant) -> Result<(), Lost> {
        sleep_until(next.min(self.renew_by())).await;
        self.in_time()?;
        let renew_by = self.renew_by();
        let renewed = timeout_at(renew_by, self.renew()).await;
        self.in_time()?;
        // Without an answer until then, it was not in time.
        renewed.unwrap_or(Ok(()))
    }

    fn in_time(&self) -> Result<(), Lost> {
        if Instant::now() < self.renew_by() && self.fence.check().is_ok() {
            return Ok(());
        }
        let last_error = self.shared.status.lock().last_error.clone();
        Err(Lost::NotRenewed {
            lease: self.shared.lease.to_string(),
            within: self.shared.options.renew_deadline,
            last_error,
        })
    }

    /// As client-go does: first as if nothing had changed, then after a look. An error only if it is lost.
    async fn renew(&mut self) -> Result<(), Lost> {
        let record = self.record.renewed();
        let sent = Instant::now();
        match self.shared.door.update(&self.lease, &self.shared.options, &record).await {
            Ok(lease) => {
                self.succeeded(lease, record, sent);
                return Ok(());
            }
            Err(failure) => {
                self.shared.write_failed(&failure);
                self.shared.status.lock().slow_path += 1;
            }
        }
        let (door, options) = (&self.shared.door, &self.shared.options);
        let read = door.get().await;
        if read.is_ok() {
            self.shared.status.lock().can_read(true);
        }
        let known = match read {
            Ok(Some(lease)) => {
                let now = lease.record();
                if !now.is_of(&self.record) {
                    self.shared.status.lock().saw(&now);
                    let holder = now.holder().unwrap_or_default().to_owned();
                    return Err(Lost::Taken { lease: self.shared.lease.to_string(), holder });
                }
                Some(lease)
            }
            // Deleted. Who has seen it held waits as if it still were.
            Ok(None) => None,
            Err(failure) => {
                self.shared.read_failed(&failure);
                return Ok(());
            }
        };
        // Between the look and now the process may have been stopped: time is counted from here, if there is any left.
        if Instant::now() >= self.renew_by() {
            return Ok(());
        }
        let (record, sent) = (self.record.renewed(), Instant::now());
        let renewed = match &known {
            Some(lease) => door.update(lease, options, &record).await,
            None => door.create(options, &record).await,
        };
        match renewed {
            Ok(lease) => self.succeeded(lease, record, sent),
            Err(failure) => self.shared.write_failed(&failure),
        }
        Ok(())
    }

    fn succeeded(&mut self, lease: Lease, record: Record, sent: Instant) {
        // Too late if the fence is closed: then it stays so, and what is looked at next is the time.
        if Instant::now() < self.renew_by() && self.fence.extend(sent + self.shared.options.fenced_after()).is_ok() {
            self.shared.status.lock().renewed(&record);
            self.renewed = sent;
        }
        (self.lease, self.record) = (lease, record);
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.fence.close();
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&self.fence).finish()
    }
}
