//! `cargo xtask bench`: builds the executables of a group, runs them in turn, and prints one table; with `--peers` the
//! same workloads on other implementations, in the same run on the same machine, since only such ratios mean anything.
//!
//! Wall time never fails the command: a missed target is printed, not an error. A repetition that fails is one.

mod cache;
mod controller;
mod endpoint;
mod executables;
mod groups;
mod machine;
mod measure;
mod pace;
mod quiet;
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
    executables::Programs,
    groups::GROUPS,
    machine::Machine,
    measure::Plan,
    pace::Pace,
    rows::{Row, Rows},
    table::Table,
};
use crate::{process, progress};

#[derive(Args)]
pub(crate) struct Options {
    /// What to measure
    #[arg(default_value = "queue", value_parser = PossibleValuesParser::new(GROUPS.iter().map(|group| group.name)))]
    group: String,
    /// Measure the other implementations too (needs Go for those written in it)
    #[arg(long)]
    peers: bool,
    /// Fewer and shorter repetitions of the same rows: minutes instead of half an hour
    #[arg(long)]
    quick: bool,
    /// Only the workloads whose name contains this
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// Print the table as Markdown
    #[arg(long)]
    markdown: bool,
    /// Write the machine and all rows to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The packages that hold peers, which nothing but the bench needs in an optimised build.
pub(crate) fn peer_packages() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|group| group.packages.iter().map(|peer| peer.package))
}

/// What `--json` writes; the same for every group.
#[derive(Serialize)]
struct Report<'a> {
    machine: &'a Machine,
    /// Whether sizes are smaller than the names of some workloads say.
    quick: bool,
    rows: &'a [Row],
}

/// An error if it cannot. What is there stays: a run that fails costs nobody the report of the one before.
fn can_be_written(file: &Path) -> Result<()> {
    let opened = OpenOptions::new().append(true).create(true).open(file);
    opened.with_context(|| format!("cannot write {}: does its folder exist?", file.display()))?;
    Ok(())
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let begun = Instant::now();
    let group = GROUPS
        .iter()
        .find(|group| group.name == options.group)
        .with_context(|| format!("there is no group `{}`", options.group))?;
    if let Some(file) = &options.json {
        // Found out now rather than after ten minutes.
        can_be_written(file)?;
    }

    let root = process::root()?;
    let programs = Programs::build(&root, group, options.peers)?;
    let plan = Plan::new(group, &programs.pairs()?, options.workload.as_deref());
    if plan.is_empty() {
        bail!("no workload's name contains `{}`", options.workload.as_deref().unwrap_or_default());
    }
    let pace = if options.quick { Pace::quick(begun) } else { Pace::full() };
    let measured = measure::all(&plan, &programs, &pace, options.quick);

    let machine = Machine::here();
    let rows = Rows::new(measured.samples.rows(group));
    let table = Table { group, rows: &rows };
    println!("{}\n", machine.text());
    println!("{}", if options.markdown { table.markdown() } else { table.text() });
    let mut notes = [table.checks(), programs.absent.clone(), plan.missing.clone(), measured.remarks].concat();
    if options.peers {
        notes.extend(group.left_out.iter().map(ToString::to_string));
    }
    notes.extend(group.quick_says.filter(|_| options.quick).map(Into::into));
    for note in notes {
        println!("{}{note}", if options.markdown { "- " } else { "" });
    }
    eprintln!("{} in {}", progress::counted(rows.all().len(), "row"), progress::words(begun.elapsed()));

    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(&Report { machine: &machine, quick: options.quick, rows: rows.all() })?;
        fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!("written to {}", file.display());
    }
    Ok(measured.complete)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Who reads reports counts on it, whichever the group.
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
        let report = Report { machine: &Machine::here(), quick: false, rows: &[row] };
        let Value::Object(mut report) = serde_json::to_value(report).unwrap() else { panic!("no object") };
        assert!(report.remove("machine").is_some_and(|machine| machine["cores"].is_u64()));
        let rows = json!([{
            "workload": "steady", "implementation": "steersman", "unit": "ns",
            "median": 2.5, "min": 1.0, "max": 4.0, "samples": 3,
        }]);
        assert_eq!(Value::from(report), json!({ "quick": false, "rows": rows }));
    }

    #[test]
    fn a_report_that_is_there_stays_until_the_new_one_is_written() {
        let folder = std::env::temp_dir().join(format!("xtask-report-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("report.json");
        can_be_written(&file).unwrap();
        fs::write(&file, "{}").unwrap();
        can_be_written(&file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "{}");
        assert!(can_be_written(&folder.join("none/report.json")).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
