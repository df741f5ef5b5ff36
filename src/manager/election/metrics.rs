//! Prometheus metrics of leader election.

use super::{Elector, LeaseReport, elector::Shared};
use crate::prometheus::Page;
use parking_lot::Mutex;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use std::{
    fmt,
    sync::{Arc, Weak},
};

/// Metrics of leader election. Clones share their electors.
///
/// Values are read when the page is collected. Metrics that client-go has as well use its names.
///
/// | metric | meaning |
/// |---|---|
/// | `leader_election_master_status` | 1 if this process leads, 0 otherwise, by the `name` of the Lease |
/// | `leader_election_slowpath_total` | renewals for which the Lease had to be read first |
/// | `steersman_leader_election_renewals_total` | successful renewals |
/// | `steersman_leader_election_late_writes_total` | writes that were in flight when the fence closed |
/// | `steersman_leader_election_rejected_writes_total` | writes that were not sent because the fence was closed |
#[derive(Clone, Default)]
pub struct ElectionMetrics(Arc<Mutex<Vec<Weak<Shared>>>>);

impl ElectionMetrics {
    /// Adds an elector. Its metrics are shown until it is dropped.
    pub fn watch(&self, elector: &Elector) {
        self.0.lock().push(Arc::downgrade(&elector.0));
    }

    fn read(&self) -> Vec<LeaseReport> {
        let mut electors = self.0.lock();
        electors.retain(|elector| elector.strong_count() > 0);
        electors
            .iter()
            .filter_map(Weak::upgrade)
            .map(|shared| Elector(shared).report())
            .collect()
    }
}

impl Collector for ElectionMetrics {
    fn encode(&self, mut page: DescriptorEncoder) -> fmt::Result {
        let reports = self.read();
        if reports.is_empty() {
            return Ok(());
        }
        let mut page = Page(&mut page);
        let of = |report: &LeaseReport| vec![("name", report.name.clone())];
        page.gauges(
            (
                "leader_election_master_status",
                "Whether this process leads",
            ),
            reports
                .iter()
                .map(|report| (of(report), f64::from(u8::from(report.leading)))),
        )?;
        let mut counter = |named, value: fn(&LeaseReport) -> u64| {
            page.counters(
                named,
                reports.iter().map(|report| (of(report), value(report))),
            )
        };
        counter(
            (
                "leader_election_slowpath",
                "Number of renewals that had to read the Lease first",
            ),
            |it| it.slow_path,
        )?;
        counter(
            (
                "steersman_leader_election_renewals",
                "Number of renewals that succeeded",
            ),
            |it| it.renewals,
        )?;
        counter(
            (
                "steersman_leader_election_late_writes",
                "Number of writes that were in flight when the lease ended",
            ),
            |it| it.late_writes,
        )?;
        counter(
            (
                "steersman_leader_election_rejected_writes",
                "Number of writes that were not sent because the lease had ended",
            ),
            |it| it.rejected_writes,
        )
    }
}

impl fmt::Debug for ElectionMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElectionMetrics")
            .field("electors", &self.0.lock().len())
            .finish()
    }
}
