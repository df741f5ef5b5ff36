//! `cargo xtask soak`: the long random tests.
//!
//! Every test with `soak` in its name is one. It reads the environment variable `STEERSMAN_SOAK`, the seconds it may
//! take; without it the test runs a short slice, which is what `cargo xtask test` does.

use std::{process::Command, time::Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{
    bench, envtest,
    process::{self, Executable},
    progress,
};

#[derive(Args)]
pub(crate) struct Options {
    /// Only the tests whose name, `target::module::test`, contains this
    name: Option<String>,
    /// Seconds for each test
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let root = process::root()?;
    let mut build = process::cargo(&root);
    build.args(["test", "--release", "--locked", "--lib", "--bins", "--tests", "--no-run", "--workspace"]);
    // xtask's own tests of this module have `soak` in their path; peers take minutes to build and have none.
    build.args(["xtask"].into_iter().chain(bench::peer_packages()).flat_map(|package| ["--exclude", package]));
    let mut soaks = Vec::new();
    for executable in process::built(build)? {
        let tests = soak_tests(&executable)?;
        if !tests.is_empty() {
            soaks.push((executable, tests));
        }
    }
    let all: Vec<String> = soaks
        .iter()
        .flat_map(|(executable, tests)| tests.iter().map(|test| full_name(&executable.target, test)))
        .collect();
    if let Some(name) = &options.name {
        for (executable, tests) in &mut soaks {
            tests.retain(|test| is_chosen(name, &executable.target, test));
        }
        soaks.retain(|(_, tests)| !tests.is_empty());
        if soaks.is_empty() && !all.is_empty() {
            bail!("no soak test's name contains `{name}`; there are:\n  {}", all.join("\n  "));
        }
    }
    if soaks.is_empty() {
        bail!("there is no soak test: give a long random test a name with `soak` and let it read STEERSMAN_SOAK");
    }

    let count: usize = soaks.iter().map(|(_, tests)| tests.len()).sum();
    let counted = progress::counted(count, "soak test");
    println!("{counted}, {} s each", options.seconds);
    let start = Instant::now();
    let mut failed = Vec::new();
    for (executable, tests) in &soaks {
        println!("\n{}", executable.target);
        let mut command = Command::new(&executable.path);
        envtest::tell(&mut command, &root)?;
        let status = command
            .args(["--exact", "--nocapture"])
            .args(tests)
            .current_dir(&executable.package)
            .env("CARGO_MANIFEST_DIR", &executable.package)
            .env("STEERSMAN_SOAK", options.seconds.to_string())
            .status()
            .with_context(|| format!("cannot run the tests of {}", executable.target))?;
        if !status.success() {
            failed.push(executable.target.as_str());
        }
    }
    let time = progress::words(start.elapsed());
    if failed.is_empty() {
        println!("\n{counted} passed in {time}");
    } else {
        println!("\nFAILED: soak tests of {} in {time}; the failing seed is above", failed.join(", "));
    }
    Ok(failed.is_empty())
}

fn soak_tests(executable: &Executable) -> Result<Vec<String>> {
    let mut list = Command::new(&executable.path);
    list.args(["soak", "--list", "--format", "terse"]).current_dir(&executable.package);
    let listed = process::stdout(list).with_context(|| format!("cannot list the tests of {}", executable.target))?;
    Ok(names(&listed))
}

/// Tests in the root of an executable, as those of `tests/model` are, have nothing in their own names that tells where they are.
fn full_name(target: &str, test: &str) -> String {
    format!("{target}::{test}")
}

fn is_chosen(name: &str, target: &str, test: &str) -> bool {
    full_name(target, test).contains(name)
}

/// The tests in a terse libtest listing: `module::name: test` each.
fn names(listing: &str) -> Vec<String> {
    listing.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_are_read_from_a_listing() {
        let listing = "workqueue::a_soak: test\nsome_soak_bench: benchmark\nother::soak_fuzz: test\n";
        assert_eq!(names(listing), ["workqueue::a_soak", "other::soak_fuzz"]);
    }

    #[test]
    fn a_test_is_chosen_by_a_part_of_its_name_or_of_its_executables() {
        assert!(is_chosen("model", "model", "soak_no_getter_sleeps"));
        assert!(is_chosen("model", "steersman", "cache::fan::model::soak_nothing_is_lost"));
        assert!(is_chosen("getter", "model", "soak_no_getter_sleeps"));
        assert!(is_chosen("model::soak_no", "model", "soak_no_getter_sleeps"));
        assert!(!is_chosen("model", "workqueue", "stress::soak_no_add_is_lost"));
    }
}
