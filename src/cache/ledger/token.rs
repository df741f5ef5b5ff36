//! Identities of writers.

use crate::cache::Cache;
use parking_lot::Mutex;
use std::{
    sync::{Arc, Weak},
    time::Duration,
};

tokio::task_local! {
    static CURRENT: Token;
}

/// Identity of a writer: a client with its clones, or one reconcile.
///
/// A clone is the same identity.
#[derive(Clone, Debug, Default)]
pub(crate) struct Token(Arc<TokenState>);

/// Writes that a cached read inside a reconcile waits for, and the timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReadPolicy {
    /// Returns what the cache has.
    #[default]
    DoNotWait,
    /// Waits for writes of the same reconcile, through any client.
    OfReconcile(Duration),
    /// Waits for writes of the same client, in any reconcile.
    OfClient(Duration),
}

#[derive(Debug, Default)]
struct TokenState {
    /// Policy of reads that leave it to the reconcile.
    reads: ReadPolicy,
    /// Caches that may not show a write under this token yet.
    caches: Mutex<Vec<Cache>>,
}

impl Token {
    /// Creates the token of one reconcile.
    pub(crate) fn of_reconcile(reads: ReadPolicy) -> Self {
        Self(Arc::new(TokenState {
            reads,
            ..TokenState::default()
        }))
    }

    /// Runs `work`. Writes through any client in it are also under this token.
    pub(crate) async fn scope<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    /// Returns the token of the current scope.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    pub(crate) fn reads(&self) -> ReadPolicy {
        self.0.reads
    }

    /// Returns whether a write to the cluster of `cache` was sent under this token.
    pub(crate) fn has_written(&self, cache: &Cache) -> bool {
        self.0.caches.lock().contains(cache)
    }

    /// Records in the current scope a write that `cache` will show. Call it before sending.
    pub(crate) fn record_write(cache: &Cache) {
        let note = |token: &Self| {
            let mut caches = token.0.caches.lock();
            if !caches.contains(cache) {
                caches.push(cache.clone());
            }
        };
        // Outside of a scope there is no token.
        let _ = CURRENT.try_with(note);
    }

    /// Returns the caches that do not show all writes under this token yet.
    pub(crate) fn caches_behind(&self) -> Vec<Cache> {
        let mut caches = std::mem::take(&mut *self.0.caches.lock());
        caches.retain(|cache| !cache.is_caught_up(self));
        caches
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for Token {}

/// Client and scope of a write, or all clients. Does not keep them alive.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    client: Option<Weak<TokenState>>,
    scope: Option<Weak<TokenState>>,
}

impl Writer {
    /// Returns the writer for a client in the current scope.
    pub(crate) fn of(client: &Token) -> Self {
        let scope = CURRENT.try_with(|scope| Arc::downgrade(&scope.0)).ok();
        Self {
            client: Some(Arc::downgrade(&client.0)),
            scope,
        }
    }

    /// Returns the writer for which every token matches.
    pub(super) fn any() -> Self {
        Self {
            client: None,
            scope: None,
        }
    }

    pub(super) fn is_any(&self) -> bool {
        self.client.is_none()
    }

    pub(super) fn matches(&self, token: &Token) -> bool {
        self.is_any()
            || self
                .tokens()
                .any(|one| one.as_ptr() == Arc::as_ptr(&token.0))
    }

    /// Returns whether this writer matches every live token that `other` matches.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let mut asking = other.tokens().filter(|one| one.strong_count() > 0);
        self.is_any()
            || !other.is_any() && asking.all(|one| self.tokens().any(|mine| mine.ptr_eq(one)))
    }

    fn tokens(&self) -> impl Iterator<Item = &Weak<TokenState>> {
        self.client.iter().chain(&self.scope)
    }
}
