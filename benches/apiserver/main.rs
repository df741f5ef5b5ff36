//! Benches of the embedded API server, run by `cargo xtask bench apiserver`.
//!
//! Requests go to its `tower::Service`, without a socket. `--list` prints the pairs of workload and
//! implementation. `--one WORKLOAD IMPLEMENTATION [--quick]` runs one repetition and prints it as
//! JSON.

mod fixture;
mod memory;
mod requests;
mod watches;

use std::process::ExitCode;

/// Result of a repetition: workload, unit and value.
type Rows = Vec<(&'static str, &'static str, f64)>;

/// One or several workloads that are measured together.
struct Workload {
    names: &'static [&'static str],
    run: fn(quick: bool) -> Rows,
}

const IMPLEMENTATION: &str = "steersman-apiserver";

const ALL: &[Workload] = &[
    Workload {
        names: &["ready"],
        run: requests::ready,
    },
    Workload {
        names: &["create-100k", "get-100k", "update-100k", "list-500-of-100k"],
        run: requests::requests,
    },
    Workload {
        names: &["watch-100-event", "watch-1-event", "watch-100-latency"],
        run: watches::watches,
    },
    Workload {
        names: &["memory-100k"],
        run: memory::memory,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["--one", name, IMPLEMENTATION] => measure(name, false),
        ["--one", name, IMPLEMENTATION, "--quick"] => measure(name, true),
        ["--one", ..] => {
            eprintln!("--one takes a workload and {IMPLEMENTATION}; --list shows them");
            ExitCode::from(2)
        }
        ["--list"] => {
            ALL.iter()
                .flat_map(|workload| workload.names)
                .for_each(|name| println!("{name} {IMPLEMENTATION}"));
            ExitCode::SUCCESS
        }
        // `cargo bench` runs every workload once.
        _ => {
            for (name, unit, value) in ALL.iter().flat_map(|workload| (workload.run)(true)) {
                println!("{name}: {value:.1} {unit}");
            }
            ExitCode::SUCCESS
        }
    }
}

fn measure(name: &str, quick: bool) -> ExitCode {
    let Some(workload) = ALL.iter().find(|workload| workload.names.contains(&name)) else {
        eprintln!("unknown workload '{name}'; --list shows them");
        return ExitCode::from(2);
    };
    for (workload, unit, value) in (workload.run)(quick) {
        let row = serde_json::json!({
            "workload": workload, "implementation": IMPLEMENTATION, "unit": unit, "value": value
        });
        println!("{row}");
    }
    ExitCode::SUCCESS
}
