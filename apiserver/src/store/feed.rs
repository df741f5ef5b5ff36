//! The feed: the changes of all tables that the controllers need, in order.

use super::{Change, Store, TableName};
use std::sync::Arc;
use tokio::sync::watch;

/// Position in the history of all tables.
pub(crate) struct Feed {
    store: Store,
    /// Every change up to this revision was returned.
    seen: u64,
    changed: watch::Receiver<()>,
}

/// Result of reading on from a [`Feed`].
#[derive(Debug)]
pub(crate) enum FeedEvent {
    /// The next changes in order, at least one.
    Changes(Vec<(TableName, Arc<Change>)>),
    /// Changes have been dropped before they were read: scan all tables. Further changes happened
    /// after this.
    Expired,
}

impl Store {
    /// Returns a feed of all changes from now on.
    pub(crate) fn feed(&self) -> Feed {
        let state = self.0.read();
        Feed {
            store: self.clone(),
            seen: state.revision,
            changed: state.changed.subscribe(),
        }
    }

    /// Returns the revision of the last change for the feed.
    pub(crate) fn last_in_feed(&self) -> u64 {
        self.0.read().last_in_feed
    }

    /// Returns the names of all tables, sorted.
    pub(crate) fn tables(&self) -> Vec<TableName> {
        let mut tables: Vec<_> = self.0.read().tables.keys().cloned().collect();
        tables.sort_unstable();
        tables
    }
}

impl Feed {
    /// Returns the revision up to which changes were returned.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns the changes since the last call, without waiting.
    pub(crate) fn try_next(&mut self) -> Option<FeedEvent> {
        let state = self.store.0.read();
        self.changed.mark_unchanged();
        let seen = std::mem::replace(&mut self.seen, state.revision);
        if state.last_in_feed <= seen {
            return None;
        }
        if state
            .tables
            .values()
            .any(|table| table.changes.last_dropped_in_feed > seen)
        {
            return Some(FeedEvent::Expired);
        }
        let mut changes: Vec<_> = state
            .tables
            .iter()
            .flat_map(|(name, table)| {
                let selected = table.changes.after(seen).filter(|change| change.in_feed);
                selected.map(move |change| (name.clone(), change.clone()))
            })
            .collect();
        drop(state);
        changes.sort_unstable_by_key(|(_, change)| change.revision);
        Some(FeedEvent::Changes(changes))
            .filter(|event| !matches!(event, FeedEvent::Changes(changes) if changes.is_empty()))
    }

    /// Waits until there may be more changes.
    pub(crate) async fn wait_for_changes(&mut self) {
        if self.changed.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
