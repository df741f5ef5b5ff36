//! Tests of the number of requests.
//!
//! Four writes per control plane, no read, and none the next time.

use crate::control_planes::{ControlPlanes, completed_reconciles};
use std::time::Duration;
use tokio::time::sleep;

const PLANES: usize = 50;

/// Longer than the controller's requeue interval.
const IDLE_TIME: Duration = Duration::from_mins(1);

#[tokio::test(start_paused = true)]
async fn each_control_plane_takes_four_writes_and_a_restarted_manager_writes_nothing()
-> anyhow::Result<()> {
    for workers in [None, Some(8)] {
        let planes = ControlPlanes::new(PLANES).await?;
        let running = planes.start(workers)?;
        planes.wait_until_propagated().await?;
        sleep(IDLE_TIME).await;
        running.stop().await?;
        let calls = planes.server.calls();
        assert_eq!(calls.writes(), 4 * PLANES, "{workers:?}");
        let writes = [
            "patch captcontrolplanes",
            "patch captcontrolplanes/status",
            "patch clusters",
        ];
        let reads = 0;
        assert_eq!(
            calls.count(&writes)[..4],
            [2 * PLANES, PLANES, PLANES, reads],
            "{workers:?}"
        );

        let running = planes.start(workers)?;
        sleep(IDLE_TIME).await;
        assert!(
            completed_reconciles(&running) >= PLANES as u64,
            "every control plane was reconciled"
        );
        running.stop().await?;
        let calls = planes.server.calls();
        assert_eq!(calls.writes(), 0, "{workers:?}");
        assert_eq!(calls.count(&[])[0], reads, "{workers:?}");
    }
    Ok(())
}
