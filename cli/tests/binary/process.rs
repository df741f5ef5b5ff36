//! Runs the program as a child process.

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

/// Returns a command that cannot find the kubeconfig of this machine.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steersman"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    for name in ["KUBECONFIG", "KUBERNETES_SERVICE_HOST"] {
        command.env_remove(name);
    }
    command.env("HOME", "/nonexistent");
    command
}

/// Runs the program until it exits.
pub(crate) async fn run_to_exit(arguments: &[&str]) -> Result<ExitOutput> {
    Ok(ExitOutput::of(command(arguments).output().await?))
}

/// Exit code and output of the program.
#[derive(Debug)]
pub(crate) struct ExitOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl ExitOutput {
    fn of(
        Output {
            status,
            stdout,
            stderr,
        }: Output,
    ) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self {
            code: status.code(),
            stdout: text(stdout),
            stderr: text(stderr),
        }
    }
}

/// Running program. Dropping it kills the program.
pub(crate) struct Process {
    child: Child,
    stdout: Lines,
    pub(crate) stderr: Lines,
}

/// Lines of an output stream: those to come, and those received.
pub(crate) struct Lines {
    receiver: mpsc::UnboundedReceiver<String>,
    pub(crate) received: VecDeque<String>,
}

impl Lines {
    fn of(pipe: impl AsyncRead + Send + Unpin + 'static) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut lines = BufReader::new(pipe).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                drop(sender.send(line));
            }
        });
        Self {
            receiver,
            received: VecDeque::new(),
        }
    }

    /// Waits for a line that contains `text`.
    async fn until(&mut self, text: &str) -> Result<String> {
        while let Some(line) = self.receiver.recv().await {
            self.received.push_back(line.clone());
            if line.contains(text) {
                return Ok(line);
            }
        }
        bail!("{text:?} is not in the output:\n{}", self.text())
    }

    async fn drain(&mut self) {
        while let Some(line) = self.receiver.recv().await {
            self.received.push_back(line);
        }
    }

    pub(crate) fn text(&self) -> String {
        self.received.iter().flat_map(|line| [line, "\n"]).collect()
    }
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let mut child = command.spawn()?;
        let stdout = Lines::of(child.stdout.take().context("a pipe")?);
        let stderr = Lines::of(child.stderr.take().context("a pipe")?);
        Ok(Self {
            child,
            stdout,
            stderr,
        })
    }

    /// Waits for a line on stdout that contains `text`.
    pub(crate) async fn wait_for_line(&mut self, text: &str) -> Result<String> {
        let line = self.stdout.until(text).await;
        if line.is_err() {
            self.stderr.drain().await;
        }
        line.with_context(|| self.stderr.text())
    }

    /// Waits for a line on stderr that contains `text`.
    pub(crate) async fn wait_for_log(&mut self, text: &str) -> Result<String> {
        self.stderr.until(text).await
    }

    pub(crate) fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Sends a signal, such as `INT`.
    pub(crate) async fn signal(&self, signal: &str) -> Result<()> {
        let id = self
            .child
            .id()
            .context("the program has exited")?
            .to_string();
        let sent = Command::new("kill")
            .args(["-s", signal, &id])
            .status()
            .await?;
        anyhow::ensure!(sent.success(), "kill -s {signal} {id}");
        Ok(())
    }

    /// Sends a signal, such as `INT`, and waits for the exit.
    pub(crate) async fn stop_with(mut self, signal: &str) -> Result<ExitOutput> {
        self.signal(signal).await?;
        let code = self.child.wait().await?.code();
        self.stdout.drain().await;
        self.stderr.drain().await;
        Ok(ExitOutput {
            code,
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
        })
    }
}

/// Returns a path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}
