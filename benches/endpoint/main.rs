//! Benches of the endpoint controller, run by `cargo xtask bench endpoint`.
//!
//! They measure the time from the start of a manager until the endpoints of 1,000 control planes,
//! whose outputs exist already, are propagated, and the calls per control plane.
//!
//! `--list` prints the pairs of workload and implementation. `--one WORKLOAD IMPLEMENTATION
//! [--quick]` runs one repetition and prints it as JSON.

mod control_planes;

use control_planes::ControlPlanes;
use std::{process::ExitCode, time::Duration, time::Instant};
use tokio::{
    runtime::{Builder, Runtime},
    time::sleep,
};

const IMPLEMENTATION: &str = "steersman-controllers";
const PLANES: usize = 1_000;

/// One or several workloads that are measured together: names, unit, values.
type Workload = (
    &'static [&'static str],
    &'static str,
    fn() -> anyhow::Result<Vec<f64>>,
);

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
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["--list"] => {
            WORKLOADS
                .iter()
                .flat_map(|(names, ..)| *names)
                .for_each(|name| println!("{name} {IMPLEMENTATION}"));
            ExitCode::SUCCESS
        }
        ["--one", workload, IMPLEMENTATION] | ["--one", workload, IMPLEMENTATION, "--quick"] => {
            measure(workload)
        }
        ["--one", ..] => usage("--one takes a workload and an implementation"),
        // `cargo bench` runs every workload once.
        _ => exit_code(WORKLOADS.iter().try_for_each(|(names, unit, run)| {
            names
                .iter()
                .zip(run()?)
                .for_each(|(name, value)| println!("{name}: {value:.1} {unit}"));
            Ok(())
        })),
    }
}

fn measure(name: &str) -> ExitCode {
    let Some((names, unit, run)) = WORKLOADS.iter().find(|(names, ..)| names.contains(&name))
    else {
        return usage(&format!("unknown workload '{name}'"));
    };
    exit_code(run().map(|values| {
        for (name, value) in names.iter().zip(values) {
            let row =
                serde_json::json!({"workload": name, "implementation": IMPLEMENTATION, "unit": unit, "value": value});
            println!("{row}");
        }
    }))
}

fn exit_code(run: anyhow::Result<()>) -> ExitCode {
    run.map_or_else(
        |error| {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("{problem}; --list shows every WORKLOAD IMPLEMENTATION for --one");
    ExitCode::from(2)
}

/// Creates a runtime with a thread per core, as most programs have it.
fn runtime() -> anyhow::Result<Runtime> {
    Ok(Builder::new_multi_thread().enable_all().build()?)
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
    while running.completed_reconciles() < PLANES as u64 {
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
        let mut calls = planes.calls();
        let patches = [
            "patch captcontrolplanes",
            "patch captcontrolplanes/status",
            "patch clusters",
        ];
        let mut counts = patches
            .map(|patch| calls.remove(patch).unwrap_or_default())
            .to_vec();
        let (gets, others): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|(call, _)| is_get(call));
        counts.extend(
            [gets, others].map(|calls| calls.iter().map(|(_, count)| count).sum::<usize>()),
        );
        reconcile_again(&planes).await?;
        counts.push(
            planes
                .calls()
                .iter()
                .filter(|(call, _)| is_write(call))
                .map(|(_, count)| count)
                .sum(),
        );
        Ok(counts
            .into_iter()
            .map(|count| count as f64 / PLANES as f64)
            .collect())
    })
}

/// Returns whether a call reads an object. Discovery has no resource.
fn is_get(call: &str) -> bool {
    call.starts_with("get ") && !call.ends_with(' ')
}

fn is_write(call: &str) -> bool {
    ["create", "patch", "update", "delete"]
        .iter()
        .any(|verb| call.starts_with(verb))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
