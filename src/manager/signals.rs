//! Signals that ask the process to stop.

use std::{io, process::exit, sync::mpsc, thread, time::Duration};
use tokio::{runtime, sync::oneshot};

/// Longest wait for the last log line. The log may be blocked, and the process has to end all the same.
const LOG_TIMEOUT: Duration = Duration::from_secs(2);

/// Resolves on the first SIGINT or SIGTERM (Ctrl-C on Windows). After that, a second one ends the process with status 1.
///
/// Signals count from the first poll on. A thread of its own receives them, so a second signal ends the process even if every
/// thread of the runtime is blocked.
///
/// # Panics
/// Where the process may not listen to signals or start a thread.
pub async fn shutdown() {
    let (first, received) = oneshot::channel();
    receive_on_thread(first).unwrap_or_else(|error| panic!("cannot listen to signals: {error}"));
    // The thread drops the sender only if this future is dropped first.
    if let Ok(signal) = received.await {
        tracing::info!(signal, "shutting down; a second signal ends at once");
    }
}

/// Starts the thread that sends the first signal and exits on the second. Signals are received once this returns.
fn receive_on_thread(mut first: oneshot::Sender<&'static str>) -> io::Result<()> {
    let (ready, listening) = mpsc::channel();
    thread::Builder::new().name("steersman-signals".into()).spawn(move || {
        let started = runtime::Builder::new_current_thread().enable_io().build().and_then(|runtime| {
            let entered = runtime.enter();
            let signals = Signals::listen()?;
            drop(entered);
            Ok((signals, runtime))
        });
        let (mut signals, runtime) = match started {
            Ok(started) => started,
            Err(error) => return drop(ready.send(Err(error))),
        };
        drop(ready.send(Ok(())));
        runtime.block_on(async {
            let signal = tokio::select! {
                signal = signals.next() => signal,
                () = first.closed() => return,
            };
            let _ = first.send(signal);
            log_end(signals.next().await);
            exit(1);
        });
    })?;
    listening.recv().unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn log_end(signal: &'static str) {
    let (done, logged) = mpsc::channel();
    let log = move || {
        tracing::warn!(signal, "ending at once");
        drop(done);
    };
    if thread::Builder::new().spawn(log).is_ok() {
        // An error means that the thread is done, or that the log is blocked.
        let _: Result<(), _> = logged.recv_timeout(LOG_TIMEOUT);
    }
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

#[cfg(not(unix))]
struct Signals(tokio::signal::windows::CtrlC);

#[cfg(not(unix))]
impl Signals {
    fn listen() -> io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Self)
    }

    async fn next(&mut self) -> &'static str {
        self.0.recv().await;
        "Ctrl-C"
    }
}
