//! The cache, measured.
//!
//! `cargo xtask bench cache --peers` runs these workloads beside client-go, controller-runtime and kube-runtime. The program speaks the protocol that
//! all benches share: `--one WORKLOAD IMPLEMENTATION [--quick]` does one repetition and prints it as JSON, `--list` says what there is, `--objects`
//! prints a hash of the objects. `--serve WORKLOAD [--quick]` is the server of a workload that needs one: it prints where its kubeconfig is, and
//! serves everybody who is given that as `KUBECONFIG` until its input ends.

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

/// What a repetition yields: workload and value.
type Rows = Vec<(&'static str, f64)>;

/// One or several workloads measured in one go.
struct Workload {
    names: &'static [&'static str],
    unit: &'static str,
    forms: &'static [Form],
    run: fn(Form, quick: bool) -> Rows,
}

/// How the informer keeps its objects: our implementations.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Typed,
    Compact,
    Metadata,
}

/// What is no informer at all.
const FLOOR: &str = "floor";

const FORMS: &[Form] = &[Form::Typed, Form::Compact, Form::Metadata];

impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Typed => "steersman",
            Self::Compact => "steersman-compact",
            Self::Metadata => "steersman-metadata",
        }
    }
}

/// Calls a generic function with an informer of that form and what feeds it.
macro_rules! fed {
    ($form:expr, $run:path $(, $argument:expr)*) => {{
        use k8s_openapi::api::core::v1::Pod;
        use steersman::{cache::bench, object::Metadata};
        match $form {
            $crate::Form::Typed => $run(bench::typed::<Pod>() $(, $argument)*),
            $crate::Form::Compact => $run(bench::compact::<Pod>() $(, $argument)*),
            $crate::Form::Metadata => $run(bench::metadata::<Metadata<Pod>>() $(, $argument)*),
        }
    }};
}
pub(crate) use fed;

fn all() -> impl Iterator<Item = Workload> {
    let parts = [memory::all(), writes::all(), reads::all(), stalls::all(), handlers::all(), live::all()];
    parts.into_iter().flatten()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--list"] => {
            for workload in all() {
                for (name, form) in workload.names.iter().flat_map(|name| workload.forms.iter().map(move |f| (name, f)))
                {
                    println!("{name} {}", form.name());
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
        ["--one", workload, implementation] => one(workload, implementation, false),
        ["--one", workload, implementation, "--quick"] => one(workload, implementation, true),
        ["--serve", workload] => serve::run(workload, false),
        ["--serve", workload, "--quick"] => serve::run(workload, true),
        ["--one" | "--serve", ..] => usage("--one takes a workload and an implementation, --serve a workload"),
        // Whatever `cargo bench` is told is for criterion, which measures the queue.
        _ => {
            println!("the cache is measured by `cargo xtask bench cache`");
            ExitCode::SUCCESS
        }
    }
}

fn one(name: &str, implementation: &str, quick: bool) -> ExitCode {
    let (unit, rows) = if implementation == FLOOR {
        let Some(floor) = floor::all().into_iter().find(|floor| floor.names.contains(&name)) else {
            return usage(&format!("{name} has no floor"));
        };
        (floor.unit, (floor.run)(quick))
    } else {
        let Some(workload) = all().find(|workload| workload.names.contains(&name)) else {
            return usage(&format!("there is no workload '{name}'"));
        };
        let Some(form) = workload.forms.iter().find(|form| form.name() == implementation) else {
            return usage(&format!("{name} has no implementation '{implementation}' here"));
        };
        (workload.unit, (workload.run)(*form, quick))
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

/// A runtime like that of most programs: a thread per core.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime can be built")
}

fn nanos(duration: Duration, items: usize) -> f64 {
    duration.as_nanos() as f64 / items as f64
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}

/// Nanoseconds of a call, on average over a part of a second, and over at least one call after the first.
fn per_call(quick: bool, mut call: impl FnMut()) -> f64 {
    call();
    let (start, least) = (Instant::now(), pick(quick, Duration::from_millis(100), Duration::from_millis(400)));
    let mut calls = 0;
    while calls == 0 || start.elapsed() < least {
        call();
        calls += 1;
    }
    nanos(start.elapsed(), calls)
}
