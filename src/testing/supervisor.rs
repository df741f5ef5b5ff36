//! Child processes that never outlive this process.
//!
//! Each program runs under a small shell that reads a pipe. Only this process holds the other end,
//! and the kernel closes it when the process ends, even if it is killed. On end of file the shell
//! kills the program. This needs neither `unsafe` nor a timer.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

/// Parent of a program.
///
/// Arguments: a directory to remove at the end of file, or an empty string; the program; its
/// arguments.
///
/// There are two shells, because one cannot both wait for a child and read. The main shell waits
/// and exits with the status of the program. The other reads names of signals and sends them. At
/// the end of file it kills the program, and waits until it is gone, for five seconds at most,
/// because without the main shell the program may not be reaped. Then it removes `data`, and the
/// logs unless there is a file `keep`. From the end of file on it ignores SIGTERM of the main
/// shell, which therefore waits for it.
///
/// The program has neither the pipe nor the terminal. The shells are in their own process group, so
/// that ^C in a terminal ends the test, and the end of the test ends them.
const SCRIPT: &str = r#"
directory=$1
shift
exec 3<&0 </dev/null
"$@" 3<&- &
program=$!
(
    while read -r signal; do
        kill -s "$signal" "$program" 2>/dev/null
    done <&3
    trap '' TERM
    kill -s KILL "$program" 2>/dev/null
    tries=0
    while kill -0 "$program" 2>/dev/null && [ "$tries" -lt 100 ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
    if [ -n "$directory" ]; then
        rm -rf "$directory/data"
        [ -e "$directory/keep" ] || rm -rf "$directory"
    fi
) &
reader=$!
exec 3<&-
wait "$program"
status=$?
kill "$reader" 2>/dev/null
wait "$reader" 2>/dev/null
exit "$status"
"#;

/// Interval at which the end of a program is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running program under its supervisor. It is killed on drop.
#[derive(Debug)]
pub(super) struct Process {
    supervisor: Option<Child>,
    /// Closing the pipe kills the program.
    pipe: Option<ChildStdin>,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts a program, with its output appended to `log`.
    ///
    /// With `remove`, the supervisor removes that directory when this process ends.
    pub(super) fn start(
        program: &Path,
        arguments: &[String],
        log: &Path,
        remove: Option<&Path>,
    ) -> io::Result<Self> {
        Self::start_under("/bin/sh", program, arguments, log, remove)
    }

    fn start_under(
        shell: &str,
        program: &Path,
        arguments: &[String],
        log: &Path,
        remove: Option<&Path>,
    ) -> io::Result<Self> {
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let mut supervisor = Command::new(shell)
            .args(["-c", SCRIPT, "sh"])
            .arg(remove.unwrap_or(Path::new("")))
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        let pipe = supervisor.stdin.take();
        Ok(Self {
            supervisor: Some(supervisor),
            pipe,
            ended: None,
        })
    }

    /// Returns the exit status, if the program has ended.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if let (None, Some(supervisor)) = (self.ended, &mut self.supervisor) {
            self.ended = supervisor.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Sends a signal by its name, such as `TERM`.
    ///
    /// Does nothing if the program has ended.
    pub(super) fn signal(&mut self, name: &str) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        match writeln!(pipe, "{name}") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => sent,
        }
    }

    /// Kills the program, and waits until it and its supervisor have ended.
    ///
    /// Closes the pipe instead of sending a signal, so that the supervisor removes the directory.
    pub(super) fn kill(mut self) -> io::Result<()> {
        self.pipe = None;
        self.supervisor
            .take()
            .map_or(Ok(()), |mut supervisor| supervisor.wait().map(drop))
    }

    /// Waits before the next poll of [`Self::ended`].
    pub(super) async fn poll_interval() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.pipe = None;
        let Some(mut supervisor) = self.supervisor.take() else {
            return;
        };
        // Reap the supervisor, which ends poll_until. Not on this thread, which may belong to a runtime.
        thread::spawn(move || supervisor.wait());
    }
}

