//! `cargo xtask soak`: runs random tests with new seeds, then the fuzz targets ([`fuzz`]).
//!
//! A test with `soak` in its path is a random test. It takes its seeds from
//! `steersman_testkit::Seeds`. If the variable `STEERSMAN_SOAK` is set to a number of seconds, the
//! seeds are new for that time. Otherwise, as in `cargo xtask test`, they are fixed. A test that
//! fails writes its regression file, and appends the command that reproduces the failure to the
//! file in `STEERSMAN_SOAK_FAILURES`.

mod fuzz;

use std::{
    env, fs,
    io::ErrorKind,
    path::Path,
    process::{self as this_process, Command},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{
    bench, envtest,
    process::{self, Executable},
    progress,
};

#[derive(Args)]
pub(crate) struct Options {
    /// Run only tests and fuzz targets whose name, `target::module::test` or `fuzz/target`,
    /// contains this
    name: Option<String>,
    /// Seconds for each test and fuzz target
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
}

/// An executable with the names of its soak tests.
type Soak = (Executable, Vec<String>);

pub(crate) fn run(options: &Options) -> Result<bool> {
    let root = process::root()?;
    let name = options.name.as_deref().unwrap_or_default();
    let mut targets = fuzz::targets(&root)?;
    // A name with a slash selects only fuzz targets, so the tests need not be built.
    let mut soaks = if name.contains('/') {
        Vec::new()
    } else {
        build(&root)?
    };
    let tests = soaks.iter().flat_map(|(executable, tests)| {
        tests.iter().map(|test| full_name(&executable.target, test))
    });
    let all: Vec<String> = tests
        .chain(targets.iter().map(|target| fuzz::full_name(target)))
        .collect();
    for (executable, tests) in &mut soaks {
        tests.retain(|test| full_name(&executable.target, test).contains(name));
    }
    soaks.retain(|(_, tests)| !tests.is_empty());
    targets.retain(|target| fuzz::full_name(target).contains(name));
    let count: usize = soaks.iter().map(|(_, tests)| tests.len()).sum();
    if count + targets.len() == 0 {
        bail!(
            "no soak test has `{name}` in its name; available:\n  {}",
            all.join("\n  ")
        );
    }
    let mut skipped = 0;
    if !fuzz::is_installed() {
        skipped = std::mem::take(&mut targets).len();
        check_skipped(skipped, count, process::is_ci())?;
    }

    let counted = counted(count, targets.len(), skipped);
    println!("{counted}, {} s each", options.seconds);
    let start = Instant::now();
    let mut failed = Vec::new();
    let mut commands = Vec::new();
    for soak in &soaks {
        println!("\n{}", soak.0.target);
        let (passed, reproduce) = run_tests(&root, soak, options.seconds)?;
        commands.extend(reproduce);
        if !passed {
            failed.push(soak.0.target.clone());
        }
    }
    for target in &targets {
        println!("\n{}", fuzz::full_name(target));
        let (passed, reproduce) = fuzz::run(&root, target, options.seconds)?;
        commands.extend(reproduce);
        if !passed {
            failed.push(fuzz::full_name(target));
        }
    }
    println!();
    let time = progress::format_duration(start.elapsed());
    if failed.is_empty() {
        println!("passed in {time}: {counted}");
    } else {
        println!("{}", failure(&failed, &commands, &time));
    }
    Ok(failed.is_empty())
}

/// Fails if fuzz targets would be skipped in CI, or if nothing else would run.
fn check_skipped(skipped: usize, tests: usize, is_ci: bool) -> Result<()> {
    if skipped > 0 && (is_ci || tests == 0) {
        let targets = progress::pluralize(skipped, "fuzz target");
        bail!("cannot run {targets}: {}", fuzz::INSTALL);
    }
    Ok(())
}

/// Counts the soak tests and fuzz targets that run, and those that are skipped.
fn counted(tests: usize, targets: usize, skipped: usize) -> String {
    let tests = progress::pluralize(tests, "soak test");
    if skipped == 0 {
        return format!(
            "{tests} and {}",
            progress::pluralize(targets, "fuzz target")
        );
    }
    let skipped = progress::pluralize(skipped, "fuzz target");
    format!("{tests}; {skipped} skipped ({})", fuzz::INSTALL)
}

/// Builds the tests, and returns the executables that have soak tests.
fn build(root: &Path) -> Result<Vec<Soak>> {
    let mut build = process::cargo(root);
    build.args([
        "test",
        "--release",
        "--locked",
        "--lib",
        "--bins",
        "--tests",
        "--no-run",
        "--workspace",
    ]);
    // The tests of this command have `soak` in their path, too. Peers take minutes to build.
    let excluded = ["xtask", "steersman-testkit"]
        .into_iter()
        .chain(bench::peer_packages());
    build.args(excluded.flat_map(|package| ["--exclude", package]));
    let mut soaks = Vec::new();
    for executable in process::build_executables(build)? {
        let tests = soak_tests(&executable)?;
        if !tests.is_empty() {
            soaks.push((executable, tests));
        }
    }
    Ok(soaks)
}

/// Runs the soak tests of an executable. Returns whether they passed, and the commands that
/// reproduce the failures.
fn run_tests(root: &Path, (executable, tests): &Soak, seconds: u64) -> Result<(bool, Vec<String>)> {
    let failures = env::temp_dir().join(format!("steersman-soak-failures-{}", this_process::id()));
    let mut command = Command::new(&executable.path);
    envtest::set_assets_variable(&mut command, root)?;
    let status = command
        .args(["--exact", "--nocapture"])
        .args(tests)
        .current_dir(&executable.package)
        .env("CARGO_MANIFEST_DIR", &executable.package)
        .env("STEERSMAN_SOAK", seconds.to_string())
        .env("STEERSMAN_SOAK_FAILURES", &failures)
        .status()
        .with_context(|| format!("cannot run the tests of {}", executable.target))?;
    Ok((
        status.success(),
        take(&failures)?.lines().map(str::to_owned).collect(),
    ))
}

/// Returns the contents of the file and removes it. A missing file is empty.
fn take(file: &Path) -> Result<String> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
        text => text.with_context(|| format!("cannot read {}", file.display()))?,
    };
    fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()))?;
    Ok(text)
}

