//! What an elector says of itself.

use super::{
    Elector,
    record::{Record, micro_time},
};
use crate::fence::Fence;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;

/// An election as one candidate sees it, for debug pages: see [`Elector::report`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LeaseReport {
    /// The Lease's name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Who this is.
    pub identity: String,
    /// Who leads, as far as is known here; `None` if nobody.
    pub holder: Option<String>,
    /// Whether that is this process, now.
    pub leading: bool,
    /// Since when, by this machine's clock.
    pub leading_since: Option<String>,
    /// The fencing token of this time.
    pub token: Option<u64>,
    /// For how many seconds from now writes are let through, if nothing is renewed.
    pub seconds_left: Option<f64>,
    /// How often leaders have changed.
    pub transitions: i32,
    /// How often this process has renewed the Lease.
    pub renewals: u64,
    /// How often it had to look first.
    pub slow_path: u64,
    /// Writes that were on their way when their time was over.
    pub late_writes: u64,
    /// Writes that were not sent because their time was over.
    pub refused_writes: u64,
    /// What the last request that failed was told, until one succeeds.
    pub last_error: Option<String>,
    /// What the watch that failed was told, until it works: without it this process takes over later.
    pub watch_error: Option<String>,
}

#[derive(Default)]
pub(super) struct Status {
    record: Record,
    /// Of the last time of leading, which may be over.
    last: Option<(String, Fence)>,
    renewals: u64,
    pub(super) slow_path: u64,
    /// Of the times before the last.
    late: u64,
    refused: u64,
    pub(super) last_error: Option<String>,
    /// Error of the last read, until a read succeeds.
    pub(super) read_error: Option<String>,
    /// Error of the last write, until a write succeeds or the Lease is held by another process.
    pub(super) write_error: Option<String>,
    pub(super) watch_error: Option<String>,
}

impl Status {
    /// The Lease was read. `is_free`: this process is about to write it.
    pub(super) fn can_read(&mut self, is_free: bool) {
        self.read_error = None;
        if !is_free {
            self.write_error = None;
        }
    }

    fn can_write(&mut self) {
        self.read_error = None;
        self.write_error = None;
    }

    pub(super) fn saw(&mut self, record: &Record) {
        self.last_error = None;
        self.record = record.clone();
    }

    pub(super) fn leads(&mut self, record: &Record, fence: &Fence) {
        self.saw(record);
        self.can_write();
        if let Some((_, before)) = self.last.replace((micro_time(Timestamp::now()), fence.clone())) {
            self.late += before.late_writes();
            self.refused += before.refused_writes();
        }
    }

    pub(super) fn renewed(&mut self, record: &Record) {
        self.saw(record);
        self.can_write();
        self.renewals += 1;
    }
}

impl Elector {
    /// How it is, for debug pages: as JSON or as it is.
    pub fn report(&self) -> LeaseReport {
        let (options, status) = (&self.0.options, self.0.status.lock());
        let leading = status.last.as_ref().filter(|(_, fence)| fence.check().is_ok());
        let of_last = |count: fn(&Fence) -> u64| status.last.as_ref().map_or(0, |(_, fence)| count(fence));
        LeaseReport {
            name: options.name.clone(),
            namespace: options.namespace.clone(),
            identity: options.identity.clone(),
            holder: status.record.holder().map(str::to_owned),
            leading: leading.is_some(),
            leading_since: leading.map(|(since, _)| since.clone()),
            token: leading.map(|(_, fence)| fence.token()),
            seconds_left: leading.map(|(_, fence)| (fence.deadline() - Instant::now()).as_secs_f64()),
            transitions: status.record.transitions(),
            renewals: status.renewals,
            slow_path: status.slow_path,
            late_writes: status.late + of_last(Fence::late_writes),
            refused_writes: status.refused + of_last(Fence::refused_writes),
            last_error: status.last_error.clone(),
            watch_error: status.watch_error.clone(),
        }
    }
}
