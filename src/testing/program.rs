//! One program of the control plane, which can be restarted with the same flags.

use super::{
    Error,
    directory::Directory,
    supervisor::{Process, describe_exit},
};
use parking_lot::Mutex;
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

/// A program with its flags.
///
/// Locks are held briefly: every wait polls.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) binary: PathBuf,
    pub(super) arguments: Vec<String>,
    /// Whether the supervisor of this program removes the directory.
    pub(super) is_last: bool,
    /// `None` before the start and after the stop.
    pub(super) process: Mutex<Option<Process>>,
}

impl Program {
    pub(super) fn start(&self, directory: &Directory) -> Result<(), Error> {
        let remove = self.is_last.then(|| directory.path());
        let started = Process::start(
            &self.binary,
            &self.arguments,
            &directory.log(self.name),
            remove,
        );
        *self.process.lock() =
            Some(started.map_err(Error::io(format!("start {}", self.binary.display())))?);
        Ok(())
    }

    /// Returns an error with the end of the log if the program does not run.
    pub(super) fn check(&self, directory: &Directory) -> Result<(), Error> {
        match &mut *self.process.lock() {
            None => Err(Error::Stopped),
            Some(process) => match process.ended() {
                Ok(None) => Ok(()),
                Ok(Some(status)) => Err(directory.process_error(self.name, describe_exit(status))),
                Err(error) => {
                    Err(directory
                        .process_error(self.name, format!("cannot be waited for: {error}")))
                }
            },
        }
    }

    pub(super) fn signal(&self, signal: &str) -> Result<(), Error> {
        let mut process = self.process.lock();
        let process = process.as_mut().ok_or(Error::Stopped)?;
        process
            .signal(signal)
            .map_err(Error::io(format!("send {signal} to {}", self.name)))
    }

    /// Terminates the program, and kills it after `grace`.
    pub(super) async fn end(&self, grace: Duration) -> Result<(), Error> {
        self.signal("TERM")?;
        // A paused program receives SIGTERM only after SIGCONT.
        self.signal("CONT")?;
        if !self.has_ended_within(grace).await? {
            self.signal("KILL")?;
            self.has_ended_within(Duration::MAX).await?;
        }
        Ok(())
    }

    async fn has_ended_within(&self, time: Duration) -> Result<bool, Error> {
        let since = Instant::now();
        loop {
            match self.process.lock().as_mut().map(Process::ended) {
                None => return Err(Error::Stopped),
                Some(Ok(None)) if since.elapsed() >= time => return Ok(false),
                Some(Ok(None)) => {}
                Some(Ok(Some(_))) => return Ok(true),
                Some(Err(error)) => {
                    return Err(Error::io(format!("wait for {}", self.name))(error));
                }
            }
            Process::poll_interval().await;
        }
    }

    /// Kills the program and waits until it has ended.
    pub(super) fn kill(&self) -> Result<(), Error> {
        let process = self.process.lock().take();
        process
            .map_or(Ok(()), Process::kill)
            .map_err(Error::io(format!("end {}", self.name)))
    }
}