/// Formats the end of a failed soak. `commands` reproduce the failures.
fn failure(failed: &[String], commands: &[String], time: &str) -> String {
    let failed = failed.join(", ");
    if commands.is_empty() {
        return format!("FAILED: {failed} in {time}; no seed or input was reported, see above");
    }
    let commands = commands.join("\n  ");
    format!(
        "FAILED: {failed} in {time}\nCommit the new files in `regressions/` and `fuzz/corpus/` with the fix. To reproduce:\n  {commands}"
    )
}

fn soak_tests(executable: &Executable) -> Result<Vec<String>> {
    let mut list = Command::new(&executable.path);
    list.args(["soak", "--list", "--format", "terse"])
        .current_dir(&executable.package);
    let listed = process::stdout(list)
        .with_context(|| format!("cannot list the tests of {}", executable.target))?;
    Ok(names(&listed))
}

/// Returns the name by which a test is selected. It starts with the target, since the path of a
/// test in the root of an executable contains only its function.
fn full_name(target: &str, test: &str) -> String {
    format!("{target}::{test}")
}

/// Parses a terse listing of libtest, with lines such as `module::name: test`.
fn names(listing: &str) -> Vec<String> {
    listing
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_are_read_from_a_listing() {
        let listing =
            "workqueue::a_soak: test\nsome_soak_bench: benchmark\nother::soak_fuzz: test\n";
        assert_eq!(names(listing), ["workqueue::a_soak", "other::soak_fuzz"]);
    }

    #[test]
    fn fuzz_targets_without_cargo_fuzz_are_reported_as_skipped_and_fail_in_ci() {
        assert!(check_skipped(0, 3, true).is_ok());
        assert!(check_skipped(8, 3, false).is_ok());
        assert_eq!(
            counted(3, 0, 8),
            format!("3 soak tests; 8 fuzz targets skipped ({})", fuzz::INSTALL)
        );
        assert_eq!(counted(1, 8, 0), "1 soak test and 8 fuzz targets");
        for (tests, is_ci) in [(3, true), (0, true), (0, false)] {
            let error = check_skipped(8, tests, is_ci).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("cannot run 8 fuzz targets: {}", fuzz::INSTALL)
            );
        }
    }

    #[test]
    fn a_failed_soak_ends_with_the_commands_that_reproduce_it() {
        let failed = ["model".to_owned(), "fuzz/bodies".to_owned()];
        let commands = [
            "STEERSMAN_SEED=7 cargo test".to_owned(),
            "cargo fuzz run".to_owned(),
        ];
        assert_eq!(
            failure(&failed, &commands, "3 s"),
            "FAILED: model, fuzz/bodies in 3 s\n\
             Commit the new files in `regressions/` and `fuzz/corpus/` with the fix. To reproduce:\n  \
             STEERSMAN_SEED=7 cargo test\n  cargo fuzz run"
        );
        assert_eq!(
            failure(&failed[..1], &[], "3 s"),
            "FAILED: model in 3 s; no seed or input was reported, see above"
        );
    }

    #[test]
    fn a_test_is_selected_by_a_part_of_its_name_or_of_its_target() {
        assert!(full_name("model", "soak_no_getter_sleeps").contains("model::soak_no"));
        assert!(!full_name("workqueue", "stress::soak_no_add_is_lost").contains("model"));
    }
}
