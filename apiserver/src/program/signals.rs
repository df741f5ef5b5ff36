//! Signals that ask the program to stop.

use std::{io, process::exit, sync::mpsc, thread};
use tokio::{runtime, sync::oneshot};

/// Listens to SIGINT and SIGTERM (Ctrl-C on Windows). The future resolves on the first one. After that, a second one ends the
/// process with status 1.
///
/// A thread of its own receives the signals, so a second one ends the process even if every thread of the runtime is blocked.
pub(super) fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let (first, received) = oneshot::channel();
    receive_on_thread(first)?;
    Ok(async move {
        // The thread drops the sender only if this future is dropped first.
        let _ = received.await;
    })
}

/// Starts the thread that reports the first signal and exits on the second. Signals are received once this returns.
fn receive_on_thread(mut first: oneshot::Sender<()>) -> io::Result<()> {
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
            tokio::select! {
                () = signals.next() => {}
                () = first.closed() => return,
            }
            let _ = first.send(());
            signals.next().await;
            exit(1);
        });
    })?;
    listening.recv().unwrap_or_else(|error| Err(io::Error::other(error)))
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

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
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

    async fn next(&mut self) {
        self.0.recv().await;
    }
}
