//! The program as a process: started, read, signalled, ended.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// A directory that is gone when the test is over.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
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

/// The program with these arguments, its temporary files in `scratch`.
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

/// The program, ready; killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// What it said, up to and with the line that it is ready.
    pub(crate) said: Vec<String>,
}

/// How it ended, and what it said after it was ready.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Process {
    pub(crate) fn start(scratch: &Scratch, arguments: &[&str]) -> Self {
        let mut child = command(scratch, arguments).spawn().expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut said: Vec<String> = Vec::new();
        while said.last().is_none_or(|line| !line.starts_with("ready ")) {
            let mut line = String::new();
            if stdout.read_line(&mut line).expect("text") == 0 {
                let ended = child.wait_with_output().expect("its end");
                panic!("it was never ready: {}", String::from_utf8_lossy(&ended.stderr));
            }
            said.push(line.trim_end().into());
        }
        Self { child, stdout, said }
    }

    pub(crate) fn url(&self) -> &str {
        self.said.last().and_then(|line| line.strip_prefix("ready ")).expect("the last line says so")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let (_, address) = self.url().split_once("://").expect("a URL");
        address.parse().expect("an address")
    }

    /// Where it says that its kubeconfig is.
    pub(crate) fn kubeconfig(&self) -> &Path {
        let path =
            self.said.iter().find_map(|line| line.trim().strip_prefix("export KUBECONFIG='")?.strip_suffix('\''));
        Path::new(path.expect("it says what to type"))
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status().expect("kill");
        assert!(sent.success());
    }

    /// Send it a signal, `INT`, and wait for its end.
    pub(crate) fn end_by(self, signal: &str) -> Ended {
        self.signal(signal);
        self.ended()
    }

    /// Without a chance to do anything about it.
    pub(crate) fn kill(mut self) -> Ended {
        self.child.kill().expect("it runs");
        self.ended()
    }

    fn ended(mut self) -> Ended {
        let read = |pipe: &mut dyn Read| {
            let mut text = String::new();
            pipe.read_to_string(&mut text).expect("text");
            text
        };
        let stdout = read(&mut self.stdout);
        let stderr = read(self.child.stderr.as_mut().expect("a pipe"));
        Ended { status: self.child.wait().expect("its end"), stdout, stderr }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
