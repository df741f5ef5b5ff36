//! The last change of a table, which determines whether a watcher is up to date.

use super::{Cursor, DroppedLog, Store, TableName};
use tokio::sync::watch;

/// Reference to a table, and not to a later one of the same name.
pub(crate) struct TableRef {
    store: Store,
    table: TableName,
    changed: watch::Receiver<Option<DroppedLog>>,
}

impl TableRef {
    /// Returns the revision of the last change, 0 if there was none, `None` if the table was
    /// dropped.
    pub(crate) fn last_change(&self) -> Option<u64> {
        let state = self.store.0.read();
        if self.changed.borrow().is_some() {
            return None;
        }
        let changes = &state.tables.get(&self.table)?.changes;
        Some(
            changes
                .list
                .back()
                .map_or(changes.last_dropped, |change| change.revision),
        )
    }
}

impl Cursor {
    /// Returns a reference to the table of this cursor.
    pub(crate) fn table_ref(&self) -> TableRef {
        TableRef {
            store: self.store.clone(),
            table: self.table.clone(),
            changed: self.changed.clone(),
        }
    }
}
