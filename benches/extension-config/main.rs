//! Benches of the runtime client, run by `cargo xtask bench extension-config`.
//!
//! They measure hook calls per second, and the latency that a call adds to the work of a handler.
//! The extension server runs on loopback in the same process. Its handler returns at once.

#[path = "../controllers.rs"]
mod controllers;
mod extension;

use self::{
    controllers::{Workload, milliseconds, runtime},
    extension::Loopback,
};
use anyhow::Result;
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// Number of calls of a workload, after the connection is open.
const CALLS: usize = 5_000;

/// Number of extension servers that are discovered at the same time.
const EXTENSIONS: usize = 100;

/// Time that a slow extension server takes to answer.
const SLOW: Duration = Duration::from_secs(1);

const WORKLOADS: &[Workload] = &[
    (&["hook-calls"], "calls/s", || calls_per_second(1)),
    (&["hook-calls-8c"], "calls/s", || calls_per_second(8)),
    (&["hook-latency-p50", "hook-latency-p99"], "us", latency),
    (&["discover-100"], "ms", || discover(Duration::ZERO)),
    (&["discover-100-slow"], "ms", || discover(SLOW)),
];

fn main() -> ExitCode {
    controllers::run(WORKLOADS)
}

/// Calls per second of concurrent callers.
fn calls_per_second(callers: usize) -> Result<Vec<f64>> {
    runtime()?.block_on(async {
        let loopback = Loopback::start().await?;
        loopback.call().await?;
        let begun = Instant::now();
        let mut calling = JoinSet::new();
        for _ in 0..callers {
            let loopback = loopback.clone();
            calling.spawn(async move {
                for _ in 0..CALLS / callers {
                    loopback.call().await?;
                }
                anyhow::Ok(())
            });
        }
        for called in calling.join_all().await {
            called?;
        }
        Ok(vec![CALLS as f64 / begun.elapsed().as_secs_f64()])
    })
}

/// Median and 99th percentile of the duration of a call.
fn latency() -> Result<Vec<f64>> {
    runtime()?.block_on(async {
        let loopback = Loopback::start().await?;
        loopback.call().await?;
        let mut durations = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let begun = Instant::now();
            loopback.call().await?;
            durations.push(begun.elapsed());
        }
        durations.sort();
        let microseconds = |duration: Duration| duration.as_secs_f64() * 1e6;
        let percentile = |percent: usize| microseconds(durations[CALLS * percent / 100]);
        Ok(vec![percentile(50), percentile(99)])
    })
}

/// Time of concurrent discoveries, each with a connection of its own.
fn discover(delay: Duration) -> Result<Vec<f64>> {
    runtime()?.block_on(async {
        let loopback = Loopback::start().await?.delayed(delay).await?;
        let begun = Instant::now();
        let mut discoveries = JoinSet::new();
        for _ in 0..EXTENSIONS {
            let loopback = loopback.clone();
            discoveries.spawn(async move { loopback.discover().await });
        }
        for discovered in discoveries.join_all().await {
            discovered?;
        }
        Ok(vec![milliseconds(begun.elapsed())])
    })
}
