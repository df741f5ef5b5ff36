//! Directory of an environment: logs at the top, everything else in `data`.
//!
//! The logs are kept if there is a file `keep`.

use super::{Error, binaries};
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Once,
};

/// Lines of a log in an error.
const TAIL_LINES: usize = 20;

#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    location_printed: Once,
}

impl Directory {
    /// Creates a directory among the temporary files.
    pub(super) fn create() -> Result<Self, Error> {
        let made = tempfile::Builder::new().prefix("steersman-env-").tempdir();
        // Not removed on drop: the supervisor may remove it after this process.
        let path = made
            .map_err(Error::io("create a temporary directory"))?
            .keep();
        let directory = Self {
            path,
            location_printed: Once::new(),
        };
        let data = directory.data("");
        fs::create_dir(&data).map_err(Error::io(format!("make {}", data.display())))?;
        Ok(directory)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file that is removed with the environment.
    pub(super) fn data(&self, name: &str) -> PathBuf {
        self.path.join("data").join(name)
    }

    pub(super) fn log(&self, program: &str) -> PathBuf {
        self.path.join(format!("{program}.log"))
    }

    /// Writes a file in `data` that only its owner may read.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.data(name);
        let written = || {
            let mut options = OpenOptions::new();
            options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)?
                .write_all(text.as_bytes())
        };
        written().map_err(Error::io(format!("write {}", path.display())))?;
        Ok(path)
    }

    /// Keeps the logs when the environment ends.
    pub(super) fn keep(&self) {
        // A failure only loses the logs and must not hide the error of the test.
        let _ = fs::write(self.path.join("keep"), "");
    }

    /// Removes the logs when the environment ends, because a retry succeeded.
    pub(super) fn forget(&self) {
        let _ = fs::remove_file(self.path.join("keep"));
    }

    /// Keeps the logs, and prints their location once.
    pub(super) fn keep_and_print(&self) {
        self.keep();
        self.location_printed.call_once(|| {
            // Written directly to stderr, because the test harness captures `eprintln!`.
            let _ = writeln!(
                io::stderr(),
                "logs of the test servers are kept in {}",
                self.path.display()
            );
        });
    }

    /// Removes everything, or everything but the logs.
    ///
    /// The supervisor does so as well, but it may have crashed.
    pub(super) fn clean_up(&self) -> Result<(), Error> {
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

    /// Returns the last lines of a program's log.
    pub(super) fn tail(&self, program: &str) -> String {
        let bytes = fs::read(self.log(program)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// Returns whether a log reports that a port is already in use.
    pub(super) fn mentions_port_in_use(&self) -> bool {
        [
            binaries::ETCD,
            binaries::API_SERVER,
            binaries::CONTROLLER_MANAGER,
        ]
        .iter()
        .any(|program| self.tail(program).contains("address already in use"))
    }

    /// Returns the error of a failed program, and keeps the logs.
    pub(super) fn process_error(&self, program: &'static str, problem: impl Into<String>) -> Error {
        self.keep();
        Error::Program {
            program,
            problem: problem.into(),
            tail: self.tail(program),
            logs: self.path.clone(),
        }
    }
}
