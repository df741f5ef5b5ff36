//! What a human watching sees: durations in words, and a line that says what runs now, on terminals only; of work that
//! takes minutes a log gets a line now and then.

use std::{
    io::{IsTerminal, Write, stderr},
    time::{Duration, Instant},
};

/// How often a log gets a line.
const LOGGED: Duration = Duration::from_secs(30);

/// A duration as people say it: `0.3 s`, `12.3 s`, `3 min 12 s`, `1 h 02 min`.
pub(crate) fn words(duration: Duration) -> String {
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

/// `1 test`, `2 tests`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The line at the bottom of a terminal; nothing where standard error is not one.
pub(crate) struct StatusLine {
    terminal: bool,
}

impl StatusLine {
    pub(crate) fn new() -> Self {
        Self { terminal: stderr().is_terminal() }
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
            // Decoration: failing to write it must not fail the command.
            let _ = stderr().write_all(text.as_bytes());
        }
    }
}

/// The same for work that takes minutes: where there is no terminal, its text is a line of the log every half minute, so
/// that nobody takes it for hanging.
pub(crate) struct LongStatus {
    line: StatusLine,
    logged: Instant,
}

impl LongStatus {
    pub(crate) fn new() -> Self {
        Self { line: StatusLine::new(), logged: Instant::now() }
    }

    /// Replaces the line, or logs it when it is time.
    pub(crate) fn show(&mut self, text: &str) {
        self.line.show(text);
        if !self.line.terminal && self.logged.elapsed() >= LOGGED {
            self.logged = Instant::now();
            eprintln!("{text}");
        }
    }

    /// Puts a line that stays above the one that changes.
    pub(crate) fn say(&mut self, text: &str) {
        self.line.clear();
        self.logged = Instant::now();
        eprintln!("{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_say_them() {
        let said = |millis| words(Duration::from_millis(millis));
        assert_eq!(said(250), "0.2 s");
        assert_eq!(said(12_340), "12.3 s");
        assert_eq!(said(59_990), "1 min 00 s");
        assert_eq!(said(192_000), "3 min 12 s");
        assert_eq!(said(3_720_000), "1 h 02 min");
        assert_eq!([counted(1, "test"), counted(2, "test")], ["1 test", "2 tests"]);
    }
}
