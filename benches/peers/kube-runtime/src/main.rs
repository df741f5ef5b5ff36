//! The queue workloads on kube-runtime's scheduler, a peer of `cargo xtask bench queue --peers`.
//!
//! `--list` prints the pairs of workload and implementation. `WORKLOAD IMPLEMENTATION [--quick]`
//! measures a pair once and prints a JSON line. The workloads are those of the Go peers, with the
//! same numbers of keys and rounds.

mod workloads;

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::workloads::WORKLOADS;

const IMPLEMENTATION: &str = "kube-runtime";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--list"] => {
            for (workload, _) in WORKLOADS {
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
    let known = WORKLOADS.iter().find(|(name, _)| *name == workload);
    let (name, run) =
        known.with_context(|| format!("unknown workload `{workload}`: --list prints them"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let nanoseconds = runtime.block_on(run(quick))?;
    let value = (nanoseconds * 1000.0).round() / 1000.0;
    println!(
        "{}",
        json!({ "workload": name, "implementation": IMPLEMENTATION, "unit": "ns", "value": value })
    );
    Ok(())
}
