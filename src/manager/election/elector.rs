//! A candidate: waits for its turn.
//!
//! What holds: a Lease that somebody holds is taken only after it has not changed for as long as its holder counts on it, measured here; and only if it is
//! still as it was seen. Who is told to stop while it waits does not lead, and gives back a Lease that it was told it has; one that it took and never
//! heard of again runs out.

use super::{
    ElectionError, LeaderElection, Leadership,
    lease::{Door, Failure},
    news::news,
    record::{Lease, Record},
    report::Status,
};
use crate::{
    client::{Connection, Requests},
    fence::Fence,
};
use futures_util::{FutureExt, StreamExt};
use parking_lot::Mutex;
use std::{fmt, pin::pin, sync::Arc};
use tokio::{
    select,
    time::{Instant, sleep_until},
};

/// A candidate for leading. A handle; clones are the same candidate.
#[derive(Clone)]
pub struct Elector(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub(super) options: LeaderElection,
    /// `namespace/name`.
    pub(super) lease: Arc<str>,
    pub(super) door: Door,
    pub(super) status: Mutex<Status>,
}

impl Elector {
    /// Checks the options; asks nothing yet. A connection of its own is best: others' requests then do not delay renewals.
    ///
    /// # Panics
    /// If the connection is a configuration, and this is called outside of a tokio runtime.
    pub fn new(connection: impl Into<Connection>, options: LeaderElection) -> Result<Self, ElectionError> {
        let options = options.checked()?;
        let link = connection.into().client().map_err(ElectionError::Connection)?;
        let (door, lease) = (Door::new(link, &options), options.lease().into());
        Ok(Self(Arc::new(Shared { options, lease, door, status: Mutex::default() })))
    }

    /// As checked, with the namespace found.
    pub fn options(&self) -> &LeaderElection {
        &self.0.options
    }

    /// Fails while the Lease cannot be read, or cannot be written although it is free or held here.
    pub(crate) fn check(&self) -> Result<(), String> {
        let status = self.0.status.lock();
        let (verb, error) = match (&status.read_error, &status.write_error) {
            (Some(error), _) => ("read", error),
            (None, Some(error)) => ("write", error),
            (None, None) => return Ok(()),
        };
        let lease = &self.0.lease;
        Err(format!(
            "cannot {verb} Lease {lease}: {error}; check the connection and allow get, watch, create and update of leases"
        ))
    }

    pub(crate) fn requests(&self) -> Requests {
        self.0.door.requests()
    }

    /// Wait until this process leads; `None` if `stop` has resolved before. What fails meanwhile is tried again, and is in the [report](Self::report).
    ///
    /// Told to stop while it takes the Lease, it waits for the answer, and gives the Lease back.
    pub async fn acquire(&self, stop: impl Future<Output = ()> + Send) -> Option<Leadership> {
        let shared = &self.0;
        tracing::info!(lease = &*shared.lease, identity = shared.options.identity, "waiting to lead");
        let mut stop = pin!(stop);
        let mut news = pin!(news(&shared.door, &shared.options, |error| shared.watch_failed(error)));
        let mut standby = Standby { shared, seen: None, claim: None };
        // What the watch tells needs no asking.
        let mut told = false;
        loop {
            let known = if told {
                Ok(())
            } else {
                select! {
                    biased;
                    () = &mut stop => return None,
                    lease = shared.door.get() => lease.map(|lease| standby.see(lease)),
                }
            };
            let claimed = match known {
                Ok(()) if standby.is_free() => {
                    shared.status.lock().can_read(true);
                    standby.claim().await.map_err(|failure| shared.write_failed(&failure)).ok()
                }
                Ok(()) => {
                    shared.status.lock().can_read(false);
                    None
                }
                Err(failure) => {
                    shared.read_failed(&failure);
                    None
                }
            };
            match claimed {
                Some(leadership) if (&mut stop).now_or_never().is_some() => {
                    // It says by itself if that fails.
                    let _ = leadership.release().await;
                    return None;
                }
                Some(leadership) => return Some(leadership),
                None => {}
            }
            let again = Instant::now() + shared.options.jittered();
            select! {
                biased;
                () = &mut stop => return None,
                lease = news.next() => {
                    shared.status.lock().watch_error = None;
                    standby.see(lease.flatten());
                    told = true;
                }
                () = sleep_until(standby.expiry().map_or(again, |expiry| expiry.min(again))) => told = false,
            }
        }
    }
}

impl Shared {
    pub(super) fn read_failed(&self, failure: &Failure) {
        self.log_failure(failure);
        let mut status = self.status.lock();
        status.last_error = Some(failure.to_string());
        status.read_error = Some(failure.to_string());
    }

