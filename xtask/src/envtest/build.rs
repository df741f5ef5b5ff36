//! Builds the programs with Go and shows the progress.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

use super::{
    cache::Cache,
    estimate::Estimate,
    release::{Program, Release},
};
use crate::{
    process::{self, Event},
    progress::{self, LongStatus},
};

/// Builds `programs` into the cache, one after the other.
///
/// Go uses all cores for one program, so building two at once would need more memory and save no
/// time.
pub(super) fn all(release: &Release, cache: &Cache, programs: &[Program]) -> Result<()> {
    let mut work = Work {
        release,
        status: LongStatus::new(),
        estimate: Estimate::default(),
        spent: Duration::ZERO,
    };
    work.estimate.programs = programs.len();
    let names: Vec<&str> = programs.iter().map(|program| program.name).collect();
    let version = &release.version;
    let estimate = work.estimate.describe(Duration::ZERO);
    work.status.print_line(&format!(
        "building {} of Kubernetes {version}: {estimate}",
        names.join(", ")
    ));
    work.list(programs)?;
    for program in programs {
        let start = Instant::now();
        cache.create_file(program.name, |path| work.build(*program, path))?;
        let time = start.elapsed();
        work.spent += time;
        work.estimate.programs -= 1;
        work.estimate.linked += 1;
        work.status.print_line(&format!(
            "built {:<24} {}",
            program.name,
            progress::format_duration(time)
        ));
    }
    Ok(())
}

struct Work<'a> {
    release: &'a Release,
    status: LongStatus,
    estimate: Estimate,
    /// Time spent on the programs that are built.
    spent: Duration,
}

impl Work<'_> {
    /// Counts the packages that Go has to compile. Go downloads missing modules for this.
    fn list(&mut self, programs: &[Program]) -> Result<()> {
        let start = Instant::now();
        let mut downloaded = 0;
        let mut stale = 0;
        self.go(self.release.list(programs), |work, line| {
            match line.map(printed) {
                Some(Printed::Download) => downloaded += 1,
                Some(Printed::Word("stale")) => stale += 1,
                _ => {}
            }
            let time = elapsed(start);
            let modules = progress::pluralize(downloaded, "module");
            work.status.show(&format!(
                "looking for packages  {time}, {modules} downloaded"
            ));
        })?;
        // The main package of a program is always stale, since it is not installed.
        self.estimate.packages = Some(stale - programs.len().min(stale));
        Ok(())
    }

    fn build(&mut self, program: Program, path: &Path) -> Result<()> {
        let start = Instant::now();
        self.go(self.release.build(program, path), |work, line| {
            if let Some(Printed::Word(_)) = line.map(printed) {
                work.estimate.compiled += 1;
            }
            let left = work.estimate.describe(work.spent + start.elapsed());
            let packages = match work.estimate.packages {
                Some(packages) if packages > 0 => {
                    format!(
                        ", {} of {packages} packages",
                        work.estimate.compiled.min(packages)
                    )
                }
                _ => String::new(),
            };
            work.status.show(&format!(
                "building {}  {}{packages}, {left}",
                program.name,
                elapsed(start)
            ));
        })
    }

    /// Runs Go. Calls `report` for every line of output, and every second without output.
    fn go(
        &mut self,
        command: Command,
        mut report: impl FnMut(&mut Self, Option<&str>),
    ) -> Result<()> {
        let shown = process::display_command(&command);
        let (status, output) = process::run_captured(command, |event| match event {
            Event::Line(line) => report(self, Some(line)),
            Event::Tick => report(self, None),
            Event::Started(_) => {}
        })?;
        if status.success() {
            return Ok(());
        }
        // Printed before the error, above the status line.
        self.status.print_line(&message(&output));
        if too_old(&output) {
            bail!(
                "cannot build with this version of Go: xtask/envtest/go.mod requires a newer one; install it, or set \
                 GOTOOLCHAIN=auto to let Go download it"
            );
        }
        bail!(
            "`{shown}` failed ({status}), see above; run the command again after fixing the problem, it resumes here"
        )
    }
}

/// A classified line of Go's output.
#[derive(Debug, PartialEq)]
enum Printed<'a> {
    Download,
    /// A package, or the output of the template passed to `go list`.
    Word(&'a str),
    Message,
}

fn printed(line: &str) -> Printed<'_> {
    if line.starts_with("go: downloading ") {
        Printed::Download
    } else if line.is_empty() || line.contains(char::is_whitespace) {
        Printed::Message
    } else {
        Printed::Word(line)
    }
}

/// Returns the first messages of Go's output. The same error often repeats for every module.
fn message(output: &str) -> String {
    const SHOWN: usize = 12;
    let lines: Vec<&str> = output
        .lines()
        .filter(|line| printed(line) == Printed::Message)
        .collect();
    let shown = lines[..lines.len().min(SHOWN)].join("\n");
    match lines.len().saturating_sub(SHOWN) {
        0 => shown,
        hidden => format!(
            "{shown}\n… and {}",
            progress::pluralize(hidden, "more line")
        ),
    }
}

/// Returns whether Go rejected a `go.mod` that requires a newer version. The message depends on the
/// version of Go.
fn too_old(output: &str) -> bool {
    [
        "requires go >= ",
        "invalid go version",
        "unknown directive: tool",
    ]
    .iter()
    .any(|sign| output.contains(sign))
}

fn elapsed(start: Instant) -> String {
    progress::format_duration(Duration::from_secs(start.elapsed().as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_go_are_packages_downloads_or_messages() {
        assert_eq!(
            printed("k8s.io/api/core/v1"),
            Printed::Word("k8s.io/api/core/v1")
        );
        assert_eq!(
            printed("go: downloading k8s.io/api v0.37.1"),
            Printed::Download
        );
        assert_eq!(printed("go: module lookup disabled"), Printed::Message);
        let output =
            "errors\ngo: downloading k8s.io/api v0.37.1\n# k8s.io/api\nx.go:1:2: undefined: y\n";
        assert_eq!(message(output), "# k8s.io/api\nx.go:1:2: undefined: y");
        let long = message(&"no network\n".repeat(100));
        assert_eq!(
            (long.lines().count(), long.lines().last()),
            (13, Some("… and 88 more lines"))
        );
    }

    #[test]
    fn a_go_that_is_too_old_is_recognised_by_its_messages() {
        assert!(too_old(
            "go: go.mod requires go >= 1.26.0 (running go 1.25.1; GOTOOLCHAIN=local)"
        ));
        assert!(too_old(
            "go: errors parsing go.mod:\ngo.mod:3: invalid go version '1.26.0': must match format 1.23"
        ));
        assert!(too_old(
            "go: errors parsing go.mod:\ngo.mod:5: unknown directive: tool"
        ));
        assert!(!too_old("go: module lookup disabled by GOPROXY=off"));
    }
}
