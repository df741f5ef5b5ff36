//! Process of the Go peer. Each command and each answer is one line of JSON.

use super::go;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

/// Time limit of a command.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Running peer. Dropping it ends the process.
pub(super) struct Peer {
    process: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Peer {
    /// Starts the peer. Without Go, records that the test is skipped and returns `None`.
    pub(super) fn start() -> anyhow::Result<Option<Self>> {
        let Some(executable) = go::executable() else {
            return Ok(None);
        };
        let mut process = Command::new(executable)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = process.stdin.take().context("stdin is not piped")?;
        let output = process.stdout.take().context("stdout is not piped")?;
        let (sender, answers) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            // Ends with the process, or with the test.
            for line in lines {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Some(Self {
            process,
            input,
            answers,
        }))
    }

    /// Sends a command. The inner result is the answer of the peer: a value or an error text.
    pub(super) fn ask(&mut self, command: &Value) -> anyhow::Result<Result<Value, String>> {
        writeln!(self.input, "{command}")?;
        let answer = self.answers.recv_timeout(TIMEOUT);
        let answer = answer.with_context(|| format!("no answer of the peer to {command}"))?;
        let mut answer: Value = serde_json::from_str(&answer)?;
        ensure!(answer.is_object(), "not an answer: {answer}");
        Ok(match answer["error"].as_str() {
            Some(error) => Err(error.into()),
            None => Ok(answer["result"].take()),
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Fails if the process has ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
