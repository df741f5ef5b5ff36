//! The program, started, read, signalled, ended.

use anyhow::{Context, Result, bail};
use std::{
    collections::VecDeque,
    path::Path,
    process::{Output, Stdio},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
    sync::mpsc,
};

/// The program with these arguments, and nothing of the cluster that this machine may know.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steersman"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    for name in ["KUBECONFIG", "KUBERNETES_SERVICE_HOST"] {
        command.env_remove(name);
    }
    command.env("HOME", "/nonexistent");
    command
}

/// All of it, to the end.
pub(crate) async fn ended(arguments: &[&str]) -> Result<Ended> {
    Ok(Ended::of(command(arguments).output().await?))
}

/// How it ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    fn of(Output { status, stdout, stderr }: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }
}

/// The program while it runs; killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    stdout: Lines,
    pub(crate) stderr: Lines,
}

/// What it says, as it comes, and all that it has said.
pub(crate) struct Lines {
    coming: mpsc::UnboundedReceiver<String>,
    pub(crate) said: VecDeque<String>,
}

impl Lines {
    fn of(pipe: impl AsyncRead + Send + Unpin + 'static) -> Self {
        let (sender, coming) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut lines = BufReader::new(pipe).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                drop(sender.send(line));
            }
        });
        Self { coming, said: VecDeque::new() }
    }

    /// Until it says this.
    async fn until(&mut self, text: &str) -> Result<String> {
        while let Some(line) = self.coming.recv().await {
            self.said.push_back(line.clone());
            if line.contains(text) {
                return Ok(line);
            }
        }
        bail!("it has never said {text:?}, but:\n{}", self.text())
    }

    async fn drain(&mut self) {
        while let Some(line) = self.coming.recv().await {
            self.said.push_back(line);
        }
    }

    pub(crate) fn text(&self) -> String {
        self.said.iter().flat_map(|line| [line, "\n"]).collect()
    }
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let mut child = command.spawn()?;
        let stdout = Lines::of(child.stdout.take().context("a pipe")?);
        let stderr = Lines::of(child.stderr.take().context("a pipe")?);
        Ok(Self { child, stdout, stderr })
    }

    /// Until it says this on stdout.
    pub(crate) async fn says(&mut self, text: &str) -> Result<String> {
        let said = self.stdout.until(text).await;
        if said.is_err() {
            self.stderr.drain().await;
        }
        said.with_context(|| self.stderr.text())
    }

    /// Until it logs this.
    pub(crate) async fn logs(&mut self, text: &str) -> Result<String> {
        self.stderr.until(text).await
    }

    pub(crate) fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Send it a signal, `INT`.
    pub(crate) async fn signal(&self, signal: &str) -> Result<()> {
        let id = self.child.id().context("it has ended already")?.to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status().await?;
        anyhow::ensure!(sent.success(), "kill -s {signal} {id}");
        Ok(())
    }

    /// Send it a signal, `INT`, and wait for its end.
    pub(crate) async fn end_by(mut self, signal: &str) -> Result<Ended> {
        self.signal(signal).await?;
        let code = self.child.wait().await?.code();
        self.stdout.drain().await;
        self.stderr.drain().await;
        Ok(Ended { code, stdout: self.stdout.text(), stderr: self.stderr.text() })
    }
}

/// As an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path of a test is text")
}
