//! The longest waits: of a writer while another thread lists, and of a reader during a relist.

use crate::{
    micros, pick,
    pods::{FIRST_REVISION, shuffled},
    store::{COUNT, decoded, filled, keys},
};
use anyhow::{Result, ensure};
use kube_runtime::watcher::Event;
use std::{
    hint::{black_box, spin_loop},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Interval of updates.
const UPDATE_INTERVAL: Duration = Duration::from_micros(100);

pub(crate) fn update_while_list(quick: bool) -> Vec<f64> {
    let (reader, mut writer) = filled();
    let updates = decoded(
        shuffled(COUNT).take(pick(quick, 5_000, 20_000)),
        FIRST_REVISION + COUNT as u64,
    );
    let stop = AtomicBool::new(false);
    let longest = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                black_box(reader.state());
            }
        });
        let mut longest = Duration::ZERO;
        for event in &updates {
            let start = Instant::now();
            writer.apply_watcher_event(event);
            longest = longest.max(start.elapsed());
            while start.elapsed() < UPDATE_INTERVAL {
                spin_loop();
            }
        }
        stop.store(true, Relaxed);
        longest
    });
    vec![micros(longest)]
}

pub(crate) fn relist() -> Result<Vec<f64>> {
    let (reader, mut writer) = filled();
    let keys = keys();
    let events = decoded(0..COUNT, FIRST_REVISION + 2 * COUNT as u64);
    let stop = AtomicBool::new(false);
    let (longest, all_found) = thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (mut longest, mut all_found) = (Duration::ZERO, true);
            for key in keys.iter().cycle() {
                if stop.load(Relaxed) {
                    break;
                }
                let start = Instant::now();
                let object = reader.get(key);
                longest = longest.max(start.elapsed());
                all_found &= object.is_some();
            }
            (longest, all_found)
        });
        // The reader starts meanwhile.
        thread::sleep(Duration::from_millis(50));
        writer.apply_watcher_event(&Event::Init);
        for event in events {
            if let Event::Apply(pod) = event {
                writer.apply_watcher_event(&Event::InitApply(pod));
            }
        }
        writer.apply_watcher_event(&Event::InitDone);
        stop.store(true, Relaxed);
        reading.join().expect("gets do not panic")
    });
    ensure!(all_found, "a pod was missing");
    Ok(vec![micros(longest)])
}
