//! Each mode runs in a process of its own, because environment variables belong to the process.

use crate::{Seeds, skip, this_test};
use std::{
    env, fs,
    path::Path,
    process::{Command, Output},
};

/// A helper reads it to fail in its second round.
const FAILS: &str = "STEERSMAN_TESTKIT_FAILS";

#[test]
#[ignore = "a helper: started in a process of its own"]
fn helper_skips() {
    skip("no helper", "install one");
    skip("no helper", "install one");
}

#[test]
#[ignore = "a helper: started in a process of its own"]
fn helper_takes_seeds() {
    for (round, seed) in Seeds::new(this_test!(), 3).enumerate() {
        println!("seed={seed}");
        assert!(round == 0 || env::var_os(FAILS).is_none(), "asked to fail");
    }
}

mod property {
    use std::env;

    crate::properties! {
        cases = 3;

        #[test]
        #[ignore = "a helper: started in a process of its own"]
        fn helper_takes_numbers(number: u32) {
            println!("number={number}");
            assert!(number < 1000 || env::var_os(super::super::FAILS).is_none(), "asked to fail");
        }
    }
}

/// Runs a helper for the package `directory`.
fn helper(name: &str, directory: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "--nocapture", name]);
    for variable in [
        "CI",
        "STEERSMAN_SKIPPED_TESTS",
        "STEERSMAN_SOAK",
        "STEERSMAN_SEED",
        "STEERSMAN_SOAK_FAILURES",
    ] {
        command.env_remove(variable);
    }
    command
        .env("CARGO_MANIFEST_DIR", directory)
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

/// Returns the values that a helper printed after `name=`.
fn printed(output: &Output, name: &str) -> Vec<u64> {
    let text = String::from_utf8_lossy(&output.stdout);
    let values = text
        .lines()
        .filter_map(|line| line.rsplit_once(name)?.1.strip_prefix('='));
    values.map(|value| value.parse().unwrap()).collect()
}

#[test]
fn a_skipped_test_passes_and_is_recorded_with_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("skipped");
    let variables = [("STEERSMAN_SKIPPED_TESTS", record.to_str().unwrap())];
    let output = helper("tests::helper_skips", directory.path(), &variables);
    assert!(output.status.success());
    let lines = fs::read_to_string(&record).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    assert!(
        lines[0].starts_with("no helper\t") && lines[0].ends_with("\ttests::helper_skips"),
        "{lines:?}"
    );
    assert_eq!(lines[0], lines[1], "one test is one record");
}

#[test]
fn a_skipped_test_fails_on_ci() {
    let directory = tempfile::tempdir().unwrap();
    let output = helper("tests::helper_skips", directory.path(), &[("CI", "true")]);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("cannot skip a test with CI=true: no helper: install one"),
        "{text}"
    );
}

#[test]
fn kept_seeds_run_before_the_fixed_seeds() {
    let directory = tempfile::tempdir().unwrap();
    let seeds = |variables: &[_]| {
        printed(
            &helper("tests::helper_takes_seeds", directory.path(), variables),
            "seed",
        )
    };
    assert_eq!(seeds(&[]), [1, 2, 3]);
    let file = directory
        .path()
        .join("regressions/steersman_testkit/tests/helper_takes_seeds.txt");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, "# kept\n7 # lost a wake-up\n\n8\n").unwrap();
    assert_eq!(seeds(&[]), [7, 8, 1, 2, 3]);
    assert_eq!(seeds(&[("STEERSMAN_SEED", "9")]), [9]);
    assert_eq!(
        seeds(&[("STEERSMAN_SEED", "9"), ("STEERSMAN_SOAK", "0")]),
        [9]
    );
}

#[test]
fn a_seed_that_fails_in_a_soak_is_kept_and_reported_with_its_command() {
    let directory = tempfile::tempdir().unwrap();
    let failures = directory.path().join("failures");
    let variables = [
        ("STEERSMAN_SOAK", "60"),
        ("STEERSMAN_SOAK_FAILURES", failures.to_str().unwrap()),
        (FAILS, "1"),
    ];
    let output = helper("tests::helper_takes_seeds", directory.path(), &variables);
    assert!(!output.status.success());
    let seeds = printed(&output, "seed");
    assert_eq!(seeds.len(), 2);
    assert_ne!(seeds, [1, 2], "a soak takes new seeds");
    let command = format!(
        "STEERSMAN_SEED={} cargo test -p steersman-testkit --lib -- --exact tests::helper_takes_seeds",
        seeds[1]
    );
    assert_eq!(
        fs::read_to_string(failures).unwrap(),
        format!("{command}\n")
    );
    assert!(String::from_utf8_lossy(&output.stderr).contains(&command));
    let fixed = helper("tests::helper_takes_seeds", directory.path(), &[]);
    assert_eq!(printed(&fixed, "seed"), [seeds[1], 1, 2, 3]);
}

#[test]
fn a_failure_with_a_fixed_seed_keeps_no_seed() {
    let directory = tempfile::tempdir().unwrap();
    let output = helper(
        "tests::helper_takes_seeds",
        directory.path(),
        &[(FAILS, "1")],
    );
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("seed 2 failed, reproduce with: STEERSMAN_SEED=2 cargo test"),
        "{text}"
    );
    assert!(!directory.path().join("regressions").exists());
}

#[test]
fn a_property_has_the_same_cases_in_every_run() {
    let directory = tempfile::tempdir().unwrap();
    let cases = |variables: &[_]| {
        printed(
            &helper(
                "tests::property::soak::helper_takes_numbers",
                directory.path(),
                variables,
            ),
            "number",
        )
    };
    let fixed = cases(&[]);
    assert_eq!(fixed.len(), 3);
    assert_eq!(fixed, cases(&[]));
    assert_eq!(fixed, cases(&[("STEERSMAN_SEED", "1")]));
    assert_ne!(fixed, cases(&[("STEERSMAN_SEED", "2")]));
}

#[test]
fn a_property_that_fails_in_a_soak_is_kept_and_runs_first_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let name = "tests::property::soak::helper_takes_numbers";
    let failures = directory.path().join("failures");
    let variables = [
        ("STEERSMAN_SOAK", "60"),
        ("STEERSMAN_SOAK_FAILURES", failures.to_str().unwrap()),
        (FAILS, "1"),
    ];
    let soak = helper(name, directory.path(), &variables);
    assert!(!soak.status.success());
    let failed = printed(&soak, "number")
        .into_iter()
        .find(|number| *number >= 1000)
        .unwrap();
    let fixed = helper(name, directory.path(), &[]);
    assert!(fixed.status.success());
    assert_eq!(printed(&fixed, "number")[0], failed);
    assert!(
        fs::read_to_string(failures)
            .unwrap()
            .ends_with(&format!("-- --exact {name}\n"))
    );
}
