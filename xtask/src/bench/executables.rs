//! The programs that measure: ours from cargo, the peers from cargo and Go. All speak one protocol:
//!
//! - `EXE --list` prints the pairs it can measure, `WORKLOAD IMPLEMENTATION` a line.
//! - `EXE WORKLOAD IMPLEMENTATION [--quick]` measures one pair once and prints a JSON line for each value,
//!   `{"workload", "implementation", "unit", "value"}`. One run may yield several workloads (a median and a percentile).
//! - Ours takes `--one` before the pair, because `cargo bench` starts the same program for criterion.
//! - Where a group says so, `EXE --objects` prints a hash of the objects it measures with, and ours with `--serve WORKLOAD` is
//!   the server that `KUBECONFIG` names for the others.

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

/// A repetition that takes longer hangs.
const PATIENCE: Duration = Duration::from_mins(5);

struct Program {
    path: PathBuf,
    /// Arguments before the pair.
    before: &'static [&'static str],
}

pub(super) struct Programs {
    all: Vec<Program>,
    /// A sentence for those that could not be built here.
    pub(super) absent: Vec<String>,
    /// Where they run: not in the checkout, in case one leaves files behind.
    folder: PathBuf,
}

/// A pair, and the program that measures it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pair {
    pub(super) workload: String,
    pub(super) implementation: String,
    program: usize,
}

#[cfg(test)]
impl Pair {
    pub(super) fn of(workload: &str, implementation: &str) -> Self {
        Self { workload: workload.into(), implementation: implementation.into(), program: 1 }
    }
}

/// One line that a program printed.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Measurement {
    pub(super) workload: String,
    pub(super) implementation: String,
    pub(super) unit: String,
    pub(super) value: f64,
}

impl Programs {
    /// Builds ours and, if wanted, the peers'.
    pub(super) fn build(root: &Path, group: &Group, peers: bool) -> Result<Self> {
        let folder = target_directory(root)?;
        let mut ours = process::cargo(root);
        ours.args(["bench", "--locked", "--package", group.package, "--bench", group.bench, "--no-run"]);
        let mut programs = vec![Program { path: executable(ours, group.bench)?, before: &["--one"] }];
        let mut absent = Vec::new();
        if peers {
            for RustPeer { package, bin } in group.packages {
                let mut peer = process::cargo(root);
                // The profile that cargo bench uses for ours: optimised alike.
                peer.args(["build", "--locked", "--profile", "bench", "--package", package, "--bin", bin]);
                programs.push(Program { path: executable(peer, bin)?, before: &[] });
            }
            match group.go {
                Some(module) if process::answers("go", "version") => {
                    let path = folder.join(format!("go-peers-{}", group.name));
                    go_build(&root.join(module), &path)?;
                    programs.push(Program { path, before: &[] });
                }
                Some(_) => absent.push(without_go(group)),
                None => {}
            }
        }
        let programs = Self { all: programs, absent, folder };
        if group.same_objects {
            programs.check_objects()?;
        }
        Ok(programs)
    }

