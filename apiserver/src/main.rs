//! `steersman-apiserver`: see [`steersman_apiserver::program`].

use clap::Parser;
use std::process::ExitCode;
use steersman_apiserver::program::{Flags, block_on, run};

fn main() -> ExitCode {
    let flags = Flags::parse();
    let ended = block_on(run(flags)).map_err(anyhow::Error::from).flatten();
    let Err(error) = ended else {
        return ExitCode::SUCCESS;
    };
    // Returning a `Result` from main would print the error with `Debug`.
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}
