//! Whose writes they are.

use crate::cache::Cache;
use parking_lot::Mutex;
use std::{
    sync::{Arc, Weak},
    time::Duration,
};

tokio::task_local! {
    static CURRENT: Token;
}

/// Somebody whose writes are told apart: a client with its clones, or one reconcile. A clone is the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Token(Arc<Account>);

/// Which writes a cached read inside a reconcile waits for, and for how long at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Returns what the cache has.
    #[default]
    DoNotWait,
    /// Waits for writes of the same reconcile, through any client.
    OfReconcile(Duration),
    /// Waits for writes of the same client, in any reconcile.
    OfClient(Duration),
}

#[derive(Debug, Default)]
struct Account {
    /// Policy of reads that leave it to the reconcile.
    reads: Reads,
    /// Where something may have been written that is not shown yet.
    caches: Mutex<Vec<Cache>>,
}

impl Token {
    /// Creates the token of one reconcile.
    pub(crate) fn of_reconcile(reads: Reads) -> Self {
        Self(Arc::new(Account { reads, ..Account::default() }))
    }

    /// What is written through any client while `work` runs, is written under this token too.
    pub(crate) async fn scope<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    /// The token of the scope this is called in.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    pub(crate) fn reads(&self) -> Reads {
        self.0.reads
    }

    /// Whether a write under this token was sent that `cache` will show, or shows.
    pub(crate) fn has_written(&self, cache: &Cache) -> bool {
        self.0.caches.lock().contains(cache)
    }

    /// A write is about to be sent which this cache will show: in the scope this is called in, if there is one.
    pub(crate) fn writes(cache: &Cache) {
        let note = |token: &Self| {
            let mut caches = token.0.caches.lock();
            if !caches.contains(cache) {
                caches.push(cache.clone());
            }
        };
        // Outside of a scope there is nothing to note.
        let _ = CURRENT.try_with(note);
    }

    /// The caches that do not show yet what was written under this token.
    pub(crate) fn behind(&self) -> Vec<Cache> {
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

/// The client that writes, and the scope it does so in; or everybody. It keeps neither: who is gone asks for nothing.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    client: Option<Weak<Account>>,
    scope: Option<Weak<Account>>,
}

impl Writer {
    /// Here and now.
    pub(crate) fn of(client: &Token) -> Self {
        let scope = CURRENT.try_with(|scope| Arc::downgrade(&scope.0)).ok();
        Self { client: Some(Arc::downgrade(&client.0)), scope }
    }

    /// Whoever asks is taken for one who wrote it.
    pub(super) fn everybody() -> Self {
        Self { client: None, scope: None }
    }

    pub(super) fn is_everybody(&self) -> bool {
        self.client.is_none()
    }

    pub(super) fn is(&self, token: &Token) -> bool {
        self.is_everybody() || self.tokens().any(|one| one.as_ptr() == Arc::as_ptr(&token.0))
    }

    /// Whether everybody who may still ask for what the other one wrote asks for what this one writes, too.
    pub(super) fn stands_for(&self, other: &Self) -> bool {
        let mut asking = other.tokens().filter(|one| one.strong_count() > 0);
        self.is_everybody() || !other.is_everybody() && asking.all(|one| self.tokens().any(|mine| mine.ptr_eq(one)))
    }

    fn tokens(&self) -> impl Iterator<Item = &Weak<Account>> {
        self.client.iter().chain(&self.scope)
    }
}
