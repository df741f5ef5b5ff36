//! Progress output: formatted durations, and a status line on terminals.

use std::{
    io::{IsTerminal, Write, stderr},
    time::{Duration, Instant},
};

/// Interval of status lines where standard error is not a terminal.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// Formats a duration: `0.3 s`, `12.3 s`, `3 min 12 s`, `1 h 02 min`.
pub(crate) fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    // 59.96 would print as `60.0 s`.
    if seconds < 59.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    if whole < 3600 {
        format!("{} min {:02} s", whole / 60, whole % 60)
    } else {
        format!("{} h {:02} min", whole / 3600, whole % 3600 / 60)
    }
}

/// Formats a count with its noun: `1 test`, `2 tests`.
pub(crate) fn pluralize(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A line at the bottom of the terminal. Does nothing if standard error is not a terminal.
pub(crate) struct StatusLine {
    terminal: bool,
}

impl StatusLine {
    pub(crate) fn new() -> Self {
        Self {
            terminal: stderr().is_terminal(),
        }
    }

    /// Replaces the line.
    pub(crate) fn show(&self, text: &str) {
        self.write(&format!("\r\x1b[K{text}"));
    }

    /// Removes the line, so that other output can follow.
    pub(crate) fn clear(&self) {
        self.write("\r\x1b[K");
    }

    fn write(&self, text: &str) {
        if self.terminal {
            // A status line that cannot be written must not fail the command.
            let _ = stderr().write_all(text.as_bytes());
        }
    }
}

/// A status line for work that takes minutes.
///
/// If standard error is not a terminal, it logs the text every half minute, so that the work does
/// not look stuck.
pub(crate) struct LongStatus {
    line: StatusLine,
    logged: Instant,
}

impl LongStatus {
    pub(crate) fn new() -> Self {
        Self {
            line: StatusLine::new(),
            logged: Instant::now(),
        }
    }

    /// Replaces the line, or logs the text if the interval has passed.
    pub(crate) fn show(&mut self, text: &str) {
        self.line.show(text);
        if !self.line.terminal && self.logged.elapsed() >= LOG_INTERVAL {
            self.logged = Instant::now();
            eprintln!("{text}");
        }
    }

    /// Prints a line that stays, above the status line.
    pub(crate) fn print_line(&mut self, text: &str) {
        self.line.clear();
        self.logged = Instant::now();
        eprintln!("{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_counts_are_formatted() {
        let formatted = |millis| format_duration(Duration::from_millis(millis));
        assert_eq!(formatted(250), "0.2 s");
        assert_eq!(formatted(12_340), "12.3 s");
        assert_eq!(formatted(59_990), "1 min 00 s");
        assert_eq!(formatted(192_000), "3 min 12 s");
        assert_eq!(formatted(3_720_000), "1 h 02 min");
        assert_eq!(
            [pluralize(1, "test"), pluralize(2, "test")],
            ["1 test", "2 tests"]
        );
    }
}
