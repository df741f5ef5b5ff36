//! The steps of `cargo xtask test`.

use std::{
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::ValueEnum;

use super::{
    results::{Totals, closing_line},
    skipped_tests::SkippedTests,
};
use crate::{
    deps, envtest,
    leaked_processes::ProcessMarker,
    process::{self, Event},
    progress::{self, StatusLine},
};

/// Start of the line that the program prints when its demonstration is complete.
const LAST_LINE: &str = "Stop:";

/// Limit for the program's demonstration, which takes about a second.
const RUN_TIMEOUT: Duration = Duration::from_mins(1);

const PEERS_WITHOUT_GO: &str =
    "cannot check the Go peers: Go is not installed; install it from https://go.dev/dl";

/// Go modules of the peers, with the commands that check them. `tests/peers/capi` has no Go tests:
/// tests of the controllers run it.
const PEERS: [(&str, &[&str]); 2] = [
    ("benches/peers", &["vet", "test"]),
    ("tests/peers/capi", &["vet"]),
];

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(super) enum Step {
    /// Formatting: cargo fmt --check
    Fmt,
    /// Lints: cargo clippy, warnings are errors
    Clippy,
    /// Documentation: rustdoc, warnings are errors
    Doc,
    /// Dependencies: licences, bans, duplicate versions and sources, as in deny.toml
    Deps,
    /// Binaries of the real control plane: cargo xtask envtest
    Envtest,
    /// Go peers of the benches and tests: gofmt, go vet and go test
    Peers,
    /// Unit and integration tests
    Test,
    /// Examples in the documentation
    Doctest,
    /// The program: cargo run in the root directory
    Run,
}

impl Step {
    pub(super) const ALL: [Self; 9] = [
        Self::Fmt,
        Self::Clippy,
        Self::Doc,
        Self::Deps,
        Self::Envtest,
        Self::Peers,
        Self::Test,
        Self::Doctest,
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

/// Result of a step.
pub(super) enum Outcome {
    Passed,
    /// The step cannot run on this machine, with the reason.
    Skipped(&'static str),
    /// The step failed, with its output.
    Failed(String),
}

/// Runs steps and collects the results of their tests.
pub(super) struct Runner {
    root: PathBuf,
    keep_going: bool,
    status: StatusLine,
    totals: Option<Totals>,
    skipped: SkippedTests,
}

impl Runner {
    pub(super) fn new(root: PathBuf, keep_going: bool) -> Self {
        Self {
            root,
            keep_going,
            status: StatusLine::new(),
            totals: None,
            skipped: SkippedTests::new(),
        }
    }

    /// Returns the sum of all test results so far, or `None` if no step has run tests.
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
            // `--all-targets` would run the benches as tests.
            Step::Test => self.tests(step, &["--lib", "--bins", "--tests", "--examples"]),
            Step::Doctest => self.tests(step, &["--doc"]),
            Step::Peers => self.peers(),
            Step::Run => self.program(),
        }
    }

    /// Checks the workspace, and the framework without features, which no other package builds.
    fn clippy(&self) -> Result<Outcome> {
        // Only binaries enable a Kubernetes version of k8s-openapi, and this builds a library.
        let bare = [
            "-p",
            "steersman",
            "--lib",
            "--no-default-features",
            "--features",
            "k8s-openapi/v1_37",
        ];
        for targets in [&["--workspace", "--all-targets"][..], &bare] {
            let mut command = process::cargo(&self.root);
            command
                .args(["clippy", "--locked", "--quiet"])
                .args(targets)
                .args(["--", "-D", "warnings"]);
            let (outcome, _) = self.run_command(Step::Clippy, command)?;
            if !matches!(outcome, Outcome::Passed) {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Passed)
    }

    fn doc(&self) -> Result<Outcome> {
        let mut command = process::cargo(&self.root);
        command
            .args([
                "doc",
                "--workspace",
                "--all-features",
                "--no-deps",
                "--locked",
            ])
            .env("RUSTDOCFLAGS", "-D warnings");
        let (outcome, output) = self.run_command(Step::Doc, command)?;
        // RUSTDOCFLAGS does not affect cargo's own warnings, such as colliding output directories.
        if matches!(outcome, Outcome::Passed)
            && output.lines().any(|line| line.starts_with("warning:"))
        {
            return Ok(Outcome::Failed(format!(
                "{output}\ncargo printed a warning (see above); warnings are errors in this step"
            )));
        }
        Ok(outcome)
    }

    fn deps(&self) -> Result<Outcome> {
        self.status.show("running deps");
        let problems = deps::check(&self.root);
        self.status.clear();
        let problems = problems?;
        if problems.is_empty() {
            Ok(Outcome::Passed)
        } else {
            Ok(Outcome::Failed(problems.join("\n\n")))
        }
    }

    /// Prints its own progress, since a build takes minutes.
    fn envtest(&self) -> Result<Outcome> {
        Ok(match envtest::find_or_build(&self.root)? {
            Some(_) => Outcome::Passed,
            None => not_run(process::is_ci(), envtest::WITHOUT_GO),
        })
    }

    fn tests(&mut self, step: Step, targets: &[&str]) -> Result<Outcome> {
        let mut command = process::cargo(&self.root);
        command
            .args(["test", "--workspace", "--locked"])
            .args(targets);
        envtest::set_assets_variable(&mut command, &self.root)?;
        self.skipped.collect_from(&mut command);
        let marker = ProcessMarker::new();
        marker.apply_to(&mut command);
        if self.keep_going {
            command.arg("--no-fail-fast");
        }
        let mut sum = Totals::default();
        let (outcome, output) = self.run_with_echo(step, command, |line| {
            let counts = closing_line(line)?;
            sum += counts;
            Some(line.to_owned())
        })?;
        *self.totals.get_or_insert_default() += sum;
        let leaked = marker.wait_for_leaked();
        match outcome {
            Outcome::Failed(text) => Ok(Outcome::Failed(failures_only(&text))),
            Outcome::Passed if step == Step::Test && sum.passed == 0 => {
                Ok(Outcome::Failed(format!("{output}\nno test ran")))
            }
            Outcome::Passed if !leaked.is_empty() => Ok(Outcome::Failed(format!(
                "processes that the tests started are still running:\n{}",
                leaked.join("\n")
            ))),
            outcome => Ok(outcome),
        }
    }

    /// Runs before the tests: they link one of the peers, whose packages Go compiles here.
    fn peers(&self) -> Result<Outcome> {
        if !process::is_available("go", "version") {
            return Ok(not_run(process::is_ci(), PEERS_WITHOUT_GO));
        }
        for (module, checks) in PEERS {
            let outcome = self.peer(module, checks)?;
            if !matches!(outcome, Outcome::Passed) {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Passed)
    }

    fn peer(&self, module: &str, checks: &[&str]) -> Result<Outcome> {
        let folder = self.root.join(module);
        let mut gofmt = Command::new("gofmt");
        gofmt.args(["-l", "."]).current_dir(&folder);
        let (outcome, unformatted) = self.run_command(Step::Peers, gofmt)?;
        if !matches!(outcome, Outcome::Passed) {
            return Ok(outcome);
        }
        if !unformatted.is_empty() {
            let next = format!("these files in {module} are not formatted: run `gofmt -w .` there");
            return Ok(Outcome::Failed(format!("{unformatted}{next}")));
        }
        for check in checks {
            let mut go = Command::new("go");
            go.args([check, "./..."])
                .current_dir(&folder)
                .env("GOWORK", "off");
            let (outcome, _) = self.run_command(Step::Peers, go)?;
            if !matches!(outcome, Outcome::Passed) {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Passed)
    }

    /// Starts the program, waits for its last line, and interrupts it, as a new user would.
    fn program(&self) -> Result<Outcome> {
        let built = self.cargo(Step::Run, &["build", "--locked", "--quiet"])?;
        if !matches!(built, Outcome::Passed) {
            return Ok(built);
        }
        let mut command = process::cargo(&self.root);
        command.args(["run", "--locked", "--quiet"]);
        let begun = Instant::now();
        let mut id = 0;
        let mut stopped = None;
        let mut sent = Ok(());
        let (status, output) = process::run_captured(command, |event| match event {
            // On Unix, cargo replaces itself with the program, so this is the program's id.
            Event::Started(child) => id = child,
            Event::Line(line) if line.starts_with(LAST_LINE) => {
                stopped = Some(Instant::now());
                sent = process::signal(id, "INT");
            }
            Event::Line(_) => {}
            Event::Tick if begun.elapsed() > RUN_TIMEOUT && sent.is_ok() => {
                sent = process::signal(id, "KILL");
            }
            Event::Tick => self.status.show("running run"),
        })?;
        self.status.clear();
        sent?;
        let Some(stopped) = stopped.filter(|_| status.success()) else {
            return Ok(Outcome::Failed(format!(
                "{output}\n`cargo run` ended with {status}; expected a line that starts with \
                 `{LAST_LINE}`, and success after SIGINT"
            )));
        };
        println!(
            "`cargo run` stopped {} ms after SIGINT",
            stopped.elapsed().as_millis()
        );
        Ok(Outcome::Passed)
    }

    fn cargo(&self, step: Step, arguments: &[&str]) -> Result<Outcome> {
        let mut command = process::cargo(&self.root);
        command.args(arguments);
        Ok(self.run_command(step, command)?.0)
    }

    fn run_command(&self, step: Step, command: Command) -> Result<(Outcome, String)> {
        self.run_with_echo(step, command, |_| None)
    }

    /// Runs a command with a status line. Prints the text that `echo` returns for a line of output.
    fn run_with_echo(
        &self,
        step: Step,
        command: Command,
        mut echo: impl FnMut(&str) -> Option<String>,
    ) -> Result<(Outcome, String)> {
        let shown = process::display_command(&command);
        let start = Instant::now();
        let show = |time: Duration| {
            let seconds = Duration::from_secs(time.as_secs());
            self.status.show(&format!(
                "running {:<8} {}",
                step.name(),
                progress::format_duration(seconds)
            ));
        };
        show(Duration::ZERO);
        let done = process::run_captured(command, |event| match event {
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

/// Returns the outcome of a step that cannot be run on this machine.
fn not_run(is_ci: bool, reason: &'static str) -> Outcome {
    if is_ci {
        Outcome::Failed(reason.into())
    } else {
        Outcome::Skipped(reason)
    }
}

/// Removes the lines of passed tests, and the result lines, which were printed before.
fn failures_only(output: &str) -> String {
    let success = |line: &str| line.starts_with("test ") && line.ends_with(" ... ok");
    let kept = output
        .lines()
        .filter(|line| !success(line) && closing_line(line).is_none());
    kept.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, path::Path};

    /// Root of the workspace, for the helper.
    const ROOT: &str = "STEERSMAN_XTASK_PEERS";

    #[test]
    fn the_output_of_a_failed_run_has_only_the_failures() {
        let output = "running 2 tests\ntest a_key ... ok\ntest other ... FAILED\nassertion failed\n\
                      test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\nerror: x";
        let shown = "running 2 tests\ntest other ... FAILED\nassertion failed\nerror: x";
        assert_eq!(failures_only(output), shown);
    }

    /// Run by the test below, without Go.
    #[test]
    fn helper_peers() {
        let Ok(root) = env::var(ROOT) else { return };
        let outcome = Runner::new(root.into(), false).run(Step::Peers).unwrap();
        match outcome {
            Outcome::Passed => println!("passed"),
            Outcome::Skipped(reason) => println!("skipped: {reason}"),
            Outcome::Failed(reason) => println!("failed: {reason}"),
        }
    }

    #[test]
    fn peers_without_go_are_skipped_and_fail_in_ci() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for (ci, verdict) in [("", "skipped"), ("true", "failed"), ("1", "failed")] {
            let mut helper = Command::new(env::current_exe().unwrap());
            helper
                .args(["--exact", "test::steps::tests::helper_peers", "--nocapture"])
                .env("PATH", "")
                .env("CI", ci)
                .env(ROOT, root);
            let output = process::stdout(helper).unwrap();
            assert!(
                output.contains(&format!("{verdict}: {PEERS_WITHOUT_GO}")),
                "CI={ci}: {output}"
            );
        }
    }

    #[test]
    fn every_step_has_the_same_name_on_the_command_line_and_in_the_output() {
        let accepted: Vec<String> = Step::value_variants()
            .iter()
            .map(|s| s.to_possible_value().unwrap().get_name().to_owned())
            .collect();
        assert_eq!(accepted, Step::ALL.map(Step::name));
    }
}
