//! Stderr, where logs are written: on a terminal, with a line at the bottom that says what is being waited for.
//!
//! What holds: the line is the last thing on the screen, or is not there; a log's line never stands in it.

use parking_lot::Mutex;
use std::{
    io::{self, IsTerminal, Write, stderr},
    sync::Arc,
};
use terminal_size::{Width, terminal_size_of};

/// Clones mean the same.
#[derive(Clone)]
pub(crate) struct Terminal(Arc<Mutex<Option<String>>>);

const CLEARED: &str = "\r\x1b[K";

impl Terminal {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// Whether somebody is looking.
    pub(crate) fn is_one() -> bool {
        stderr().is_terminal()
    }

    /// Replace the line; take it away with `None`.
    pub(crate) fn show(&self, text: Option<&str>) {
        let width = terminal_size_of(stderr()).map_or(80, |(Width(columns), _)| columns.into());
        let mut line = self.0.lock();
        *line = text.map(|text| cut(text, width));
        // Decoration: that it cannot be written fails nothing.
        drop(write!(stderr(), "{CLEARED}{}", line.as_deref().unwrap_or_default()));
    }
}

/// So that it is one row: only that one can be cleared.
fn cut(text: &str, columns: usize) -> String {
    text.chars().take(columns.saturating_sub(1)).collect()
}

/// A log's lines, each in one call. Where they cannot be written there is nobody to be told.
impl Write for Terminal {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let line = self.0.lock();
        let mut stderr = stderr().lock();
        drop(match line.as_deref() {
            Some(shown) => {
                let all = [CLEARED.as_bytes(), lines, shown.as_bytes()].concat();
                stderr.write_all(&all)
            }
            None => stderr.write_all(lines),
        });
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_to_less_than_the_terminal_is_wide() {
        assert_eq!(
            (cut("syncing", 5).as_str(), cut("syncing", 80).as_str(), cut("x", 0).as_str()),
            ("sync", "syncing", "")
        );
    }
}
