//! Benches of the endpoint controller, run by `cargo xtask bench endpoint`.
//!
//! They measure the time from the start of a manager until the endpoints of 1,000 control planes,
//! whose outputs exist already, are propagated, and the calls per control plane.

mod control_planes;
#[path = "../controllers.rs"]
mod controllers;
#[path = "../recording_server.rs"]
mod recording_server;

use self::controllers::{Workload, milliseconds, runtime};
use control_planes::{ControlPlanes, completed_reconciles};
use std::{process::ExitCode, time::Duration, time::Instant};
use tokio::time::sleep;

const PLANES: usize = 1_000;

const WORKLOADS: &[Workload] = &[
    (&["endpoint-1000"], "ms", || time(None)),
    (&["endpoint-1000-8w"], "ms", || time(Some(8))),
    (&["endpoint-1000-again"], "ms", again),
    (CALLS, "calls", calls),
];

/// Calls per control plane: writes, reads of objects, other calls, and writes of a second manager.
const CALLS: &[&str] = &[
    "calls-patch-captcontrolplanes",
    "calls-patch-captcontrolplanes-status",
    "calls-patch-clusters",
    "calls-get",
    "calls-other",
    "calls-again-writes",
];

fn main() -> ExitCode {
    controllers::run(WORKLOADS)
}

/// Time from the start of a manager until all endpoints are propagated.
fn time(workers: Option<usize>) -> anyhow::Result<Vec<f64>> {
    runtime()?.block_on(async {
        let planes = ControlPlanes::new(PLANES).await?;
        let begun = Instant::now();
        let running = planes.start(workers)?;
        planes.wait_until_propagated().await?;
        let elapsed = begun.elapsed();
        running.stop().await?;
        Ok(vec![milliseconds(elapsed)])
    })
}

/// Time of a second manager, which finds all endpoints propagated.
fn again() -> anyhow::Result<Vec<f64>> {
    runtime()?.block_on(async {
        let planes = ControlPlanes::new(PLANES).await?;
        let first = planes.start(None)?;
        planes.wait_until_propagated().await?;
        first.stop().await?;
        Ok(vec![milliseconds(reconcile_again(&planes).await?)])
    })
}

/// Returns the time from the start of another manager until each control plane is reconciled.
async fn reconcile_again(planes: &ControlPlanes) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let running = planes.start(None)?;
    while completed_reconciles(&running) < PLANES as u64 {
        sleep(Duration::from_millis(1)).await;
    }
    let elapsed = begun.elapsed();
    running.stop().await?;
    Ok(elapsed)
}

fn calls() -> anyhow::Result<Vec<f64>> {
    runtime()?.block_on(async {
        let planes = ControlPlanes::new(PLANES).await?;
        let first = planes.start(None)?;
        planes.wait_until_propagated().await?;
        first.stop().await?;
        let mut counts = planes.server.calls().count(&[
            "patch captcontrolplanes",
            "patch captcontrolplanes/status",
            "patch clusters",
        ]);
        reconcile_again(&planes).await?;
        counts.push(planes.server.calls().writes());
        Ok(counts
            .into_iter()
            .map(|count| count as f64 / PLANES as f64)
            .collect())
    })
}
