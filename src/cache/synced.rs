//! Waiting until a cache can be read.

use super::{Cache, CacheError, core::Condition, informer::why_not, tend::Declared};
use std::{sync::Arc, time::Duration};
use tokio::{select, time::timeout};

impl Cache {
    /// Until every informer declared so far is synced. As [`Informer::await_synced`](super::Informer::await_synced) it waits for as long as the server refuses one.
    pub async fn await_synced(&self) -> Result<(), CacheError> {
        for declared in self.all_informers() {
            // One that was removed meanwhile is nobody's concern, unless all were.
            if !declared.core.clone().synced().await && self.has_ended() {
                return Err(CacheError::Ended);
            }
        }
        Ok(())
    }

    /// Until every informer declared so far that somebody cannot do without is synced, for so long at most; one that everybody can do without is waited for until it
    /// is known how it is.
    pub(crate) async fn await_needed(&self, limit: Duration) -> Result<(), CacheError> {
        let synced = async {
            for declared in self.all_informers() {
                let mut conditions = declared.core.conditions();
                select! {
                    _ = declared.core.clone().synced() => {}
                    _ = conditions.wait_for(Condition::is_no), if !declared.life.is_needed() => {}
                }
            }
        };
        let unsynced = if timeout(limit, synced).await.is_ok() { Vec::new() } else { self.unsynced() };
        if unsynced.is_empty() { Ok(()) } else { Err(CacheError::SyncTimeout { limit, waiting: unsynced }) }
    }

    /// Waits until every informer declared so far is synced or has failed, at most for `limit`.
    pub(crate) async fn await_known(&self, limit: Duration) {
        let known = async {
            for declared in self.all_informers() {
                let mut conditions = declared.core.conditions();
                select! {
                    _ = declared.core.clone().synced() => {}
                    _ = conditions.wait_for(Condition::is_no) => {}
                }
            }
        };
        drop(timeout(limit, known).await);
    }

    /// Those that somebody cannot do without and that are not synced, with the reason.
    pub(crate) fn unsynced(&self) -> Vec<String> {
        let needed = self.all_informers().into_iter().filter(|declared| declared.life.is_needed());
        waiting(needed)
    }

    /// [`Self::await_synced`] for so long at most. The error says what it waited for, and why in the server's own words.
    pub async fn await_synced_within(&self, limit: Duration) -> Result<(), CacheError> {
        if let Ok(synced) = timeout(limit, self.await_synced()).await {
            return synced;
        }
        let waiting = waiting(self.all_informers());
        if waiting.is_empty() { Ok(()) } else { Err(CacheError::SyncTimeout { limit, waiting }) }
    }
}

/// Those that are not synced, with the reason.
fn waiting(informers: impl IntoIterator<Item = Arc<Declared>>) -> Vec<String> {
    let unsynced = informers.into_iter().filter(|declared| !declared.core.is_listed());
    let mut waiting: Vec<_> =
        unsynced.map(|it| format!("{} ({})", it.gvk.kind, why_not(it.core.condition()))).collect();
    waiting.sort();
    waiting
}
