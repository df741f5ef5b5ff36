//! The controller, measured, with its defaults: metrics, recovery of panics, a span and an id for every reconcile. Nobody takes logs, here and in the peers.
//!
//! `cargo xtask bench controller --peers` runs these workloads beside controller-runtime and kube-rs's `Controller`. The program speaks the protocol that all benches
//! share: `--one WORKLOAD IMPLEMENTATION [--quick]` does one repetition and prints it as JSON, `--list` says what there is. `--serve WORKLOAD [--quick]` is the server
//! of a workload that needs one: it prints where its kubeconfig is, and serves everybody who is given that as `KUBECONFIG` until its input ends.

mod fed;
mod forbidden;
mod noop;
#[path = "../open_loop.rs"]
mod open_loop;
mod sleeping;

use std::process::ExitCode;
use steersman::reconcile::Request;
use tokio::runtime::{Builder, Runtime};

const IMPLEMENTATION: &str = "steersman";

/// One or several workloads measured in one go: names, unit, values.
type Workload = (&'static [&'static str], &'static str, fn(quick: bool) -> Vec<f64>);

const WORKLOADS: &[Workload] = &[
    (&["reconciles-1w"], "reconciles/s", |quick| noop::reconciles(1, quick)),
    (&["reconciles-8w"], "reconciles/s", |quick| noop::reconciles(8, quick)),
    (&["latency-10k-p50", "latency-10k-p99"], "us", noop::latency),
    (&["cpu-per-reconcile"], "us", noop::cpu),
    (&["sleeping-10k-cpu"], "%", sleeping::cpu),
    (&[forbidden::NAME], "reconciles/s", forbidden::neighbour),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--list"] => {
            for name in WORKLOADS.iter().flat_map(|(names, ..)| *names) {
                println!("{name} {IMPLEMENTATION}");
            }
            ExitCode::SUCCESS
        }
        ["--one", workload, IMPLEMENTATION] => one(workload, false),
        ["--one", workload, IMPLEMENTATION, "--quick"] => one(workload, true),
        ["--serve", forbidden::NAME] | ["--serve", forbidden::NAME, "--quick"] => {
            forbidden::serve();
            ExitCode::SUCCESS
        }
        ["--one" | "--serve", ..] => usage("--one takes a workload and an implementation, --serve a workload"),
        // Whatever `cargo bench` is told is for criterion, which measures the queue.
        _ => {
            println!("controllers are measured by `cargo xtask bench controller`");
            ExitCode::SUCCESS
        }
    }
}

fn one(name: &str, quick: bool) -> ExitCode {
    let Some((names, unit, run)) = WORKLOADS.iter().find(|(names, ..)| names.contains(&name)) else {
        return usage(&format!("there is no workload '{name}'"));
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

/// Keys of about 30 bytes, over 100 namespaces.
fn keys(count: usize) -> Vec<Request> {
    (0..count).map(|i| Request::new(&format!("namespace-{:03}", i % 100), &format!("object-{i:08}"))).collect()
}

/// The number that [`keys`] gave a key.
fn number(key: &Request) -> usize {
    key.name().bytes().skip("object-".len()).fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

/// A runtime like that of most programs: a thread per core.
fn runtime() -> Runtime {
    Builder::new_multi_thread().enable_all().build().expect("a runtime can be built")
}
