//! Finds processes that tests have started and not stopped.
//!
//! The test command gets an environment variable that all of its descendants inherit. After the
//! tests, no process with that variable may be left. The search reads `/proc`; on systems without
//! it, nothing is found.

use std::{
    fs,
    path::Path,
    process::{self, Command},
    thread,
    time::{Duration, Instant, SystemTime},
};

const VARIABLE: &str = "STEERSMAN_TEST_RUN";
/// Time for processes that exit because their parent has exited.
const GRACE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// Value of the environment variable of one test run.
pub(crate) struct ProcessMarker(String);

impl ProcessMarker {
    /// Creates a marker that no other run has.
    pub(crate) fn new() -> Self {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Self(format!("{}-{}", process::id(), now.as_nanos()))
    }

    pub(crate) fn apply_to(&self, command: &mut Command) {
        command.env(VARIABLE, &self.0);
    }

    /// Waits until the marked processes have exited. Returns those left after [`GRACE`], each as
    /// process id and command line.
    pub(crate) fn wait_for_leaked(&self) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let left = self.marked_processes();
            if left.is_empty() || begun.elapsed() > GRACE {
                return left;
            }
            thread::sleep(PAUSE);
        }
    }

    fn marked_processes(&self) -> Vec<String> {
        let marked = format!("{VARIABLE}={}", self.0);
        let processes = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let bears = |process: &Path| {
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == marked.as_bytes())
        };
        let shown = |process: &Path| {
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let number = process.file_name().unwrap_or_default().to_string_lossy();
            format!(
                "{number} {}",
                line.lines().next().unwrap_or_default().trim()
            )
        };
        processes
            .filter(|process| bears(process))
            .map(|process| shown(&process))
            .collect()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn only_a_leaked_process_with_the_mark_is_found() {
        let (marker, other) = (ProcessMarker::new(), ProcessMarker::new());
        let mut sleep = Command::new("sleep");
        marker.apply_to(&mut sleep);
        let mut sleeping = sleep.arg("60").stdin(Stdio::null()).spawn().unwrap();
        // The environment of the child is that of the test until it executes the new program.
        while marker.marked_processes().is_empty() {
            thread::yield_now();
        }
        assert_eq!(
            marker.marked_processes(),
            [format!("{} sleep 60", sleeping.id())]
        );
        assert!(other.marked_processes().is_empty());
        sleeping.kill().unwrap();
        sleeping.wait().unwrap();
        assert!(marker.wait_for_leaked().is_empty());
    }
}
