//! A term of leadership: renewed, lost or released.
//!
//! Invariant: the fence is closed before a loss is reported and before the Lease is released. The
//! clock is checked before a renewal is sent and after its response: a process that was suspended
//! in between has lost the Lease, whatever the response is.

use super::{
    ElectionError, Lost,
    elector::Shared,
    lease::Failure,
    record::{Lease, Record},
};
use crate::fencing::Fence;
use std::{fmt, pin::pin, sync::Arc};
use tokio::{
    select,
    time::{Instant, sleep_until, timeout_at},
};

/// Term of leadership, which lasts while it is [held](Self::hold).
///
/// Returned by [`Elector::acquire`](super::Elector::acquire). Dropping it closes the fence without
/// a release: other candidates wait until the Lease expires.
#[must_use = "the Lease expires unless `hold` is awaited"]
pub struct Leadership {
    shared: Arc<Shared>,
    /// Lease as the API server returned it last.
    lease: Lease,
    /// Record that was written last.
    record: Record,
    /// Time at which the last successful renewal was sent.
    renewed: Instant,
    fence: Fence,
}

impl Leadership {
    pub(super) fn new(
        shared: Arc<Shared>,
        lease: Lease,
        record: Record,
        renewed: Instant,
        fence: Fence,
    ) -> Self {
        Self {
            shared,
            lease,
            record,
            renewed,
            fence,
        }
    }

    /// Returns the fence that guards the leader's writes.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Renews the Lease until `stop` resolves.
    ///
    /// Then end the work and [release](Self::release) the Lease. The Lease is not renewed after
    /// this returns, so the work must end before the [deadline](Fence::deadline). If it may take
    /// longer, let `stop` resolve when the work has ended.
    ///
    /// # Errors
    /// Returns an error if the Lease is lost. The fence is closed in that case.
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

    /// Releases the Lease, so that another candidate can lead at once.
    ///
    /// Call it when the work has ended. If
    /// [`release_on_cancel`](super::LeaderElection::release_on_cancel) is off, it only closes the
    /// fence. It is not an error if another process already holds the Lease.
    pub async fn release(mut self) -> Result<(), ElectionError> {
        self.fence.close();
        let (shared, options) = (self.shared.clone(), &self.shared.options.clone());
        if !options.release_on_cancel {
            return Ok(());
        }
        let record = self.record.released();
        let sent = Instant::now();
        let mut released = shared
            .lease_client
            .update(&self.lease, options, &record)
            .await;
        // A renewal whose response was lost may have changed the resource version.
        if matches!(released, Err(Failure::Conflict(_))) {
            released = match shared.lease_client.get().await {
                Ok(Some(lease)) if lease.record().is_of(&self.record) => {
                    self.lease = lease;
                    shared
                        .lease_client
                        .update(&self.lease, options, &record)
                        .await
                }
                Ok(_) => return Ok(()),
                Err(failure) => Err(failure),
            };
        }
        match released {
            Ok(_) => {
                tracing::info!(
                    lease = &*shared.lease,
                    token = self.fence.token(),
                    "lease released"
                );
                shared.status.lock().observed(&record);
                Ok(())
            }
            Err(failure) => {
                shared.write_failed(&failure, sent);
                let (lease, error) = (shared.lease.to_string(), failure.to_string());
                Err(ElectionError::NotReleased {
                    lease,
                    error,
                    wait: options.lease_duration,
                })
            }
        }
    }

    /// Returns the time at which the Lease is lost without a renewal.
    fn renew_by(&self) -> Instant {
        self.renewed + self.shared.options.renew_deadline
    }

    async fn renew_at(&mut self, next: Instant) -> Result<(), Lost> {
        sleep_until(next.min(self.renew_by())).await;
        self.in_time()?;
        let renew_by = self.renew_by();
        let renewed = timeout_at(renew_by, self.renew()).await;
        self.in_time()?;
        // After a timeout, `in_time` has returned the error already.
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

    /// Renews the Lease like client-go: update; if that fails, read and update.
    ///
    /// Returns an error only if another process has taken the Lease. Other failures are retried.
    async fn renew(&mut self) -> Result<(), Lost> {
        let record = self.record.renewed();
        let sent = Instant::now();
        match self
            .shared
            .lease_client
            .update(&self.lease, &self.shared.options, &record)
            .await
        {
            Ok(lease) => {
                self.succeeded(lease, record, sent);
                return Ok(());
            }
            Err(failure) => {
                self.shared.write_failed(&failure, sent);
                self.shared.status.lock().slow_path += 1;
            }
        }
        let (client, options) = (&self.shared.lease_client, &self.shared.options);
        let sent = Instant::now();
        let read = client.get().await;
        if read.is_ok() {
            self.shared.status.lock().can_read(true);
        }
        let known = match read {
            Ok(Some(lease)) => {
                let now = lease.record();
                if !now.is_of(&self.record) {
                    self.shared.status.lock().observed(&now);
                    let holder = now.holder().unwrap_or_default().to_owned();
                    return Err(Lost::Taken {
                        lease: self.shared.lease.to_string(),
                        holder,
                    });
                }
                Some(lease)
            }
            // The Lease was deleted. Candidates that have seen it wait until it would have expired.
            Ok(None) => None,
            Err(failure) => {
                self.shared.read_failed(&failure, sent);
                return Ok(());
            }
        };
        // The process may have been suspended since the read.
        if Instant::now() >= self.renew_by() {
            return Ok(());
        }
        let (record, sent) = (self.record.renewed(), Instant::now());
        let renewed = match &known {
            Some(lease) => client.update(lease, options, &record).await,
            None => client.create(options, &record).await,
        };
        match renewed {
            Ok(lease) => self.succeeded(lease, record, sent),
            Err(failure) => self.shared.write_failed(&failure, sent),
        }
        Ok(())
    }

    fn succeeded(&mut self, lease: Lease, record: Record, sent: Instant) {
        // If the fence is closed, the renewal is too late, and the next check of the time fails.
        if Instant::now() < self.renew_by()
            && self
                .fence
                .extend(sent + self.shared.options.fenced_after())
                .is_ok()
        {
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
