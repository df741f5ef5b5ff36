//! Candidate of a leader election.
//!
//! Invariant: a Lease that is held is taken only if its record has not changed for the lease
//! duration, measured by the local monotonic clock, and only if its resource version is the one
//! that was read. A candidate that is stopped while it waits does not lead. It releases a Lease
//! that it has just acquired. If the response to its write is lost, the Lease expires.

use super::{
    ElectionError, LeaderElection, Leadership,
    lease::{Failure, LeaseClient},
    lease_watch::watch_lease,
    record::{Lease, Record},
    report::Status,
};
use crate::{
    client::{Connection, Requests},
    fencing::Fence,
};
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use std::{fmt, pin::pin, sync::Arc};
use tokio::{
    select,
    time::{Instant, sleep_until},
};

/// Candidate of a leader election. Clones refer to the same candidate.
#[derive(Clone)]
pub struct Elector(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub(super) options: LeaderElection,
    /// `namespace/name`.
    pub(super) lease: Arc<str>,
    pub(super) lease_client: LeaseClient,
    pub(super) status: Mutex<Status>,
}

impl Elector {
    /// Creates a candidate and validates the options, without requests.
    ///
    /// Use a configuration or a client that is not shared, so that other requests do not delay
    /// renewals.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime if the connection is a configuration.
    pub fn new(
        connection: impl Into<Connection>,
        options: LeaderElection,
    ) -> Result<Self, ElectionError> {
        let options = options.checked()?;
        let client = connection
            .into()
            .without_rate_limit()
            .client()
            .map_err(ElectionError::Connection)?;
        let (client, lease) = (LeaseClient::new(client, &options), options.lease().into());
        Ok(Self(Arc::new(Shared {
            options,
            lease,
            lease_client: client,
            status: Mutex::default(),
        })))
    }

    /// Returns the validated options, with the namespace resolved.
    pub fn options(&self) -> &LeaderElection {
        &self.0.options
    }

    /// Fails while the Lease cannot be read, or cannot be written although it is free or held here.
    ///
    /// Other errors than 401 and 403 fail it only after the renew deadline, because a retry may
    /// succeed.
    pub(crate) fn check(&self) -> Result<(), String> {
        let status = self.0.status.lock();
        let Some((verb, error)) = status.lasting_failure(self.0.options.renew_deadline) else {
            return Ok(());
        };
        let lease = &self.0.lease;
        Err(format!(
            "cannot {verb} Lease {lease}: {error}; check the connection and allow get, watch, create and update of leases"
        ))
    }

    pub(crate) fn requests(&self) -> Requests {
        self.0.lease_client.requests()
    }

    /// Waits until this process leads; returns `None` if `stop` resolves first.
    ///
    /// Failed requests are retried, and are in the [report](Self::report). If `stop` resolves
    /// during the write of the Lease, this waits for the response and releases the Lease.
    pub async fn acquire(&self, stop: impl Future<Output = ()> + Send) -> Option<Leadership> {
        let shared = &self.0;
        tracing::info!(
            lease = &*shared.lease,
            identity = shared.options.identity,
            "waiting to lead"
        );
        let mut stop = pin!(stop);
        let mut lease_changes = pin!(watch_lease(
            &shared.lease_client,
            &shared.options,
            |error| shared.watch_failed(error)
        ));
        let mut standby = Standby {
            shared,
            seen: None,
            claim: None,
        };
        // The watch has delivered the current Lease, so it is not read next_attempt.
        let mut lease_is_current = false;
        loop {
            let sent = Instant::now();
            let known = if lease_is_current {
                Ok(())
            } else {
                select! {
                    biased;
                    () = &mut stop => return None,
                    lease = shared.lease_client.get() => lease.map(|lease| standby.observe(lease)),
                }
            };
            let claimed = match known {
                Ok(()) if standby.is_free() => {
                    shared.status.lock().can_read(true);
                    let sent = Instant::now();
                    standby
                        .claim()
                        .await
                        .map_err(|failure| shared.write_failed(&failure, sent))
                        .ok()
                }
                Ok(()) => {
                    shared.status.lock().can_read(false);
                    None
                }
                Err(failure) => {
                    shared.read_failed(&failure, sent);
                    None
                }
            };
            match claimed {
                Some(leadership) if (&mut stop).now_or_never().is_some() => {
                    // `release` logs its own failure.
                    let _ = leadership.release().await;
                    return None;
                }
                Some(leadership) => return Some(leadership),
                None => {}
            }
            let next_attempt = Instant::now() + shared.options.jittered();
            select! {
                biased;
                () = &mut stop => return None,
                lease = lease_changes.next() => {
                    shared.status.lock().watch_error = None;
                    standby.observe(lease.flatten());
                    lease_is_current = true;
                }
                () = sleep_until(standby.expiry().map_or(next_attempt, |expiry| expiry.min(next_attempt))) => lease_is_current = false,
            }
        }
    }
}

impl Shared {
    pub(super) fn read_failed(&self, failure: &Failure, sent: Instant) {
        self.log_failure(failure);
        self.status.lock().read_failed(failure, sent);
    }

