//! The request journal: what was asked of the server, so that a test can say what it expects.

use crate::matcher::{Call, Matcher};
use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// One request. What it did not have is empty. Credentials are never part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Counts up from 1; given by the journal.
    pub id: u64,
    /// When it came, by the server's clock.
    pub at: Timestamp,
    /// The HTTP method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query, without its `?`.
    pub query: String,
    /// The Kubernetes verb: `list`.
    pub verb: String,
    /// Empty for the core group.
    pub group: String,
    /// The plural: `widgets`.
    pub resource: String,
    /// Such as `status`.
    pub subresource: String,
    /// Empty where the request was not about one.
    pub namespace: String,
    /// As the path gives it.
    pub name: String,
    /// Who asked.
    pub user: String,
    /// What they asked with.
    pub user_agent: String,
    /// The status of the answer; 0 if the connection was cut instead.
    pub code: u16,
    /// Until the answer began: a watch then still goes on.
    pub duration: Duration,
    /// The request's body, if the journal [keeps bodies](Journal::with_bodies).
    pub body: Option<Bytes>,
}

impl Entry {
    /// The request as patterns see it.
    pub(crate) fn call(&self) -> Call<'_> {
        Call {
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

/// The last requests, oldest first. Clones share them. Patterns are [`Matcher`]'s: `PATCH widgets/status`.
#[derive(Clone, Debug)]
pub struct Journal {
    shared: Arc<Mutex<Shared>>,
    length: usize,
    body_limit: usize,
}

#[derive(Debug, Default)]
struct Shared {
    entries: VecDeque<Arc<Entry>>,
    last_id: u64,
    waiters: Vec<Waiter>,
}

/// Somebody who waits for requests. Told when they are recorded, so that it does not matter how soon they are forgotten.
#[derive(Debug)]
struct Waiter {
    matcher: Matcher,
    left: usize,
    done: Option<oneshot::Sender<()>>,
}

impl Waiter {
    /// Counts an entry; false once there is nobody to wait any more.
    fn goes_on_after(&mut self, entry: &Entry) -> bool {
        if self.matcher.matches(&entry.call()) {
            self.left -= 1;
        }
        if self.left == 0 {
            // Whoever no longer waits need not be told.
            self.done.take().map(|done| done.send(()));
        }
        self.done.as_ref().is_some_and(|done| !done.is_closed())
    }
}

impl Default for Journal {
    /// The last 1000 requests, without bodies.
    fn default() -> Self {
        Self::new(1000)
    }
}

impl Journal {
    /// Keeps the last `length` requests, without bodies.
    pub fn new(length: usize) -> Self {
        Self { shared: Arc::default(), length, body_limit: 0 }
    }

    /// Keeps bodies too, up to `limit` bytes of each. They may hold secrets, which is why they are not kept unasked.
    #[must_use]
    pub fn with_bodies(self, limit: usize) -> Self {
        Self { body_limit: limit, ..self }
    }

    /// One that keeps as much as this one, and has nothing yet.
    pub(crate) fn emptied(&self) -> Self {
        Self { shared: Arc::default(), ..*self }
    }

    /// Records a request: gives it an id, and keeps of its body what is wanted.
    pub(crate) fn record(&self, mut entry: Entry) {
        // A copy, so that a slice does not keep the whole request alive.
        let kept = |body: Bytes| Bytes::copy_from_slice(&body[..body.len().min(self.body_limit)]);
        entry.body = entry.body.filter(|_| self.body_limit > 0).map(kept);
        let mut shared = self.shared.lock();
        shared.last_id += 1;
        entry.id = shared.last_id;
        shared.waiters.retain_mut(|waiter| waiter.goes_on_after(&entry));
        if self.length == 0 {
            return;
        }
        if shared.entries.len() == self.length {
            shared.entries.pop_front();
        }
        shared.entries.push_back(Arc::new(entry));
    }

    /// Everything kept, oldest first.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        self.shared.lock().entries.iter().cloned().collect()
    }

    /// What is kept of the requests that `pattern` matches, oldest first.
    ///
    /// # Panics
    ///
    /// If the pattern is not one: the message says what is.
    pub fn matching(&self, pattern: &str) -> Vec<Arc<Entry>> {
        let matcher = Matcher::written(pattern);
        self.shared.lock().entries.iter().filter(|entry| matcher.matches(&entry.call())).cloned().collect()
    }

    /// How many of the kept requests `pattern` matches.
    ///
    /// # Panics
    ///
    /// If the pattern is not one: the message says what is.
    pub fn count(&self, pattern: &str) -> usize {
        self.shared.lock().count(&Matcher::written(pattern))
    }

    /// Forgets every request. Ids count on, and those who wait keep what they have counted.
    pub fn clear(&self) {
        self.shared.lock().entries.clear();
    }

    /// Waits until `pattern` has matched `n` requests: those that are kept now, and whatever comes.
    ///
    /// # Panics
    ///
    /// If the pattern is not one: the message says what is.
    pub async fn wait_for(&self, pattern: &str, n: usize) {
        let matcher = Matcher::written(pattern);
        let (done, told) = oneshot::channel();
        {
            let mut shared = self.shared.lock();
            let left = n.saturating_sub(shared.count(&matcher));
            if left == 0 {
                return;
            }
            shared.waiters.push(Waiter { matcher, left, done: Some(done) });
        }
        // The sender cannot be dropped unused: its waiter leaves only when this side has, and the journal outlives this.
        let _ = told.await;
    }
}

impl Shared {
    fn count(&self, matcher: &Matcher) -> usize {
        self.entries.iter().filter(|entry| matcher.matches(&entry.call())).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    fn patch(name: &str) -> Entry {
        Entry {
            method: "PATCH".into(),
            verb: "patch".into(),
            resource: "widgets".into(),
            subresource: "status".into(),
            name: name.into(),
            ..Entry::default()
        }
    }

    fn list() -> Entry {
        Entry { method: "GET".into(), verb: "list".into(), resource: "pods".into(), ..Entry::default() }
    }

    #[test]
    fn the_oldest_entries_go_first_and_ids_count_on() {
        let journal = Journal::new(2);
        for name in ["a", "b", "c"] {
            journal.record(patch(name));
        }
        let ids = |journal: &Journal| journal.entries().iter().map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!(ids(&journal), [2, 3]);
        journal.clear();
        journal.record(patch("d"));
        assert_eq!(ids(&journal), [4]);
    }

    #[test]
    fn entries_are_counted_and_picked_by_pattern() {
        let journal = Journal::default();
        journal.record(patch("a"));
        journal.record(list());
        journal.record(patch("b"));
        assert_eq!((journal.count("PATCH widgets/status"), journal.count("GET widgets")), (2, 0));
        assert_eq!(journal.matching("* widgets/* b")[0].id, 3);
    }

    #[test]
    fn bodies_are_kept_only_when_wanted_and_only_so_much_of_them() {
        let entry = || Entry { body: Some(Bytes::from_static(b"secret")), ..list() };
        let (without, with) = (Journal::default(), Journal::default().with_bodies(3));
        without.record(entry());
        with.record(entry());
        assert_eq!(without.entries()[0].body, None);
        assert_eq!(with.entries()[0].body.as_deref(), Some(&b"sec"[..]));
    }

    #[test]
    fn a_journal_of_no_length_keeps_nothing() {
        let journal = Journal::new(0);
        journal.record(list());
        assert_eq!(journal.entries(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_counts_what_is_kept_and_what_comes_even_if_it_is_forgotten_at_once() {
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
        timeout(Duration::from_secs(1), waiting).await.unwrap().unwrap();
        assert_eq!(journal.count("PATCH widgets/status"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_for_what_is_there_is_over_and_one_that_was_given_up_leaves_nothing() {
        let journal = Journal::default();
        journal.record(list());
        timeout(Duration::ZERO, journal.wait_for("list pods", 1)).await.unwrap();
        timeout(Duration::from_secs(1), journal.wait_for("list pods", 2)).await.unwrap_err();
        journal.record(patch("a"));
        assert!(journal.shared.lock().waiters.is_empty());
    }
}
