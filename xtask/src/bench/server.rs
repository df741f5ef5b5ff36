//! The server of a workload that needs one: our program with `--serve WORKLOAD`. It prints the path of its kubeconfig once it is ready, and ends when
//! its input does. All implementations are measured against the same one.

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
const READY: Duration = Duration::from_mins(20);
const END: Duration = Duration::from_secs(30);
/// How a server ends that cannot be had here, after it has said why.
const CANNOT: i32 = 3;

pub(super) struct Server {
    child: Child,
    pub(super) kubeconfig: String,
}

impl Server {
    /// Nothing if it cannot be had here.
    pub(super) fn start(mut command: Command) -> Result<Option<Self>> {
        let shown = process::shown(&command);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let child = child.with_context(|| format!("cannot start `{shown}`"))?;
        // From here on dropping it ends it.
        let mut server = Self { child, kubeconfig: String::new() };
        let output = server.child.stdout.take().context("the server's output is not piped")?;
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(output).read_line(&mut line).map(|_| line);
            // The receiver is gone only if it has given up on this server.
            let _ = sender.send(read);
        });
        let Ok(line) = receiver.recv_timeout(READY) else {
            bail!("`{shown}` was not ready after {} s", READY.as_secs());
        };
        line?.trim().clone_into(&mut server.kubeconfig);
        if server.kubeconfig.is_empty() {
            let status = server.child.wait()?;
            ensure!(status.code() == Some(CANNOT), "`{shown}` failed ({status}): see its message above");
            return Ok(None);
        }
        Ok(Some(server))
    }

    /// Its process, whose time is not that of strangers.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let asked = Instant::now();
        while self.ended().is_none() {
            if asked.elapsed() > END {
                // It may have ended meanwhile.
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
    fn a_server_says_where_it_is_and_ends_with_its_input() {
        let server = Server::start(shell("echo /some/path; cat")).unwrap().unwrap();
        assert_eq!(server.kubeconfig, "/some/path");
        let begun = Instant::now();
        drop(server);
        assert!(begun.elapsed() < END, "it had to be killed");
    }

    #[test]
    fn a_server_that_cannot_be_had_is_no_failure_and_one_that_breaks_is() {
        assert!(Server::start(shell("exit 3")).unwrap().is_none());
        assert!(Server::start(shell("exit 1")).is_err());
    }
}
