//! Whether this process is alive, and whether it can do its work.
//!
//! What holds: a process is ready when every check says so; a check lives as long as its handle, or for ever if it was given as a function. Nobody waits for a check that
//! they did not ask for, and no check for another.

use super::asking::{Answer, Asking};
use crate::cache::Cache;
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde::Serialize;
use std::{fmt, sync::Arc};

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Probe {
    /// Restart the process if it fails: `/healthz`.
    Health,
    /// Send it no work while it fails: `/readyz`.
    Ready,
}

/// What a check says, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// Of the check.
    pub name: Arc<str>,
    /// Why it fails; `None` if it does not.
    pub failure: Option<String>,
}

/// How a check is asked.
#[derive(Clone)]
enum Ask {
    /// One of our own, which answers at once.
    Prompt(Arc<dyn Fn() -> Answer + Send + Sync>),
    Anybodys(Arc<Asking>),
}

impl Ask {
    async fn answer(&self) -> Answer {
        match self {
            Self::Prompt(ask) => ask(),
            Self::Anybodys(asking) => asking.ask().await,
        }
    }
}

#[derive(Clone)]
struct Check {
    probe: Probe,
    name: Arc<str>,
    ask: Ask,
    /// Tells it from others of its name.
    id: u64,
}

/// All checks of a manager. A clone shares them.
#[derive(Clone, Default)]
pub(crate) struct Checks(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    checks: Vec<Check>,
    added: u64,
}

impl Checks {
    /// For good.
    pub(super) fn add(&self, probe: Probe, name: &str, ask: impl Fn() -> Answer + Send + Sync + 'static) {
        self.push(probe, name, Ask::Anybodys(Arc::new(Asking::new(ask))));
    }

    /// One that neither blocks nor panics. Gives what it is [held](Self::held) by.
    pub(super) fn add_prompt(&self, probe: Probe, name: &str, ask: impl Fn() -> Answer + Send + Sync + 'static) -> u64 {
        self.push(probe, name, Ask::Prompt(Arc::new(ask)))
    }

    /// Whether what somebody cannot do without is in this cache.
    pub(super) fn add_cache(&self, name: &str, cache: &Cache) -> u64 {
        let cache = cache.clone();
        self.add_prompt(Probe::Ready, name, move || match cache.unsynced() {
            unsynced if unsynced.is_empty() => Ok(()),
            unsynced => Err(format!("not synced: {}", unsynced.join(", "))),
        })
    }

    pub(super) fn held(&self, id: u64) -> Held {
        Held { checks: self.clone(), id }
    }

    fn push(&self, probe: Probe, name: &str, ask: Ask) -> u64 {
        let mut state = self.0.lock();
        state.added += 1;
        let id = state.added;
        state.checks.push(Check { probe, name: name.into(), ask, id });
        id
    }

    fn remove(&self, id: u64) {
        // What it owns is dropped when nobody waits.
        let removed: Vec<_> = self.0.lock().checks.extract_if(.., |check| check.id == id).collect();
        drop(removed);
    }

    #[cfg(feature = "admin")]
    pub(crate) fn names(&self, probe: Probe) -> Vec<Arc<str>> {
        self.0.lock().checks.iter().filter(|check| check.probe == probe).map(|check| check.name.clone()).collect()
    }

    /// Those that are wanted, by their names, all at once; told in the order in which they were added. The others are not asked.
    pub(crate) async fn ask(&self, probe: Probe, wanted: impl Fn(&str) -> bool) -> Vec<CheckReport> {
        let is_wanted = |check: &&Check| check.probe == probe && wanted(&check.name);
        let checks: Vec<_> = self.0.lock().checks.iter().filter(is_wanted).cloned().collect();
        let report = async |check: Check| {
            let failure = check.ask.answer().await.err();
            CheckReport { name: check.name, failure }
        };
        join_all(checks.into_iter().map(report)).await
    }
}

/// A check that goes with this.
pub(super) struct Held {
    checks: Checks,
    id: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.checks.remove(self.id);
    }
}

/// Holds `/readyz` back until it says otherwise; dropped, nobody asks it any more. Made by
/// [`ManagerHandle::readiness`](super::ManagerHandle::readiness).
#[must_use = "dropped, it is not asked any more"]
pub struct Readiness {
    failure: Arc<Mutex<Option<String>>>,
    _held: Held,
}

impl Readiness {
    pub(super) fn new(checks: &Checks, name: &str) -> Self {
        let failure = Arc::new(Mutex::new(Some("not ready yet".to_owned())));
        let asked = failure.clone();
        let id = checks.add_prompt(Probe::Ready, name, move || asked.lock().clone().map_or(Ok(()), Err));
        Self { failure, _held: checks.held(id) }
    }

    /// It is.
    pub fn ready(&self) {
        *self.failure.lock() = None;
    }

    /// It is not, or not any more.
    pub fn not_ready(&self, why: &str) {
        *self.failure.lock() = Some(why.to_owned());
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness").field("failure", &*self.failure.lock()).finish_non_exhaustive()
    }
}
