//! Writing again in the same pass, where somebody else was faster: a few times, after a while that grows, from what the server has now.

use super::metrics::Metrics;
use std::{sync::Arc, time::Duration};
use steersman::{client, object::StaticKind, prelude::*, workqueue::Limiter};
use tokio::time::{Instant, sleep};

/// How often, and after how long: twice as long each time, and not all at once.
const RETRIES: u32 = 3;
const FIRST: Duration = Duration::from_millis(100);
const JITTER: f64 = 0.5;

/// `write` it; after a conflict, as the server has it then. One who says when to come back is left alone until then: by the queue, not by a worker.
pub(super) async fn written<K: StaticKind, T, W: Future<Output = client::Result<T>> + Send>(
    client: &Client,
    metrics: &Metrics,
    mut object: Arc<K>,
    write: impl Fn(Arc<K>) -> W,
) -> client::Result<T> {
    let (key, mut attempts) = (ObjectKey::of(&*object), 0);
    let pause = Limiter::exponential(FIRST, FIRST * 2_u32.pow(RETRIES)).jitter(JITTER);
    loop {
        match write(object).await {
            Err(error) if error.is_conflict() && error.retry_after().is_none() && attempts < RETRIES => {
                metrics.retries.inc();
                sleep(pause.delay(&key, attempts, Instant::now())).await;
                attempts += 1;
                object = client.live().get(&key).await?.ok_or(error)?;
            }
            written => return written,
        }
    }
}
