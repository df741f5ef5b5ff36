//! Building: Go downloads, compiles and links; this says how far it is.

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

/// Builds `programs` into the cache, one after the other: two at once would need twice the memory and gain no time, as
/// Go uses all cores for one.
pub(super) fn all(release: &Release, cache: &Cache, programs: &[Program]) -> Result<()> {
    let mut work = Work { release, status: LongStatus::new(), estimate: Estimate::default(), spent: Duration::ZERO };
    work.estimate.programs = programs.len();
    let names: Vec<&str> = programs.iter().map(|program| program.name).collect();
    let (version, estimate) = (&release.version, work.estimate.words(Duration::ZERO));
    work.status.say(&format!("building {} of Kubernetes {version}: {estimate}", names.join(", ")));
    work.list(programs)?;
    for program in programs {
        let start = Instant::now();
        cache.place(program.name, |path| work.build(*program, path))?;
        let time = start.elapsed();
        work.spent += time;
        work.estimate.programs -= 1;
        work.estimate.linked += 1;
        work.status.say(&format!("built {:<24} {}", program.name, progress::words(time)));
    }
    Ok(())
}

struct Work<'a> {
    release: &'a Release,
    status: LongStatus,
    estimate: Estimate,
    /// On the programs that are done.
    spent: Duration,
}

impl Work<'_> {
    /// Finds out what Go has yet to compile. On a machine that never did this it downloads the modules first.
    fn list(&mut self, programs: &[Program]) -> Result<()> {
        let start = Instant::now();
        let (mut downloaded, mut stale) = (0, 0);
        self.go(self.release.list(programs), |work, line| {
            match line.map(printed) {
                Some(Printed::Download) => downloaded += 1,
                Some(Printed::Word("stale")) => stale += 1,
                _ => {}
            }
            let (time, modules) = (elapsed(start), progress::counted(downloaded, "module"));
            work.status.show(&format!("looking for packages  {time}, {modules} downloaded"));
        })?;
        // Go calls a program itself stale until it is installed, compiled or not.
        self.estimate.packages = Some(stale - programs.len().min(stale));
        Ok(())
    }

    fn build(&mut self, program: Program, path: &Path) -> Result<()> {
        let start = Instant::now();
        self.go(self.release.build(program, path), |work, line| {
            if let Some(Printed::Word(_)) = line.map(printed) {
                work.estimate.compiled += 1;
            }
            let left = work.estimate.words(work.spent + start.elapsed());
            let packages = match work.estimate.packages {
                Some(packages) if packages > 0 => {
                    format!(", {} of {packages} packages", work.estimate.compiled.min(packages))
                }
                _ => String::new(),
            };
            work.status.show(&format!("building {}  {}{packages}, {left}", program.name, elapsed(start)));
        })
    }

    /// Runs Go and lets `report` show the progress, at every line and every second.
    fn go(&mut self, command: Command, mut report: impl FnMut(&mut Self, Option<&str>)) -> Result<()> {
        let shown = process::shown(&command);
        let (status, output) = process::captured(command, |event| match event {
            Event::Line(line) => report(self, Some(line)),
            Event::Tick => report(self, None),
            Event::Started(_) => {}
        })?;
        if status.success() {
            return Ok(());
        }
        // What it printed is above the error, and the status line must not hide it.
        self.status.say(&message(&output));
        if too_old(&output) {
            bail!(
                "this Go is too old for xtask/envtest/go.mod: install the version that it names or a newer one, or set \
                 GOTOOLCHAIN=auto to let Go fetch it"
            );
        }
        bail!("`{shown}` failed ({status}): see above; once that is solved, the same command goes on from here")
    }
}

/// What a line of Go's output means to us.
#[derive(Debug, PartialEq)]
enum Printed<'a> {
    Download,
    /// A package, or a word that `go list` was told to print.
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

/// The part of Go's output that says what is wrong; its beginning, as what is wrong with one module is often wrong with
/// all of them.
fn message(output: &str) -> String {
    const SHOWN: usize = 12;
    let lines: Vec<&str> = output.lines().filter(|line| printed(line) == Printed::Message).collect();
    let shown = lines[..lines.len().min(SHOWN)].join("\n");
    match lines.len().saturating_sub(SHOWN) {
        0 => shown,
        hidden => format!("{shown}\n… and {}", progress::counted(hidden, "more line")),
    }
}

/// Whether Go refused a `go.mod` that is newer than itself; the older it is, the less it understands of it.
fn too_old(output: &str) -> bool {
    ["requires go >= ", "invalid go version", "unknown directive: tool"].iter().any(|sign| output.contains(sign))
}

fn elapsed(start: Instant) -> String {
    progress::words(Duration::from_secs(start.elapsed().as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_go_prints_packages_downloads_and_messages_are_told_apart() {
        assert_eq!(printed("k8s.io/api/core/v1"), Printed::Word("k8s.io/api/core/v1"));
        assert_eq!(printed("go: downloading k8s.io/api v0.37.1"), Printed::Download);
        assert_eq!(printed("go: module lookup disabled"), Printed::Message);
        let output = "errors\ngo: downloading k8s.io/api v0.37.1\n# k8s.io/api\nx.go:1:2: undefined: y\n";
        assert_eq!(message(output), "# k8s.io/api\nx.go:1:2: undefined: y");
        let long = message(&"no network\n".repeat(100));
        assert_eq!((long.lines().count(), long.lines().last()), (13, Some("… and 88 more lines")));
    }

    #[test]
    fn a_go_that_is_too_old_is_recognised_by_what_it_says() {
        assert!(too_old("go: go.mod requires go >= 1.26.0 (running go 1.25.1; GOTOOLCHAIN=local)"));
        assert!(too_old("go: errors parsing go.mod:\ngo.mod:3: invalid go version '1.26.0': must match format 1.23"));
        assert!(too_old("go: errors parsing go.mod:\ngo.mod:5: unknown directive: tool"));
        assert!(!too_old("go: module lookup disabled by GOPROXY=off"));
    }
}
