//! Whether this process is alive, and whether it can do its work.
//!
//! What holds: a process is ready when every check says so; a check lives as long as its handle, or for ever if it was given as a function.

use parking_lot::Mutex;
use serde::Serialize;
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

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

impl CheckReport {
    #[cfg(feature = "admin")]
    pub(crate) fn failed(name: &str, why: &str) -> Self {
        Self { name: name.into(), failure: Some(why.to_owned()) }
    }
}

type Ask = dyn Fn() -> Result<(), String> + Send + Sync;

#[derive(Clone)]
struct Check {
    probe: Probe,
    name: Arc<str>,
    ask: Arc<Ask>,
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
    pub(crate) fn add(
        &self,
        probe: Probe,
        name: &str,
        ask: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> u64 {
        let mut state = self.0.lock();
        state.added += 1;
        let id = state.added;
        state.checks.push(Check { probe, name: name.into(), ask: Arc::new(ask), id });
        id
    }

    fn remove(&self, id: u64) {
        self.0.lock().checks.retain(|check| check.id != id);
    }

    /// In the order in which they were added. A check that panics fails.
    pub(crate) fn ask(&self, probe: Probe) -> Vec<CheckReport> {
        let checks: Vec<_> = self.0.lock().checks.iter().filter(|check| check.probe == probe).cloned().collect();
        let report = |check: Check| {
            let said = catch_unwind(AssertUnwindSafe(|| (check.ask)())).unwrap_or_else(|_| Err("panicked".into()));
            CheckReport { name: check.name, failure: said.err() }
        };
        checks.into_iter().map(report).collect()
    }
}

/// Holds `/readyz` back until it says otherwise; dropped, nobody asks it any more. Made by
/// [`ManagerHandle::readiness`](super::ManagerHandle::readiness).
#[must_use = "dropped, it is not asked any more"]
pub struct Readiness {
    checks: Checks,
    id: u64,
    failure: Arc<Mutex<Option<String>>>,
}

impl Readiness {
    pub(super) fn new(checks: &Checks, name: &str) -> Self {
        let failure = Arc::new(Mutex::new(Some("not ready yet".to_owned())));
        let asked = failure.clone();
        let id = checks.add(Probe::Ready, name, move || asked.lock().clone().map_or(Ok(()), Err));
        Self { checks: checks.clone(), id, failure }
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

impl Drop for Readiness {
    fn drop(&mut self) {
        self.checks.remove(self.id);
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness").field("failure", &*self.failure.lock()).finish_non_exhaustive()
    }
}
