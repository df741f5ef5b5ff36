//! Durability: what the store writes, on disk.

use crate::object::{Content, Key, Object};
use std::{io, sync::Arc};

/// The log of a durable store.
pub(crate) struct Log {}

impl Log {
    pub(crate) fn append(
        &mut self,
        _table: &str,
        _key: &Key,
        _revision: u64,
        _content: Option<&Content>,
    ) -> io::Result<()> {
        Ok(())
    }
    pub(crate) fn wants_snapshot(&self) -> bool {
        false
    }
    pub(crate) fn snapshot<'a>(
        &mut self,
        _revision: u64,
        _objects: impl Iterator<Item = (&'a Arc<str>, &'a Arc<Object>)>,
    ) -> io::Result<()> {
        Ok(())
    }
}
