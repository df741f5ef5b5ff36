//! Development commands of the project, run as `cargo xtask …`.
//!
//! | command | does |
//! |---|---|
//! | `test` | runs every check that a change must pass |
//! | `soak` | runs random tests with new seeds, and fuzz targets |
//! | `bench` | measures this project and its peers |
//! | `envtest` | builds the binaries of a real control plane |
//! | `conformance` | compares the embedded API server with kube-apiserver |
//! | `openapi` | generates the API server's table of built-in types |

mod bench;
mod conformance;
mod deps;
mod envtest;
mod gotypes;
mod leaked_processes;
mod openapi;
mod process;
mod progress;
mod soak;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Development commands of the project"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every check that a change must pass: formatting, lints, docs, dependencies, tests
    Test(test::Options),
    /// Run random tests with new seeds, and fuzz targets
    Soak(soak::Options),
    /// Run benchmarks, with --peers also on other implementations, and print one table
    Bench(bench::Options),
    /// Build etcd, kube-apiserver, kube-controller-manager and kubectl, unless they are cached
    Envtest(envtest::Options),
    /// Compare the embedded API server with kube-apiserver
    Conformance(conformance::Options),
    /// Generate the API server's table of built-in types from Kubernetes' API description
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
        // The command has printed what failed.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
