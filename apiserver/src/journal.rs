//! The request journal, with which tests assert which requests the server received.

use crate::matcher::{Matcher, RequestInfo};
use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// A request that the server received. Attributes that it does not have are empty. Credentials are
/// not recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalEntry {
    /// Sequence number, starting at 1.
    pub id: u64,
    /// Time of arrival, by the server's clock.
    pub at: Timestamp,
    /// HTTP method.
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// Query without `?`.
    pub query: String,
    /// Kubernetes verb, such as `list`.
    pub verb: String,
    /// API group. Empty for the core group.
    pub group: String,
    /// Plural name of the resource, such as `widgets`.
    pub resource: String,
    /// Subresource, such as `status`.
    pub subresource: String,
    /// Namespace in the path.
    pub namespace: String,
    /// Object name in the path.
    pub name: String,
    /// Authenticated user.
    pub user: String,
    /// Header `User-Agent`.
    pub user_agent: String,
    /// HTTP status of the response. 0 if the connection was closed instead.
    pub code: u16,
    /// Time until the response began. A watch continues after that.
    pub duration: Duration,
    /// Body of the request, if the journal [records bodies](Journal::with_bodies).
    pub body: Option<Bytes>,
}

impl JournalEntry {
    /// Returns the attributes that patterns match.
    pub(crate) fn call(&self) -> RequestInfo<'_> {
        RequestInfo {
            method: &self.method,
            verb: &self.verb,
            group: &self.group,
            resource: &self.resource,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
        }
    }
}

/// The last requests, oldest first. Clones share them.
///
/// Patterns have the syntax of [`Matcher`], such as `PATCH widgets/status`.
#[derive(Clone, Debug)]
pub struct Journal {
    shared: Arc<Mutex<Shared>>,
    length: usize,
    body_limit: usize,
}

#[derive(Debug, Default)]
struct Shared {
    entries: VecDeque<Arc<JournalEntry>>,
    last_id: u64,
    waiters: Vec<Waiter>,
}

/// A pending [`Journal::wait_for`]. It counts requests when they are recorded, however soon they
/// are dropped.
#[derive(Debug)]
struct Waiter {
    matcher: Matcher,
    remaining: usize,
    done: Option<oneshot::Sender<()>>,
}

impl Waiter {
    /// Counts `entry`. Returns `false` once the wait is complete or was cancelled.
    fn observe(&mut self, entry: &JournalEntry) -> bool {
        if self.matcher.matches(&entry.call()) {
            self.remaining -= 1;
        }
        if self.remaining == 0 {
            // An error means that the wait was cancelled.
            self.done.take().map(|done| done.send(()));
        }
        self.done.as_ref().is_some_and(|done| !done.is_closed())
    }
}

impl Default for Journal {
    /// Returns a journal of the last 1000 requests, without bodies.
    fn default() -> Self {
        Self::new(1000)
    }
}

impl Journal {
    /// Creates a journal of the last `length` requests, without bodies.
    pub fn new(length: usize) -> Self {
        Self {
            shared: Arc::default(),
            length,
            body_limit: 0,
        }
    }

    /// Records the first `limit` bytes of each body. Default: 0, because bodies may contain
    /// secrets.
    #[must_use]
    pub fn with_bodies(self, limit: usize) -> Self {
        Self {
            body_limit: limit,
            ..self
        }
    }

    /// Returns an empty journal with the same options.
    pub(crate) fn to_empty(&self) -> Self {
        Self {
            shared: Arc::default(),
            ..*self
        }
    }

    /// Records a request, with the next id and as much of its body as configured.
    pub(crate) fn record(&self, mut entry: JournalEntry) {
        // A copy, so that a slice does not keep the whole request alive.
        let kept = |body: Bytes| Bytes::copy_from_slice(&body[..body.len().min(self.body_limit)]);
        entry.body = entry.body.filter(|_| self.body_limit > 0).map(kept);
        let mut shared = self.shared.lock();
        shared.last_id += 1;
        entry.id = shared.last_id;
        shared.waiters.retain_mut(|waiter| waiter.observe(&entry));
        if self.length == 0 {
            return;
        }
        if shared.entries.len() == self.length {
            shared.entries.pop_front();
        }
        shared.entries.push_back(Arc::new(entry));
    }

    /// Returns the recorded requests, oldest first.
    pub fn entries(&self) -> Vec<Arc<JournalEntry>> {
        self.shared.lock().entries.iter().cloned().collect()
    }

