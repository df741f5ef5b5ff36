//! The steps of `cargo xtask test`, and how each is run.

use std::{
    env,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::ValueEnum;

use super::{
    results::{Totals, closing_line},
    skipped::Skipped,
};
use crate::{
    deps, envtest,
    leftovers::Mark,
    process::{self, Event},
    progress::{self, StatusLine},
};

/// How the program's last line begins, before it only serves.
const LAST_LINE: &str = "Stop it";

/// For its story, which takes a second.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(super) enum Step {
    /// Formatting: cargo fmt --check
    Fmt,
    /// Lints: clippy, warnings are errors
    Clippy,
    /// Documentation: rustdoc, warnings are errors
    Doc,
    /// Dependencies: licences, bans, duplicate versions and sources, by deny.toml
    Deps,
    /// The real control plane, built when it is absent: cargo xtask envtest
    Envtest,
    /// Unit and integration tests
    Test,
    /// The examples in the documentation
    Doctest,
    /// The Go peers of the benches: gofmt, go vet and go test
    Peers,
    /// The program itself: cargo run at the root
    Run,
}

impl Step {
    pub(super) const ALL: [Self; 9] = [
        Self::Fmt,
        Self::Clippy,
        Self::Doc,
        Self::Deps,
        Self::Envtest,
        Self::Test,
        Self::Doctest,
        Self::Peers,
        Self::Run,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fmt => "fmt",
            Self::Clippy => "clippy",
            Self::Doc => "doc",
            Self::Deps => "deps",
            Self::Envtest => "envtest",
            Self::Test => "test",
            Self::Doctest => "doctest",
            Self::Peers => "peers",
            Self::Run => "run",
        }
    }
}

/// How a step ended.
pub(super) enum Outcome {
    Passed,
    /// It could not be run here, and why that is no failure.
    Skipped(&'static str),
    /// With what it printed.
    Failed(String),
}

/// Runs steps and remembers what their tests reported.
pub(super) struct Runner {
    root: PathBuf,
    keep_going: bool,
    status: StatusLine,
    totals: Option<Totals>,
    skipped: Skipped,
}

impl Runner {
    pub(super) fn new(root: PathBuf, keep_going: bool) -> Self {
        Self { root, keep_going, status: StatusLine::new(), totals: None, skipped: Skipped::new() }
    }

    /// The sum of all tests so far; nothing if no step ran any.
    pub(super) fn totals(&self) -> Option<Totals> {
        self.totals
    }

    /// Returns one line per reason for which tests were skipped so far.
    pub(super) fn skipped_tests(&self) -> Result<Vec<String>> {
        self.skipped.lines()
    }

    pub(super) fn run(&mut self, step: Step) -> Result<Outcome> {
        match step {
            Step::Fmt => self.cargo(step, &["fmt", "--all", "--check"]),
            Step::Clippy => self.clippy(),
            Step::Doc => self.doc(),
            Step::Deps => self.deps(),
            Step::Envtest => self.envtest(),
            // Not --all-targets: that would run the benches as tests.
            Step::Test => self.tests(step, &["--lib", "--bins", "--tests", "--examples"]),
            Step::Doctest => self.tests(step, &["--doc"]),
            Step::Peers => self.peers(),
            Step::Run => self.program(),
        }
    }

