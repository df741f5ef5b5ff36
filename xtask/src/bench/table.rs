//! Formats the table of results with ratios and targets, as text or Markdown.

use super::{
    groups::{Check, Group, Target},
    rows::{Row, Rows, median, ratio},
};
use crate::progress;

pub(super) struct Table<'a> {
    pub(super) group: &'a Group,
    pub(super) rows: &'a Rows,
}

impl Table<'_> {
    /// Formats the table for a terminal, with a line for each row.
    pub(super) fn text(&self) -> String {
        let header = [
            "workload",
            "implementation",
            "median [min..max]",
            "unit",
            "ratio",
            "target",
        ];
        let mut lines = vec![header.map(str::to_owned)];
        let mut last = "";
        for row in self.rows.all() {
            let workload = if row.workload == last {
                String::new()
            } else {
                row.workload.clone()
            };
            last = &row.workload;
            lines.push([
                workload,
                row.implementation.clone(),
                spread(row),
                row.unit.clone(),
                self.ratio(row).map_or_else(String::new, times),
                self.verdicts(row).join(", "),
            ]);
        }
        aligned(&lines)
    }

    /// Formats the table as Markdown, with a line for each workload and a column for each
    /// implementation.
    pub(super) fn markdown(&self) -> String {
        let present = |name: &&str| {
            self.rows
                .all()
                .iter()
                .any(|row| row.implementation == *name)
        };
        let columns: Vec<&str> = self.group.implementations().filter(present).collect();
        let mut lines = vec![format!("| workload | {} | target |", columns.join(" | "))];
        lines.push(format!("|{}", "---|".repeat(columns.len() + 2)));
        let mut workloads: Vec<(&str, &str)> = Vec::new();
        for row in self.rows.all() {
            if !workloads.iter().any(|(known, _)| *known == row.workload) {
                workloads.push((&row.workload, &row.unit));
            }
        }
        for (workload, unit) in workloads {
            let rows: Vec<Option<&Row>> = columns
                .iter()
                .map(|column| self.rows.get(workload, column))
                .collect();
            let cells: Vec<String> = rows
                .iter()
                .map(|row| row.map_or_else(|| "–".into(), |row| self.cell(row)))
                .collect();
            let mut verdicts = Vec::new();
            for row in rows.into_iter().flatten() {
                verdicts.extend(
                    self.verdicts(row)
                        .iter()
                        .map(|verdict| format!("{} {verdict}", row.implementation)),
                );
            }
            lines.push(format!(
                "| {workload}, {unit} | {} | {} |",
                cells.join(" | "),
                verdicts.join("; ")
            ));
        }
        lines.join("\n") + "\n"
    }

    /// Returns a sentence for each check of the group, and one that counts the targets.
    pub(super) fn checks(&self) -> Vec<String> {
        let mut sentences: Vec<String> = self
            .group
            .checks
            .iter()
            .flat_map(|check| self.check(check))
            .collect();
        let rows = self.rows.all().iter().flat_map(|row| self.verdicts(row));
        let verdicts: Vec<String> = rows.chain(sentences.iter().cloned()).collect();
        let missed = verdicts
            .iter()
            .filter(|verdict| verdict.ends_with(met(false)))
            .count();
        sentences.push(format!(
            "targets: {} met, {missed} missed",
            verdicts.len() - missed
        ));
        sentences
    }

    fn cell(&self, row: &Row) -> String {
        let ratio = self
            .ratio(row)
            .map_or_else(String::new, |ratio| format!(" **{}**", times(ratio)));
        format!("{}{ratio}", spread(row))
    }

    /// Returns how many times better ours is than `row`, or `None` if `row` is not a peer.
    fn ratio(&self, row: &Row) -> Option<f64> {
        let ours = self.group.ours_for(&row.implementation)?;
        ratio(self.rows.get(&row.workload, ours)?, row)
    }

    /// Formats the targets of a row, each with whether it is met.
    fn verdicts(&self, row: &Row) -> Vec<String> {
        let ours = self
            .group
            .families
            .iter()
            .any(|family| family.ours == row.implementation);
        let verdict = |target: &Target| match *target {
            Target::Ratio(peer, least) if peer == row.implementation => {
                Some(format!("≥ {least}x {}", met(self.ratio(row)? >= least)))
            }
            Target::RatioOf { ours, peer, least } if peer == row.implementation => {
                let ratio = ratio(self.rows.get(&row.workload, ours)?, row)?;
                Some(format!(
                    "{ours} {} ≥ {least}x {}",
                    times(ratio),
                    met(ratio >= least)
                ))
            }
            Target::AtMostOf(ours, most) if ours == row.implementation => {
                Some(format!("≤ {most} {} {}", row.unit, met(row.median <= most)))
            }
            Target::AtMost(most) if ours => {
                Some(format!("≤ {most} {} {}", row.unit, met(row.median <= most)))
            }
            Target::AtLeast(least) if ours => Some(format!(
                "≥ {least} {} {}",
                row.unit,
                met(row.median >= least)
            )),
            _ => None,
        };
        let workload = self.group.workload(&row.workload);
        workload
            .into_iter()
            .flat_map(|known| known.targets)
            .filter_map(verdict)
            .collect()
    }

    fn check(&self, check: &Check) -> Vec<String> {
        match *check {
            Check::Growth { from, to, at_most } => {
                let growth = |ours: &str| {
                    let (small, large) = (self.rows.get(from, ours)?, self.rows.get(to, ours)?);
                    let factor = large.median / small.median;
                    let verdict = met(factor <= at_most);
                    Some(format!(
                        "{ours}: {to} costs {} {from} per item, target ≤ {at_most}x {verdict}",
                        times(factor)
                    ))
                };
                self.group
                    .families
                    .iter()
                    .filter_map(|family| growth(family.ours))
                    .collect()
            }
            Check::Extra {
                plain,
                with,
                at_most,
            } => {
                let differences = self
                    .rows
                    .all()
                    .iter()
                    .filter(|row| row.implementation == with && row.unit == "ns");
                let mut differences: Vec<f64> = differences
                    .filter_map(|row| {
                        Some(row.median - self.rows.get(&row.workload, plain)?.median)
                    })
                    .collect();
                if differences.is_empty() {
                    return vec![];
                }
                differences.sort_by(f64::total_cmp);
                let extra = median(&differences);
                let most = differences[differences.len() - 1];
                vec![format!(
                    "{with} costs {} ns per item more than {plain} (median of {}, at most {}), \
                     target ≤ {at_most} ns {}",
                    digits(extra),
                    progress::pluralize(differences.len(), "workload"),
                    digits(most),
                    met(extra <= at_most)
                )]
            }
        }
    }
}