    /// Returns the recorded requests that `pattern` matches, oldest first.
    ///
    /// # Panics
    ///
    /// If the pattern is invalid.
    pub fn matching(&self, pattern: &str) -> Vec<Arc<JournalEntry>> {
        let matcher = Matcher::from_literal(pattern);
        self.shared
            .lock()
            .entries
            .iter()
            .filter(|entry| matcher.matches(&entry.call()))
            .cloned()
            .collect()
    }

    /// Returns the number of recorded requests that `pattern` matches.
    ///
    /// # Panics
    ///
    /// If the pattern is invalid.
    pub fn count(&self, pattern: &str) -> usize {
        self.shared.lock().count(&Matcher::from_literal(pattern))
    }

    /// Removes all requests. Ids continue, and pending waits keep their counts.
    pub fn clear(&self) {
        self.shared.lock().entries.clear();
    }

    /// Waits until `pattern` has matched `n` requests, counting those that are recorded now.
    ///
    /// # Panics
    ///
    /// If the pattern is invalid.
    pub async fn wait_for(&self, pattern: &str, n: usize) {
        let matcher = Matcher::from_literal(pattern);
        let (done, completed) = oneshot::channel();
        {
            let mut shared = self.shared.lock();
            let remaining = n.saturating_sub(shared.count(&matcher));
            if remaining == 0 {
                return;
            }
            shared.waiters.push(Waiter {
                matcher,
                remaining,
                done: Some(done),
            });
        }
        // Not an error: the journal drops the waiter only after this receiver.
        let _ = completed.await;
    }
}

impl Shared {
    fn count(&self, matcher: &Matcher) -> usize {
        self.entries
            .iter()
            .filter(|entry| matcher.matches(&entry.call()))
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    fn patch(name: &str) -> JournalEntry {
        JournalEntry {
            method: "PATCH".into(),
            verb: "patch".into(),
            resource: "widgets".into(),
            subresource: "status".into(),
            name: name.into(),
            ..JournalEntry::default()
        }
    }

    fn list() -> JournalEntry {
        JournalEntry {
            method: "GET".into(),
            verb: "list".into(),
            resource: "pods".into(),
            ..JournalEntry::default()
        }
    }

    #[test]
    fn the_oldest_entries_are_dropped_first_and_ids_continue() {
        let journal = Journal::new(2);
        for name in ["a", "b", "c"] {
            journal.record(patch(name));
        }
        let ids = |journal: &Journal| {
            journal
                .entries()
                .iter()
                .map(|entry| entry.id)
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(&journal), [2, 3]);
        journal.clear();
        journal.record(patch("d"));
        assert_eq!(ids(&journal), [4]);
    }

    #[test]
    fn entries_are_counted_and_filtered_by_pattern() {
        let journal = Journal::default();
        journal.record(patch("a"));
        journal.record(list());
        journal.record(patch("b"));
        assert_eq!(
            (
                journal.count("PATCH widgets/status"),
                journal.count("GET widgets")
            ),
            (2, 0)
        );
        assert_eq!(journal.matching("* widgets/* b")[0].id, 3);
    }

    #[test]
    fn bodies_are_recorded_only_with_bodies_and_up_to_its_limit() {
        let entry = || JournalEntry {
            body: Some(Bytes::from_static(b"secret")),
            ..list()
        };
        let without = Journal::default();
        let with = Journal::default().with_bodies(3);
        without.record(entry());
        with.record(entry());
        assert_eq!(without.entries()[0].body, None);
        assert_eq!(with.entries()[0].body.as_deref(), Some(&b"sec"[..]));
    }

    #[test]
    fn a_journal_of_length_zero_records_nothing() {
        let journal = Journal::new(0);
        journal.record(list());
        assert_eq!(journal.entries(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_counts_recorded_and_later_requests_even_if_dropped_at_once() {
        let journal = Journal::new(1);
        journal.record(patch("a"));
        let waiting = tokio::spawn({
            let journal = journal.clone();
            async move { journal.wait_for("PATCH widgets/status", 3).await }
        });
        tokio::task::yield_now().await;
        for entry in [list(), patch("b"), list()] {
            journal.record(entry);
        }
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        journal.record(patch("c"));
        journal.record(list());
        timeout(Duration::from_secs(1), waiting)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(journal.count("PATCH widgets/status"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_satisfied_wait_ends_at_once_and_a_cancelled_one_is_removed() {
        let journal = Journal::default();
        journal.record(list());
        timeout(Duration::ZERO, journal.wait_for("list pods", 1))
            .await
            .unwrap();
        timeout(Duration::from_secs(1), journal.wait_for("list pods", 2))
            .await
            .unwrap_err();
        journal.record(patch("a"));
        assert!(journal.shared.lock().waiters.is_empty());
    }
}
