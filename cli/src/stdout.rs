//! Output on stdout. A reader that closes the pipe is not an error.

use anyhow::{Context, Result};
use std::{
    fmt,
    io::{ErrorKind, Write, stdout},
};

/// Prints a line.
pub(crate) fn print_line(line: impl fmt::Display) -> Result<()> {
    write(format!("{line}\n").as_bytes())
}

/// Prints text without a line break.
pub(crate) fn write(text: &[u8]) -> Result<()> {
    let mut stdout = stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to stdout")
        }
        _ => Ok(()),
    }
}
