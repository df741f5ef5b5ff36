//! `cargo xtask test`: runs every check that a change must pass.
//!
//! The steps run in order, and each prints one line with its time. The first failure ends the run,
//! unless `--keep-going` is given. The output of a step is shown if the step fails. The result
//! lines of cargo's tests are always shown. The summary counts the skipped tests by reason.

mod results;
mod skipped_tests;
mod steps;

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use self::{
    results::Totals,
    steps::{Outcome, Runner, Step},
};
use crate::{process, progress};

#[derive(Args)]
pub(crate) struct Options {
    /// Run the remaining steps after one has failed
    #[arg(long)]
    keep_going: bool,
    /// Steps to run [default: all, in this order]
    #[arg(value_enum, value_name = "STEP")]
    steps: Vec<Step>,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let begun = Instant::now();
    let chosen: Vec<Step> = Step::ALL
        .into_iter()
        .filter(|step| options.steps.is_empty() || options.steps.contains(step))
        .collect();
    let mut runner = Runner::new(process::root()?, options.keep_going);
    let mut summary = Summary {
        chosen: chosen.len(),
        ..Summary::default()
    };

    for step in chosen {
        let start = Instant::now();
        let outcome = runner
            .run(step)
            .unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        let time = progress::format_duration(start.elapsed());
        match outcome {
            Outcome::Passed => {
                println!("ok      {:<8} {time}", step.name());
                summary.passed += 1;
            }
            Outcome::Skipped(reason) => {
                println!("skipped {:<8} {reason}", step.name());
                summary.skipped += 1;
            }
            Outcome::Failed(output) => {
                println!("{}\n\nFAILED  {:<8} {time}", output.trim_end(), step.name());
                summary.failed.push(step.name());
                if !options.keep_going {
                    break;
                }
            }
        }
    }

    println!();
    for line in runner.skipped_tests()? {
        println!("{line}");
    }
    println!("{}", summary.text(begun.elapsed()));
    if let Some(Totals { passed, failed }) = runner.totals() {
        println!("{passed} passed, {failed} failed");
    }
    Ok(summary.failed.is_empty())
}

/// Results of all steps.
#[derive(Default)]
struct Summary {
    chosen: usize,
    passed: usize,
    skipped: usize,
    failed: Vec<&'static str>,
}

impl Summary {
    fn text(&self, time: Duration) -> String {
        let time = progress::format_duration(time);
        let mut counts = vec![format!(
            "{} passed",
            progress::pluralize(self.passed, "step")
        )];
        if self.skipped > 0 {
            counts.push(format!("{} skipped", self.skipped));
        }
        if self.failed.is_empty() {
            return format!("{} in {time}", counts.join(", "));
        }
        let not_run = self.chosen - self.passed - self.skipped - self.failed.len();
        if not_run > 0 {
            counts.push(format!("{not_run} not run"));
        }
        let counts = counts.join(", ");
        let failed = self.failed.join(" ");
        format!("FAILED: {failed} ({counts}) in {time}\nto repeat: cargo xtask test {failed}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(192);

    #[test]
    fn the_summary_of_a_success_is_one_line() {
        let all = Summary {
            chosen: 8,
            passed: 8,
            ..Summary::default()
        };
        assert_eq!(all.text(TIME), "8 steps passed in 3 min 12 s");
        let without_go = Summary {
            chosen: 2,
            passed: 1,
            skipped: 1,
            failed: vec![],
        };
        assert_eq!(
            without_go.text(TIME),
            "1 step passed, 1 skipped in 3 min 12 s"
        );
    }

    #[test]
    fn the_summary_of_a_failure_names_the_steps_and_the_command_that_repeats_them() {
        let first = Summary {
            chosen: 8,
            passed: 1,
            skipped: 0,
            failed: vec!["clippy"],
        };
        assert_eq!(
            first.text(TIME),
            "FAILED: clippy (1 step passed, 6 not run) in 3 min 12 s\nto repeat: cargo xtask test clippy"
        );
        let kept_going = Summary {
            chosen: 3,
            passed: 1,
            skipped: 0,
            failed: vec!["fmt", "doc"],
        };
        assert_eq!(
            kept_going.text(TIME),
            "FAILED: fmt doc (1 step passed) in 3 min 12 s\nto repeat: cargo xtask test fmt doc"
        );
    }
}
