//! How a store comes back from a log, and how it ends.

use super::{Store, Table, TableName};
use crate::{object::Object, persist::Log};
use std::sync::Arc;

impl Store {
    /// Make the store durable: `log` has what is in it, and takes what follows.
    pub(crate) fn set_log(&self, log: Log) {
        self.0.write().log = Some(log);
    }

    /// Put in what a log had. Only for a store that nothing was written to.
    pub(crate) fn restore(&self, revision: u64, objects: impl Iterator<Item = (TableName, Object)>) {
        let mut state = self.0.write();
        state.revision = state.revision.max(revision);
        let floor = state.revision;
        for (name, object) in objects {
            let table = state.tables.entry(name).or_insert_with(|| Table::new(floor));
            table.objects.insert(object.key.clone(), Arc::new(object));
        }
        for table in state.tables.values_mut() {
            table.changes.floor = floor;
        }
    }

    /// Let go of the log, so that another store can go on with it. Nothing is here any longer, so nothing is written that the log
    /// does not have; watchers come to an end once they have read everything.
    pub(crate) fn close(&self) {
        let mut state = self.0.write();
        state.log = None;
        state.history_bytes = 0;
        for (_, table) in state.tables.drain() {
            table.grown.send_replace(Some(table.changes));
        }
    }

    /// A store that is open has the tables of the kinds that are built in.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.read().tables.is_empty()
    }
}
