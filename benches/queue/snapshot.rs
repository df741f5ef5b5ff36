//! Waits for the lock during snapshots of a queue with a million keys.
//!
//! Most calls do not wait. The others wait for one slice of the snapshot. The longest wait has no
//! target, because it depends on how the kernel schedules the threads.

use crate::{Rows, Setup, Workload, keys, open_loop::percentile, timers::micros};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use steersman::workqueue::Add;

/// Pause between two calls, so that the snapshot holds the lock most of the time.
const PAUSE: Duration = Duration::from_micros(20);

pub(crate) fn all() -> Vec<Workload> {
    vec![Workload {
        names: &["snapshot-1m-wait-p99", "snapshot-1m-wait-max"],
        unit: "us",
        run: waits,
    }]
}

fn waits(setup: &Setup) -> Rows {
    let keys = keys(1_000_000);
    let calls = setup.pick(20_000, 100_000);
    let queue = setup.queue();
    queue.add_all(
        keys.iter().cloned(),
        Add {
            reason: Some("Deployment changed".into()),
            ..Add::default()
        },
    );
    let stop = AtomicBool::new(false);
    let mut waits: Vec<f64> = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(queue.snapshot().len(), keys.len());
            }
        });
        let waits = keys.iter().cycle().take(calls).map(|key| {
            let pause = Instant::now();
            while pause.elapsed() < PAUSE {}
            let start = Instant::now();
            queue.num_requeues(key);
            micros(start.elapsed())
        });
        let waits = waits.collect();
        stop.store(true, Ordering::Relaxed);
        waits
    });
    waits.sort_by(f64::total_cmp);
    vec![
        ("snapshot-1m-wait-p99", percentile(&waits, 99.0)),
        ("snapshot-1m-wait-max", percentile(&waits, 100.0)),
    ]
}