    /// What is not measured with the same objects cannot be compared.
    fn check_objects(&self) -> Result<()> {
        let mut first = None;
        for program in &self.all {
            let hash = process::stdout(self.command(program, &["--objects"]))?;
            let expected = first.get_or_insert_with(|| hash.clone());
            ensure!(
                hash == *expected,
                "{} makes other objects than ours: compare its generator with benches/cache/pods.rs",
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

    /// The server of that workload; nothing if it cannot be had here.
    pub(super) fn serve(&self, workload: &str, quick: bool) -> Result<Option<Server>> {
        let quick: &[&str] = if quick { &["--quick"] } else { &[] };
        Server::start(self.command(&self.all[0], &[&["--serve", workload], quick].concat()))
    }

    /// Every pair that the programs can measure.
    pub(super) fn pairs(&self) -> Result<Vec<Pair>> {
        let mut pairs = Vec::new();
        for (index, program) in self.all.iter().enumerate() {
            pairs.extend(listed(&process::stdout(self.command(program, &["--list"]))?, index)?);
        }
        Ok(pairs)
    }

    /// Measures a pair once, against the server if it needs one.
    pub(super) fn measure(&self, pair: &Pair, quick: bool, server: Option<&Server>) -> Result<Vec<Measurement>> {
        let program = &self.all[pair.program];
        let mut command = self.command(program, program.before);
        command.args([&pair.workload, &pair.implementation]);
        if quick {
            command.arg("--quick");
        }
        if let Some(server) = server {
            command.env("KUBECONFIG", &server.kubeconfig);
        }
        let output = within(PATIENCE, command)?;
        measurements(&output, pair)
    }
}

fn target_directory(root: &Path) -> Result<PathBuf> {
    #[derive(Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    let mut metadata = process::cargo(root);
    metadata.args(["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Metadata =
        serde_json::from_str(&process::stdout(metadata)?).context("cannot read cargo's metadata")?;
    Ok(metadata.target_directory)
}

fn executable(build: Command, target: &str) -> Result<PathBuf> {
    let found = process::built(build)?.into_iter().find(|executable| executable.target == target);
    Ok(found.with_context(|| format!("cargo built no executable `{target}`: is it in Cargo.toml?"))?.path)
}

fn go_build(module: &Path, path: &Path) -> Result<()> {
    let mut build = Command::new("go");
    build.arg("build").arg("-o").arg(path).arg(".").current_dir(module);
    process::stdout(build).context("cannot build the Go peers; leave out --peers to measure only ours")?;
    Ok(())
}

fn without_go(group: &Group) -> String {
    let peers = group.families.iter().flat_map(|family| family.peers).filter(|peer| peer.go);
    let names: Vec<&str> = peers.map(|peer| peer.name).collect();
    format!("not measured, because Go is not installed: {}", names.join(", "))
}

fn listed(text: &str, program: usize) -> Result<Vec<Pair>> {
    let pair = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [workload, implementation] => {
            Ok(Pair { workload: workload.into(), implementation: implementation.into(), program })
        }
        _ => bail!("`{line}` in the list of a bench program is not `WORKLOAD IMPLEMENTATION`"),
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(pair).collect()
}

fn within(patience: Duration, mut command: Command) -> Result<String> {
    let shown = process::shown(&command);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start `{shown}`"))?;
    let mut output = child.stdout.take().context("the program's output is not piped")?;
    let (sender, receiver) = mpsc::channel();
    let reading = thread::spawn(move || {
        let mut text = String::new();
        let read = output.read_to_string(&mut text).map(|_| text);
        // The receiver is gone only if it has given up on this program.
        let _ = sender.send(read);
    });
    let Ok(text) = receiver.recv_timeout(patience) else {
        child.kill().with_context(|| format!("cannot stop `{shown}`"))?;
        child.wait()?;
        bail!("`{shown}` took more than {} s and was stopped", patience.as_secs());
    };
    reading.join().ok().with_context(|| format!("the reader of `{shown}` panicked"))?;
    let status = child.wait().with_context(|| format!("cannot wait for `{shown}`"))?;
    ensure!(status.success(), "`{shown}` failed ({status}): see its message above");
    text.with_context(|| format!("cannot read what `{shown}` printed"))
}

fn measurements(output: &str, pair: &Pair) -> Result<Vec<Measurement>> {
    let Pair { workload, implementation, .. } = pair;
    let mut found = Vec::new();
    for line in output.lines() {
        let measurement: Measurement = serde_json::from_str(line)
            .with_context(|| format!("{workload} {implementation} printed `{line}` instead of a measurement"))?;
        let Measurement { unit, value, .. } = &measurement;
        ensure!(
            measurement.implementation == *implementation,
            "{workload} {implementation} reported a value of {}",
            measurement.implementation
        );
        ensure!(
            ["ns", "us", "ms", "B", "%", "calls"].contains(&unit.as_str()) || unit.ends_with("/s"),
            "{workload} {implementation} reported the unit `{unit}`: use ns, us, ms, B, %, calls or one that ends in /s"
        );
        ensure!(value.is_finite() && *value >= 0.0, "{workload} {implementation} reported {value} {unit}");
        found.push(measurement);
    }
    ensure!(
        found.iter().any(|measurement| measurement.workload == *workload),
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
        assert_eq!(listed("steady steersman\n\nx  steersman\n", 1).unwrap(), [pair("steady"), pair("x")]);
        assert!(listed("steady: benchmark or so\n", 0).is_err());
    }

    #[test]
    fn one_run_may_yield_several_workloads() {
        let output = r#"{"workload":"late-p50","implementation":"steersman","unit":"us","value":48.5}
{"workload":"late-p99","implementation":"steersman","unit":"us","value":170}"#;
        let values = measurements(output, &pair("late-p99")).unwrap();
        assert_eq!(values.iter().map(|m| m.value).collect::<Vec<_>>(), [48.5, 170.0]);
        assert!(measurements(output, &pair("steady")).is_err(), "the workload asked for is missing");
        assert!(measurements("", &pair("steady")).is_err());
    }

    #[test]
    fn values_that_mean_nothing_are_refused() {
        let line = |unit: &str, value: &str| {
            let text = format!(r#"{{"workload":"w","implementation":"steersman","unit":"{unit}","value":{value}}}"#);
            measurements(&text, &pair("w"))
        };
        assert!(line("ns", "1.5").is_ok() && line("reconciles/s", "2e6").is_ok());
        assert!(line("parsec", "1.5").is_err());
        assert!(line("ns", "-1").is_err());
        let other = r#"{"workload":"w","implementation":"client-go","unit":"ns","value":1}"#;
        assert!(measurements(other, &pair("w")).is_err());
    }

    #[test]
    fn a_program_that_hangs_is_stopped() {
        let mut hanging = Command::new("sleep");
        hanging.arg("600");
        let error = within(Duration::from_millis(20), hanging).unwrap_err();
        assert!(error.to_string().starts_with("`sleep 600` took more than"));
    }
}
