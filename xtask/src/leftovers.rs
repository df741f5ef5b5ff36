//! Processes that the tests leave behind. Tests start servers and programs; all of them, and what these start, inherit a mark in their
//! environment, and when the tests have ended no process that bears it may be left.
//!
//! Looked for where the kernel tells (`/proc`); elsewhere nothing is found.

use std::{
    fs,
    path::Path,
    process::{self, Command},
    thread,
    time::{Duration, Instant, SystemTime},
};

const VARIABLE: &str = "STEERSMAN_TEST_RUN";
/// What ends because its parent did may take a moment.
const GRACE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// The mark of one run.
pub(crate) struct Mark(String);

impl Mark {
    /// One that no other run has.
    pub(crate) fn new() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(format!("{}-{}", process::id(), now.as_nanos()))
    }

    pub(crate) fn put_on(&self, command: &mut Command) {
        command.env(VARIABLE, &self.0);
    }

    /// Those that are left after the time of grace, as `number command line`.
    pub(crate) fn left(&self) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let left = self.bearers();
            if left.is_empty() || begun.elapsed() > GRACE {
                return left;
            }
            thread::sleep(PAUSE);
        }
    }

    fn bearers(&self) -> Vec<String> {
        let marked = format!("{VARIABLE}={}", self.0);
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
        let bears = |process: &Path| {
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == marked.as_bytes())
        };
        let shown = |process: &Path| {
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let number = process.file_name().unwrap_or_default().to_string_lossy();
            format!("{number} {}", line.lines().next().unwrap_or_default().trim())
        };
        processes.filter(|process| bears(process)).map(|process| shown(&process)).collect()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn a_process_that_stays_is_found_by_its_mark_and_no_other_is() {
        let (mark, other) = (Mark::new(), Mark::new());
        let mut sleep = Command::new("sleep");
        mark.put_on(&mut sleep);
        let mut sleeping = sleep.arg("60").stdin(Stdio::null()).spawn().unwrap();
        // The new program's environment is there once it has begun.
        while mark.bearers().is_empty() {
            thread::yield_now();
        }
        assert_eq!(mark.bearers(), [format!("{} sleep 60", sleeping.id())]);
        assert!(other.bearers().is_empty());
        sleeping.kill().unwrap();
        sleeping.wait().unwrap();
        assert!(mark.left().is_empty());
    }
}
