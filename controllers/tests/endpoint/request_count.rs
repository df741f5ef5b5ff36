//! Tests of the number of requests.
//!
//! Four writes per control plane, no read, and none the next time.

use crate::control_planes::ControlPlanes;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::sleep;

const PLANES: usize = 50;

/// Longer than the controller's requeue interval.
const IDLE_TIME: Duration = Duration::from_mins(1);

/// Filters the requests about single objects.
///
/// Lists, watches and discovery are not counted.
fn of_objects(calls: BTreeMap<String, usize>) -> Vec<(String, usize)> {
    let is_of_all =
        |call: &str| call.starts_with("watch ") || call.starts_with("list ") || call.ends_with(' ');
    calls
        .into_iter()
        .filter(|(call, _)| !is_of_all(call))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn each_control_plane_takes_four_writes_and_a_restarted_manager_writes_nothing()
-> anyhow::Result<()> {
    for workers in [None, Some(8)] {
        let planes = ControlPlanes::new(PLANES).await?;
        let running = planes.start(workers)?;
        planes.wait_until_propagated().await?;
        sleep(IDLE_TIME).await;
        running.stop().await?;
        let calls = [
            ("patch captcontrolplanes", 2),
            ("patch captcontrolplanes/status", 1),
            ("patch clusters", 1),
        ];
        assert_eq!(
            of_objects(planes.calls()),
            calls.map(|(call, each)| (call.to_owned(), each * PLANES)),
            "{workers:?}"
        );

        let scenario_runner = planes.start(workers)?;
        sleep(IDLE_TIME).await;
        assert!(
            scenario_runner.completed_reconciles() >= PLANES as u64,
            "every control plane was reconciled"
        );
        scenario_runner.stop().await?;
        assert_eq!(of_objects(planes.calls()), [], "{workers:?}");
    }
    Ok(())
}
