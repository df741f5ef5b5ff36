//! Retries a write after a conflict, with the current object from the API server.

use super::metrics::Metrics;
use std::{sync::Arc, time::Duration};
use steersman::{client, object::StaticKind, prelude::*, workqueue::Limiter};
use tokio::time::{Instant, sleep};

/// Number of retries, first delay and jitter. The delay doubles with each retry.
const MAX_RETRIES: u32 = 3;
const FIRST_DELAY: Duration = Duration::from_millis(100);
const JITTER: f64 = 0.5;

/// Calls `write`, and repeats it after a conflict with the current object.
///
/// An error with `Retry-After` is returned, so that the queue waits instead of a worker.
pub(super) async fn retry_conflicts<
    K: StaticKind,
    T,
    W: Future<Output = client::Result<T>> + Send,
>(
    client: &Client,
    metrics: &Metrics,
    mut object: Arc<K>,
    write: impl Fn(Arc<K>) -> W,
) -> client::Result<T> {
    let (key, mut attempts) = (ObjectKey::of(&*object), 0);
    let delays =
        Limiter::exponential(FIRST_DELAY, FIRST_DELAY * 2_u32.pow(MAX_RETRIES)).jitter(JITTER);
    loop {
        match write(object).await {
            Err(error)
                if error.is_conflict()
                    && error.retry_after().is_none()
                    && attempts < MAX_RETRIES =>
            {
                metrics.retries.inc();
                sleep(delays.delay(&key, attempts, Instant::now())).await;
                attempts += 1;
                object = client.live().get(&key).await?.ok_or(error)?;
            }
            result => return result,
        }
    }
}
