//! Parses the result lines of cargo's tests: `test result: ok. 3 passed; 0 failed; …`.

use std::ops::AddAssign;

/// Numbers of passed and failed tests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) passed: u64,
    pub(super) failed: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Returns the counts in `line` if it is a result line.
pub(super) fn closing_line(line: &str) -> Option<Totals> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |label: &str| {
        let words = counts
            .split(';')
            .map(str::trim)
            .find_map(|part| part.strip_suffix(label))?;
        words.trim_end().parse().ok()
    };
    Some(Totals {
        passed: count("passed")?,
        failed: count("failed")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_result_lines_are_parsed() {
        let output = "
running 2 tests
test a_test_result_is_ok ... ok
test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.01s

test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s
test result: something else entirely";
        let mut totals = Totals::default();
        for counts in output.lines().filter_map(closing_line) {
            totals += counts;
        }
        assert_eq!(
            totals,
            Totals {
                passed: 15,
                failed: 2
            }
        );
    }
}
