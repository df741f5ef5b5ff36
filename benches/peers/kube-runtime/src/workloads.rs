//! The workloads, in nanoseconds per item.
//!
//! The scheduler takes its requests from a stream, here an unbounded channel. It reads everything
//! in the channel when it is polled.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, ensure};
use futures::{
    StreamExt,
    channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded},
    future::LocalBoxFuture,
    poll,
};
use kube_runtime::scheduler::{ScheduleRequest, Scheduler, scheduler};
use tokio::time::Instant;

type Workload = fn(quick: bool) -> LocalBoxFuture<'static, Result<f64>>;
type Requests = UnboundedReceiver<ScheduleRequest<Key>>;

/// Workloads that the scheduler supports. It has no workers, priorities or rate limits.
pub(crate) const WORKLOADS: [(&str, Workload); 4] = [
    ("filldrain-1k", |quick| {
        Box::pin(fill_drain(1_000, if quick { 200 } else { 1_000 }))
    }),
    ("filldrain-100k", |quick| {
        Box::pin(fill_drain(100_000, if quick { 2 } else { 10 }))
    }),
    ("dedup-1m", |_| Box::pin(dedup())),
    ("add-after-1m", |_| Box::pin(add_after())),
];

/// Requests that are sent between two polls of the scheduler, unless the workload states a number.
const BATCH: usize = 1_000;

/// Key of an object, of the same size as steersman's: `namespace/name` with the offset of the name.
#[derive(Clone, Hash, PartialEq, Eq)]
struct Key {
    text: Arc<str>,
    split: u32,
}

/// Returns `count` distinct keys such as `namespace-042/object-00012345`.
fn keys(count: usize) -> Vec<Key> {
    let key = |number: usize| {
        let namespace = format!("namespace-{:03}", number % 100);
        Key {
            text: format!("{namespace}/object-{number:08}").into(),
            split: namespace.len() as u32,
        }
    };
    (0..count).map(key).collect()
}

fn send(sender: &UnboundedSender<ScheduleRequest<Key>>, key: &Key, delay: Duration) -> Result<()> {
    let request = ScheduleRequest {
        message: key.clone(),
        run_at: Instant::now() + delay,
    };
    Ok(sender.unbounded_send(request)?)
}

fn per_item(elapsed: Duration, items: usize) -> f64 {
    elapsed.as_nanos() as f64 / items as f64
}

/// Adds `size` distinct keys that are due at once, then takes all of them, in `rounds` rounds on
/// one scheduler. A tenth of the keys warms it up.
///
/// The scheduler's clock ticks in milliseconds. A key that is due at once waits for the next tick,
/// which is part of the measured time.
async fn fill_drain(size: usize, rounds: usize) -> Result<f64> {
    let keys = keys(size);
    let (sender, requests) = unbounded();
    let mut scheduler = pin!(scheduler(requests));
    let mut start = Instant::now();
    for round in 0..=rounds {
        let keys = if round == 0 {
            &keys[..size / 10]
        } else {
            &keys
        };
        for key in keys {
            send(&sender, key, Duration::ZERO)?;
        }
        for _ in keys {
            ensure!(
                scheduler.next().await.is_some(),
                "the scheduler ended early"
            );
        }
        if round == 0 {
            start = Instant::now();
        }
    }
    Ok(per_item(start.elapsed(), rounds * size))
}

/// Adds 1000 keys a thousand times each without taking any.
async fn dedup() -> Result<f64> {
    const ROUNDS: usize = 1_000;
    let keys = keys(BATCH);
    let (sender, requests) = unbounded();
    let mut scheduler = pin!(scheduler(requests));
    let start = Instant::now();
    for _ in 0..ROUNDS {
        for key in &keys {
            send(&sender, key, Duration::ZERO)?;
        }
        let taken = poll!(scheduler.as_mut().hold().next());
        ensure!(taken.is_pending(), "a held scheduler handed out a key");
    }
    let elapsed = start.elapsed();
    for _ in &keys {
        ensure!(
            scheduler.next().await.is_some(),
            "the scheduler ended early"
        );
    }
    nothing_ready(scheduler).await?;
    Ok(per_item(elapsed, ROUNDS * keys.len()))
}

/// Adds a million distinct keys due in one to two hours.
async fn add_after() -> Result<f64> {
    let keys = keys(1_000_000);
    let delays = delays(keys.len());
    let (sender, requests) = unbounded();
    let mut scheduler = pin!(scheduler(requests));
    let start = Instant::now();
    for (keys, delays) in keys.chunks(BATCH).zip(delays.chunks(BATCH)) {
        for (key, delay) in keys.iter().zip(delays) {
            send(&sender, key, *delay)?;
        }
        nothing_ready(scheduler.as_mut()).await?;
    }
    Ok(per_item(start.elapsed(), keys.len()))
}

/// Polls the scheduler, so that it reads the channel, and checks that no key is due.
async fn nothing_ready(mut scheduler: Pin<&mut Scheduler<Key, Requests>>) -> Result<()> {
    ensure!(
        poll!(scheduler.next()).is_pending(),
        "a key is ready before it is due"
    );
    Ok(())
}

/// Returns delays between one and two hours from a linear congruential generator with a fixed seed.
fn delays(count: usize) -> Vec<Duration> {
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        Duration::from_hours(1) + Duration::from_micros((state >> 33) % 3_600_000_000)
    };
    (0..count).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_and_have_the_same_size_as_ours() {
        let keys = keys(1_000);
        assert_eq!(&*keys[42].text, "namespace-042/object-00000042");
        assert_eq!(size_of::<Key>(), 24);
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), 1_000);
    }

    #[test]
    fn delays_lie_between_one_and_two_hours() {
        let hour = Duration::from_hours(1);
        assert!(
            delays(10_000)
                .iter()
                .all(|delay| (hour..2 * hour).contains(delay))
        );
    }
}
