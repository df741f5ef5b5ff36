//! Builds and runs the executables that measure: ours with cargo, the peers with cargo and Go.
//!
//! All of them have the same command line:
//!
//! - `EXE --list` prints the pairs that it can measure, one `WORKLOAD IMPLEMENTATION` per line.
//! - `EXE WORKLOAD IMPLEMENTATION [--quick]` measures a pair once. It prints one JSON line per
//!   value, `{"workload", "implementation", "unit", "value"}`. One run may report several
//!   workloads, such as a median and a percentile. Our executable needs `--one` before the pair,
//!   because `cargo bench` starts it for criterion.
//! - `EXE --objects` prints a hash of the objects it uses, in groups with `same_objects`.
//! - Our executable with `--serve WORKLOAD` is the server that `KUBECONFIG` names for the others.

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::{
    groups::{Group, RustPeer},
    server::Server,
};
use crate::process;

/// Maximum duration of one repetition.
const TIMEOUT: Duration = Duration::from_mins(5);

struct Program {
    path: PathBuf,
    /// Arguments before the pair.
    before: &'static [&'static str],
}

pub(super) struct Programs {
    all: Vec<Program>,
    /// Notes about executables that cannot be built on this machine.
    pub(super) absent: Vec<String>,
    /// Working directory, outside of the checkout in case an executable writes files.
    folder: PathBuf,
}

/// A workload and an implementation, with the executable that measures them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pair {
    pub(super) workload: String,
    pub(super) implementation: String,
    program: usize,
}

#[cfg(test)]
impl Pair {
    pub(super) fn of(workload: &str, implementation: &str) -> Self {
        Self {
            workload: workload.into(),
            implementation: implementation.into(),
            program: 1,
        }
    }
}

/// A measured value, as printed by an executable.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Measurement {
    pub(super) workload: String,
    pub(super) implementation: String,
    pub(super) unit: String,
    pub(super) value: f64,
}

impl Programs {
    /// Builds our executable, and those of the peers if `peers` is set.
    pub(super) fn build(root: &Path, group: &Group, peers: bool) -> Result<Self> {
        let folder = target_directory(root)?;
        let mut ours = process::cargo(root);
        ours.args([
            "bench",
            "--locked",
            "--package",
            group.package,
            "--bench",
            group.bench,
            "--no-run",
        ]);
        let mut programs = vec![Program {
            path: executable(ours, group.bench)?,
            before: &["--one"],
        }];
        let mut absent = Vec::new();
        if peers {
            for RustPeer { package, bin } in group.packages {
                let mut peer = process::cargo(root);
                // The profile that cargo bench uses for our executable.
                peer.args([
                    "build",
                    "--locked",
                    "--profile",
                    "bench",
                    "--package",
                    package,
                    "--bin",
                    bin,
                ]);
                programs.push(Program {
                    path: executable(peer, bin)?,
                    before: &[],
                });
            }
            match group.go {
                Some(module) if process::is_available("go", "version") => {
                    let path = folder.join(format!("go-peers-{}", group.name));
                    go_build(&root.join(module), &path)?;
                    programs.push(Program { path, before: &[] });
                }
                Some(_) => absent.push(describe_without_go(group)),
                None => {}
            }
        }
        let programs = Self {
            all: programs,
            absent,
            folder,
        };
        if group.same_objects {
            programs.check_objects()?;
        }
        Ok(programs)
    }

    /// Fails if the executables do not use the same objects.
    fn check_objects(&self) -> Result<()> {
        let mut first = None;
        for program in &self.all {
            let hash = process::stdout(self.command(program, &["--objects"]))?;
            let expected = first.get_or_insert_with(|| hash.clone());
            ensure!(
                hash == *expected,
                "{} generates other objects than our executable; compare its generator with benches/cache/pods.rs",
                program.path.display()
            );
        }
        Ok(())
    }

    fn command(&self, program: &Program, arguments: &[&str]) -> Command {
        let mut command = Command::new(&program.path);
        command.args(arguments).current_dir(&self.folder);
        command
    }

    /// Starts the server of a workload. Returns `None` if it cannot run on this machine.
    pub(super) fn serve(&self, workload: &str, quick: bool) -> Result<Option<Server>> {
        let quick: &[&str] = if quick { &["--quick"] } else { &[] };
        Server::start(self.command(&self.all[0], &[&["--serve", workload], quick].concat()))
    }

    /// Returns every pair that the executables can measure.
    pub(super) fn pairs(&self) -> Result<Vec<Pair>> {
        let mut pairs = Vec::new();
        for (index, program) in self.all.iter().enumerate() {
            pairs.extend(parse_pairs(
                &process::stdout(self.command(program, &["--list"]))?,
                index,
            )?);
        }
        Ok(pairs)
    }

    /// Measures a pair once, against `server` if the workload needs one.
    pub(super) fn measure(
        &self,
        pair: &Pair,
        quick: bool,
        server: Option<&Server>,
    ) -> Result<Vec<Measurement>> {
        let program = &self.all[pair.program];
        let mut command = self.command(program, program.before);
        command.args([&pair.workload, &pair.implementation]);
        if quick {
            command.arg("--quick");
        }
        if let Some(server) = server {
            command.env("KUBECONFIG", &server.kubeconfig);
        }
        let output = run_with_timeout(TIMEOUT, command)?;
        parse_measurements(&output, pair)
    }
}

