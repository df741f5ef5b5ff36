//! `cargo xtask bench`: measures the workloads of a group and prints one table.
//!
//! With `--peers` it runs the same workloads on other implementations, in the same run on the same
//! machine, so that the ratios are comparable. A missed target is printed and does not fail the
//! command. A repetition that fails does.

mod budget;
mod cache;
mod controller;
mod cpu_usage;
mod endpoint;
mod executables;
mod extension_config;
mod external;
mod groups;
mod machine;
mod measure;
mod rows;
mod server;
mod table;

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use clap::{Args, builder::PossibleValuesParser};
use serde::Serialize;

use self::{
    budget::Budget,
    executables::Programs,
    groups::GROUPS,
    machine::Machine,
    measure::Plan,
    rows::{Row, Rows},
    table::Table,
};
use crate::{process, progress};

#[derive(Args)]
pub(crate) struct Options {
    /// Group of workloads to measure
    #[arg(default_value = "queue", value_parser = PossibleValuesParser::new(GROUPS.iter().map(|group| group.name)))]
    group: String,
    /// Measure other implementations, too (some need Go)
    #[arg(long)]
    peers: bool,
    /// Fewer and shorter repetitions of the same rows: minutes instead of half an hour
    #[arg(long)]
    quick: bool,
    /// Measure only workloads whose name contains this
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// Print the table as Markdown
    #[arg(long)]
    markdown: bool,
    /// Write the machine and all rows to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Returns the workspace packages with peers. Only the benches need them in an optimised build.
pub(crate) fn peer_packages() -> impl Iterator<Item = &'static str> {
    GROUPS
        .iter()
        .flat_map(|group| group.packages.iter().map(|peer| peer.package))
}

/// The file that `--json` writes.
#[derive(Serialize)]
struct Report<'a> {
    machine: &'a Machine,
    /// Whether some workloads are smaller than their names state.
    quick: bool,
    rows: &'a [Row],
}

/// Fails if `file` cannot be written. Keeps its content, in case the run fails later.
fn check_writable(file: &Path) -> Result<()> {
    let opened = OpenOptions::new().append(true).create(true).open(file);
    opened.with_context(|| format!("cannot write {}", file.display()))?;
    Ok(())
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let begun = Instant::now();
    let group = GROUPS
        .iter()
        .find(|group| group.name == options.group)
        .with_context(|| format!("unknown group `{}`", options.group))?;
    if let Some(file) = &options.json {
        // Fail before the measurements, not after them.
        check_writable(file)?;
    }

    let root = process::root()?;
    let programs = Programs::build(&root, group, options.peers)?;
    let plan = Plan::new(group, &programs.pairs()?, options.workload.as_deref());
    if plan.is_empty() {
        bail!(
            "no workload has `{}` in its name",
            options.workload.as_deref().unwrap_or_default()
        );
    }
    let budget = if options.quick {
        Budget::quick(begun)
    } else {
        Budget::full()
    };
    let measured = measure::all(&plan, &programs, &budget, options.quick);

    let machine = Machine::here();
    let rows = Rows::new(measured.samples.rows(group));
    let table = Table { group, rows: &rows };
    println!("{}\n", machine.text());
    println!(
        "{}",
        if options.markdown {
            table.markdown()
        } else {
            table.text()
        }
    );
    let mut notes = [
        table.checks(),
        programs.absent.clone(),
        plan.missing.clone(),
        measured.remarks,
    ]
    .concat();
    if options.peers {
        notes.extend(group.omissions.iter().map(ToString::to_string));
    }
    notes.extend(group.quick_note.filter(|_| options.quick).map(Into::into));
    for note in notes {
        println!("{}{note}", if options.markdown { "- " } else { "" });
    }
    eprintln!(
        "{} in {}",
        progress::pluralize(rows.all().len(), "row"),
        progress::format_duration(begun.elapsed())
    );

    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(&Report {
            machine: &machine,
            quick: options.quick,
            rows: rows.all(),
        })?;
        fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!("written to {}", file.display());
    }
    Ok(measured.complete)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_report_has_the_machine_and_a_row_for_each_pair() {
        let row = Row {
            workload: "steady".into(),
            implementation: "steersman".into(),
            unit: "ns".into(),
            median: 2.5,
            min: 1.0,
            max: 4.0,
            samples: 3,
        };
        let report = Report {
            machine: &Machine::here(),
            quick: false,
            rows: &[row],
        };
        let Value::Object(mut report) = serde_json::to_value(report).unwrap() else {
            panic!("no object")
        };
        assert!(
            report
                .remove("machine")
                .is_some_and(|machine| machine["cores"].is_u64())
        );
        let rows = json!([{
            "workload": "steady", "implementation": "steersman", "unit": "ns",
            "median": 2.5, "min": 1.0, "max": 4.0, "samples": 3,
        }]);
        assert_eq!(Value::from(report), json!({ "quick": false, "rows": rows }));
    }

    #[test]
    fn checking_that_a_report_is_writable_keeps_its_content() {
        let folder = std::env::temp_dir().join(format!("xtask-report-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("report.json");
        check_writable(&file).unwrap();
        fs::write(&file, "{}").unwrap();
        check_writable(&file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "{}");
        assert!(check_writable(&folder.join("none/report.json")).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
