//! The servers that all implementations are measured against, one after the other: `--serve WORKLOAD`.
//!
//! A server prints the path of its kubeconfig once it is ready, and ends when its input does. One that cannot be had here says why, and ends with
//! [`CANNOT`].

pub(crate) mod events;
pub(crate) mod objects;

use crate::{runtime, usage};
use std::{path::Path, process::ExitCode};
use steersman::testing::{Embedded, Environment, Options, TestServer};

/// What it takes is not installed.
const CANNOT: u8 = 3;

pub(crate) fn run(workload: &str, quick: bool) -> ExitCode {
    runtime().block_on(async {
        match workload {
            "ingest-event" => {
                let server = events::Server::start(quick).await;
                until_input_ends(server.kubeconfig());
            }
            "sync-100k-embedded" => {
                let server = Embedded::start().expect("it starts");
                objects::fill(&server.client().expect("a client"), objects::count(quick)).await;
                until_input_ends(&server.kubeconfig().await.expect("a kubeconfig"));
            }
            "sync-100k-real" => {
                let server = match Environment::start(Options::default()).await {
                    Ok(server) => server,
                    Err(error) => {
                        eprintln!("no real server: {error}");
                        return ExitCode::from(CANNOT);
                    }
                };
                objects::fill(&server.client().expect("a client"), objects::count(quick)).await;
                until_input_ends(server.kubeconfig().expect("a kubeconfig"));
                server.stop().await.expect("it stops");
            }
            _ => return usage(&format!("'{workload}' needs no server")),
        }
        ExitCode::SUCCESS
    })
}

/// The other threads serve meanwhile.
fn until_input_ends(kubeconfig: &Path) {
    println!("{}", kubeconfig.display());
    tokio::task::block_in_place(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).expect("an input");
}
