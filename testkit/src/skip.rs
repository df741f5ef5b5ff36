//! Tests that cannot run on this machine.

use crate::record;
use std::{
    env, fmt,
    io::{self, Write},
    thread,
};

/// Names the file that collects skipped tests. `cargo xtask test` sets it.
const RECORD: &str = "STEERSMAN_SKIPPED_TESTS";

/// Records that the calling test is skipped for `reason`. The test returns after the call.
///
/// Use it if a program that the test needs is not installed. `reason` is a constant such as
/// `no kube-apiserver`: `cargo xtask test` prints the number of tests for each reason. `detail` says
/// how to make the test run, and is printed on stderr.
///
/// ```no_run
/// fn python() -> Option<std::path::PathBuf> {
///     # None
/// }
///
/// let Some(python) = python() else {
///     return steersman_testkit::skip("no Python", "install Python 3");
/// };
/// # drop(python);
/// ```
///
/// # Panics
/// With the environment variable `CI=true`: a skipped test is a failed test there.
pub fn skip(reason: &str, detail: impl fmt::Display) {
    assert!(
        !on_ci(),
        "cannot skip a test with CI=true: {reason}: {detail}"
    );
    // libtest captures `eprintln!`, but not this.
    let _ = writeln!(io::stderr(), "test skipped: {reason}: {detail}");
    record::append(RECORD, &line(reason));
}

/// Formats the record of one skipped test: the reason, then the binary and the name of the test.
///
/// The name makes a test that skips several parts count once. libtest names threads after tests.
fn line(reason: &str) -> String {
    let binary = env::current_exe().unwrap_or_default();
    let thread = thread::current();
    format!(
        "{reason}\t{}\t{}",
        binary.display(),
        thread.name().unwrap_or_default()
    )
}

fn on_ci() -> bool {
    env::var("CI").is_ok_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
}