    /// Everything; and the framework as its users get it without the features, which nothing else in the workspace builds.
    fn clippy(&self) -> Result<Outcome> {
        // Binaries choose the version of Kubernetes, and there is none here.
        let bare = ["-p", "steersman", "--lib", "--no-default-features", "--features", "k8s-openapi/v1_37"];
        for what in [&["--workspace", "--all-targets"][..], &bare] {
            let mut command = process::cargo(&self.root);
            command.args(["clippy", "--locked", "--quiet"]).args(what).args(["--", "-D", "warnings"]);
            let (outcome, _) = self.judged(Step::Clippy, command)?;
            if !matches!(outcome, Outcome::Passed) {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Passed)
    }

    fn doc(&self) -> Result<Outcome> {
        let mut command = process::cargo(&self.root);
        command
            .args(["doc", "--workspace", "--all-features", "--no-deps", "--locked"])
            .env("RUSTDOCFLAGS", "-D warnings");
        let (outcome, output) = self.judged(Step::Doc, command)?;
        // RUSTDOCFLAGS reaches rustdoc's warnings, not cargo's own, such as two crates written to the same folder.
        if matches!(outcome, Outcome::Passed) && output.lines().any(|line| line.starts_with("warning:")) {
            return Ok(Outcome::Failed(format!(
                "{output}\ncargo itself warned (see above), which fails this step too"
            )));
        }
        Ok(outcome)
    }

    fn deps(&self) -> Result<Outcome> {
        self.status.show("running deps");
        let problems = deps::check(&self.root);
        self.status.clear();
        let problems = problems?;
        if problems.is_empty() { Ok(Outcome::Passed) } else { Ok(Outcome::Failed(problems.join("\n\n"))) }
    }

    /// Its progress is not captured: it may take minutes.
    fn envtest(&self) -> Result<Outcome> {
        let there = envtest::ensured(&self.root)?.is_some();
        // As the tests read it.
        let expected = env::var("CI").is_ok_and(|value| value.eq_ignore_ascii_case("true") || value == "1");
        Ok(without_server(there, expected))
    }

    fn tests(&mut self, step: Step, targets: &[&str]) -> Result<Outcome> {
        let mut command = process::cargo(&self.root);
        command.args(["test", "--workspace", "--locked"]).args(targets);
        envtest::tell(&mut command, &self.root)?;
        self.skipped.collect_from(&mut command);
        let mark = Mark::new();
        mark.put_on(&mut command);
        if self.keep_going {
            command.arg("--no-fail-fast");
        }
        let mut sum = Totals::default();
        let (outcome, output) = self.watched(step, command, |line| {
            let counts = closing_line(line)?;
            sum += counts;
            Some(line.to_owned())
        })?;
        *self.totals.get_or_insert_default() += sum;
        let left = mark.left();
        match outcome {
            Outcome::Failed(text) => Ok(Outcome::Failed(without_successes(&text))),
            Outcome::Passed if step == Step::Test && sum.passed == 0 => {
                Ok(Outcome::Failed(format!("{output}\nno test ran: a gate without tests checks nothing")))
            }
            Outcome::Passed if !left.is_empty() => {
                Ok(Outcome::Failed(format!("the tests left processes behind:\n{}", left.join("\n"))))
            }
            outcome => Ok(outcome),
        }
    }

    fn peers(&self) -> Result<Outcome> {
        if !process::answers("go", "version") {
            return Ok(Outcome::Skipped(
                "Go is not installed: gofmt, go vet and go test were not run on benches/peers",
            ));
        }
        let folder = self.root.join("benches/peers");
        let mut gofmt = Command::new("gofmt");
        gofmt.args(["-l", "."]).current_dir(&folder);
        let (outcome, unformatted) = self.judged(Step::Peers, gofmt)?;
        if !matches!(outcome, Outcome::Passed) {
            return Ok(outcome);
        }
        if !unformatted.is_empty() {
            let next = "these files in benches/peers are not formatted: run `gofmt -w .` there";
            return Ok(Outcome::Failed(format!("{unformatted}{next}")));
        }
        for what in ["vet", "test"] {
            let mut go = Command::new("go");
            go.args([what, "./..."]).current_dir(&folder);
            let (outcome, _) = self.judged(Step::Peers, go)?;
            if !matches!(outcome, Outcome::Passed) {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Passed)
    }

    /// As a newcomer does it: start it, see it through to its last line, Ctrl-C.
    fn program(&self) -> Result<Outcome> {
        let built = self.cargo(Step::Run, &["build", "--locked", "--quiet"])?;
        if !matches!(built, Outcome::Passed) {
            return Ok(built);
        }
        let mut command = process::cargo(&self.root);
        command.args(["run", "--locked", "--quiet"]);
        let (mut id, begun) = (0, Instant::now());
        let (mut stopped, mut sent) = (None, Ok(()));
        let (status, output) = process::captured(command, |event| match event {
            // Cargo becomes the program.
            Event::Started(child) => id = child,
            Event::Line(line) if line.starts_with(LAST_LINE) => {
                stopped = Some(Instant::now());
                sent = process::signal(id, "INT");
            }
            Event::Line(_) => {}
            Event::Tick if begun.elapsed() > PATIENCE && sent.is_ok() => sent = process::signal(id, "KILL"),
            Event::Tick => self.status.show("running run"),
        })?;
        self.status.clear();
        sent?;
        let Some(stopped) = stopped.filter(|_| status.success()) else {
            let next = "it should tell its story, say how to stop it, and stop when it is told to";
            return Ok(Outcome::Failed(format!("{output}\n`cargo run` ended with {status}: {next}")));
        };
        println!("`cargo run` stopped {} ms after SIGINT", stopped.elapsed().as_millis());
        Ok(Outcome::Passed)
    }

    fn cargo(&self, step: Step, arguments: &[&str]) -> Result<Outcome> {
        let mut command = process::cargo(&self.root);
        command.args(arguments);
        Ok(self.judged(step, command)?.0)
    }

    fn judged(&self, step: Step, command: Command) -> Result<(Outcome, String)> {
        self.watched(step, command, |_| None)
    }

    /// Runs a command, showing on a terminal that it runs, and printing the lines that `echo` picks.
    fn watched(
        &self,
        step: Step,
        command: Command,
        mut echo: impl FnMut(&str) -> Option<String>,
    ) -> Result<(Outcome, String)> {
        let shown = process::shown(&command);
        let start = Instant::now();
        let show = |time: Duration| {
            let seconds = Duration::from_secs(time.as_secs());
            self.status.show(&format!("running {:<8} {}", step.name(), progress::words(seconds)));
        };
        show(Duration::ZERO);
        let done = process::captured(command, |event| match event {
            Event::Line(line) => {
                if let Some(text) = echo(line) {
                    self.status.clear();
                    println!("{text}");
                }
            }
            Event::Tick => show(start.elapsed()),
            Event::Started(_) => {}
        });
        self.status.clear();
        let (status, output) = done?;
        if status.success() {
            return Ok((Outcome::Passed, output));
        }
        let failure = format!("{output}\n`{shown}` failed ({status})");
        Ok((Outcome::Failed(failure), output))
    }
}

/// What it means that the real server is there or not, where it is expected or not.
fn without_server(there: bool, expected: bool) -> Outcome {
    match (there, expected) {
        (true, _) => Outcome::Passed,
        (false, true) => Outcome::Failed(envtest::WITHOUT_GO.into()),
        (false, false) => Outcome::Skipped(
            "Go is not installed: tests on the real kube-apiserver and with kubectl are not run; see cargo xtask envtest",
        ),
    }
}

/// What failing tests printed, without the tests that passed and the closing lines, which were shown already.
fn without_successes(output: &str) -> String {
    let success = |line: &str| line.starts_with("test ") && line.ends_with(" ... ok");
    let kept = output.lines().filter(|line| !success(line) && closing_line(line).is_none());
    kept.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_failed_run_only_the_failures_are_shown() {
        let output = "running 2 tests\ntest a_key ... ok\ntest other ... FAILED\nassertion failed\n\
                      test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\nerror: x";
        let shown = "running 2 tests\ntest other ... FAILED\nassertion failed\nerror: x";
        assert_eq!(without_successes(output), shown);
    }

    #[test]
    fn the_real_server_may_be_absent_except_where_it_is_expected() {
        assert!(matches!(without_server(true, true), Outcome::Passed));
        assert!(matches!(without_server(true, false), Outcome::Passed));
        assert!(matches!(without_server(false, false), Outcome::Skipped(reason) if reason.contains("are not run")));
        assert!(matches!(without_server(false, true), Outcome::Failed(reason) if reason == envtest::WITHOUT_GO));
    }

    #[test]
    fn every_step_is_called_on_the_command_line_as_it_is_printed() {
        let accepted: Vec<String> =
            Step::value_variants().iter().map(|s| s.to_possible_value().unwrap().get_name().to_owned()).collect();
        assert_eq!(accepted, Step::ALL.map(Step::name));
    }
}
