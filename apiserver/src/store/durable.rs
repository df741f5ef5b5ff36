//! Restoring a store from a log, and closing it.

use super::{State, Store, Table, TableName, trim};
use crate::{object::Object, persist::Log};
use parking_lot::Mutex;
use std::sync::Arc;

impl Store {
    /// Makes the store durable. `log` must contain the current objects.
    pub(crate) fn set_log(&self, log: Log) {
        self.0.write().log = Some(log);
    }

    /// Inserts the objects of a log. The store must be empty.
    pub(crate) fn restore(
        &self,
        revision: u64,
        objects: impl Iterator<Item = (TableName, Object)>,
    ) {
        let mut state = self.0.write();
        state.revision = state.revision.max(revision);
        let floor = state.revision;
        for (name, object) in objects {
            let table = state
                .tables
                .entry(name)
                .or_insert_with(|| Table::new(floor));
            table.objects.insert(object.key.clone(), Arc::new(object));
        }
        for table in state.tables.values_mut() {
            table.changes.floor = floor;
        }
    }

    /// Closes the store and its log, so that another store can open the log.
    ///
    /// All tables are removed, so no further write can succeed. Watchers end after they have read
    /// everything. The history that they read still counts towards the limit of bytes.
    pub(crate) fn close(&self) {
        let mut state = self.0.write();
        let State {
            tables,
            limits,
            history_bytes,
            dropped,
            log,
            ..
        } = &mut *state;
        *log = None;
        *history_bytes = 0;
        for (_, table) in tables.drain() {
            let changes = Arc::new(Mutex::new(table.changes));
            dropped.push(Arc::downgrade(&changes));
            table.changed.send_replace(Some(changes));
        }
        trim(tables, dropped, history_bytes, limits.bytes);
    }

    /// Returns whether the store was closed. An open store has at least the tables of the built-in
    /// kinds.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.read().tables.is_empty()
    }
}
