//! Benches of the controller, run by `cargo xtask bench controller --peers`.
//!
//! The controller has its defaults: metrics, recovery of panics, a span and an id for every
//! reconcile. Logs are discarded, also in the peers.
//!
//! | arguments | does |
//! |---|---|
//! | `--list` | prints the pairs of workload and implementation |
//! | `--one WORKLOAD IMPLEMENTATION [--quick]` | runs one repetition and prints it as JSON |
//! | `--serve WORKLOAD [--quick]` | runs the server of a workload until stdin is closed |

mod forbidden;
mod harness;
mod noop;
#[path = "../open_loop.rs"]
mod open_loop;
mod sleeping;

use std::process::ExitCode;
use steersman::reconcile::Request;
use tokio::runtime::{Builder, Runtime};

const IMPLEMENTATION: &str = "steersman";

/// One or several workloads that are measured together: names, unit, values.
type Workload = (
    &'static [&'static str],
    &'static str,
    fn(quick: bool) -> Vec<f64>,
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
    (&[forbidden::NAME], "reconciles/s", forbidden::neighbour),
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
            for name in WORKLOADS.iter().flat_map(|(names, ..)| *names) {
                println!("{name} {IMPLEMENTATION}");
            }
            ExitCode::SUCCESS
        }
        ["--one", workload, IMPLEMENTATION] => measure(workload, false),
        ["--one", workload, IMPLEMENTATION, "--quick"] => measure(workload, true),
        ["--serve", forbidden::NAME] | ["--serve", forbidden::NAME, "--quick"] => {
            forbidden::serve();
            ExitCode::SUCCESS
        }
        ["--one" | "--serve", ..] => {
            usage("--one takes a workload and an implementation, --serve a workload")
        }
        // Other arguments come from `cargo bench` and are meant for criterion.
        _ => {
            println!("controllers are measured by `cargo xtask bench controller`");
            ExitCode::SUCCESS
        }
    }
}

fn measure(name: &str, quick: bool) -> ExitCode {
    let Some((names, unit, run)) = WORKLOADS.iter().find(|(names, ..)| names.contains(&name))
    else {
        return usage(&format!("unknown workload '{name}'"));
    };
    for (name, value) in names.iter().zip(run(quick)) {
        let row = serde_json::json!({"workload": name, "implementation": IMPLEMENTATION, "unit": unit, "value": value});
        println!("{row}");
    }
    ExitCode::SUCCESS
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("{problem}; --list shows every WORKLOAD IMPLEMENTATION for --one");
    ExitCode::from(2)
}

fn pick<T>(quick: bool, then: T, otherwise: T) -> T {
    if quick { then } else { otherwise }
}

/// Returns keys of about 30 bytes in 100 namespaces.
fn keys(count: usize) -> Vec<Request> {
    (0..count)
        .map(|i| {
            Request::new(
                format!("namespace-{:03}", i % 100),
                format!("object-{i:08}"),
            )
        })
        .collect()
}

/// Returns the number of a key from [`keys`].
fn number(key: &Request) -> usize {
    key.name()
        .bytes()
        .skip("object-".len())
        .fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

/// Creates a runtime with a thread per core, as most programs have it.
fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime can be built")
}