/// Formats the status of a supervisor. Shells report signals as codes above 128.
pub(super) fn describe_exit(status: ExitStatus) -> String {
    match status.code() {
        Some(code) if code > 128 => format!("was ended by signal {}", code - 128),
        _ => format!("ended with {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::PathBuf, time::Instant};

    /// Common implementations of `/bin/sh` on this machine.
    fn shells() -> impl Iterator<Item = &'static str> {
        ["/bin/sh", "/bin/dash", "/bin/bash"]
            .into_iter()
            .filter(|shell| Path::new(shell).exists())
    }

    /// Starts a shell script under a supervisor. Returns directory and process id.
    fn running(shell: &str, script: &str) -> (PathBuf, Process, String) {
        prepared(shell, "", script)
    }

    /// Runs `prepare` before the script reports that it runs.
    fn prepared(shell: &str, prepare: &str, script: &str) -> (PathBuf, Process, String) {
        let directory = tempfile::tempdir().unwrap().keep();
        fs::create_dir(directory.join("data")).unwrap();
        let script = format!(
            "{prepare} echo $$ > {0}/new; mv {0}/new {0}/pid; {script}",
            directory.display()
        );
        let arguments = ["-c".to_owned(), script];
        let process = Process::start_under(
            shell,
            Path::new("/bin/sh"),
            &arguments,
            &directory.join("log"),
            Some(&directory),
        );
        let pid = poll_until("the program runs", || {
            fs::read_to_string(directory.join("pid")).ok()
        });
        (directory, process.unwrap(), pid.trim().into())
    }

    fn poll_until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
        let since = Instant::now();
        loop {
            if let Some(seen) = poll() {
                return seen;
            }
            assert!(
                since.elapsed() < Duration::from_secs(30),
                "waited for: {what}"
            );
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn is_gone(pid: &str) -> Option<()> {
        let is_alive = Command::new("/bin/sh")
            .args(["-c", "kill -0 $0 2>/dev/null", pid])
            .status()
            .unwrap()
            .success();
        (!is_alive).then_some(())
    }

    #[test]
    fn a_program_ends_when_the_pipe_closes_and_its_directory_is_removed() {
        for shell in shells() {
            let (directory, process, pid) = running(shell, "while :; do sleep 1; done");
            drop(process);
            poll_until("the program is killed", || is_gone(&pid));
            poll_until("the directory is removed", || {
                (!directory.exists()).then_some(())
            });
        }
    }

    #[test]
    fn a_kept_directory_has_no_data() {
        for shell in shells() {
            let (directory, process, pid) = running(shell, "while :; do sleep 1; done");
            fs::write(directory.join("keep"), "").unwrap();
            process.kill().unwrap();
            assert!(
                is_gone(&pid).is_some()
                    && directory.join("log").exists()
                    && !directory.join("data").exists()
            );
            fs::remove_dir_all(directory).unwrap();
        }
    }

    #[test]
    fn an_exited_program_is_reported_with_its_status() {
        for shell in shells() {
            let (directory, mut process, _) = running(shell, "exit 7");
            let status = poll_until("the supervisor has ended", || process.ended().unwrap());
            assert_eq!(
                (status.code(), describe_exit(status).as_str()),
                (Some(7), "ended with exit status: 7"),
                "{shell}"
            );
            process.signal("TERM").unwrap();
            assert!(directory.exists(), "removed only when this process ends");
            fs::remove_dir_all(directory).unwrap();
        }
    }

    #[test]
    fn signals_reach_the_program() {
        for shell in shells() {
            let (directory, mut process, _) =
                prepared(shell, "trap 'exit 3' TERM;", "while :; do sleep 0.01; done");
            process.signal("TERM").unwrap();
            assert_eq!(
                poll_until("the program ends", || process.ended().unwrap()).code(),
                Some(3),
                "{shell}"
            );
            fs::remove_dir_all(directory).unwrap();

            let (directory, mut process, _) = running(shell, "while :; do sleep 1; done");
            process.signal("KILL").unwrap();
            assert_eq!(
                describe_exit(poll_until("it is killed", || process.ended().unwrap())),
                "was ended by signal 9",
                "{shell}"
            );
            fs::remove_dir_all(directory).unwrap();
        }
    }
}
