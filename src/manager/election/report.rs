//! Reports about a leader election.

use super::{
    Elector,
    lease::Failure,
    record::{Record, micro_time},
};
use crate::fencing::Fence;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use std::time::Duration;
use tokio::time::Instant;

/// State of an election from the view of one candidate: see [`Elector::report`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LeaseReport {
    /// Name of the Lease.
    pub name: String,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Identity of this process.
    pub identity: String,
    /// Identity of the last known holder; `None` if the Lease is free.
    pub holder: Option<String>,
    /// Whether this process leads now.
    pub leading: bool,
    /// Time since which this process leads, by the clock of this machine.
    pub leading_since: Option<String>,
    /// Fencing token of the current term.
    pub token: Option<u64>,
    /// Seconds until the fence closes without a renewal.
    pub seconds_left: Option<f64>,
    /// Number of times that the leader has changed.
    pub transitions: i32,
    /// Number of renewals by this process.
    pub renewals: u64,
    /// Number of renewals for which the Lease had to be read first.
    pub slow_path: u64,
    /// Writes that were in flight when the fence closed.
    pub late_writes: u64,
    /// Writes that were not sent because the fence was closed.
    pub rejected_writes: u64,
    /// Error of the last failed request, until a request succeeds.
    pub last_error: Option<String>,
    /// Error of the failed watch, until it works again.
    ///
    /// Without a watch, takeover is slower.
    pub watch_error: Option<String>,
}

#[derive(Default)]
pub(super) struct Status {
    record: Record,
    /// Last term of this process, which may be over.
    last: Option<(String, Fence)>,
    renewals: u64,
    pub(super) slow_path: u64,
    /// Late writes of earlier terms.
    late: u64,
    rejected_writes: u64,
    pub(super) last_error: Option<String>,
    /// Failed reads, until a read or write succeeds.
    reads: Option<FailedRequests>,
    /// Failed writes, until a write succeeds or the Lease is held by another process.
    writes: Option<FailedRequests>,
    pub(super) watch_error: Option<String>,
}

/// Requests that failed in a row.
struct FailedRequests {
    /// When the first of them was sent.
    since: Instant,
    /// Whether the API server rejected one of them with 401 or 403. A retry does not change that.
    denied: bool,
    /// Error of the last one.
    error: String,
}

impl FailedRequests {
    /// Adds a failed request to those that failed before it.
    fn extend(earlier: Option<Self>, failure: &Failure, sent: Instant) -> Self {
        let denied = matches!(failure, Failure::Denied(_));
        Self {
            since: earlier.as_ref().map_or(sent, |earlier| earlier.since),
            denied: denied || earlier.is_some_and(|earlier| earlier.denied),
            error: failure.to_string(),
        }
    }
}

impl Status {
    /// The Lease was read. `is_free`: this process is about to write it.
    pub(super) fn can_read(&mut self, is_free: bool) {
        self.reads = None;
        if !is_free {
            self.writes = None;
        }
    }

    fn can_write(&mut self) {
        self.reads = None;
        self.writes = None;
    }

    pub(super) fn read_failed(&mut self, failure: &Failure, sent: Instant) {
        self.last_error = Some(failure.to_string());
        self.reads = Some(FailedRequests::extend(self.reads.take(), failure, sent));
    }

    pub(super) fn write_failed(&mut self, failure: &Failure, sent: Instant) {
        self.last_error = Some(failure.to_string());
        self.writes = match failure {
            // The API server would have allowed the write.
            Failure::Conflict(_) => None,
            _ => Some(FailedRequests::extend(self.writes.take(), failure, sent)),
        };
    }

    /// Returns the verb and the error of requests that were denied, or fail for `limit` or longer.
    pub(super) fn lasting_failure(&self, limit: Duration) -> Option<(&'static str, &str)> {
        [("read", &self.reads), ("write", &self.writes)]
            .into_iter()
            .find_map(|(verb, failing)| {
                let failing = failing.as_ref()?;
                let is_lasting = failing.denied || failing.since.elapsed() >= limit;
                is_lasting.then_some((verb, &*failing.error))
            })
    }

    pub(super) fn observed(&mut self, record: &Record) {
        self.last_error = None;
        self.record = record.clone();
    }

    pub(super) fn leads(&mut self, record: &Record, fence: &Fence) {
        self.observed(record);
        self.can_write();
        if let Some((_, before)) = self
            .last
            .replace((micro_time(Timestamp::now()), fence.clone()))
        {
            self.late += before.late_writes();
            self.rejected_writes += before.rejected_writes();
        }
    }

    pub(super) fn renewed(&mut self, record: &Record) {
        self.observed(record);
        self.can_write();
        self.renewals += 1;
    }
}

impl Elector {
    /// Returns the state of the election for debug pages.
    pub fn report(&self) -> LeaseReport {
        let (options, status) = (&self.0.options, self.0.status.lock());
        let leading = status
            .last
            .as_ref()
            .filter(|(_, fence)| fence.check().is_ok());
        let of_last =
            |count: fn(&Fence) -> u64| status.last.as_ref().map_or(0, |(_, fence)| count(fence));
        LeaseReport {
            name: options.name.clone(),
            namespace: options.namespace.clone(),
            identity: options.identity.clone(),
            holder: status.record.holder().map(str::to_owned),
            leading: leading.is_some(),
            leading_since: leading.map(|(since, _)| since.clone()),
            token: leading.map(|(_, fence)| fence.token()),
            seconds_left: leading
                .map(|(_, fence)| (fence.deadline() - Instant::now()).as_secs_f64()),
            transitions: status.record.transitions(),
            renewals: status.renewals,
            slow_path: status.slow_path,
            late_writes: status.late + of_last(Fence::late_writes),
            rejected_writes: status.rejected_writes + of_last(Fence::rejected_writes),
            last_error: status.last_error.clone(),
            watch_error: status.watch_error.clone(),
        }
    }
}
