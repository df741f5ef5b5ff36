//! What it takes to propagate what is there already: four writes for each control plane, no read, and nothing at all the next time.

use crate::many::Many;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::sleep;

const PLANES: usize = 50;

/// Longer than the controller looks again by itself.
const REST: Duration = Duration::from_mins(1);

/// Of each control plane; how watches begin, and what is asked of the server itself, is not counted.
fn of_objects(calls: BTreeMap<String, usize>) -> Vec<(String, usize)> {
    let is_of_all = |call: &str| call.starts_with("watch ") || call.starts_with("list ") || call.ends_with(' ');
    calls.into_iter().filter(|(call, _)| !is_of_all(call)).collect()
}

#[tokio::test(start_paused = true)]
async fn each_control_plane_takes_four_writes_and_no_read_and_the_next_manager_writes_nothing() -> anyhow::Result<()> {
    for workers in [None, Some(8)] {
        let many = Many::new(PLANES).await?;
        let running = many.start(workers)?;
        many.propagated().await?;
        sleep(REST).await;
        running.stop().await?;
        let calls = [("patch captcontrolplanes", 2), ("patch captcontrolplanes/status", 1), ("patch clusters", 1)];
        assert_eq!(of_objects(many.calls()), calls.map(|(call, each)| (call.to_owned(), each * PLANES)), "{workers:?}");

        let again = many.start(workers)?;
        sleep(REST).await;
        assert!(again.done() >= PLANES as u64, "each was looked at");
        again.stop().await?;
        assert_eq!(of_objects(many.calls()), [], "{workers:?}");
    }
    Ok(())
}
