//! Stderr, where logs are written: on a terminal, with a line at the bottom that says what is being waited for.
//!
//! What holds: the line is the last thing on the screen, or is not there; a log's line never stands in it.

use parking_lot::Mutex;
use std::{
    io::{self, IsTerminal, Write, stderr},
    sync::Arc,
};

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
        let mut line = self.0.lock();
        *line = text.map(str::to_owned);
        // Decoration: that it cannot be written fails nothing.
        drop(write!(stderr(), "{CLEARED}{}", text.unwrap_or_default()));
    }
}

/// A log's lines, each in one call.
impl Write for Terminal {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let line = self.0.lock();
        let mut stderr = stderr().lock();
        match line.as_deref() {
            Some(shown) => {
                write!(stderr, "{CLEARED}")?;
                stderr.write_all(lines)?;
                write!(stderr, "{shown}")?;
            }
            None => stderr.write_all(lines)?,
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        stderr().flush()
    }
}
