//! The project's own commands, run as `cargo xtask …`.
//!
//! - `test`: the gate; every check a change must pass, in order.
//! - `soak`: random tests on new seeds, and fuzzing.
//! - `bench`: our workloads beside the peers', in one table.
//! - `envtest`: the real control plane, built when it is absent.
//! - `conformance`: the embedded API server beside the real one.
//! - `openapi`: the API server's table of built-in types.

mod bench;
mod conformance;
mod deps;
mod envtest;
mod gotypes;
mod leftovers;
mod openapi;
mod process;
mod progress;
mod soak;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "The project's own commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check everything a change must pass: formatting, lints, docs, dependencies, tests
    Test(test::Options),
    /// Run random tests on new seeds, and fuzz
    Soak(soak::Options),
    /// Measure our workloads, and with --peers the same ones on the peers, in one table
    Bench(bench::Options),
    /// Make the real control plane available: etcd, kube-apiserver, kube-controller-manager, kubectl
    Envtest(envtest::Options),
    /// Compare the embedded API server with the real one
    Conformance(conformance::Options),
    /// Make the API server's table of built-in types from Kubernetes' API description
    Openapi(openapi::Options),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Envtest(options) => envtest::run(&options),
        Command::Conformance(options) => conformance::run(&options),
        Command::Openapi(options) => openapi::run(&options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        // The command has said what failed.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
