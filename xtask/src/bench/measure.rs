//! Measures all pairs, workload by workload.
//!
//! Each round measures every implementation once, so that a slow phase of the machine affects all
//! of them. A repetition during which other processes used much CPU is repeated.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{
    budget::Budget,
    cpu_usage::{Reading, TOLERATED_SHARE},
    executables::{Measurement, Pair, Programs},
    groups::Group,
    rows::Samples,
    server::Server,
};
use crate::progress;

/// The pairs to measure, in the order of the table.
pub(super) struct Plan {
    workloads: Vec<PlannedWorkload>,
    /// Notes about workloads of the group that our executable does not list.
    pub(super) missing: Vec<String>,
}

struct PlannedWorkload {
    /// The workload on every implementation.
    pairs: Vec<Pair>,
    weight: f64,
    /// Whether it needs a server.
    served: bool,
}

impl Plan {
    /// Plans the workloads of `pairs` whose name contains `filter`.
    pub(super) fn new(group: &Group, pairs: &[Pair], filter: Option<&str>) -> Self {
        let listed = pairs.iter().map(|pair| pair.workload.as_str());
        let mut names: Vec<&str> = Vec::new();
        for name in group
            .workloads
            .iter()
            .map(|workload| workload.name)
            .chain(listed)
        {
            if filter.is_none_or(|part| name.contains(part)) && !names.contains(&name) {
                names.push(name);
            }
        }
        let ours = group.families[0].ours;
        let offered = |name: &str| {
            pairs
                .iter()
                .any(|pair| pair.workload == name && pair.implementation == ours)
        };
        let absent: Vec<&str> = names
            .iter()
            .copied()
            .filter(|name| !offered(name))
            .collect();
        let missing = if absent.is_empty() {
            vec![]
        } else {
            vec![format!("not offered by {ours}: {}", absent.join(", "))]
        };

        let column = |pair: &Pair| {
            group
                .implementations()
                .position(|known| known == pair.implementation)
        };
        let planned = |name: &str| {
            let mut pairs: Vec<Pair> = pairs
                .iter()
                .filter(|pair| pair.workload == name)
                .cloned()
                .collect();
            pairs.sort_by_key(|pair| column(pair).unwrap_or(usize::MAX));
            let weight = group
                .workload(name)
                .map_or(1.0, |known| f64::from(known.weight));
            PlannedWorkload {
                pairs,
                weight,
                served: group.served.contains(&name),
            }
        };
        let workloads = names
            .into_iter()
            .map(planned)
            .filter(|planned| !planned.pairs.is_empty())
            .collect();
        Self { workloads, missing }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.workloads.is_empty()
    }
}

/// Results of a run.
pub(super) struct Measured {
    pub(super) samples: Samples,
    /// Notes for the reader of the table.
    pub(super) remarks: Vec<String>,
    /// Whether no repetition failed.
    pub(super) complete: bool,
}

/// One implementation of the workload that is being measured.
struct MeasuredPair<'a> {
    pair: &'a Pair,
    /// Remaining extra repetitions after disturbances by other processes.
    extra: usize,
    /// Duration of the last repetition.
    cost: Duration,
    /// Number of rounds to measure it in.
    rounds: usize,
}

