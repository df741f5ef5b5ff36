//! A program that cannot outlive this process, however this process ends.
//!
//! Each program runs under a small shell, its parent, that reads a pipe. The pipe's other end is held by this process alone and is
//! closed by the kernel when it ends, by a kill too: end of file is the order to kill the program. No `unsafe`, no timer, nothing
//! that could fail to run.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

/// The parent of a program. Its arguments: a directory to tidy up at the end of file, or nothing; the program; its arguments.
///
/// Two processes, because one shell cannot both wait for a child and read: the main one waits, and ends with the program's status; the
/// other reads the names of signals, and sends them. At the end of file it kills the program and waits until it is gone (for five
/// seconds: without a main shell nobody may reap it). Then it tidies up: `data` always, the logs unless there is a file `keep`.
/// From the end of file on it cannot be ended by the main one, which is why that waits for it.
///
/// The program has neither the pipe nor the terminal; the shells are in a process group of their own, so that ^C in a terminal ends
/// the test, and the end of the test ends them.
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

/// How often it is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(10);

/// A running program, under its supervisor. Dropped, it is killed.
#[derive(Debug)]
pub(super) struct Process {
    supervisor: Option<Child>,
    /// Closing it kills the program.
    pipe: Option<ChildStdin>,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Start a program; what it says is appended to `log`. With `tidy`, that directory is tidied up when this process ends.
    pub(super) fn start(program: &Path, arguments: &[String], log: &Path, tidy: Option<&Path>) -> io::Result<Self> {
        Self::start_under("/bin/sh", program, arguments, log, tidy)
    }

    fn start_under(
        shell: &str,
        program: &Path,
        arguments: &[String],
        log: &Path,
        tidy: Option<&Path>,
    ) -> io::Result<Self> {
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let mut supervisor = Command::new(shell)
            .args(["-c", SCRIPT, "sh"])
            .arg(tidy.unwrap_or(Path::new("")))
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        let pipe = supervisor.stdin.take();
        Ok(Self { supervisor: Some(supervisor), pipe, ended: None })
    }

    /// How it ended, if it did.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if let (None, Some(supervisor)) = (self.ended, &mut self.supervisor) {
            self.ended = supervisor.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Send it a signal by its name: `TERM`. What has ended gets none.
    pub(super) fn signal(&mut self, name: &str) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        match writeln!(pipe, "{name}") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => sent,
        }
    }

    /// Kill it, and wait until it and its supervisor have ended; at the end of file rather than by a signal, so that the supervisor tidies up.
    pub(super) fn kill(mut self) -> io::Result<()> {
        self.pipe = None;
        self.supervisor.take().map_or(Ok(()), |mut supervisor| supervisor.wait().map(drop))
    }

    /// Wait for `ended`.
    pub(super) async fn pause_between_looks() {
        tokio::time::sleep(LOOK).await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.pipe = None;
        let Some(mut supervisor) = self.supervisor.take() else { return };
        // A child that nobody waits for stays in the process table. It ends soon, but who drops may be in a runtime.
        thread::spawn(move || supervisor.wait());
    }
}

/// How a supervisor's status reads: shells tell of signals by numbers above 128.
pub(super) fn told(status: ExitStatus) -> String {
    match status.code() {
        Some(code) if code > 128 => format!("was ended by signal {}", code - 128),
        _ => format!("ended with {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::PathBuf, time::Instant};

    /// The shells that `/bin/sh` is, here and elsewhere.
    fn shells() -> impl Iterator<Item = &'static str> {
        ["/bin/sh", "/bin/dash", "/bin/bash"].into_iter().filter(|shell| Path::new(shell).exists())
    }

    /// A directory as an environment has it, and a program of `sh` that has written its process id there.
    fn running(shell: &str, script: &str) -> (PathBuf, Process, String) {
        prepared(shell, "", script)
    }

    /// It is said to run once it is prepared.
    fn prepared(shell: &str, prepare: &str, script: &str) -> (PathBuf, Process, String) {
        let directory = tempfile::tempdir().unwrap().keep();
        fs::create_dir(directory.join("data")).unwrap();
        let script = format!("{prepare} echo $$ > {0}/new; mv {0}/new {0}/pid; {script}", directory.display());
        let arguments = ["-c".to_owned(), script];
        let process =
            Process::start_under(shell, Path::new("/bin/sh"), &arguments, &directory.join("log"), Some(&directory));
        let pid = soon("the program runs", || fs::read_to_string(directory.join("pid")).ok());
        (directory, process.unwrap(), pid.trim().into())
    }

    fn soon<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let since = Instant::now();
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            assert!(since.elapsed() < Duration::from_secs(30), "waited for: {what}");
            thread::sleep(LOOK);
        }
    }

    fn is_gone(pid: &str) -> Option<()> {
        let lives = Command::new("/bin/sh").args(["-c", "kill -0 $0 2>/dev/null", pid]).status().unwrap().success();
        (!lives).then_some(())
    }

    #[test]
    fn a_program_ends_with_the_pipe_and_its_directory_goes_with_it() {
        for shell in shells() {
            let (directory, process, pid) = running(shell, "while :; do sleep 1; done");
            drop(process);
            soon("the program is killed", || is_gone(&pid));
            soon("the directory is removed", || (!directory.exists()).then_some(()));
        }
    }

    #[test]
    fn what_is_kept_is_kept_without_the_data() {
        for shell in shells() {
            let (directory, process, pid) = running(shell, "while :; do sleep 1; done");
            fs::write(directory.join("keep"), "").unwrap();
            process.kill().unwrap();
            assert!(is_gone(&pid).is_some() && directory.join("log").exists() && !directory.join("data").exists());
            fs::remove_dir_all(directory).unwrap();
        }
    }

    #[test]
    fn a_program_that_ends_by_itself_is_noticed_with_its_status() {
        for shell in shells() {
            let (directory, mut process, _) = running(shell, "exit 7");
            let status = soon("the supervisor has ended", || process.ended().unwrap());
            assert_eq!((status.code(), told(status).as_str()), (Some(7), "ended with exit status: 7"), "{shell}");
            process.signal("TERM").unwrap();
            assert!(directory.exists(), "it was not the end of this process");
            fs::remove_dir_all(directory).unwrap();
        }
    }

    #[test]
    fn signals_reach_the_program() {
        for shell in shells() {
            let (directory, mut process, _) = prepared(shell, "trap 'exit 3' TERM;", "while :; do sleep 0.01; done");
            process.signal("TERM").unwrap();
            assert_eq!(soon("it has heard", || process.ended().unwrap()).code(), Some(3), "{shell}");
            fs::remove_dir_all(directory).unwrap();

            let (directory, mut process, _) = running(shell, "while :; do sleep 1; done");
            process.signal("KILL").unwrap();
            assert_eq!(told(soon("it is killed", || process.ended().unwrap())), "was ended by signal 9", "{shell}");
            fs::remove_dir_all(directory).unwrap();
        }
    }
}
