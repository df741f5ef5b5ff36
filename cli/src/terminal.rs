//! Writer for logs on stderr, with a status line at the bottom of a terminal.
//!
//! Invariant: the status line is the last line on the screen or absent. No log line is written into
//! it.

use parking_lot::Mutex;
use std::{
    io::{self, IsTerminal, Write, stderr},
    sync::Arc,
};
use terminal_size::{Width, terminal_size_of};

/// Stderr with a status line. Clones share the line.
#[derive(Clone)]
pub(crate) struct Terminal(Arc<Mutex<Option<String>>>);

const CLEAR_LINE: &str = "\r\x1b[K";

impl Terminal {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// Returns whether stderr is a terminal.
    pub(crate) fn is_terminal() -> bool {
        stderr().is_terminal()
    }

    /// Replaces the status line; `None` removes it.
    pub(crate) fn show(&self, text: Option<&str>) {
        let width = terminal_size_of(stderr()).map_or(80, |(Width(columns), _)| columns.into());
        let mut line = self.0.lock();
        *line = text.map(|text| truncate(text, width));
        // The status line is optional, so errors are ignored.
        drop(write!(
            stderr(),
            "{CLEAR_LINE}{}",
            line.as_deref().unwrap_or_default()
        ));
    }
}

/// Truncates text to one row, because only one row can be cleared.
fn truncate(text: &str, columns: usize) -> String {
    text.chars().take(columns.saturating_sub(1)).collect()
}

/// Writes log lines, each in one call.
///
/// Errors are ignored, as there is nowhere to report them.
impl Write for Terminal {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let line = self.0.lock();
        let mut stderr = stderr().lock();
        drop(match line.as_deref() {
            Some(shown) => {
                let all = [CLEAR_LINE.as_bytes(), lines, shown.as_bytes()].concat();
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
    fn a_line_is_truncated_to_the_width_of_the_terminal() {
        assert_eq!(
            (
                truncate("syncing", 5).as_str(),
                truncate("syncing", 80).as_str(),
                truncate("x", 0).as_str()
            ),
            ("sync", "syncing", "")
        );
    }
}
