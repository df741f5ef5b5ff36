//! Aggregates repetitions to rows with median, minimum and maximum, and compares rows.

use serde::Serialize;

use super::{executables::Measurement, groups::Group};

/// All values measured so far.
#[derive(Default)]
pub(super) struct Samples {
    series: Vec<Series>,
}

struct Series {
    workload: String,
    implementation: String,
    unit: String,
    values: Vec<f64>,
}

/// A row of the report: one workload on one implementation.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) workload: String,
    pub(super) implementation: String,
    pub(super) unit: String,
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) samples: usize,
}

impl Samples {
    pub(super) fn add(&mut self, measurement: Measurement) {
        let Measurement {
            workload,
            implementation,
            unit,
            value,
        } = measurement;
        let known = self
            .series
            .iter_mut()
            .find(|s| s.workload == workload && s.implementation == implementation);
        match known {
            Some(series) => series.values.push(value),
            None => self.series.push(Series {
                workload,
                implementation,
                unit,
                values: vec![value],
            }),
        }
    }

    pub(super) fn contains(&self, workload: &str, implementation: &str) -> bool {
        self.series
            .iter()
            .any(|series| series.workload == workload && series.implementation == implementation)
    }

    /// Returns the rows in the order of the group. Workloads that are not in the group come last.
    pub(super) fn rows(&self, group: &Group) -> Vec<Row> {
        let position = |series: &Series| {
            let workload = group
                .workloads
                .iter()
                .position(|known| known.name == series.workload);
            let first_seen = self
                .series
                .iter()
                .position(|first| first.workload == series.workload);
            let implementation = group
                .implementations()
                .position(|known| known == series.implementation);
            (
                workload.unwrap_or(usize::MAX),
                first_seen,
                implementation.unwrap_or(usize::MAX),
            )
        };
        let mut ordered: Vec<&Series> = self.series.iter().collect();
        ordered.sort_by_key(|series| position(series));
        ordered.into_iter().map(Series::row).collect()
    }
}

impl Series {
    fn row(&self) -> Row {
        let mut values = self.values.clone();
        values.sort_by(f64::total_cmp);
        Row {
            workload: self.workload.clone(),
            implementation: self.implementation.clone(),
            unit: self.unit.clone(),
            median: rounded(median(&values)),
            min: rounded(values[0]),
            max: rounded(values[values.len() - 1]),
            samples: values.len(),
        }
    }
}

/// Returns the median of sorted values.
pub(super) fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// Rounds to three decimals.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The rows of a report.
pub(super) struct Rows(Vec<Row>);

impl Rows {
    pub(super) fn new(rows: Vec<Row>) -> Self {
        Self(rows)
    }

    pub(super) fn all(&self) -> &[Row] {
        &self.0
    }

    pub(super) fn get(&self, workload: &str, implementation: &str) -> Option<&Row> {
        self.0
            .iter()
            .find(|row| row.workload == workload && row.implementation == implementation)
    }
}

/// Returns how many times better `ours` is than `peer`, or `None` if one of them is zero.
pub(super) fn ratio(ours: &Row, peer: &Row) -> Option<f64> {
    let more_is_better = ours.unit.ends_with("/s");
    let (better, worse) = if more_is_better {
        (peer.median, ours.median)
    } else {
        (ours.median, peer.median)
    };
    (better > 0.0 && worse > 0.0).then(|| worse / better)
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::groups::GROUPS, *};

    pub(in super::super) fn row(
        workload: &str,
        implementation: &str,
        unit: &str,
        median: f64,
    ) -> Row {
        Row {
            workload: workload.into(),
            implementation: implementation.into(),
            unit: unit.into(),
            median,
            min: median * 0.9,
            max: median * 1.1,
            samples: 5,
        }
    }

    #[test]
    fn the_median_is_the_middle() {
        assert!((median(&[3.0]) - 3.0).abs() < 1e-9);
        assert!((median(&[1.0, 2.0, 9.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[1.0, 2.0, 4.0, 9.0]) - 3.0).abs() < 1e-9);
    }

    #[test]
    fn repetitions_become_rows_in_the_order_of_the_table() {
        let mut samples = Samples::default();
        for (workload, implementation, value) in [
            ("own", "steersman", 1.0),
            ("filldrain-1k", "client-go", 30.0),
            ("filldrain-1k", "steersman", 3.0),
            ("steady", "steersman", 2.0),
            ("filldrain-1k", "steersman", 1.0),
            ("filldrain-1k", "steersman", 1.2345),
        ] {
            let (workload, implementation) = (workload.to_owned(), implementation.to_owned());
            samples.add(Measurement {
                workload,
                implementation,
                unit: "ns".into(),
                value,
            });
        }
        assert!(
            samples.contains("steady", "steersman") && !samples.contains("steady", "client-go")
        );
        let rows = samples.rows(&GROUPS[0]);
        let order: Vec<_> = rows
            .iter()
            .map(|row| (row.workload.as_str(), row.implementation.as_str()))
            .collect();
        assert_eq!(
            order,
            [
                ("steady", "steersman"),
                ("filldrain-1k", "steersman"),
                ("filldrain-1k", "client-go"),
                ("own", "steersman")
            ]
        );
        let filldrain = Row {
            median: 1.235,
            min: 1.0,
            max: 3.0,
            samples: 3,
            ..row("filldrain-1k", "steersman", "ns", 0.0)
        };
        assert_eq!(rows[1], filldrain);
    }

    #[test]
    fn a_ratio_above_one_means_that_ours_is_better() {
        let times = ratio(
            &row("w", "steersman", "ns", 50.0),
            &row("w", "client-go", "ns", 200.0),
        )
        .unwrap();
        assert!((times - 4.0).abs() < 1e-9);
        let rates = ratio(
            &row("w", "steersman", "items/s", 50.0),
            &row("w", "client-go", "items/s", 200.0),
        )
        .unwrap();
        assert!((rates - 0.25).abs() < 1e-9);
        assert_eq!(
            ratio(
                &row("w", "steersman", "us", 0.0),
                &row("w", "client-go", "us", 2.0)
            ),
            None
        );
    }
}
