//! Runs the `steersman-apiserver` binary as a child process.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// Temporary directory, removed on drop.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let process = std::process::id();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("steersman-apiserver-test-{process}-{count}"));
        fs::create_dir(&path).expect("a new directory");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("a written file");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a command that runs the binary with its temporary files in `scratch`.
pub(crate) fn command(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steersman-apiserver"));
    command
        .args(arguments)
        .env("TMPDIR", &scratch.0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Running binary that has printed its readiness. Killed on drop.
pub(crate) struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// Lines on stdout up to and including `ready URL`.
    pub(crate) lines: Vec<String>,
}

/// Exit status of the binary and its output after it became ready.
pub(crate) struct ExitOutput {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Process {
    pub(crate) fn start(scratch: &Scratch, arguments: &[&str]) -> Self {
        let mut child = command(scratch, arguments)
            .spawn()
            .expect("the binary starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut lines: Vec<String> = Vec::new();
        while lines.last().is_none_or(|line| !line.starts_with("ready ")) {
            let mut line = String::new();
            if stdout.read_line(&mut line).expect("text") == 0 {
                let output = child.wait_with_output().expect("the exit status");
                panic!(
                    "the binary exited before it was ready: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
            }
            lines.push(line.trim_end().into());
        }
        Self {
            child,
            stdout,
            lines,
        }
    }

    pub(crate) fn url(&self) -> &str {
        self.lines
            .last()
            .and_then(|line| line.strip_prefix("ready "))
            .expect("the last line is `ready URL`")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let (_, address) = self.url().split_once("://").expect("a URL");
        address.parse().expect("an address")
    }

    /// Returns the path in the printed `export KUBECONFIG=…` line.
    pub(crate) fn kubeconfig(&self) -> &Path {
        let path = self.lines.iter().find_map(|line| {
            line.trim()
                .strip_prefix("export KUBECONFIG='")?
                .strip_suffix('\'')
        });
        Path::new(path.expect("an `export KUBECONFIG=…` line"))
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args(["-s", signal, &self.child.id().to_string()])
            .status()
            .expect("kill");
        assert!(sent.success());
    }

    /// Sends a signal such as `INT` and waits for the exit.
    pub(crate) fn signal_and_wait(self, signal: &str) -> ExitOutput {
        self.signal(signal);
        self.wait()
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(mut self) -> ExitOutput {
        self.child.kill().expect("a running process");
        self.wait()
    }

    fn wait(mut self) -> ExitOutput {
        let read = |pipe: &mut dyn Read| {
            let mut text = String::new();
            pipe.read_to_string(&mut text).expect("text");
            text
        };
        let stdout = read(&mut self.stdout);
        let stderr = read(self.child.stderr.as_mut().expect("a pipe"));
        ExitOutput {
            status: self.child.wait().expect("the exit status"),
            stdout,
            stderr,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
