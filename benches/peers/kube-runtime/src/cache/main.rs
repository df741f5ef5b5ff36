//! The cache workloads on kube-runtime's reflector, a peer of `cargo xtask bench cache --peers`.
//!
//! `--list` prints the pairs of workload and implementation. `WORKLOAD IMPLEMENTATION [--quick]`
//! measures a pair once and prints a JSON line for each value. `--objects` prints a hash of the
//! objects. The workloads are those of `benches/cache`, with the same objects and sizes.

mod live;
#[path = "../../../../cache/pods.rs"]
mod pods;
mod stalls;
mod store;

use anyhow::{Context, Result, bail};
use serde_json::json;
use std::time::{Duration, Instant};

const IMPLEMENTATION: &str = "kube-runtime";

/// One or several workloads that are measured together: names, unit, values.
type Workload = (
    &'static [&'static str],
    &'static str,
    fn(quick: bool) -> Result<Vec<f64>>,
);

const WORKLOADS: &[Workload] = &[
    (&["heap-per-object"], "B", |_| store::heap(false)),
    (&["heap-per-object-managed"], "B", |_| store::heap(true)),
    (&["store-add-100k", "store-update"], "ns", |_| {
        Ok(store::writes())
    }),
    (&["get", "get-2t"], "ns", |quick| Ok(store::gets(quick))),
    (
        &["list-100k", "list-label", "index-1000", "index-100"],
        "us",
        |quick| Ok(store::lists(quick)),
    ),
    (&["update-while-list-max"], "us", |quick| {
        Ok(stalls::update_while_list(quick))
    }),
    (&["relist-stall-max"], "us", |_| stalls::relist()),
    (&["handlers-1"], "ns", |quick| live::handlers(quick, 1)),
    (&["handlers-4"], "ns", |quick| live::handlers(quick, 4)),
    (&["handlers-16"], "ns", |quick| live::handlers(quick, 16)),
    (&["ingest-event"], "us", live::ingest),
    (&["sync-100k-embedded"], "ms", live::sync),
    (&["sync-100k-real"], "ms", live::sync),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--list"] => {
            for workload in WORKLOADS.iter().flat_map(|(names, ..)| *names) {
                println!("{workload} {IMPLEMENTATION}");
            }
            Ok(())
        }
        ["--objects"] => {
            println!("{}", pods::hash());
            Ok(())
        }
        [workload, IMPLEMENTATION] => measure(workload, false),
        [workload, IMPLEMENTATION, "--quick"] => measure(workload, true),
        _ => {
            bail!("usage: WORKLOAD {IMPLEMENTATION} [--quick], with a workload from --list")
        }
    }
}

fn measure(workload: &str, quick: bool) -> Result<()> {
    let known = WORKLOADS
        .iter()
        .find(|(names, ..)| names.contains(&workload));
    let (names, unit, run) =
        known.with_context(|| format!("unknown workload `{workload}`: --list prints them"))?;
    for (name, value) in names.iter().zip(run(quick)?) {
        let value = (value * 1000.0).round() / 1000.0;
        println!(
            "{}",
            json!({ "workload": name, "implementation": IMPLEMENTATION, "unit": unit, "value": value })
        );
    }
    Ok(())
}

fn pick<T>(quick: bool, then: T, otherwise: T) -> T {
    if quick { then } else { otherwise }
}

fn nanos(elapsed: Duration, items: usize) -> f64 {
    elapsed.as_nanos() as f64 / items as f64
}

fn micros(elapsed: Duration) -> f64 {
    elapsed.as_nanos() as f64 / 1e3
}

/// Returns the duration over which calls are averaged.
fn minimum_duration(quick: bool) -> Duration {
    pick(
        quick,
        Duration::from_millis(100),
        Duration::from_millis(400),
    )
}

/// Returns the average nanoseconds of a call, after one call to warm up.
fn per_call(quick: bool, mut call: impl FnMut()) -> f64 {
    call();
    let start = Instant::now();
    let mut calls = 0;
    while calls == 0 || start.elapsed() < minimum_duration(quick) {
        call();
        calls += 1;
    }
    nanos(start.elapsed(), calls)
}
