//! Benches of the work queue, run by `cargo bench` and `cargo xtask bench queue --peers`.
//!
//! `cargo bench` runs the criterion benches. xtask uses `--list`, which prints the pairs of
//! workload and implementation, and `--one WORKLOAD IMPLEMENTATION [--quick]`, which runs one
//! repetition and prints it as JSON.

mod criterion;
mod floor;
mod latency;
mod memory;
#[path = "../open_loop.rs"]
mod open_loop;
mod snapshot;
mod timers;
mod workloads;

use floor::Floor;
use std::{process::ExitCode, sync::Arc};
use steersman::{
    object::ObjectKey,
    workqueue::{Prometheus, QueueOptions, WorkQueue},
};
use workloads::plain;

/// Result of a repetition: workload and value.
type Rows = Vec<(&'static str, f64)>;

/// One or several workloads that are measured together.
struct Workload {
    names: &'static [&'static str],
    unit: &'static str,
    run: fn(&Setup) -> Rows,
}

/// Options of a repetition.
struct Setup {
    metrics: bool,
    quick: bool,
    prometheus: Prometheus,
}

impl Setup {
    fn new(metrics: bool, quick: bool) -> Self {
        Self {
            metrics,
            quick,
            prometheus: Prometheus::default(),
        }
    }

    fn queue(&self) -> WorkQueue<ObjectKey> {
        let mut options = QueueOptions::default();
        if self.metrics {
            options.name = "bench".into();
            options.metrics = Some(Arc::new(self.prometheus.clone()));
        }
        WorkQueue::new(options)
    }

    fn pick(&self, quick: usize, full: usize) -> usize {
        if self.quick { quick } else { full }
    }
}

const BARE: &str = "steersman";
const METRICS: &str = "steersman+metrics";
const FLOOR: &str = "floor";

fn all() -> impl Iterator<Item = Workload> {
    workloads::all()
        .into_iter()
        .chain(timers::all())
        .chain(latency::all())
        .chain(memory::all())
        .chain(snapshot::all())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["--list"] => {
            for name in all().flat_map(|workload| workload.names) {
                println!("{name} {BARE}\n{name} {METRICS}");
            }
            for name in plain::<Floor>().iter().flat_map(|workload| workload.names) {
                println!("{name} {FLOOR}");
            }
            ExitCode::SUCCESS
        }
        ["--one", workload, implementation] => measure(workload, implementation, false),
        ["--one", workload, implementation, "--quick"] => measure(workload, implementation, true),
        ["--one", ..] => usage("--one takes a workload and an implementation"),
        _ => {
            criterion::run();
            ExitCode::SUCCESS
        }
    }
}

fn measure(name: &str, implementation: &str, quick: bool) -> ExitCode {
    let workloads = match implementation {
        BARE | METRICS => all().collect(),
        FLOOR => plain::<Floor>(),
        _ => {
            return usage(&format!("unknown implementation '{implementation}'"));
        }
    };
    let Some(workload) = workloads
        .iter()
        .find(|workload| workload.names.contains(&name))
    else {
        return usage(&format!("unknown workload '{name}' of '{implementation}'"));
    };
    for (name, value) in (workload.run)(&Setup::new(implementation == METRICS, quick)) {
        let row = serde_json::json!({
            "workload": name, "implementation": implementation, "unit": workload.unit, "value": value
        });
        println!("{row}");
    }
    ExitCode::SUCCESS
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("{problem}; --list shows every WORKLOAD IMPLEMENTATION for --one");
    ExitCode::from(2)
}

/// Returns keys of about 30 bytes in 100 namespaces.
fn keys(count: usize) -> Vec<ObjectKey> {
    (0..count)
        .map(|i| {
            ObjectKey::new(
                format!("namespace-{:03}", i % 100),
                format!("object-{i:08}"),
            )
        })
        .collect()
}

/// Returns the number of a key from [`keys`].
fn number(key: &ObjectKey) -> usize {
    key.name()
        .bytes()
        .skip("object-".len())
        .fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

/// Creates a runtime with a thread per core, as most programs have it.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime can be built")
}
