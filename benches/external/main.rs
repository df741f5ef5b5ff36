//! Benches of the cluster controller, run by `cargo xtask bench external`.
//!
//! They measure the calls per Cluster, and the time from the start of a manager until 1,000
//! Clusters are provisioned. The infrastructure of the Clusters is ready before the start.

mod clusters;
#[path = "../controllers.rs"]
mod controllers;
#[path = "../recording_server.rs"]
mod recording_server;

use self::{
    clusters::{Clusters, INFRASTRUCTURE},
    controllers::{Workload, milliseconds, runtime},
};
use std::{process::ExitCode, time::Duration, time::Instant};

const CLUSTERS: usize = 1_000;

const WORKLOADS: &[Workload] = &[
    (&["external-1000"], "ms", || time(None)),
    (&["external-1000-8w"], "ms", || time(Some(8))),
    (&["external-1000-again"], "ms", again),
    (CALLS, "calls", calls),
];

/// Columns of the calls per Cluster.
///
/// Writes by kind, reads of objects, other calls, the sum, and writes of a second manager.
const CALLS: &[&str] = &[
    "external-patch-clusters",
    "external-patch-clusters-status",
    "external-patch-infrastructure",
    "external-create-events",
    "external-get",
    "external-other",
    "external-calls",
    "external-again-writes",
];

fn main() -> ExitCode {
    controllers::run(WORKLOADS)
}

/// Time from the start of a manager until all Clusters are provisioned.
fn time(workers: Option<usize>) -> anyhow::Result<Vec<f64>> {
    runtime()?.block_on(async {
        let clusters = Clusters::new(CLUSTERS).await?;
        let begun = Instant::now();
        let running = clusters.start(workers)?;
        clusters.wait_until_provisioned(&running).await?;
        let elapsed = begun.elapsed();
        running.stop().await?;
        Ok(vec![milliseconds(elapsed)])
    })
}

/// Time of a second manager, for which all Clusters are provisioned already.
fn again() -> anyhow::Result<Vec<f64>> {
    runtime()?.block_on(async {
        let clusters = provisioned().await?;
        Ok(vec![milliseconds(reconcile_again(&clusters).await?)])
    })
}

/// Returns Clusters that a manager has provisioned.
async fn provisioned() -> anyhow::Result<Clusters> {
    let clusters = Clusters::new(CLUSTERS).await?;
    let running = clusters.start(None)?;
    clusters.wait_until_provisioned(&running).await?;
    running.stop().await?;
    Ok(clusters)
}

/// Returns the time from the start of another manager until each Cluster is reconciled.
async fn reconcile_again(clusters: &Clusters) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let running = clusters.start(None)?;
    clusters.wait_until_reconciled(&running).await;
    let elapsed = begun.elapsed();
    running.stop().await?;
    Ok(elapsed)
}

fn calls() -> anyhow::Result<Vec<f64>> {
    runtime()?.block_on(async {
        let clusters = provisioned().await?;
        let mut counts = clusters.server.calls().count(&[
            "patch clusters",
            "patch clusters/status",
            &format!("patch {INFRASTRUCTURE}"),
            "create events",
        ]);
        counts.push(counts.iter().sum());
        reconcile_again(&clusters).await?;
        counts.push(clusters.server.calls().writes());
        Ok(counts
            .into_iter()
            .map(|count| count as f64 / CLUSTERS as f64)
            .collect())
    })
}
