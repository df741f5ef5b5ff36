//! Linter of metrics pages.
//!
//! It checks the rules of `promtool check metrics` and of `OpenMetrics`.

use std::collections::{BTreeMap, BTreeSet};

/// A metric with all its series.
#[derive(Debug)]
pub(crate) struct Family {
    /// Name without the suffix of its samples.
    pub(crate) name: String,
    pub(crate) kind: String,
    /// Sorted labels of all its series, without `le`.
    pub(crate) labels: Vec<String>,
}

#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Returns the metric families, or the problems of the page.
pub(crate) fn lint(page: &str) -> Result<Vec<Family>, Vec<String>> {
    let mut problems = Vec::new();
    let mut families: Vec<(Family, bool, Vec<Sample>)> = Vec::new();
    if !page.ends_with("# EOF\n") || page.matches("# EOF").count() != 1 {
        problems.push("the page does not end with one EOF".into());
    }
    for line in page.lines().filter(|line| *line != "# EOF") {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), help) => {
                if families.iter().any(|(family, ..)| family.name == name) {
                    problems.push(format!("{name} is there twice, or interrupted"));
                }
                let has_help = help.is_some_and(|help| help.trim_end_matches('.').len() > 3);
                let family = Family {
                    name: name.into(),
                    kind: String::new(),
                    labels: Vec::new(),
                };
                families.push((family, has_help, Vec::new()));
            }
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => match families.last_mut() {
                Some((family, ..)) if family.name == name && family.kind.is_empty() => {
                    family.kind = kind.into();
                }
                _ => problems.push(format!("the type of {name} does not follow its help")),
            },
            (Some("#"), ..) => problems.push(format!("a line that says nothing: {line}")),
            _ => match (sample(line), families.last_mut()) {
                (Some(sample), Some((.., samples))) => samples.push(sample),
                _ => problems.push(format!("this is no sample: {line}")),
            },
        }
    }
    for (family, has_help, samples) in &mut families {
        if !*has_help {
            problems.push(format!("{} has no help", family.name));
        }
        check_name(family, &mut problems);
        check_samples(family, samples, &mut problems);
        let labels = samples
            .iter()
            .flat_map(|sample| sample.labels.keys().filter(|label| *label != "le"));
        family.labels = labels
            .cloned()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
    }
    let families = families.into_iter().map(|(family, ..)| family).collect();
    if problems.is_empty() {
        Ok(families)
    } else {
        Err(problems)
    }
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    !name.is_empty() && name.bytes().all(fits) && !name.as_bytes()[0].is_ascii_digit()
}

fn check_name(Family { name, kind, .. }: &Family, problems: &mut Vec<String>) {
    let mut problem = |what: &str| problems.push(format!("{name}: {what}"));
    if !is_name(name) || name.starts_with("__") {
        problem("a name that is not snake_case");
    }
    if ["_total", "_count", "_sum", "_bucket", "_created", "_info"]
        .iter()
        .any(|end| name.ends_with(end))
    {
        problem("its end is for samples");
    }
    if ["counter", "gauge", "histogram", "summary"]
        .iter()
        .any(|kind| name.split('_').any(|word| word == *kind))
    {
        problem("its type is in its name");
    }
    let odd = [
        "milliseconds",
        "microseconds",
        "nanoseconds",
        "minutes",
        "hours",
        "days",
        "ms",
        "kilobytes",
        "kb",
        "mb",
    ];
    if name.split('_').any(|word| odd.contains(&word)) {
        problem("its unit is none of the base ones");
    }
    if !["counter", "gauge", "histogram"].contains(&&**kind) {
        problem(&format!("of type {kind:?}"));
    }
    if kind == "histogram" && !name.ends_with("_seconds") && !name.ends_with("_bytes") {
        problem("a histogram without a unit");
    }
}

fn check_samples(
    Family { name, kind, .. }: &Family,
    samples: &[Sample],
    problems: &mut Vec<String>,
) {
    let mut problem = |what: String| problems.push(format!("{name}: {what}"));
    let mut seen = BTreeSet::new();
    let mut label_names = BTreeSet::new();
    for sample in samples {
        if !seen.insert((&sample.name, &sample.labels)) {
            problem(format!("a series that is there twice: {sample:?}"));
        }
        label_names.insert(
            sample
                .labels
                .keys()
                .filter(|label| *label != "le")
                .collect::<Vec<_>>(),
        );
        if sample
            .labels
            .keys()
            .any(|label| !is_name(label) || label.starts_with("__"))
        {
            problem(format!("a label that is not snake_case: {sample:?}"));
        }
        let ends: &[&str] = match &**kind {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_count", "_sum"],
            _ => &[""],
        };
        if !ends.iter().any(|end| format!("{name}{end}") == sample.name) {
            problem(format!("a sample of another name: {sample:?}"));
        }
        if sample.labels.contains_key("le") != sample.name.ends_with("_bucket") {
            problem(format!("`le` is for buckets: {sample:?}"));
        }
        if kind != "gauge" && (sample.value < 0.0 || !sample.value.is_finite()) {
            problem(format!("less than nothing, or no number: {sample:?}"));
        }
    }
    if label_names.len() > 1 {
        problem(format!("series with different labels: {label_names:?}"));
    }
    if kind == "histogram" {
        check_buckets(name, samples, problems);
    }
}

