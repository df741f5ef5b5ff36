//! Command line of the benches of the controllers.
//!
//! `--list` prints the pairs of workload and implementation. `--one WORKLOAD IMPLEMENTATION
//! [--quick]` runs one repetition and prints it as JSON.

use std::{process::ExitCode, time::Duration};
use tokio::runtime::{Builder, Runtime};

const IMPLEMENTATION: &str = "steersman-controllers";

/// One or several workloads that are measured together: names, unit, values.
pub(crate) type Workload = (
    &'static [&'static str],
    &'static str,
    fn() -> anyhow::Result<Vec<f64>>,
);

/// Runs the workload that the command line names, or all.
pub(crate) fn run(workloads: &[Workload]) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["--list"] => {
            workloads
                .iter()
                .flat_map(|(names, ..)| *names)
                .for_each(|name| println!("{name} {IMPLEMENTATION}"));
            ExitCode::SUCCESS
        }
        ["--one", workload, IMPLEMENTATION] | ["--one", workload, IMPLEMENTATION, "--quick"] => {
            measure(workloads, workload)
        }
        ["--one", ..] => usage("--one takes a workload and an implementation"),
        // `cargo bench` runs every workload once.
        _ => exit_code(workloads.iter().try_for_each(|(names, unit, run)| {
            names
                .iter()
                .zip(run()?)
                .for_each(|(name, value)| println!("{name}: {value:.1} {unit}"));
            Ok(())
        })),
    }
}

fn measure(workloads: &[Workload], name: &str) -> ExitCode {
    let Some((names, unit, run)) = workloads.iter().find(|(names, ..)| names.contains(&name))
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
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    Ok(Builder::new_multi_thread().enable_all().build()?)
}

pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
