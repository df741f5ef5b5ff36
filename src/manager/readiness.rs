//! Health and readiness checks.
//!
//! Invariant: a process is ready if every check passes. A check exists as long as its handle, or
//! forever if it was added as a function. Checks run concurrently, and a caller waits only for
//! those that it asked for.

use super::shared_check::{CheckResult, SharedCheck};
use crate::cache::Cache;
use futures::future::join_all;
use parking_lot::Mutex;
use serde::Serialize;
use std::{fmt, sync::Arc};

/// Endpoint that a check belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Probe {
    /// `/healthz`: the process should be restarted if the check fails.
    Health,
    /// `/readyz`: the process should receive no traffic while the check fails.
    Ready,
}

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// Name of the check.
    pub name: Arc<str>,
    /// Reason of the failure; `None` if the check passes.
    pub failure: Option<String>,
}

/// Implementation of a check.
#[derive(Clone)]
enum CheckFn {
    /// Check of this crate, which neither blocks nor panics.
    Builtin(Arc<dyn Fn() -> CheckResult + Send + Sync>),
    Custom(Arc<SharedCheck>),
}

impl CheckFn {
    async fn run(&self) -> CheckResult {
        match self {
            Self::Builtin(check) => check(),
            Self::Custom(check) => check.run().await,
        }
    }
}

#[derive(Clone)]
struct Check {
    probe: Probe,
    name: Arc<str>,
    function: CheckFn,
    /// Distinguishes checks of the same name.
    id: u64,
}

/// All checks of a manager. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Checks(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    checks: Vec<Check>,
    added: u64,
}

impl Checks {
    /// Adds a check that is never removed.
    pub(super) fn add(
        &self,
        probe: Probe,
        name: &str,
        check: impl Fn() -> CheckResult + Send + Sync + 'static,
    ) {
        self.push(
            probe,
            name,
            CheckFn::Custom(Arc::new(SharedCheck::new(check))),
        );
    }

    /// Adds a check that neither blocks nor panics. Returns its id for [`Self::guard`].
    pub(super) fn add_builtin(
        &self,
        probe: Probe,
        name: &str,
        check: impl Fn() -> CheckResult + Send + Sync + 'static,
    ) -> u64 {
        self.push(probe, name, CheckFn::Builtin(Arc::new(check)))
    }

    /// Adds a check that fails while a required informer of the cache is not synced.
    pub(super) fn add_cache(&self, name: &str, cache: &Cache) -> u64 {
        let cache = cache.clone();
        self.add_builtin(Probe::Ready, name, move || match cache.unsynced() {
            unsynced if unsynced.is_empty() => Ok(()),
            unsynced => Err(format!("informers not synced: {}", unsynced.join(", "))),
        })
    }

    pub(super) fn guard(&self, id: u64) -> CheckGuard {
        CheckGuard {
            checks: self.clone(),
            id,
        }
    }

    fn push(&self, probe: Probe, name: &str, check: CheckFn) -> u64 {
        let mut state = self.0.lock();
        state.added += 1;
        let id = state.added;
        state.checks.push(Check {
            probe,
            name: name.into(),
            function: check,
            id,
        });
        id
    }

    fn remove(&self, id: u64) {
        // The lock is released before the check is dropped, which may run user code.
        let removed: Vec<_> = self
            .0
            .lock()
            .checks
            .extract_if(.., |check| check.id == id)
            .collect();
        drop(removed);
    }

    #[cfg(feature = "admin")]
    pub(crate) fn names(&self, probe: Probe) -> Vec<Arc<str>> {
        self.0
            .lock()
            .checks
            .iter()
            .filter(|check| check.probe == probe)
            .map(|check| check.name.clone())
            .collect()
    }

    /// Runs the checks whose names are `wanted`, concurrently.
    ///
    /// Returns the results in the order in which the checks were added.
    pub(crate) async fn run(
        &self,
        probe: Probe,
        wanted: impl Fn(&str) -> bool,
    ) -> Vec<CheckReport> {
        let is_wanted = |check: &&Check| check.probe == probe && wanted(&check.name);
        let checks: Vec<_> = self
            .0
            .lock()
            .checks
            .iter()
            .filter(is_wanted)
            .cloned()
            .collect();
        let report = async |check: Check| {
            let failure = check.function.run().await.err();
            CheckReport {
                name: check.name,
                failure,
            }
        };
        join_all(checks.into_iter().map(report)).await
    }
}

/// Guard that removes a check when it is dropped.
pub(super) struct CheckGuard {
    checks: Checks,
    id: u64,
}

impl Drop for CheckGuard {
    fn drop(&mut self) {
        self.checks.remove(self.id);
    }
}

/// Handle of a readiness check, which fails until [`Self::ready`] is called.
///
/// Dropping it removes the check. Created by
/// [`ManagerHandle::readiness`](super::ManagerHandle::readiness).
#[must_use = "dropping it removes the check"]
pub struct Readiness {
    failure: Arc<Mutex<Option<String>>>,
    _guard: CheckGuard,
}

impl Readiness {
    pub(super) fn new(checks: &Checks, name: &str) -> Self {
        let failure = Arc::new(Mutex::new(Some("not ready yet".to_owned())));
        let state = failure.clone();
        let id = checks.add_builtin(Probe::Ready, name, move || {
            state.lock().clone().map_or(Ok(()), Err)
        });
        Self {
            failure,
            _guard: checks.guard(id),
        }
    }

    /// Makes the check pass.
    pub fn ready(&self) {
        *self.failure.lock() = None;
    }

    /// Makes the check fail with this reason.
    pub fn not_ready(&self, reason: &str) {
        *self.failure.lock() = Some(reason.to_owned());
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness")
            .field("failure", &*self.failure.lock())
            .finish_non_exhaustive()
    }
}