fn target_directory(root: &Path) -> Result<PathBuf> {
    #[derive(Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    let mut metadata = process::cargo(root);
    metadata.args(["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Metadata = serde_json::from_str(&process::stdout(metadata)?)
        .context("cannot parse cargo's metadata")?;
    Ok(metadata.target_directory)
}

fn executable(build: Command, target: &str) -> Result<PathBuf> {
    let found = process::build_executables(build)?
        .into_iter()
        .find(|executable| executable.target == target);
    Ok(found
        .with_context(|| format!("cargo built no executable `{target}`; check Cargo.toml"))?
        .path)
}

fn go_build(module: &Path, path: &Path) -> Result<()> {
    let mut build = Command::new("go");
    build
        .arg("build")
        .arg("-o")
        .arg(path)
        .arg(".")
        .current_dir(module);
    process::stdout(build)
        .context("cannot build the Go peers; omit --peers to measure only this project")?;
    Ok(())
}

fn describe_without_go(group: &Group) -> String {
    let peers = group
        .families
        .iter()
        .flat_map(|family| family.peers)
        .filter(|peer| peer.go);
    let names: Vec<&str> = peers.map(|peer| peer.name).collect();
    format!(
        "not measured, because Go is not installed: {}",
        names.join(", ")
    )
}

fn parse_pairs(text: &str, program: usize) -> Result<Vec<Pair>> {
    let pair = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [workload, implementation] => Ok(Pair {
            workload: workload.into(),
            implementation: implementation.into(),
            program,
        }),
        _ => bail!("cannot parse `{line}`; --list must print `WORKLOAD IMPLEMENTATION`"),
    };
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(pair)
        .collect()
}

fn run_with_timeout(timeout: Duration, mut command: Command) -> Result<String> {
    let shown = process::display_command(&command);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let mut output = child
        .stdout
        .take()
        .context("the output of the program is not piped")?;
    let (sender, receiver) = mpsc::channel();
    let reading = thread::spawn(move || {
        let mut text = String::new();
        let read = output.read_to_string(&mut text).map(|_| text);
        // The receiver is dropped after the timeout.
        let _ = sender.send(read);
    });
    let Ok(text) = receiver.recv_timeout(timeout) else {
        child
            .kill()
            .with_context(|| format!("cannot stop `{shown}`"))?;
        child.wait()?;
        bail!(
            "`{shown}` took more than {} s and was stopped",
            timeout.as_secs()
        );
    };
    reading
        .join()
        .ok()
        .with_context(|| format!("the reader of `{shown}` panicked"))?;
    let status = child
        .wait()
        .with_context(|| format!("cannot wait for `{shown}`"))?;
    ensure!(
        status.success(),
        "`{shown}` failed ({status}); see its output above"
    );
    text.with_context(|| format!("cannot read the output of `{shown}`"))
}

fn parse_measurements(output: &str, pair: &Pair) -> Result<Vec<Measurement>> {
    let Pair {
        workload,
        implementation,
        ..
    } = pair;
    let mut found = Vec::new();
    for line in output.lines() {
        let measurement: Measurement = serde_json::from_str(line).with_context(|| {
            format!("{workload} {implementation} printed `{line}` instead of a measurement")
        })?;
        let Measurement { unit, value, .. } = &measurement;
        ensure!(
            measurement.implementation == *implementation,
            "{workload} {implementation} reported a value of {}",
            measurement.implementation
        );
        ensure!(
            ["ns", "us", "ms", "B", "%", "calls"].contains(&unit.as_str()) || unit.ends_with("/s"),
            "{workload} {implementation} reported the unit `{unit}`; use ns, us, ms, B, %, calls or one that ends in /s"
        );
        ensure!(
            value.is_finite() && *value >= 0.0,
            "{workload} {implementation} reported {value} {unit}"
        );
        found.push(measurement);
    }
    ensure!(
        found
            .iter()
            .any(|measurement| measurement.workload == *workload),
        "{workload} {implementation} reported no value for {workload}"
    );
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(workload: &str) -> Pair {
        Pair::of(workload, "steersman")
    }

    #[test]
    fn a_list_is_read_as_pairs() {
        assert_eq!(
            parse_pairs("steady steersman\n\nx  steersman\n", 1).unwrap(),
            [pair("steady"), pair("x")]
        );
        assert!(parse_pairs("steady: benchmark or so\n", 0).is_err());
    }

    #[test]
    fn one_run_may_yield_several_workloads() {
        let output = r#"{"workload":"late-p50","implementation":"steersman","unit":"us","value":48.5}
{"workload":"late-p99","implementation":"steersman","unit":"us","value":170}"#;
        let values = parse_measurements(output, &pair("late-p99")).unwrap();
        assert_eq!(
            values.iter().map(|m| m.value).collect::<Vec<_>>(),
            [48.5, 170.0]
        );
        assert!(
            parse_measurements(output, &pair("steady")).is_err(),
            "the requested workload is missing"
        );
        assert!(parse_measurements("", &pair("steady")).is_err());
    }

    #[test]
    fn invalid_values_are_errors() {
        let line = |unit: &str, value: &str| {
            let text = format!(
                r#"{{"workload":"w","implementation":"steersman","unit":"{unit}","value":{value}}}"#
            );
            parse_measurements(&text, &pair("w"))
        };
        assert!(line("ns", "1.5").is_ok() && line("reconciles/s", "2e6").is_ok());
        assert!(line("parsec", "1.5").is_err());
        assert!(line("ns", "-1").is_err());
        let other = r#"{"workload":"w","implementation":"client-go","unit":"ns","value":1}"#;
        assert!(parse_measurements(other, &pair("w")).is_err());
    }

    #[test]
    fn a_program_that_hangs_is_stopped() {
        let mut hanging = Command::new("sleep");
        hanging.arg("600");
        let error = run_with_timeout(Duration::from_millis(20), hanging).unwrap_err();
        assert!(error.to_string().starts_with("`sleep 600` took more than"));
    }
}