    pub(super) fn write_failed(&self, failure: &Failure) {
        self.log_failure(failure);
        let mut status = self.status.lock();
        status.last_error = Some(failure.to_string());
        // After a conflict, the API server would have allowed the write.
        status.write_error = matches!(failure, Failure::Other(_)).then(|| failure.to_string());
    }

    fn log_failure(&self, failure: &Failure) {
        let lease = &*self.lease;
        match failure {
            // Normal if several candidates claim the Lease.
            Failure::Conflict(error) => tracing::debug!(lease, error, "another process updated the lease first"),
            Failure::Other(error) => tracing::warn!(lease, error, "lease request failed, retrying"),
        }
    }

    fn watch_failed(&self, error: String) {
        let mut status = self.status.lock();
        if status.watch_error.as_ref() != Some(&error) {
            tracing::debug!(lease = &*self.lease, error, "the Lease is not watched, but asked for now and then");
        }
        status.watch_error = Some(error);
    }
}

/// What a candidate knows.
struct Standby<'a> {
    shared: &'a Arc<Shared>,
    seen: Option<Seen>,
    /// The last try, which may have succeeded without an answer.
    claim: Option<Claim>,
}

struct Seen {
    lease: Lease,
    record: Record,
    /// When it was first seen as it is.
    at: Instant,
    /// Deleted since. Its holder may not know.
    gone: bool,
}

struct Claim {
    /// What it was made from; `None` if there was nothing.
    version: Option<String>,
    record: Record,
}

impl Standby<'_> {
    fn see(&mut self, lease: Option<Lease>) {
        match (lease, &mut self.seen) {
            (None, None) => self.shared.status.lock().saw(&Record::default()),
            (None, Some(seen)) => seen.gone = true,
            (Some(lease), seen) => {
                let record = lease.record();
                self.shared.status.lock().saw(&record);
                match seen {
                    Some(seen) if seen.record == record => (seen.lease, seen.gone) = (lease, false),
                    _ => *seen = Some(Seen { lease, record, at: Instant::now(), gone: false }),
                }
            }
        }
    }

    /// When the Lease is over, if it is held and not over yet.
    fn expiry(&self) -> Option<Instant> {
        let seen = self.seen.as_ref()?;
        seen.record.holder()?;
        if self.was_claimed() {
            return None;
        }
        // What is too far away for a clock is never.
        let lasts = seen.record.lasts().unwrap_or(self.shared.options.lease_duration);
        Some(seen.at + lasts).filter(|expiry| *expiry > Instant::now())
    }

    fn is_free(&self) -> bool {
        self.expiry().is_none()
    }

    /// A try that was not answered has succeeded.
    fn was_claimed(&self) -> bool {
        self.seen.as_ref().zip(self.claim.as_ref()).is_some_and(|(seen, claim)| seen.record.is_of(&claim.record))
    }

    async fn claim(&mut self) -> Result<Leadership, Failure> {
        let (shared, options) = (self.shared, &self.shared.options);
        let there = self.seen.as_ref().filter(|seen| !seen.gone);
        let version = there.map(|seen| seen.lease.version().to_owned());
        let record = match &self.claim {
            Some(claim) if self.was_claimed() => claim.record.renewed(),
            before => {
                // One that is gone is counted on: nobody shall lead twice by one number.
                let record = Record::taken(
                    options,
                    self.seen.as_ref().map_or(0, |seen| seen.record.transitions().saturating_add(1)),
                );
                match before.as_ref().filter(|claim| claim.version == version) {
                    Some(claim) => record.at_the_time_of(&claim.record),
                    None => record,
                }
            }
        };
        self.claim = Some(Claim { version, record: record.clone() });
        let sent = Instant::now();
        let lease = match there {
            Some(seen) => shared.door.update(&seen.lease, options, &record).await?,
            None => shared.door.create(options, &record).await?,
        };
        if sent.elapsed() >= options.renew_deadline {
            return Err(Failure::Other("the Lease was taken, but the answer came too late to lead".to_owned()));
        }
        let token = lease.version().parse().unwrap_or(u64::from(record.transitions().unsigned_abs()) + 1);
        let fence = Fence::new(shared.lease.clone(), token, sent + options.fenced_after());
        shared.status.lock().leads(&record, &fence);
        tracing::info!(lease = &*shared.lease, identity = options.identity, token, "leading");
        Ok(Leadership::new(shared.clone(), lease, record, sent, fence))
    }
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lease, identity) = (&self.0.lease, &self.0.options.identity);
        f.debug_struct("Elector").field("lease", lease).field("identity", identity).finish_non_exhaustive()
    }
}