pub(super) fn all(plan: &Plan, programs: &Programs, budget: &Budget, quick: bool) -> Measured {
    let mut run = Run {
        programs,
        budget,
        quick,
        server: None,
        samples: Samples::default(),
        disturbed: vec![],
        failures: vec![],
        absent: vec![],
    };
    let count = plan.workloads.len();
    let total: f64 = plan.workloads.iter().map(|planned| planned.weight).sum();
    let mut weight = 0.0;
    for (position, planned) in plan.workloads.iter().enumerate() {
        let before = weight;
        weight += planned.weight;
        // A run that reports several workloads may have measured this one already.
        let fresh = |pair: &&Pair| !run.samples.contains(&pair.workload, &pair.implementation);
        let pairs: Vec<&Pair> = planned.pairs.iter().filter(fresh).collect();
        let Some(first) = pairs.first() else { continue };
        let left = budget.left(before / total);
        let left = left.map_or_else(String::new, |left| {
            format!(", about {} left", progress::format_duration(left))
        });
        let implementations = progress::pluralize(pairs.len(), "implementation");
        eprintln!(
            "[{:>2}/{count}] {} ({implementations}{left})",
            position + 1,
            first.workload
        );
        if planned.served && !run.serve(&first.workload) {
            continue;
        }
        run.workload(&pairs, weight / total);
        run.server = None;
    }
    let complete = run.failures.is_empty();
    Measured {
        remarks: run.remarks(),
        samples: run.samples,
        complete,
    }
}

struct Run<'a> {
    programs: &'a Programs,
    budget: &'a Budget,
    quick: bool,
    /// Server of the current workload.
    server: Option<Server>,
    samples: Samples,
    /// Disturbed repetitions that were kept, with the share of a core that other processes used.
    disturbed: Vec<(String, f64)>,
    failures: Vec<String>,
    /// Notes about workloads whose server is unavailable.
    absent: Vec<String>,
}

impl Run<'_> {
    /// Starts the server of a workload. Returns whether it is running.
    fn serve(&mut self, workload: &str) -> bool {
        match self.programs.serve(workload, self.quick) {
            Ok(Some(server)) => self.server = Some(server),
            Ok(None) => self.absent.push(format!(
                "not measured, because its server cannot run on this machine: {workload}"
            )),
            Err(error) => self.failures.push(format!("{error:#}")),
        }
        self.server.is_some()
    }

    /// Measures one workload, which should be complete after `share` of the run.
    fn workload(&mut self, pairs: &[&Pair], share: f64) {
        let begin = |pair| MeasuredPair {
            pair,
            extra: self.budget.extra,
            cost: Duration::ZERO,
            rounds: self.budget.rounds,
        };
        let mut all_measured: Vec<MeasuredPair<'_>> = pairs.iter().copied().map(begin).collect();
        for round in 0..self.budget.rounds {
            for measured in &mut all_measured {
                let affordable = round == 0 || self.budget.affords(measured.cost, share);
                if affordable && round < measured.rounds {
                    self.repetition(measured, share);
                }
            }
        }
    }

    /// Measures one repetition, again if other processes disturbed it and the budget allows.
    fn repetition(&mut self, measured: &mut MeasuredPair<'_>, share: f64) {
        loop {
            let (result, others) = self.once(measured);
            let values = match result {
                Ok(values) => values,
                Err(error) => {
                    self.failures.push(format!("{error:#}"));
                    measured.rounds = 0;
                    return;
                }
            };
            // Other processes do not affect memory.
            let bytes = values.iter().all(|value| value.unit == "B");
            let disturbed = !bytes && others > TOLERATED_SHARE;
            if disturbed && measured.extra > 0 && self.budget.affords(measured.cost, share) {
                measured.extra -= 1;
                continue;
            }
            if disturbed {
                let Pair {
                    workload,
                    implementation,
                    ..
                } = measured.pair;
                self.disturbed
                    .push((format!("{workload} {implementation}"), others));
            }
            measured.rounds = measured
                .rounds
                .min(self.budget.rounds_of(bytes, measured.cost));
            for value in values {
                self.samples.add(value);
            }
            return;
        }
    }

    /// Measures once. Also returns the share of a core that other processes used meanwhile.
    fn once(&self, measured: &mut MeasuredPair<'_>) -> (Result<Vec<Measurement>>, f64) {
        let server = self.server.as_ref();
        let reading = || Reading::now(server.map(Server::id));
        let start = Instant::now();
        let before = reading();
        let result = self.programs.measure(measured.pair, self.quick, server);
        measured.cost = start.elapsed();
        let others = reading()
            .zip(before)
            .map_or(0.0, |(after, before)| after.others_since(&before));
        (result, others)
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks: Vec<String> = self
            .failures
            .iter()
            .map(|failure| format!("FAILED: {failure}"))
            .collect();
        remarks.extend(self.absent.iter().cloned());
        if Reading::now(None).is_none() {
            remarks.push(
                "disturbances by other processes are unknown: this system has no /proc/stat".into(),
            );
        }
        remarks.extend(disturbances(&self.disturbed));
        remarks
    }
}

