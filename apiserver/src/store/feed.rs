//! The notable changes of all tables, in order: what the controllers read.

use super::{Change, Store, TableName};
use std::sync::Arc;
use tokio::sync::watch;

/// A place in the logs of all tables.
pub(crate) struct Feed {
    store: Store,
    /// Everything up to this revision was handed out.
    seen: u64,
    grown: watch::Receiver<()>,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum News {
    /// In order; never empty.
    Changes(Vec<(TableName, Arc<Change>)>),
    /// Some of it is forgotten: look at everything anew. What comes next happened after this.
    Lost,
}

impl Store {
    /// All changes from now on.
    pub(crate) fn feed(&self) -> Feed {
        let state = self.0.read();
        Feed { store: self.clone(), seen: state.revision, grown: state.grown.subscribe() }
    }

    /// The revision of the last change that the feed is about.
    pub(crate) fn last_notable(&self) -> u64 {
        self.0.read().last_notable
    }

    /// The tables that there are.
    pub(crate) fn tables(&self) -> Vec<TableName> {
        let mut tables: Vec<_> = self.0.read().tables.keys().cloned().collect();
        tables.sort_unstable();
        tables
    }
}

impl Feed {
    /// Everything up to this revision was handed out.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// What there is, without waiting.
    pub(crate) fn try_next(&mut self) -> Option<News> {
        let state = self.store.0.read();
        self.grown.mark_unchanged();
        let seen = std::mem::replace(&mut self.seen, state.revision);
        if state.last_notable <= seen {
            return None;
        }
        if state.tables.values().any(|table| table.changes.forgotten_notable > seen) {
            return Some(News::Lost);
        }
        let mut changes: Vec<_> = state
            .tables
            .iter()
            .flat_map(|(name, table)| {
                let notable = table.changes.after(seen).filter(|change| change.notable);
                notable.map(move |change| (name.clone(), change.clone()))
            })
            .collect();
        drop(state);
        changes.sort_unstable_by_key(|(_, change)| change.revision);
        Some(News::Changes(changes)).filter(|news| !matches!(news, News::Changes(changes) if changes.is_empty()))
    }

    /// Wait until there may be more.
    pub(crate) async fn grown(&mut self) {
        if self.grown.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
