//! Runs cargo and other programs, and captures their output.

use std::{
    env,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Returns the root directory of the workspace.
pub(crate) fn root() -> Result<PathBuf> {
    let package = env::var_os("CARGO_MANIFEST_DIR")
        .context("CARGO_MANIFEST_DIR is not set; start this program as `cargo xtask …`")?;
    let root = Path::new(&package)
        .parent()
        .context("the xtask package has no parent directory")?;
    Ok(root.to_path_buf())
}

/// Returns a command for the cargo that started this program, in the root of the workspace.
///
/// The command does not inherit the variables that describe the xtask package. Build scripts read
/// them, so packages that were built without them would be built again.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_")
        }) {
            command.env_remove(name);
        }
    }
    command
}

/// Returns whether a check that cannot run fails instead of being skipped. Tests read the variable in
/// the same way.
pub(crate) fn is_ci() -> bool {
    env::var("CI").is_ok_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
}

/// Returns whether `program argument` can be started and succeeds.
pub(crate) fn is_available(program: &str, argument: &str) -> bool {
    let silent = Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    silent.is_ok_and(|status| status.success())
}

/// Returns the command line as text.
pub(crate) fn display_command(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|argument| argument.to_string_lossy().into_owned()),
    );
    words.join(" ")
}

/// Events that [`run_captured`] reports while the program runs.
pub(crate) enum Event<'a> {
    /// The program has started with this process id. Always the first event.
    Started(u32),
    /// The program printed a line. The line break is removed.
    Line(&'a str),
    /// The program has printed nothing for a second.
    Tick,
}

/// Runs `command` and returns its status and its output, with both streams interleaved.
pub(crate) fn run_captured(
    mut command: Command,
    mut report: impl FnMut(Event<'_>),
) -> Result<(ExitStatus, String)> {
    let shown = display_command(&command);
    let (reader, writer) = io::pipe().context("cannot open a pipe")?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone().context("cannot share a pipe")?)
        .stderr(writer);
    // Escape codes would hide the lines that `test` looks for.
    command.env("CARGO_TERM_COLOR", "never");
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start `{shown}`; check that it is installed"))?;
    // The command holds a write end of the pipe, and the reader waits until all are closed.
    drop(command);
    report(Event::Started(child.id()));

    let (sender, lines) = mpsc::channel();
    let reading = thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            if sender
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                break;
            }
        }
    });
    let mut output = String::new();
    loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => {
                report(Event::Line(&line));
                output.push_str(&line);
                output.push('\n');
            }
            Err(RecvTimeoutError::Timeout) => report(Event::Tick),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child
        .wait()
        .with_context(|| format!("cannot wait for `{shown}`"))?;
    reading
        .join()
        .ok()
        .with_context(|| format!("the reader of `{shown}` panicked"))?;
    Ok((status, output))
}

/// Sends a signal, such as `INT`, to a process.
pub(crate) fn signal(id: u32, signal: &str) -> Result<()> {
    let status = Command::new("kill")
        .args(["-s", signal, &id.to_string()])
        .status()
        .context("cannot start `kill`")?;
    if status.success() {
        Ok(())
    } else {
        bail!("`kill -s {signal} {id}` failed ({status})")
    }
}

/// Runs `command` and returns its standard output. Its standard error is inherited.
pub(crate) fn stdout(mut command: Command) -> Result<String> {
    let shown = display_command(&command);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{shown}`; check that it is installed"))?;
    if !output.status.success() {
        bail!("`{shown}` failed ({}); see its output above", output.status);
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("the output of `{shown}` is not valid UTF-8"))
}

/// An executable that cargo built.
#[derive(Debug, PartialEq)]
pub(crate) struct Executable {
    /// Name of the cargo target: a binary, a test or a bench.
    pub(crate) target: String,
    /// Directory of the package, in which cargo would run the executable.
    pub(crate) package: PathBuf,
    pub(crate) path: PathBuf,
}

/// Runs a cargo build with JSON messages and returns the executables that it built.
pub(crate) fn build_executables(mut command: Command) -> Result<Vec<Executable>> {
    command.arg("--message-format=json-render-diagnostics");
    executables(&stdout(command)?)
}

fn executables(messages: &str) -> Result<Vec<Executable>> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
        manifest_path: Option<PathBuf>,
        target: Option<Target>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }

    let mut found = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line)
            .with_context(|| format!("cannot parse cargo's message {line}"))?;
        if let (Some(path), Some(manifest), Some(target)) =
            (message.executable, message.manifest_path, message.target)
        {
            let package = manifest.parent().unwrap_or(Path::new(".")).to_path_buf();
            found.push(Executable {
                target: target.name,
                package,
                path,
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_artifacts_with_an_executable_are_found() {
        let messages = r#"
            Compiling, printed to standard output
{"reason":"compiler-artifact","manifest_path":"ws/Cargo.toml","target":{"name":"steersman"},"executable":null}
{"reason":"build-script-executed","package_id":"x","out_dir":"y"}
{"reason":"compiler-artifact","manifest_path":"ws/Cargo.toml","target":{"name":"queue"},"executable":"t/queue-1"}
{"reason":"build-finished","success":true}"#;
        let queue = Executable {
            target: "queue".into(),
            package: "ws".into(),
            path: "t/queue-1".into(),
        };
        assert_eq!(executables(messages).unwrap(), [queue]);
    }

    #[test]
    fn output_of_both_streams_and_the_status_are_captured() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        let mut lines = Vec::new();
        let (status, output) = run_captured(command, |event| {
            if let Event::Line(line) = event {
                lines.push(line.to_owned());
            }
        })
        .unwrap();
        assert_eq!((status.code(), output.as_str()), (Some(3), "one\ntwo\n"));
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let error = run_captured(Command::new("no-such-program"), |_| {}).unwrap_err();
        assert!(
            format!("{error:#}")
                .starts_with("cannot start `no-such-program`; check that it is installed")
        );
        assert!(!is_available("no-such-program", "--version"));
    }
}
