//! The directory of one environment: logs at the top, everything else in `data`. What is kept is the logs, when there is a file `keep`.

use super::{Error, binaries};
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Once,
};

/// How much of a log an error shows.
const TAIL_LINES: usize = 20;

#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    told: Once,
}

impl Directory {
    /// A new one among the temporary files.
    pub(super) fn create() -> Result<Self, Error> {
        let made = tempfile::Builder::new().prefix("steersman-env-").tempdir();
        // Kept, because what removes it is not only this process: see the supervisor.
        let path = made.map_err(Error::io("make a directory among the temporary files"))?.keep();
        let directory = Self { path, told: Once::new() };
        let data = directory.data("");
        fs::create_dir(&data).map_err(Error::io(format!("make {}", data.display())))?;
        Ok(directory)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A file that goes with the environment.
    pub(super) fn data(&self, name: &str) -> PathBuf {
        self.path.join("data").join(name)
    }

    pub(super) fn log(&self, program: &str) -> PathBuf {
        self.path.join(format!("{program}.log"))
    }

    /// Write a file of `data` that only its owner may read.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.data(name);
        let written = || {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600).open(&path)?.write_all(text.as_bytes())
        };
        written().map_err(Error::io(format!("write {}", path.display())))?;
        Ok(path)
    }

    /// Keep the logs when the environment ends.
    pub(super) fn keep(&self) {
        // Without the file the logs are lost, which is no reason to fail a test in another way than it failed.
        let _ = fs::write(self.path.join("keep"), "");
    }

    /// Do not keep the logs after all: what they tell of was overcome.
    pub(super) fn forget(&self) {
        let _ = fs::remove_file(self.path.join("keep"));
    }

    /// Keep the logs, and say once where they are.
    pub(super) fn keep_and_tell(&self) {
        self.keep();
        self.told.call_once(|| {
            // Past the test harness, which shows only what failing tests print.
            let _ = writeln!(io::stderr(), "the logs of the test servers are kept in {}", self.path.display());
        });
    }

    /// Remove everything, or everything but the logs. Not only the supervisor's work, since that may have crashed.
    pub(super) fn tidy_up(&self) -> Result<(), Error> {
        let removed = match fs::exists(self.path.join("keep")) {
            Ok(true) => fs::remove_dir_all(self.data("")),
            _ => fs::remove_dir_all(&self.path),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(format!("remove {}", self.path.display()))(error))
            }
            _ => Ok(()),
        }
    }

    /// The last lines of a program's log.
    pub(super) fn tail(&self, program: &str) -> String {
        let bytes = fs::read(self.log(program)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// A program said that its port is somebody else's.
    pub(super) fn tells_of_a_taken_port(&self) -> bool {
        [binaries::ETCD, binaries::API_SERVER, binaries::CONTROLLER_MANAGER]
            .iter()
            .any(|program| self.tail(program).contains("address already in use"))
    }

    /// The error that a program is not well; its logs are kept.
    pub(super) fn unwell(&self, program: &'static str, what: impl Into<String>) -> Error {
        self.keep();
        Error::Program { program, what: what.into(), tail: self.tail(program), logs: self.path.clone() }
    }
}
