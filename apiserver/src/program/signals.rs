//! Signals that ask the program to stop.

use std::{io, process::exit, sync::mpsc, thread};
use tokio::{runtime, sync::oneshot};

/// Listens for SIGINT and SIGTERM (Ctrl-C on Windows).
///
/// The returned future resolves at the first signal. A second one exits the process with status 1.
/// If the future was dropped, the first one exits the process, with the status that shells report for
/// a process that the signal has ended. Otherwise the signal would have no effect, because tokio keeps
/// its signal handlers.
///
/// A dedicated thread receives the signals, so the second one works even if every thread of the
/// runtime is blocked.
pub(super) fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let (first, received) = oneshot::channel();
    receive_on_thread(first)?;
    Ok(async move {
        // The thread keeps the sender until it has received a signal.
        let _ = received.await;
    })
}

/// Starts the thread that reports the first signal and exits on the second. Signals are received
/// once this returns.
fn receive_on_thread(first: oneshot::Sender<()>) -> io::Result<()> {
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
            let (mut signals, runtime) = match started {
                Ok(started) => started,
                Err(error) => return drop(ready.send(Err(error))),
            };
            drop(ready.send(Ok(())));
            runtime.block_on(async {
                let default_status = signals.next().await;
                if first.send(()).is_err() {
                    exit(default_status);
                }
                signals.next().await;
                exit(1);
            });
        })?;
    listening
        .recv()
        .unwrap_or_else(|error| Err(io::Error::other(error)))
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
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Receives a signal. Returns the status of a process that it has ended, as shells report it.
    async fn next(&mut self) -> i32 {
        use tokio::signal::unix::SignalKind;
        let signal = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
        };
        128 + signal.as_raw_value()
    }
}

#[cfg(not(unix))]
struct Signals(tokio::signal::windows::CtrlC);

#[cfg(not(unix))]
impl Signals {
    fn listen() -> io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Self)
    }

    async fn next(&mut self) -> i32 {
        self.0.recv().await;
        // STATUS_CONTROL_C_EXIT
        0xC000_013A_u32.cast_signed()
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::{
        env,
        io::{BufRead, BufReader},
        process::{Child, Command, Stdio},
        time::Duration,
    };

    const HELPER: &str = "program::signals::tests::helper_drops_the_future_and_waits";

    /// Started as a process of its own. Ends by itself, so that it cannot outlive a failed test.
    #[test]
    #[ignore = "helper process of another test"]
    fn helper_drops_the_future_and_waits() {
        drop(stop_signal().expect("a signal handler"));
        println!("\nlistening");
        thread::sleep(Duration::from_secs(30));
    }

    /// Kills the process on drop.
    struct Helper(Child);

    impl Drop for Helper {
        fn drop(&mut self) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }

    #[test]
    fn a_signal_exits_the_process_if_no_future_waits_for_it() {
        for (signal, status) in [("INT", 130), ("TERM", 143)] {
            let child = Command::new(env::current_exe().expect("this binary"))
                .args([HELPER, "--exact", "--ignored", "--nocapture"])
                .stdout(Stdio::piped())
                .spawn()
                .expect("the program starts");
            let mut helper = Helper(child);
            let output = BufReader::new(helper.0.stdout.take().expect("a pipe"));
            let mut lines = output.lines().map_while(Result::ok);
            assert!(lines.any(|line| line == "listening"));
            let sent = Command::new("kill")
                .args(["-s", signal, &helper.0.id().to_string()])
                .status()
                .expect("kill");
            assert!(sent.success());
            let ended = helper.0.wait().expect("its status");
            assert_eq!(ended.code(), Some(status), "{signal}");
        }
    }
}
