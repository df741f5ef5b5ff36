//! The controller workloads on kube-rs's `Controller`, a peer of
//! `cargo xtask bench controller --peers`.
//!
//! `--list` prints the pairs of workload and implementation. `WORKLOAD IMPLEMENTATION [--quick]`
//! measures a pair once and prints a JSON line for each value. The workloads are those of
//! `benches/controller`, with the same keys and sizes.

mod forbidden;
mod harness;
mod noop;
#[path = "../../../../open_loop.rs"]
mod open_loop;
mod sleeping;

use anyhow::{Context, Result, bail};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

const IMPLEMENTATION: &str = "kube-runtime";

/// One or several workloads that are measured together: names, unit, values.
type Workload = (
    &'static [&'static str],
    &'static str,
    fn(quick: bool) -> Result<Vec<f64>>,
);

const WORKLOADS: &[Workload] = &[
    (&["reconciles-1w"], "reconciles/s", |quick| {
        noop::reconciles(1, quick)
    }),
    (&["reconciles-8w"], "reconciles/s", |quick| {
        noop::reconciles(8, quick)
    }),
    (&["latency-10k-p50", "latency-10k-p99"], "us", noop::latency),
    (&["cpu-per-reconcile"], "us", noop::cpu),
    (&["sleeping-10k-cpu"], "%", sleeping::cpu),
    (
        &["forbidden-neighbour"],
        "reconciles/s",
        forbidden::neighbour,
    ),
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

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().enable_all().build()?)
}
