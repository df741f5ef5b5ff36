//! `cargo xtask conformance`: the embedded API server beside the real one, by the suite `tests/conformance`.
//!
//! The suite reads what to do from the environment: with `STEERSMAN_CONFORMANCE=record` it writes the real server's answers down anew,
//! `STEERSMAN_CONFORMANCE_OPERATIONS` says how many generated operations to compare, `STEERSMAN_CONFORMANCE_SEED` which ones, and
//! `STEERSMAN_CONFORMANCE_ONLY` which cases.

use std::{path::Path, process::Command, time::SystemTime};

use anyhow::{Context, Result};
use clap::Args;

use crate::{envtest, process};

#[derive(Args)]
pub(crate) struct Options {
    /// Write the real server's answers down anew instead of comparing with it
    #[arg(long)]
    record: bool,
    /// How many generated operations to compare
    #[arg(long, value_name = "N", default_value_t = 2000)]
    operations: u64,
    /// Where generation begins; the suite says it when it fails (others each time if it is not given)
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
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
    if options.record {
        command.env("STEERSMAN_CONFORMANCE", "record");
    } else {
        command.env_remove("STEERSMAN_CONFORMANCE");
    }
    command.env("STEERSMAN_CONFORMANCE_OPERATIONS", options.operations.to_string());
    command.env("STEERSMAN_CONFORMANCE_SEED", options.seed.unwrap_or_else(any_seed).to_string());
    match &options.only {
        Some(only) => command.env("STEERSMAN_CONFORMANCE_ONLY", only),
        None => command.env_remove("STEERSMAN_CONFORMANCE_ONLY"),
    };
    command
}

/// One that hardly was before.
fn any_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that are ours: cargo's own are taken from every cargo that is started.
    fn variables(options: &Options) -> Vec<(String, Option<String>)> {
        let command = suite(Path::new("."), options);
        let text = |value: &std::ffi::OsStr| value.to_string_lossy().into_owned();
        let all = command.get_envs().map(|(name, value)| (text(name), value.map(text)));
        all.filter(|(name, _)| name.starts_with("STEERSMAN_")).collect()
    }

    #[test]
    fn the_suite_is_told_by_variables_what_to_do() {
        let names = ["", "_ONLY", "_OPERATIONS", "_SEED"].map(|end| format!("STEERSMAN_CONFORMANCE{end}"));
        let expected = |values: [Option<&str>; 4]| -> Vec<(String, Option<String>)> {
            names.clone().into_iter().zip(values.map(|value| value.map(String::from))).collect()
        };
        let compare = Options { record: false, operations: 2000, seed: Some(7), only: None };
        assert_eq!(variables(&compare), expected([None, None, Some("2000"), Some("7")]));
        let record = Options { record: true, operations: 5, seed: Some(7), only: Some("watch".into()) };
        assert_eq!(variables(&record), expected([Some("record"), Some("watch"), Some("5"), Some("7")]));
    }
}
