//! Describes the machine and the toolchains of a run.

use std::{
    fs,
    process::Command,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Machine {
    cores: usize,
    cpu_model: String,
    memory_gib: f64,
    os: String,
    kernel: String,
    rustc: String,
    go: Option<String>,
    date: String,
}

impl Machine {
    pub(super) fn here() -> Self {
        let file = |path| fs::read_to_string(path).unwrap_or_default();
        let or_unknown = |value: Option<String>| value.unwrap_or_else(|| "unknown".into());
        Self {
            cores: thread::available_parallelism().map_or(1, Into::into),
            cpu_model: or_unknown(field(&file("/proc/cpuinfo"), "model name", ':')),
            memory_gib: field(&file("/proc/meminfo"), "MemTotal", ':')
                .and_then(|text| gib(&text))
                .unwrap_or(0.0),
            os: or_unknown(field(&file("/etc/os-release"), "PRETTY_NAME", '=')),
            kernel: or_unknown(
                Some(file("/proc/sys/kernel/osrelease").trim().to_owned())
                    .filter(|k| !k.is_empty()),
            ),
            rustc: or_unknown(version("rustc", "--version", "rustc ")),
            go: version("go", "version", "go version "),
            date: date(
                SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .map_or(0, |time| time.as_secs()),
            ),
        }
    }

    /// Returns the description as one line.
    pub(super) fn text(&self) -> String {
        let Self {
            cores,
            cpu_model,
            memory_gib,
            os,
            kernel,
            rustc,
            go,
            date,
        } = self;
        let go = go
            .as_deref()
            .map_or_else(|| "no Go".to_owned(), ToOwned::to_owned);
        format!(
            "{cores} cores of {cpu_model}, {memory_gib} GiB, {os}, kernel {kernel}, rustc {rustc}, {go}, {date}"
        )
    }
}

/// Returns the value of the first line `name SEPARATOR value`.
fn field(text: &str, name: &str, separator: char) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(separator));
    let (_, value) = pairs.find(|(key, _)| key.trim() == name)?;
    Some(value.trim().trim_matches('"').to_owned())
}

/// Parses `24576000 kB` to GiB, rounded to one decimal.
fn gib(text: &str) -> Option<f64> {
    let kib: f64 = text.strip_suffix("kB")?.trim().parse().ok()?;
    Some((kib / 1024.0 / 1024.0 * 10.0).round() / 10.0)
}

fn version(program: &str, argument: &str, prefix: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().strip_prefix(prefix)?.to_owned())
}

/// Formats seconds since 1970 as `2026-03-01T12:00:00Z`.
fn date(seconds: u64) -> String {
    let mut day = seconds / 86_400;
    let second = seconds % 86_400;
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for days in [
        31,
        28 + u64::from(leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!(
        "{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z",
        day + 1
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_counted_from_1970() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date(1_772_366_400), "2026-03-01T12:00:00Z");
        assert_eq!(date(1_798_761_599), "2026-12-31T23:59:59Z");
    }

    #[test]
    fn fields_are_found_in_the_systems_files() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A CPU @ 2.10GHz\n";
        assert_eq!(
            field(cpuinfo, "model name", ':').as_deref(),
            Some("A CPU @ 2.10GHz")
        );
        assert_eq!(
            field("NAME=\"X\"\nPRETTY_NAME=\"X 1\"\n", "PRETTY_NAME", '=').as_deref(),
            Some("X 1")
        );
        assert_eq!(field(cpuinfo, "none", ':'), None);
        assert_eq!(gib("24576000 kB"), Some(23.4));
    }
}
