//! How far a table's log goes: what a watcher is measured by.

use super::{Changes, Cursor, Store, TableName};
use tokio::sync::watch;

/// A table as a watcher found it: not one of the same name that came later.
pub(crate) struct Tail {
    store: Store,
    table: TableName,
    grown: watch::Receiver<Option<Changes>>,
}

impl Tail {
    /// The revision of the last change, 0 if there was none; `None` if the table is gone.
    pub(crate) fn last_change(&self) -> Option<u64> {
        let state = self.store.0.read();
        if self.grown.borrow().is_some() {
            return None;
        }
        let changes = &state.tables.get(&self.table)?.changes;
        Some(changes.list.back().map_or(changes.forgotten, |change| change.revision))
    }
}

impl Cursor {
    /// The end of the table's log, for those who want to know how far this one is from it.
    pub(crate) fn tail(&self) -> Tail {
        Tail { store: self.store.clone(), table: self.table.clone(), grown: self.grown.clone() }
    }
}
