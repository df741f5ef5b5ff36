//! Lines that tests report to `cargo xtask`, through a file that an environment variable names.

use std::{env, fs::OpenOptions, io::Write};

/// Appends `line` to the file that `variable` names. Does nothing if the variable is not set.
///
/// libtest captures the output of tests that pass, so a test cannot print a report.
///
/// # Panics
/// If the file cannot be written.
pub(crate) fn append(variable: &str, line: &str) {
    let Some(path) = env::var_os(variable) else {
        return;
    };
    // A single write to a file opened for appending: lines of parallel tests do not mix.
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = written {
        panic!(
            "cannot append to {}: {error}; {variable} must name a writable file",
            path.display()
        );
    }
}