fn check_buckets(name: &str, samples: &[Sample], problems: &mut Vec<String>) {
    let mut series: BTreeMap<Vec<(String, String)>, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        let without_le = sample.labels.iter().filter(|(label, _)| *label != "le");
        series
            .entry(without_le.map(|(k, v)| (k.clone(), v.clone())).collect())
            .or_default()
            .push(sample);
    }
    for (labels, samples) in series {
        let value = |end: &str| {
            samples
                .iter()
                .find(|sample| sample.name == format!("{name}{end}"))
                .map(|sample| sample.value)
        };
        let buckets: Vec<(f64, f64)> = samples
            .iter()
            .filter_map(|sample| Some((sample.labels.get("le")?.parse().ok()?, sample.value)))
            .collect();
        let rises = buckets
            .windows(2)
            .all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1);
        let last = buckets.last();
        let is_whole =
            last.is_some_and(|(le, many)| *le == f64::INFINITY && Some(*many) == value("_count"));
        if !rises || !is_whole || value("_sum").is_none() {
            problems.push(format!(
                "{name}: buckets of {labels:?} that do not add up: {buckets:?}"
            ));
        }
    }
}

/// Parses a sample such as `name{a="b",c="d"} 1`.
fn sample(line: &str) -> Option<Sample> {
    let (name, mut rest) = line.split_at(line.find(['{', ' '])?);
    let mut labels = BTreeMap::new();
    if let Some(running_count) = rest.strip_prefix('{') {
        rest = running_count;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let mut value = String::new();
            let mut characters = after.char_indices();
            let end = loop {
                match characters.next()? {
                    (_, '\\') => match characters.next()?.1 {
                        'n' => value.push('\n'),
                        escaped @ ('\\' | '"') => value.push(escaped),
                        _ => return None,
                    },
                    (at, '"') => break at,
                    (_, character) => value.push(character),
                }
            };
            if labels.insert(label.to_owned(), value).is_some() {
                return None;
            }
            rest = &after[end + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ')?;
    let value = if value == "+Inf" {
        f64::INFINITY
    } else {
        value.parse().ok()?
    };
    Some(Sample {
        name: name.into(),
        labels,
        value,
    })
}

const GOOD: &str = r#"# HELP a_seconds How long.
# TYPE a_seconds histogram
a_seconds_sum{x="1"} 2.0
a_seconds_count{x="1"} 3
a_seconds_bucket{x="1",le="1.0"} 1
a_seconds_bucket{x="1",le="+Inf"} 3
# HELP b How many.
# TYPE b counter
b_total{x="q\"\\\n,}"} 1
b_total{x="2"} 1
# EOF
"#;

#[test]
fn lint_accepts_a_valid_page() {
    let families = lint(GOOD).expect("a valid page");
    let read: Vec<_> = families
        .iter()
        .map(|family| (&*family.name, &*family.kind, &*family.labels))
        .collect();
    let x = ["x".to_owned()];
    assert_eq!(
        read,
        [("a_seconds", "histogram", &x[..]), ("b", "counter", &x[..])]
    );
}

#[test]
fn lint_reports_what_promtool_reports() {
    for (from, to) in [
        ("# EOF\n", ""),
        ("# HELP b How many.\n", ""),
        ("# HELP b How many.", "# HELP b ."),
        ("# TYPE b counter\n", ""),
        ("# TYPE b counter", "# TYPE b gauge"),
        ("b_total{x=\"2\"}", "b{x=\"2\"}"),
        (
            "b_total{x=\"2\"} 1\n",
            "b_total{x=\"2\"} 1\nb_total{x=\"2\"} 2\n",
        ),
        ("b_total{x=\"2\"}", "b_total{y=\"2\"}"),
        ("b_total{x=\"2\"} 1", "b_total{x=\"2\"} -1"),
        ("b_total{x=\"2\"} 1", "b_total{x=\"2\"} one"),
        ("le=\"+Inf\"} 3", "le=\"+Inf\"} 4"),
        ("le=\"1.0\"} 1", "le=\"1.0\"} 4"),
        ("a_seconds_bucket{x=\"1\",le=\"+Inf\"} 3\n", ""),
        ("a_seconds_sum{x=\"1\"} 2.0\n", ""),
    ] {
        let page = GOOD.replace(from, to);
        assert_ne!(page, GOOD);
        assert!(lint(&page).is_err(), "{from:?} as {to:?}");
    }
    for (from, to) in [
        ("a_seconds", "a_milliseconds"),
        ("a_seconds", "aSeconds"),
        ("a_seconds", "a_histogram_seconds"),
        ("{x=", "{__x="),
    ] {
        assert!(lint(&GOOD.replace(from, to)).is_err(), "{to}");
    }
}
