//! What is said on stdout. Who reads may stop to at any time, and nothing else changes because of it.

use anyhow::{Context, Result};
use std::{
    fmt,
    io::{ErrorKind, Write, stdout},
};

/// A line.
pub(crate) fn say(line: impl fmt::Display) -> Result<()> {
    write(format!("{line}\n").as_bytes())
}

/// As it stands.
pub(crate) fn write(text: &[u8]) -> Result<()> {
    let mut stdout = stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write to stdout"),
        _ => Ok(()),
    }
}
