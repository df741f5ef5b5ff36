//! Waiting for a condition in a test.

use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Interval between two evaluations of a condition.
const INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `condition` returns a value, and returns it.
///
/// The condition is evaluated every 10 ms on tokio's clock, for 30 s at most. On a paused clock
/// both take no real time. Use it for the effects of a controller: the object that it creates, the
/// status that it writes.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> anyhow::Result<()> {
/// use k8s_openapi::api::core::v1::Namespace;
/// use steersman::{
///     prelude::*,
///     testing::{Env, TestServer, eventually},
/// };
///
/// let client = Client::new(Env::embedded()?.client()?)?;
/// let key = ObjectKey::cluster_scoped("default");
/// let namespace = eventually(async || client.live().get::<Namespace>(&key).await).await?;
/// assert_eq!(namespace.metadata.name.as_deref(), Some("default"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns an error of `condition` at once, if it is one.
///
/// # Panics
/// Panics after 30 s, at the line of the caller.
#[track_caller]
pub fn eventually<T, E>(
    mut condition: impl AsyncFnMut() -> Result<Option<T>, E>,
) -> impl Future<Output = Result<T, E>> {
    let caller = std::panic::Location::caller();
    async move {
        let limit = Duration::from_secs(30);
        let deadline = Instant::now() + limit;
        loop {
            if let Some(value) = condition().await? {
                return Ok(value);
            }
            assert!(
                Instant::now() < deadline,
                "condition at {caller} does not hold after {limit:?}"
            );
            sleep(INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_value_of_the_condition_is_returned_once_there_is_one() {
        let mut calls = 0;
        let value = eventually(async || {
            calls += 1;
            Ok::<_, ()>((calls == 3).then_some("ready"))
        });
        assert_eq!(value.await, Ok("ready"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_of_the_condition_ends_the_wait() {
        let failed: Result<(), _> = eventually(async || Err("forbidden")).await;
        assert_eq!(failed, Err("forbidden"));
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "does not hold after 30s")]
    async fn a_condition_that_never_holds_fails_the_test() {
        let _: Result<(), ()> = eventually(async || Ok(None)).await;
    }
}
