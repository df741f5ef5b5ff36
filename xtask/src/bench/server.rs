//! The API server of a workload, shared by all implementations.
//!
//! It is our executable with `--serve WORKLOAD`. It prints the path of its kubeconfig when it is
//! ready, and stops when its standard input is closed.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use crate::process;

/// Filling a real server with 100,000 objects takes minutes.
const START_TIMEOUT: Duration = Duration::from_mins(20);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Exit code of a server that cannot run on this machine. It prints the reason.
const UNAVAILABLE: i32 = 3;

pub(super) struct Server {
    child: Child,
    pub(super) kubeconfig: String,
}

impl Server {
    /// Starts the server. Returns `None` if it cannot run on this machine.
    pub(super) fn start(mut command: Command) -> Result<Option<Self>> {
        let shown = process::display_command(&command);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let child = child.with_context(|| format!("cannot start `{shown}`"))?;
        // From here on, dropping `server` stops the process.
        let mut server = Self {
            child,
            kubeconfig: String::new(),
        };
        let output = server
            .child
            .stdout
            .take()
            .context("the output of the server is not piped")?;
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(output).read_line(&mut line).map(|_| line);
            // The receiver is dropped if the server is not ready in time.
            let _ = sender.send(read);
        });
        let Ok(line) = receiver.recv_timeout(START_TIMEOUT) else {
            bail!(
                "`{shown}` was not ready after {} s",
                START_TIMEOUT.as_secs()
            );
        };
        line?.trim().clone_into(&mut server.kubeconfig);
        if server.kubeconfig.is_empty() {
            let status = server.child.wait()?;
            ensure!(
                status.code() == Some(UNAVAILABLE),
                "`{shown}` failed ({status}); see its output above"
            );
            return Ok(None);
        }
        Ok(Some(server))
    }

    /// Returns the process id, so that its CPU time is not counted as that of other programs.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let requested = Instant::now();
        while self.exit_status().is_none() {
            if requested.elapsed() > STOP_TIMEOUT {
                // Fails if the process has exited meanwhile.
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_server_prints_its_kubeconfig_and_stops_when_its_input_is_closed() {
        let server = Server::start(shell("echo /some/path; cat"))
            .unwrap()
            .unwrap();
        assert_eq!(server.kubeconfig, "/some/path");
        let begun = Instant::now();
        drop(server);
        assert!(begun.elapsed() < STOP_TIMEOUT, "the server was killed");
    }

    #[test]
    fn an_unavailable_server_is_not_an_error() {
        assert!(Server::start(shell("exit 3")).unwrap().is_none());
        assert!(Server::start(shell("exit 1")).is_err());
    }
}
