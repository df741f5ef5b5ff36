//! Waiting until the informers of a cache are synced.

use super::{
    Cache, CacheError, core::Condition, informer::not_synced_reason,
    informer_task::DeclaredInformer,
};
use std::{sync::Arc, time::Duration};
use tokio::{select, time::timeout};

impl Cache {
    /// Waits until every informer declared so far is synced.
    ///
    /// Waits without limit if the API server rejects a list, like
    /// [`Informer::await_synced`](super::Informer::await_synced).
    pub async fn await_synced(&self) -> Result<(), CacheError> {
        for declared in self.all_informers() {
            // An informer that was removed meanwhile is skipped, unless the cache is closed.
            if !declared.core.clone().synced().await && self.has_ended() {
                return Err(CacheError::Closed);
            }
        }
        Ok(())
    }

    /// Waits until every required informer is synced, at most for `limit`.
    ///
    /// An informer whose declarations are all optional is waited for until it is synced or has
    /// failed.
    pub(crate) async fn await_required(&self, limit: Duration) -> Result<(), CacheError> {
        let synced = async {
            for declared in self.all_informers() {
                let mut conditions = declared.core.conditions();
                select! {
                    _ = declared.core.clone().synced() => {}
                    _ = conditions.wait_for(Condition::has_failed), if !declared.refs.is_required() => {}
                }
            }
        };
        let unsynced = if timeout(limit, synced).await.is_ok() {
            Vec::new()
        } else {
            self.unsynced()
        };
        if unsynced.is_empty() {
            Ok(())
        } else {
            Err(CacheError::SyncTimeout {
                limit,
                waiting: unsynced,
            })
        }
    }

    /// Waits until every informer is synced or has failed, at most for `limit`.
    pub(crate) async fn await_synced_or_failed(&self, limit: Duration) {
        let known = async {
            for declared in self.all_informers() {
                let mut conditions = declared.core.conditions();
                select! {
                    _ = declared.core.clone().synced() => {}
                    _ = conditions.wait_for(Condition::has_failed) => {}
                }
            }
        };
        drop(timeout(limit, known).await);
    }

    /// Returns the required informers that are not synced, with the reasons.
    pub(crate) fn unsynced(&self) -> Vec<String> {
        let required = self
            .all_informers()
            .into_iter()
            .filter(|declared| declared.refs.is_required());
        waiting(required)
    }

    /// Waits until every informer declared so far is synced, at most for `limit`.
    ///
    /// The error lists the informers that are not synced, with the reasons.
    pub async fn await_synced_within(&self, limit: Duration) -> Result<(), CacheError> {
        if let Ok(synced) = timeout(limit, self.await_synced()).await {
            return synced;
        }
        let waiting = waiting(self.all_informers());
        if waiting.is_empty() {
            Ok(())
        } else {
            Err(CacheError::SyncTimeout { limit, waiting })
        }
    }
}

/// Returns the informers that are not synced, with the reasons.
fn waiting(informers: impl IntoIterator<Item = Arc<DeclaredInformer>>) -> Vec<String> {
    let unsynced = informers
        .into_iter()
        .filter(|declared| !declared.core.is_listed());
    let mut waiting: Vec<_> = unsynced
        .map(|declared| {
            format!(
                "{} ({})",
                declared.gvk.kind,
                not_synced_reason(declared.core.condition())
            )
        })
        .collect();
    waiting.sort();
    waiting
}
