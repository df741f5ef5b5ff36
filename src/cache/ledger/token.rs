//! Whose writes they are.

use crate::cache::Cache;
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};

tokio::task_local! {
    static CURRENT: Token;
}

/// Somebody whose writes are told apart: a client with its clones, or one reconcile. A clone is the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Token(Arc<Account>);

#[derive(Debug, Default)]
struct Account {
    /// How long reads wait that leave it to the reconcile; `None` if they do not.
    reads_wait: Option<Duration>,
    /// Where something may have been written that is not shown yet.
    caches: Mutex<Vec<Cache>>,
}

impl Token {
    /// Of a reconcile in which reads wait so long for what was written before.
    pub(crate) fn of_reconcile(reads_wait: Option<Duration>) -> Self {
        Self(Arc::new(Account { reads_wait, ..Account::default() }))
    }

    /// What is written through any client while `work` runs, is written under this token too.
    pub(crate) async fn scope<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    /// The token of the scope this is called in.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    pub(crate) fn reads_wait(&self) -> Option<Duration> {
        self.0.reads_wait
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

/// The client that writes, and the scope it does so in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) client: Token,
    pub(crate) scope: Option<Token>,
}

impl Writer {
    /// Here and now.
    pub(crate) fn of(client: &Token) -> Self {
        Self { client: client.clone(), scope: Token::current() }
    }

    pub(super) fn is(&self, token: &Token) -> bool {
        self.client == *token || self.scope.as_ref() == Some(token)
    }
}
