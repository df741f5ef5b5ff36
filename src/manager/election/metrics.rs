//! Elections on a Prometheus page.

use super::{Elector, LeaseReport, elector::Shared};
use crate::page::Page;
use parking_lot::Mutex;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use std::{
    fmt,
    sync::{Arc, Weak},
};

/// Elections as metrics, read when the page is asked for. Those of client-go have its names. A clone shares its electors.
///
/// | metric | |
/// |---|---|
/// | `leader_election_master_status` | 1 on who leads, 0 on others, by the Lease's `name` |
/// | `leader_election_slowpath_total` | renewals for which the Lease had to be read first |
/// | `steersman_leader_election_renewals_total` | renewals that succeeded |
/// | `steersman_leader_election_late_writes_total` | writes that were on their way when their time of leading was over |
/// | `steersman_leader_election_refused_writes_total` | writes that were not sent, because it was over |
#[derive(Clone, Default)]
pub struct ElectionMetrics(Arc<Mutex<Vec<Weak<Shared>>>>);

impl ElectionMetrics {
    /// Show this one, as long as somebody has it.
    pub fn watch(&self, elector: &Elector) {
        self.0.lock().push(Arc::downgrade(&elector.0));
    }

    fn read(&self) -> Vec<LeaseReport> {
        let mut electors = self.0.lock();
        electors.retain(|elector| elector.strong_count() > 0);
        electors.iter().filter_map(Weak::upgrade).map(|shared| Elector(shared).report()).collect()
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
            ("leader_election_master_status", "Whether this process leads"),
            reports.iter().map(|report| (of(report), f64::from(u8::from(report.leading)))),
        )?;
        let mut counter = |named, value: fn(&LeaseReport) -> u64| {
            page.counters(named, reports.iter().map(|report| (of(report), value(report))))
        };
        counter(("leader_election_slowpath", "Renewals for which the Lease had to be read first"), |it| it.slow_path)?;
        counter(("steersman_leader_election_renewals", "Renewals that succeeded"), |it| it.renewals)?;
        counter(
            ("steersman_leader_election_late_writes", "Writes that were on their way when their time was over"),
            |it| it.late_writes,
        )?;
        counter(("steersman_leader_election_refused_writes", "Writes that were not sent, their time was over"), |it| {
            it.refused_writes
        })
    }
}

impl fmt::Debug for ElectionMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElectionMetrics").field("electors", &self.0.lock().len()).finish()
    }
}
