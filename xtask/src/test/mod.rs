//! `cargo xtask test`: runs the steps in order, one line each with its time, and stops at the first failure unless told
//! to keep going. What a step printed is shown only when it failed; the closing lines of cargo's tests always are. Before
//! the verdict, one line per reason counts the tests that were skipped.

mod results;
mod skipped;
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
    /// The steps to run (all of them, in this order, if none is named)
    #[arg(value_enum, value_name = "STEP")]
    steps: Vec<Step>,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let begun = Instant::now();
    let chosen: Vec<Step> =
        Step::ALL.into_iter().filter(|step| options.steps.is_empty() || options.steps.contains(step)).collect();
    let mut runner = Runner::new(process::root()?, options.keep_going);
    let mut summary = Summary { chosen: chosen.len(), ..Summary::default() };

    for step in chosen {
        let start = Instant::now();
        let outcome = runner.run(step).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        let time = progress::words(start.elapsed());
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

/// How the steps ended.
#[derive(Default)]
struct Summary {
    chosen: usize,
    passed: usize,
    skipped: usize,
    failed: Vec<&'static str>,
}

impl Summary {
    fn text(&self, time: Duration) -> String {
        let time = progress::words(time);
        let mut counts = vec![format!("{} passed", progress::counted(self.passed, "step"))];
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
        format!("FAILED: {failed} ({counts}) in {time}\nto run just that again: cargo xtask test {failed}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(192);

    #[test]
    fn success_is_summed_up_in_one_line() {
        let all = Summary { chosen: 8, passed: 8, ..Summary::default() };
        assert_eq!(all.text(TIME), "8 steps passed in 3 min 12 s");
        let without_go = Summary { chosen: 2, passed: 1, skipped: 1, failed: vec![] };
        assert_eq!(without_go.text(TIME), "1 step passed, 1 skipped in 3 min 12 s");
    }

    #[test]
    fn failure_names_the_steps_and_how_to_run_them_again() {
        let first = Summary { chosen: 8, passed: 1, skipped: 0, failed: vec!["clippy"] };
        assert_eq!(
            first.text(TIME),
            "FAILED: clippy (1 step passed, 6 not run) in 3 min 12 s\nto run just that again: cargo xtask test clippy"
        );
        let kept_going = Summary { chosen: 3, passed: 1, skipped: 0, failed: vec!["fmt", "doc"] };
        assert_eq!(
            kept_going.text(TIME),
            "FAILED: fmt doc (1 step passed) in 3 min 12 s\nto run just that again: cargo xtask test fmt doc"
        );
    }
}
