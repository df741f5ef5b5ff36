//! Signals that ask the process to stop.
//!
//! Invariant: each signal resolves a future of [`shutdown`] or ends the process. tokio keeps its
//! signal handlers for the life of the process, so a signal that no future waits for would have no
//! effect.

use parking_lot::Mutex;
use std::{io, mem, process::exit, sync::mpsc, thread, time::Duration};
#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};
use tokio::{
    runtime::{self, Runtime},
    sync::oneshot,
};

/// Longest time that the last log line may take. The log may be blocked, and the process has to end
/// all the same.
const LOG_TIMEOUT: Duration = Duration::from_secs(2);

/// Resolves on the first SIGINT or SIGTERM (Ctrl-C on Windows). After that, a second one ends the
/// process with status 1.
///
/// Signals count from the first poll on. A thread of its own receives them, so a second signal ends
/// the process even if every thread of the runtime is blocked. Several futures resolve together.
///
/// After a future was dropped, a signal that no other future waits for ends the process, as it does
/// by default. The status is that of a shell: 130 after SIGINT, and 143 after SIGTERM.
///
/// # Panics
/// If the process may not listen to signals or start a thread.
pub async fn shutdown() {
    let (waiter, received) = oneshot::channel();
    add_waiter(waiter).unwrap_or_else(|error| panic!("cannot listen to signals: {error}"));
    // The thread keeps the sender until it has received a signal.
    if let Ok(signal) = received.await {
        tracing::info!(signal, "shutting down, second signal exits at once");
    }
}

/// The futures of [`shutdown`], and the thread that resolves them. Global, because signal handlers
/// are.
static WAITERS: Mutex<Waiters> = Mutex::new(Waiters {
    has_thread: false,
    waiting: Vec::new(),
});

struct Waiters {
    has_thread: bool,
    waiting: Vec<oneshot::Sender<&'static str>>,
}

/// Adds a waiter for the first signal. Signals are received once this returns.
fn add_waiter(waiter: oneshot::Sender<&'static str>) -> io::Result<()> {
    let mut waiters = WAITERS.lock();
    if !waiters.has_thread {
        start_thread()?;
        waiters.has_thread = true;
    }
    waiters.waiting.retain(|waiter| !waiter.is_closed());
    waiters.waiting.push(waiter);
    Ok(())
}

/// Starts the thread that receives signals, and waits until it does.
fn start_thread() -> io::Result<()> {
    let (ready, listening) = mpsc::channel();
    thread::Builder::new()
        .name("steersman-signals".into())
        .spawn(move || {
            let started = runtime::Builder::new_current_thread()
                .enable_io()
                .build()
                .and_then(|runtime| {
                    let entered = runtime.enter();
                    let signals = Signals::listen()?;
                    drop(entered);
                    Ok((signals, runtime))
                });
            match started {
                Ok((signals, runtime)) => {
                    drop(ready.send(Ok(())));
                    receive(signals, &runtime);
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        })?;
    listening
        .recv()
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Passes the first signal to the waiters, and ends the process on the second or if there is no
/// waiter.
fn receive(mut signals: Signals, runtime: &Runtime) -> ! {
    runtime.block_on(async {
        let first = signals.next().await;
        let waiting = mem::take(&mut WAITERS.lock().waiting);
        let notified = waiting
            .into_iter()
            .filter_map(|waiter| waiter.send(first.name).ok())
            .count();
        if notified == 0 {
            end(
                first,
                "no future waits for the signal, exiting",
                first.default_status,
            );
        }
        end(signals.next().await, "second signal, exiting at once", 1)
    })
}

/// Logs the signal with a constant message, and ends the process.
fn end(signal: Signal, message: &'static str, status: i32) -> ! {
    let (progress, logged) = mpsc::channel();
    let log = move || {
        let _ = progress.send(());
        tracing::warn!(signal = signal.name, "{message}");
        drop(progress);
    };
    // On a busy machine the thread may start late, so its start is not part of the time limit.
    if thread::Builder::new().spawn(log).is_ok() && logged.recv().is_ok() {
        // An error means that the thread is done, or that the log is blocked.
        let _: Result<(), _> = logged.recv_timeout(LOG_TIMEOUT);
    }
    exit(status)
}

/// A signal that was received.
#[derive(Clone, Copy)]
struct Signal {
    name: &'static str,
    /// Status of a process that the signal has ended, as shells report it.
    default_status: i32,
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> Signal {
        let (name, number) = tokio::select! {
            _ = self.interrupt.recv() => ("SIGINT", SignalKind::interrupt()),
            _ = self.terminate.recv() => ("SIGTERM", SignalKind::terminate()),
        };
        Signal {
            name,
            default_status: 128 + number.as_raw_value(),
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

    async fn next(&mut self) -> Signal {
        self.0.recv().await;
        Signal {
            name: "Ctrl-C",
            // STATUS_CONTROL_C_EXIT
            default_status: 0xC000_013A_u32.cast_signed(),
        }
    }
}