    pub(super) fn write_failed(&self, failure: &Failure, sent: Instant) {
        self.log_failure(failure);
        self.status.lock().write_failed(failure, sent);
    }

    fn log_failure(&self, failure: &Failure) {
        let lease = &*self.lease;
        match failure {
            // Normal if several candidates claim the Lease.
            Failure::Conflict(error) => {
                tracing::debug!(lease, error, "another process updated the lease first");
            }
            Failure::Denied(error) | Failure::Other(error) => {
                tracing::warn!(lease, error, "lease request failed, retrying");
            }
        }
    }

    fn watch_failed(&self, error: String) {
        let mut status = self.status.lock();
        if status.watch_error.as_ref() != Some(&error) {
            tracing::debug!(lease = &*self.lease, error, "lease watch failed, polling");
        }
        status.watch_error = Some(error);
    }
}

/// Last known state of the Lease, and the last attempt to take it.
struct Standby<'a> {
    shared: &'a Arc<Shared>,
    seen: Option<Seen>,
    /// Last attempt, which may have succeeded although its response was lost.
    claim: Option<Claim>,
}

struct Seen {
    lease: Lease,
    record: Record,
    /// Time at which the current record was first seen.
    at: Instant,
    /// The Lease was deleted since. Its holder may not have noticed.
    gone: bool,
}

struct Claim {
    /// Resource version that the attempt replaced; `None` if it created the Lease.
    version: Option<String>,
    record: Record,
}

impl Standby<'_> {
    fn observe(&mut self, lease: Option<Lease>) {
        match (lease, &mut self.seen) {
            (None, None) => self.shared.status.lock().observed(&Record::default()),
            (None, Some(seen)) => seen.gone = true,
            (Some(lease), seen) => {
                let record = lease.record();
                self.shared.status.lock().observed(&record);
                match seen {
                    Some(seen) if seen.record == record => (seen.lease, seen.gone) = (lease, false),
                    _ => {
                        *seen = Some(Seen {
                            lease,
                            record,
                            at: Instant::now(),
                            gone: false,
                        });
                    }
                }
            }
        }
    }

    /// Returns the time at which the Lease expires; `None` if it can be taken now.
    fn expiry(&self) -> Option<Instant> {
        let seen = self.seen.as_ref()?;
        seen.record.holder()?;
        if self.was_claimed() {
            return None;
        }
        // A Lease without a valid duration is assumed to last as long as this candidate's own.
        let lasts = seen
            .record
            .lasts()
            .unwrap_or(self.shared.options.lease_duration);
        Some(seen.at + lasts).filter(|expiry| *expiry > Instant::now())
    }

    fn is_free(&self) -> bool {
        self.expiry().is_none()
    }

    /// Returns whether an attempt whose response was lost has succeeded.
    fn was_claimed(&self) -> bool {
        self.seen
            .as_ref()
            .zip(self.claim.as_ref())
            .is_some_and(|(seen, claim)| seen.record.is_of(&claim.record))
    }

    async fn claim(&mut self) -> Result<Leadership, Failure> {
        let (shared, options) = (self.shared, &self.shared.options);
        let existing = self.seen.as_ref().filter(|seen| !seen.gone);
        let version = existing.map(|seen| seen.lease.version().to_owned());
        let record = match &self.claim {
            Some(claim) if self.was_claimed() => claim.record.renewed(),
            before => {
                // Continue the count of a deleted Lease, so that no number is used twice.
                let record = Record::taken(
                    options,
                    self.seen
                        .as_ref()
                        .map_or(0, |seen| seen.record.transitions().saturating_add(1)),
                );
                match before.as_ref().filter(|claim| claim.version == version) {
                    Some(claim) => record.at_the_time_of(&claim.record),
                    None => record,
                }
            }
        };
        self.claim = Some(Claim {
            version,
            record: record.clone(),
        });
        let sent = Instant::now();
        let lease = match existing {
            Some(seen) => {
                shared
                    .lease_client
                    .update(&seen.lease, options, &record)
                    .await?
            }
            None => shared.lease_client.create(options, &record).await?,
        };
        if sent.elapsed() >= options.renew_deadline {
            return Err(Failure::Other(
                "the Lease was acquired, but the response arrived too late to lead".to_owned(),
            ));
        }
        let token = lease
            .version()
            .parse()
            .unwrap_or(u64::from(record.transitions().unsigned_abs()) + 1);
        let fence = Fence::new(shared.lease.clone(), token, sent + options.fenced_after());
        shared.status.lock().leads(&record, &fence);
        tracing::info!(
            lease = &*shared.lease,
            identity = options.identity,
            token,
            "leading"
        );
        Ok(Leadership::new(shared.clone(), lease, record, sent, fence))
    }
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lease, identity) = (&self.0.lease, &self.0.options.identity);
        f.debug_struct("Elector")
            .field("lease", lease)
            .field("identity", identity)
            .finish_non_exhaustive()
    }
}
