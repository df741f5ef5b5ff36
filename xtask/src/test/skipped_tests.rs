//! Collects the skipped tests. Each appends its reason and name to a file named by a variable.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::ErrorKind,
    path::PathBuf,
    process::{self, Command},
};

use anyhow::{Context, Result};

use crate::progress;

/// Variable that holds the path of the file.
const VARIABLE: &str = "STEERSMAN_SKIPPED_TESTS";

/// The file of records, one line per skipped test. Dropping it removes the file.
pub(super) struct SkippedTests {
    file: PathBuf,
}

impl SkippedTests {
    pub(super) fn new() -> Self {
        let file = env::temp_dir().join(format!("steersman-skipped-tests-{}", process::id()));
        // A run with the same process id may have been killed before it removed its file.
        let _ = fs::remove_file(&file);
        Self { file }
    }

    /// Makes the tests that `command` runs record what they skip.
    pub(super) fn collect_from(&self, command: &mut Command) {
        command.env(VARIABLE, &self.file);
    }

    /// Returns one line per reason, sorted: `3 tests skipped: no kube-apiserver`.
    pub(super) fn lines(&self) -> Result<Vec<String>> {
        match fs::read_to_string(&self.file) {
            Ok(records) => Ok(summarize(&records)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => {
                Err(error).with_context(|| format!("cannot read {}", self.file.display()))
            }
        }
    }
}

impl Drop for SkippedTests {
    fn drop(&mut self) {
        // Without skipped tests there is no file.
        let _ = fs::remove_file(&self.file);
    }
}

/// Counts the tests of each reason. A record is the reason, a tab and the name of the test.
fn summarize(records: &str) -> Vec<String> {
    let mut reasons = BTreeMap::<&str, BTreeSet<&str>>::new();
    for record in records.lines() {
        let (reason, test) = record.split_once('\t').unwrap_or((record, ""));
        reasons.entry(reason).or_default().insert(test);
    }
    let lines = reasons.into_iter();
    lines
        .map(|(reason, tests)| {
            format!(
                "{} skipped: {reason}",
                progress::pluralize(tests.len(), "test")
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_are_counted_by_reason_and_each_test_once() {
        let records = "no kube-apiserver\tcache\treads::real\nno Go\tpeers\tbuild\n\
                       no kube-apiserver\tcache\treads::real\nno kube-apiserver\tclient\treads::real\n";
        assert_eq!(
            summarize(records),
            [
                "1 test skipped: no Go",
                "2 tests skipped: no kube-apiserver"
            ]
        );
        assert_eq!(summarize(""), [""; 0]);
    }

    #[test]
    fn records_are_read_from_the_file_that_tests_append_to() {
        let skipped = SkippedTests::new();
        assert_eq!(skipped.lines().unwrap(), [""; 0]);
        let mut test = Command::new("sh");
        test.args([
            "-c",
            &format!("printf 'no Python\\ttest\\n' >> \"${VARIABLE}\""),
        ]);
        skipped.collect_from(&mut test);
        assert!(test.status().unwrap().success());
        assert_eq!(skipped.lines().unwrap(), ["1 test skipped: no Python"]);
        let file = skipped.file.clone();
        drop(skipped);
        assert!(!file.exists());
    }
}
