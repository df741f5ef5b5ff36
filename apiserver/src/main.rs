//! `steersman-apiserver`: see [`steersman_apiserver::program`].

use clap::Parser;
use std::process::ExitCode;
use steersman_apiserver::program::{Flags, run};

#[tokio::main]
async fn main() -> ExitCode {
    let Err(error) = run(Flags::parse()).await else { return ExitCode::SUCCESS };
    // Not as a `Result` of main: that would show a backtrace where a sentence is wanted.
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}
