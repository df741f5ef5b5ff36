//! The servers of the workloads (`--serve WORKLOAD`), shared by all implementations.
//!
//! A server prints the path of its kubeconfig when it is ready, and stops when its standard input
//! is closed. A server that cannot run on this machine prints the reason and exits with
//! [`UNAVAILABLE`].

pub(crate) mod events;
pub(crate) mod objects;

use crate::{runtime, usage};
use std::{path::Path, process::ExitCode};
use steersman::testing::{Embedded, Environment, Options, TestServer};

/// Exit code if the binaries of the server are not installed.
const UNAVAILABLE: u8 = 3;

pub(crate) fn run(workload: &str, quick: bool) -> ExitCode {
    runtime().block_on(async {
        match workload {
            "ingest-event" => {
                let server = events::Server::start(quick).await;
                wait_until_stdin_closes(server.kubeconfig());
            }
            "sync-100k-embedded" => {
                let server = Embedded::start().expect("the server starts");
                objects::fill(&server.client().expect("a client"), objects::count(quick)).await;
                wait_until_stdin_closes(&server.kubeconfig().await.expect("a kubeconfig"));
            }
            "sync-100k-real" => {
                let server = match Environment::start(Options::default()).await {
                    Ok(server) => server,
                    Err(error) => {
                        eprintln!("cannot start kube-apiserver: {error}");
                        return ExitCode::from(UNAVAILABLE);
                    }
                };
                objects::fill(&server.client().expect("a client"), objects::count(quick)).await;
                wait_until_stdin_closes(server.kubeconfig().expect("a kubeconfig"));
                server.stop().await.expect("the server stops");
            }
            _ => return usage(&format!("workload '{workload}' has no server")),
        }
        ExitCode::SUCCESS
    })
}

/// Prints the path and blocks this thread. The other threads serve requests.
fn wait_until_stdin_closes(kubeconfig: &Path) {
    println!("{}", kubeconfig.display());
    tokio::task::block_in_place(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()))
        .expect("standard input is readable");
}