/// Returns a note about the disturbed repetitions that were kept, with the worst pairs.
fn disturbances(kept: &[(String, f64)]) -> Option<String> {
    const SHOWN: usize = 5;
    let mut pairs: Vec<(&str, f64)> = Vec::new();
    for (pair, others) in kept {
        match pairs.iter_mut().find(|(known, _)| known == pair) {
            Some((_, most)) => *most = most.max(*others),
            None => pairs.push((pair, *others)),
        }
    }
    pairs.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let shown = |(pair, most): &(&str, f64)| format!("{pair} ({:.0} % of a core)", most * 100.0);
    let mut list: Vec<String> = pairs.iter().take(SHOWN).map(shown).collect();
    if pairs.len() > SHOWN {
        list.push(format!("{} more", pairs.len() - SHOWN));
    }
    let repetitions = progress::pluralize(kept.len(), "repetition");
    (!kept.is_empty()).then(|| {
        format!(
            "other processes used CPU during {repetitions}: {}",
            list.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{super::groups::GROUPS, *};

    fn plan(offers: &[(&str, &str)], filter: Option<&str>) -> (Vec<Vec<String>>, Vec<String>) {
        let pairs: Vec<Pair> = offers
            .iter()
            .map(|(workload, by)| Pair::of(workload, by))
            .collect();
        let plan = Plan::new(&GROUPS[0], &pairs, filter);
        let name = |pair: &Pair| format!("{} {}", pair.workload, pair.implementation);
        (
            plan.workloads
                .iter()
                .map(|planned| planned.pairs.iter().map(name).collect())
                .collect(),
            plan.missing,
        )
    }

    #[test]
    fn a_plan_has_known_workloads_first_and_ours_before_the_peers() {
        let offers = [
            ("new", "steersman"),
            ("steady", "client-go"),
            ("steady-b", "other"),
            ("steady", "steersman+metrics"),
            ("steady", "steersman"),
        ];
        let (workloads, _) = plan(&offers, None);
        assert_eq!(
            workloads,
            [
                vec![
                    "steady steersman",
                    "steady client-go",
                    "steady steersman+metrics"
                ],
                vec!["new steersman"],
                vec!["steady-b other"],
            ]
        );
    }

    #[test]
    fn a_plan_reports_workloads_that_our_executable_does_not_list() {
        let (workloads, missing) = plan(
            &[("bytes-ready", "steersman"), ("bytes-delayed", "client-go")],
            Some("bytes"),
        );
        assert_eq!(workloads.len(), 2);
        assert_eq!(
            missing,
            ["not offered by steersman: bytes-delayed, bytes-limited"]
        );
    }

    #[test]
    fn disturbed_repetitions_are_reported_by_pair() {
        let kept =
            [("a", 0.2), ("b", 0.5), ("a", 0.31)].map(|(pair, others)| (pair.to_owned(), others));
        assert_eq!(
            disturbances(&kept).unwrap(),
            "other processes used CPU during 3 repetitions: b (50 % of a core), a (31 % of a core)"
        );
        let many: Vec<(String, f64)> = (0..9).map(|pair| (format!("pair-{pair}"), 0.2)).collect();
        assert!(disturbances(&many).unwrap().ends_with(", 4 more"));
        assert_eq!(disturbances(&[]), None);
    }
}
