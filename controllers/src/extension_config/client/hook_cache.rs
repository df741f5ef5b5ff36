//! Cache of hooks that delay an operation, per object.

use super::ttl_map::TtlMap;
use crate::extension_config::catalog::{Hook, Response, hooks::ResponseStatus};
use parking_lot::Mutex;
use std::{fmt, sync::Arc, time::Duration};
use steersman::object::ObjectKey;
use tokio::time::Instant;

/// Lifetime of an entry.
const TTL: Duration = Duration::from_hours(24);

/// Maximum number of entries.
const CAPACITY: usize = 10_000;

/// Cache of the times before which a blocking hook need not be called again for an object.
///
/// Use it in a reconciler that calls hooks whose responses have `retryAfterSeconds`. An event can
/// cause a reconcile much earlier, which must not call the hook. Clones share the entries. An entry
/// lives for at most 24 hours.
///
/// ```
/// # use steersman_controllers::extension_config::{
/// #     catalog::hooks::{BeforeClusterCreate, BeforeClusterCreateRequest},
/// #     client::{CallError, HookCache, RuntimeClient},
/// # };
/// # use steersman::{object::ObjectKey, workqueue::Outcome};
/// # async fn reconcile(
/// #     hooks: &HookCache,
/// #     runtime: &RuntimeClient,
/// #     cluster: &ObjectKey,
/// #     request: BeforeClusterCreateRequest,
/// # ) -> Result<Outcome, CallError> {
/// if let Some(blocked) = hooks.blocked::<BeforeClusterCreate>(cluster) {
///     return Ok(Outcome::requeue_after(blocked.requeue_after));
/// }
/// let response = runtime.call_all_extensions::<BeforeClusterCreate>(cluster, &request).await?;
/// hooks.record::<BeforeClusterCreate>(cluster, &response);
/// # Ok(Outcome::done())
/// # }
/// ```
#[derive(Clone)]
pub struct HookCache(Arc<Mutex<TtlMap<(&'static str, ObjectKey), Retry>>>);

#[derive(Debug)]
struct Retry {
    at: Instant,
    message: String,
}

/// Answer for a hook that need not be called yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedHook<R> {
    /// Delay after which the hook must be called.
    pub requeue_after: Duration,
    /// Successful response with the recorded message, and with the remaining time as
    /// `retryAfterSeconds`, which is at least 1.
    pub response: R,
}

impl Default for HookCache {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(TtlMap::new(TTL, CAPACITY))))
    }
}

impl HookCache {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records the response of a hook for an object.
    ///
    /// A response without `retryAfterSeconds` removes the entry.
    pub fn record<H: Hook>(&self, object: &ObjectKey, response: &H::Response) {
        let key = (H::NAME, object.clone());
        match u64::try_from(response.retry_after_seconds()) {
            Err(_) | Ok(0) => self.0.lock().remove(&key),
            Ok(seconds) => {
                let retry = Retry {
                    at: Instant::now() + Duration::from_secs(seconds),
                    message: response.message().into(),
                };
                self.0.lock().insert(key, retry);
            }
        }
    }

    /// Returns the recorded response; `None` if the hook must be called now.
    pub fn blocked<H: Hook>(&self, object: &ObjectKey) -> Option<BlockedHook<H::Response>> {
        let entries = self.0.lock();
        let retry = entries.get(&(H::NAME, object.clone()))?;
        let remaining = retry.at.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return None;
        }
        let mut response = H::Response::default();
        response.set_status(ResponseStatus::Success, retry.message.clone());
        // The lifetime of an entry bounds the delay to a day.
        response.set_retry_after_seconds((remaining.as_secs_f64().round() as i32).max(1));
        Some(BlockedHook {
            requeue_after: remaining,
            response,
        })
    }

    /// Removes the entry of a hook for an object.
    pub fn remove<H: Hook>(&self, object: &ObjectKey) {
        self.0.lock().remove(&(H::NAME, object.clone()));
    }
}

impl fmt::Debug for HookCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookCache")
            .field("len", &self.0.lock().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extension_config::catalog::hooks::{
        BeforeClusterCreate, BeforeClusterCreateResponse,
    };
    use tokio::time::advance;

    fn response(retry_after_seconds: i32) -> BeforeClusterCreateResponse {
        BeforeClusterCreateResponse {
            status: ResponseStatus::Success,
            message: "wait for quota".into(),
            retry_after_seconds,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_blocking_hook_is_blocked_until_its_time() {
        let (hooks, cluster) = (HookCache::new(), ObjectKey::new("shop", "web"));
        hooks.record::<BeforeClusterCreate>(&cluster, &response(10));
        advance(Duration::from_millis(9_800)).await;
        let blocked = hooks.blocked::<BeforeClusterCreate>(&cluster);
        let expected = BlockedHook {
            requeue_after: Duration::from_millis(200),
            response: response(1),
        };
        assert_eq!(blocked, Some(expected));
        let other = ObjectKey::new("shop", "other");
        assert_eq!(hooks.blocked::<BeforeClusterCreate>(&other), None);
        advance(Duration::from_millis(200)).await;
        assert_eq!(hooks.blocked::<BeforeClusterCreate>(&cluster), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_without_a_retry_removes_the_entry() {
        let (hooks, cluster) = (HookCache::new(), ObjectKey::new("shop", "web"));
        hooks.record::<BeforeClusterCreate>(&cluster, &response(10));
        hooks.record::<BeforeClusterCreate>(&cluster, &response(0));
        assert_eq!(hooks.blocked::<BeforeClusterCreate>(&cluster), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_remaining_time_is_rounded() {
        let (hooks, cluster) = (HookCache::new(), ObjectKey::new("shop", "web"));
        hooks.record::<BeforeClusterCreate>(&cluster, &response(10));
        advance(Duration::from_millis(4_400)).await;
        let blocked = hooks.blocked::<BeforeClusterCreate>(&cluster);
        assert_eq!(blocked.expect("blocked").response.retry_after_seconds, 6);
    }
}
