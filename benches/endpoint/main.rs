//! The endpoint's controller, measured: from the start of a manager until 1,000 control planes, whose outputs are there already, have been told of; and the calls that it takes,
//! for each of them.
//!
//! `cargo xtask bench endpoint` shows the table. The program speaks the protocol of all benches here: `--one WORKLOAD IMPLEMENTATION [--quick]` does one repetition and prints it as
//! JSON, `--list` says what there is.

mod many;

use many::Many;
use std::{process::ExitCode, time::Duration, time::Instant};
use tokio::{
    runtime::{Builder, Runtime},
    time::sleep,
};

const IMPLEMENTATION: &str = "steersman-controllers";
const PLANES: usize = 1_000;

/// One or several workloads measured in one go: names, unit, values.
type Workload = (&'static [&'static str], &'static str, fn() -> anyhow::Result<Vec<f64>>);

const WORKLOADS: &[Workload] = &[
    (&["endpoint-1000"], "ms", || time(None)),
    (&["endpoint-1000-8w"], "ms", || time(Some(8))),
    (&["endpoint-1000-again"], "ms", again),
    (CALLS, "calls", calls),
];

/// For each control plane: what is written, objects that are read, everything else, and what a second manager writes.
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
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--list"] => {
            WORKLOADS.iter().flat_map(|(names, ..)| *names).for_each(|name| println!("{name} {IMPLEMENTATION}"));
            ExitCode::SUCCESS
        }
        ["--one", workload, IMPLEMENTATION] | ["--one", workload, IMPLEMENTATION, "--quick"] => one(workload),
        ["--one", ..] => usage("--one takes a workload and an implementation"),
        // `cargo bench`: everything once, for people.
        _ => said(WORKLOADS.iter().try_for_each(|(names, unit, run)| {
            names.iter().zip(run()?).for_each(|(name, value)| println!("{name}: {value:.1} {unit}"));
            Ok(())
        })),
    }
}

fn one(name: &str) -> ExitCode {
    let Some((names, unit, run)) = WORKLOADS.iter().find(|(names, ..)| names.contains(&name)) else {
        return usage(&format!("there is no workload '{name}'"));
    };
    said(run().map(|values| {
        for (name, value) in names.iter().zip(values) {
            let row =
                serde_json::json!({"workload": name, "implementation": IMPLEMENTATION, "unit": unit, "value": value});
            println!("{row}");
        }
    }))
}

fn said(run: anyhow::Result<()>) -> ExitCode {
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

/// A runtime like that of most programs: a thread per core.
fn runtime() -> anyhow::Result<Runtime> {
    Ok(Builder::new_multi_thread().enable_all().build()?)
}

/// From the start of a manager until all is propagated.
fn time(workers: Option<usize>) -> anyhow::Result<Vec<f64>> {
    runtime()?.block_on(async {
        let many = Many::new(PLANES).await?;
        let began = Instant::now();
        let running = many.start(workers)?;
        many.propagated().await?;
        let took = began.elapsed();
        running.stop().await?;
        Ok(vec![milliseconds(took)])
    })
}

/// The same where nothing is left to do.
fn again() -> anyhow::Result<Vec<f64>> {
    runtime()?.block_on(async {
        let many = Many::new(PLANES).await?;
        let first = many.start(None)?;
        many.propagated().await?;
        first.stop().await?;
        Ok(vec![milliseconds(looked_at_again(&many).await?)])
    })
}

/// From the start of another manager until each control plane has been looked at.
async fn looked_at_again(many: &Many) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let running = many.start(None)?;
    while running.done() < PLANES as u64 {
        sleep(Duration::from_millis(1)).await;
    }
    let took = began.elapsed();
    running.stop().await?;
    Ok(took)
}

fn calls() -> anyhow::Result<Vec<f64>> {
    runtime()?.block_on(async {
        let many = Many::new(PLANES).await?;
        let first = many.start(None)?;
        many.propagated().await?;
        first.stop().await?;
        let mut calls = many.calls();
        let patches = ["patch captcontrolplanes", "patch captcontrolplanes/status", "patch clusters"];
        let mut counts = patches.map(|patch| calls.remove(patch).unwrap_or_default()).to_vec();
        let (gets, others): (Vec<_>, Vec<_>) = calls.into_iter().partition(|(call, _)| is_get(call));
        counts.extend([gets, others].map(|calls| calls.iter().map(|(_, many)| many).sum::<usize>()));
        looked_at_again(&many).await?;
        counts.push(many.calls().iter().filter(|(call, _)| is_write(call)).map(|(_, many)| many).sum());
        Ok(counts.into_iter().map(|count| count as f64 / PLANES as f64).collect())
    })
}

/// Of an object; what is asked of the server itself has no resource.
fn is_get(call: &str) -> bool {
    call.starts_with("get ") && !call.ends_with(' ')
}

fn is_write(call: &str) -> bool {
    ["create", "patch", "update", "delete"].iter().any(|verb| call.starts_with(verb))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
