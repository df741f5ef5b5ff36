//! `cargo xtask conformance`: the embedded API server beside the real one, by the suite `tests/conformance`.
//!
//! The suite reads what to do from the environment: `STEERSMAN_CONFORMANCE` is `live` (compare with the real server,
//! started for it) or `record` (write its answers down anew), `STEERSMAN_CONFORMANCE_OPERATIONS` says how many random
//! operations to compare, and `STEERSMAN_CONFORMANCE_ONLY` which cases.

use std::{path::Path, process::Command};

use anyhow::{Context, Result};
use clap::Args;

use crate::{envtest, process};

#[derive(Args)]
pub(crate) struct Options {
    /// Write the real server's answers down anew instead of comparing with it
    #[arg(long)]
    record: bool,
    /// How many random operations to compare
    #[arg(long, value_name = "N", default_value_t = 2000)]
    operations: u64,
    /// Only the cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let root = process::root()?;
    let assets = envtest::required(&root).context("a comparison needs the real server")?;
    let mut suite = suite(&root, options);
    let shown = process::shown(&suite);
    let status = suite.env(envtest::VARIABLE, assets).status().with_context(|| format!("cannot start `{shown}`"))?;
    Ok(status.success())
}

fn suite(root: &Path, options: &Options) -> Command {
    let mut command = process::cargo(root);
    // Not captured: the line that sums it up is what one wants to see.
    command.args(["test", "--locked", "--package", "steersman", "--test", "conformance", "--", "--nocapture"]);
    command.env("STEERSMAN_CONFORMANCE", if options.record { "record" } else { "live" });
    command.env("STEERSMAN_CONFORMANCE_OPERATIONS", options.operations.to_string());
    match &options.only {
        Some(only) => command.env("STEERSMAN_CONFORMANCE_ONLY", only),
        None => command.env_remove("STEERSMAN_CONFORMANCE_ONLY"),
    };
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(options: &Options) -> Vec<(String, Option<String>)> {
        let command = suite(Path::new("."), options);
        let text = |value: &std::ffi::OsStr| value.to_string_lossy().into_owned();
        command.get_envs().map(|(name, value)| (text(name), value.map(text))).collect()
    }

    #[test]
    fn the_suite_is_told_by_variables_what_to_do() {
        let names = ["STEERSMAN_CONFORMANCE", "STEERSMAN_CONFORMANCE_ONLY", "STEERSMAN_CONFORMANCE_OPERATIONS"]
            .map(String::from);
        let expected = |values: [Option<&str>; 3]| -> Vec<(String, Option<String>)> {
            names.clone().into_iter().zip(values.map(|value| value.map(String::from))).collect()
        };
        let live = Options { record: false, operations: 2000, only: None };
        assert_eq!(variables(&live), expected([Some("live"), None, Some("2000")]));
        let record = Options { record: true, operations: 5, only: Some("watch".into()) };
        assert_eq!(variables(&record), expected([Some("record"), Some("watch"), Some("5")]));
    }
}