fn met(yes: bool) -> &'static str {
    if yes { "met" } else { "MISSED" }
}

fn spread(row: &Row) -> String {
    format!(
        "{} [{}..{}]",
        digits(row.median),
        digits(row.min),
        digits(row.max)
    )
}

fn times(ratio: f64) -> String {
    format!("{}x", digits(ratio))
}

/// Formats a number with at least three digits.
fn digits(value: f64) -> String {
    match value.abs() {
        big if big >= 99.95 => format!("{value:.0}"),
        middle if middle >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Aligns the columns: numbers to the right, text to the left.
fn aligned<const N: usize>(lines: &[[String; N]]) -> String {
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| line[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells =
            line.iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, &width))| match column {
                    2 | 4 => format!("{cell:>width$}"),
                    _ => format!("{cell:<width$}"),
                });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{
        super::{groups::GROUPS, rows::tests::row},
        *,
    };

    fn rows() -> Rows {
        Rows::new(vec![
            row("steady", "steersman", "ns", 100.0),
            row("steady", "client-go", "ns", 190.0),
            row("steady", "steersman+metrics", "ns", 120.0),
            row("steady", "controller-runtime+prom", "ns", 2760.0),
            row("filldrain-1k", "steersman", "ns", 50.0),
            row("filldrain-1m", "steersman", "ns", 225.0),
            row("bytes-ready", "steersman", "B", 99.0),
            row("own", "steersman", "items/s", 7.0),
        ])
    }

    #[test]
    fn the_text_has_a_line_for_each_row_with_ratio_and_verdict() {
        let rows = rows();
        let text = Table {
            group: &GROUPS[0],
            rows: &rows,
        }
        .text();
        let expected = "\
workload      implementation           median [min..max]  unit     ratio  target
steady        steersman                   100 [90.0..110]  ns
              client-go                    190 [171..209]  ns       1.90x  ≥ 2x MISSED
              steersman+metrics            120 [108..132]  ns
              controller-runtime+prom   2760 [2484..3036]  ns       23.0x  ≥ 20x met
";
        let squeezed = |text: &str| {
            text.lines()
                .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        assert_eq!(squeezed(&text)[..5], squeezed(expected)[..]);
        assert!(text.contains("≤ 100 B met"));
        let columns: Vec<usize> = text
            .lines()
            .take(3)
            .map(|line| line.find("ns").or(line.find("unit")).unwrap())
            .collect();
        assert_eq!(columns, [columns[0]; 3], "aligned");
    }

    #[test]
    fn the_markdown_has_a_line_for_each_workload() {
        let rows = rows();
        let markdown = Table {
            group: &GROUPS[0],
            rows: &rows,
        }
        .markdown();
        let lines: Vec<&str> = markdown.lines().collect();
        assert_eq!(
            lines[0],
            "| workload | steersman | client-go | steersman+metrics | controller-runtime+prom | target |"
        );
        assert_eq!(lines[1], "|---|---|---|---|---|---|");
        assert_eq!(
            lines[2],
            "| steady, ns | 100 [90.0..110] | 190 [171..209] **1.90x** | 120 [108..132] | 2760 [2484..3036] **23.0x** \
             | client-go ≥ 2x MISSED; controller-runtime+prom ≥ 20x met |"
        );
        assert_eq!(
            lines[3],
            "| filldrain-1k, ns | 50.0 [45.0..55.0] | – | – | – |  |"
        );
    }

    #[test]
    fn a_rate_may_have_a_minimum() {
        let group = GROUPS
            .iter()
            .find(|group| group.name == "controller")
            .unwrap();
        let text = |rate| {
            let rows = Rows::new(vec![
                row("forbidden-neighbour", "steersman", "reconciles/s", rate),
                row("forbidden-neighbour", "kube-runtime", "reconciles/s", 0.4),
            ]);
            Table { group, rows: &rows }.text()
        };
        assert!(text(9.9).contains("≥ 9.5 reconciles/s met"));
        assert_eq!(
            text(9.4).matches("≥ 9.5 reconciles/s MISSED").count(),
            1,
            "a peer has no target"
        );
    }

    #[test]
    fn checks_compare_workloads() {
        let rows = rows();
        assert_eq!(
            Table {
                group: &GROUPS[0],
                rows: &rows
            }
            .checks(),
            [
                "steersman: filldrain-1m costs 4.50x filldrain-1k per item, target ≤ 4x MISSED",
                "steersman+metrics costs 20.0 ns per item more than steersman (median of 1 workload, at most 20.0), \
                 target ≤ 60 ns met",
                "targets: 3 met, 2 missed",
            ]
        );
    }

    #[test]
    fn numbers_have_three_digits_or_more() {
        let all = [0.5, 9.994, 9.996, 99.94, 99.96, 12345.6].map(digits);
        assert_eq!(all, ["0.50", "9.99", "10.0", "99.9", "100", "12346"]);
    }
}
