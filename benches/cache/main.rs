//! Benches of the cache, run by `cargo xtask bench cache --peers`.
//!
//! | arguments | does |
//! |---|---|
//! | `--list` | prints the pairs of workload and implementation |
//! | `--one WORKLOAD IMPLEMENTATION [--quick]` | runs one repetition and prints it as JSON |
//! | `--objects` | prints a hash of the objects |
//! | `--serve WORKLOAD [--quick]` | runs the server of a workload (see [`serve`]) |

mod floor;
mod handlers;
mod live;
mod memory;
mod pods;
mod reads;
mod serve;
mod stalls;
mod writes;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

/// Result of a repetition: workload and value.
type Rows = Vec<(&'static str, f64)>;

/// One or several workloads that are measured together.
struct Workload {
    names: &'static [&'static str],
    unit: &'static str,
    representations: &'static [Representation],
    run: fn(Representation, quick: bool) -> Rows,
}

/// Representation of the objects in the informer. Each is an implementation of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Representation {
    Typed,
    Compact,
    Metadata,
}

/// The implementation in [`floor`], which uses no informer.
const FLOOR: &str = "floor";

const REPRESENTATIONS: &[Representation] = &[
    Representation::Typed,
    Representation::Compact,
    Representation::Metadata,
];

impl Representation {
    fn name(self) -> &'static str {
        match self {
            Self::Typed => "steersman",
            Self::Compact => "steersman-compact",
            Self::Metadata => "steersman-metadata",
        }
    }
}

/// Calls a generic function with an informer of the representation and its feed.
macro_rules! with_informer {
    ($representation:expr, $run:path $(, $argument:expr)*) => {{
        use k8s_openapi::api::core::v1::Pod;
        use steersman::{cache::bench, object::Metadata};
        match $representation {
            $crate::Representation::Typed => $run(bench::typed::<Pod>() $(, $argument)*),
            $crate::Representation::Compact => $run(bench::compact::<Pod>() $(, $argument)*),
            $crate::Representation::Metadata => $run(bench::metadata::<Metadata<Pod>>() $(, $argument)*),
        }
    }};
}
pub(crate) use with_informer;

fn all() -> impl Iterator<Item = Workload> {
    let parts = [
        memory::all(),
        writes::all(),
        reads::all(),
        stalls::all(),
        handlers::all(),
        live::all(),
    ];
    parts.into_iter().flatten()
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
            for workload in all() {
                for (name, representation) in workload
                    .names
                    .iter()
                    .flat_map(|name| workload.representations.iter().map(move |f| (name, f)))
                {
                    println!("{name} {}", representation.name());
                }
            }
            for name in floor::all().iter().flat_map(|floor| floor.names) {
                println!("{name} {FLOOR}");
            }
            ExitCode::SUCCESS
        }
        ["--objects"] => {
            println!("{}", pods::hash());
            ExitCode::SUCCESS
        }
        ["--one", workload, implementation] => measure(workload, implementation, false),
        ["--one", workload, implementation, "--quick"] => measure(workload, implementation, true),
        ["--serve", workload] => serve::run(workload, false),
        ["--serve", workload, "--quick"] => serve::run(workload, true),
        ["--one" | "--serve", ..] => {
            usage("--one takes a workload and an implementation, --serve a workload")
        }
        // Other arguments come from `cargo bench` and are meant for criterion.
        _ => {
            println!("the cache is measured by `cargo xtask bench cache`");
            ExitCode::SUCCESS
        }
    }
}

fn measure(name: &str, implementation: &str, quick: bool) -> ExitCode {
    let (unit, rows) = if implementation == FLOOR {
        let Some(floor) = floor::all()
            .into_iter()
            .find(|floor| floor.names.contains(&name))
        else {
            return usage(&format!("unknown workload '{name}' of {FLOOR}"));
        };
        (floor.unit, (floor.run)(quick))
    } else {
        let Some(workload) = all().find(|workload| workload.names.contains(&name)) else {
            return usage(&format!("unknown workload '{name}'"));
        };
        let Some(representation) = workload
            .representations
            .iter()
            .find(|representation| representation.name() == implementation)
        else {
            return usage(&format!(
                "unknown implementation '{implementation}' of {name}"
            ));
        };
        (workload.unit, (workload.run)(*representation, quick))
    };
    for (name, value) in rows {
        let row = serde_json::json!({
            "workload": name, "implementation": implementation, "unit": unit, "value": value
        });
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

/// Creates a runtime with a thread per core, as most programs have it.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime can be built")
}

fn nanos(duration: Duration, items: usize) -> f64 {
    duration.as_nanos() as f64 / items as f64
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}

/// Returns the average nanoseconds of a call, after one call to warm up.
fn per_call(quick: bool, mut call: impl FnMut()) -> f64 {
    call();
    let duration = pick(
        quick,
        Duration::from_millis(100),
        Duration::from_millis(400),
    );
    let start = Instant::now();
    let mut calls = 0;
    while calls == 0 || start.elapsed() < duration {
        call();
        calls += 1;
    }
    nanos(start.elapsed(), calls)
}
