//! `cargo xtask conformance`: compares the embedded API server with kube-apiserver.
//!
//! It runs the test suite `tests/conformance`, which reads its options from the environment:
//!
//! | variable | meaning |
//! |---|---|
//! | `STEERSMAN_CONFORMANCE` | `record` stores the responses of kube-apiserver |
//! | `STEERSMAN_CONFORMANCE_OPERATIONS` | number of generated operations to compare |
//! | `STEERSMAN_SEED` | seed of the generated operations |
//! | `STEERSMAN_CONFORMANCE_ONLY` | part of the names of the cases to run |

use std::{path::Path, process::Command, time::SystemTime};

use anyhow::{Context, Result};
use clap::Args;

use crate::{envtest, process};

#[derive(Args)]
pub(crate) struct Options {
    /// Store the responses of kube-apiserver instead of comparing with it
    #[arg(long)]
    record: bool,
    /// Number of generated operations to compare
    #[arg(long, value_name = "N", default_value_t = 2000)]
    operations: u64,
    /// Seed of the generated operations, printed when the suite fails [default: from the clock]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Only the cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let root = process::root()?;
    let assets = envtest::require(&root)
        .context("cannot run the conformance suite without kube-apiserver")?;
    let mut suite = suite(&root, options);
    let shown = process::display_command(&suite);
    let status = suite
        .env(envtest::VARIABLE, assets)
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    Ok(status.success())
}

fn suite(root: &Path, options: &Options) -> Command {
    let mut command = process::cargo(root);
    // The suite prints a summary, which libtest would capture.
    command.args([
        "test",
        "--locked",
        "--package",
        "steersman",
        "--test",
        "conformance",
        "--",
        "--nocapture",
    ]);
    if options.record {
        command.env("STEERSMAN_CONFORMANCE", "record");
    } else {
        command.env_remove("STEERSMAN_CONFORMANCE");
    }
    command.env(
        "STEERSMAN_CONFORMANCE_OPERATIONS",
        options.operations.to_string(),
    );
    command.env(
        "STEERSMAN_SEED",
        options.seed.unwrap_or_else(seed_from_clock).to_string(),
    );
    match &options.only {
        Some(only) => command.env("STEERSMAN_CONFORMANCE_ONLY", only),
        None => command.env_remove("STEERSMAN_CONFORMANCE_ONLY"),
    };
    command
}

fn seed_from_clock() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the variables of the suite, without those that `process::cargo` removes.
    fn variables(options: &Options) -> Vec<(String, Option<String>)> {
        let command = suite(Path::new("."), options);
        let text = |value: &std::ffi::OsStr| value.to_string_lossy().into_owned();
        let all = command
            .get_envs()
            .map(|(name, value)| (text(name), value.map(text)));
        all.filter(|(name, _)| name.starts_with("STEERSMAN_"))
            .collect()
    }

    #[test]
    fn options_are_passed_to_the_suite_as_variables() {
        let names = [
            "CONFORMANCE",
            "CONFORMANCE_ONLY",
            "CONFORMANCE_OPERATIONS",
            "SEED",
        ]
        .map(|name| format!("STEERSMAN_{name}"));
        let expected = |values: [Option<&str>; 4]| -> Vec<(String, Option<String>)> {
            names
                .clone()
                .into_iter()
                .zip(values.map(|value| value.map(String::from)))
                .collect()
        };
        let compare = Options {
            record: false,
            operations: 2000,
            seed: Some(7),
            only: None,
        };
        assert_eq!(
            variables(&compare),
            expected([None, None, Some("2000"), Some("7")])
        );
        let record = Options {
            record: true,
            operations: 5,
            seed: Some(7),
            only: Some("watch".into()),
        };
        assert_eq!(
            variables(&record),
            expected([Some("record"), Some("watch"), Some("5"), Some("7")])
        );
    }
}
