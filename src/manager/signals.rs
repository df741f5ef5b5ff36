//! When to stop.

use std::process::exit;

/// Resolves on the first SIGINT or SIGTERM. From then on a second one ends the process at once, with status 1. It counts from the first poll on.
///
/// # Panics
/// Outside of a tokio runtime, or where the process may not listen to signals.
#[cfg(unix)]
pub async fn shutdown() {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |kind| signal(kind).unwrap_or_else(|error| panic!("cannot listen to signals: {error}"));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt()), listen(SignalKind::terminate()));
    let mut next = async move || {
        tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
        }
    };
    let signal = next().await;
    tracing::info!(signal, "shutting down; a second signal ends at once");
    tokio::spawn(async move {
        let signal = next().await;
        tracing::warn!(signal, "ending at once");
        exit(1);
    });
}

/// Resolves on the first Ctrl-C. From then on a second one ends the process at once, with status 1. It counts from the first poll on.
#[cfg(not(unix))]
pub async fn shutdown() {
    drop(tokio::signal::ctrl_c().await);
    tokio::spawn(async {
        drop(tokio::signal::ctrl_c().await);
        exit(1);
    });
}
