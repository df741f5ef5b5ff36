//! The workloads. Requests reach the scheduler through an unbounded channel, as a stream is its only entrance; it takes
//! in whatever the channel holds whenever it is polled. All values are nanoseconds per item.

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

/// Every workload that the scheduler can express: it has no workers, priorities or rate limits.
pub(crate) const WORKLOADS: [(&str, Workload); 4] = [
    ("filldrain-1k", |quick| Box::pin(fill_drain(1_000, if quick { 200 } else { 1_000 }))),
    ("filldrain-100k", |quick| Box::pin(fill_drain(100_000, if quick { 2 } else { 10 }))),
    ("dedup-1m", |_| Box::pin(dedup())),
    ("add-after-1m", |_| Box::pin(add_after())),
];

/// As many requests are sent before the scheduler is polled, where the workload does not say how many wait.
const BATCH: usize = 1_000;

/// An object's key, as large as steersman's: `namespace/name` and where it splits.
#[derive(Clone, Hash, PartialEq, Eq)]
struct Key {
    text: Arc<str>,
    split: u32,
}

/// `count` distinct keys like `namespace-042/object-00012345`.
fn keys(count: usize) -> Vec<Key> {
    let key = |number: usize| {
        let namespace = format!("namespace-{:03}", number % 100);
        Key { text: format!("{namespace}/object-{number:08}").into(), split: namespace.len() as u32 }
    };
    (0..count).map(key).collect()
}

fn send(sender: &UnboundedSender<ScheduleRequest<Key>>, key: &Key, delay: Duration) -> Result<()> {
    let request = ScheduleRequest { message: key.clone(), run_at: Instant::now() + delay };
    Ok(sender.unbounded_send(request)?)
}

fn per_item(elapsed: Duration, items: usize) -> f64 {
    elapsed.as_nanos() as f64 / items as f64
}

/// Adds `size` distinct keys, due at once, then takes all of them out; `rounds` times on one scheduler, through which a tenth goes before. Its clock ticks
/// in milliseconds, so that a key due at once waits for the next tick; that is part of the price.
async fn fill_drain(size: usize, rounds: usize) -> Result<f64> {
    let keys = keys(size);
    let (sender, requests) = unbounded();
    let mut scheduler = pin!(scheduler(requests));
    let mut start = Instant::now();
    for round in 0..=rounds {
        let keys = if round == 0 { &keys[..size / 10] } else { &keys };
        for key in keys {
            send(&sender, key, Duration::ZERO)?;
        }
        for _ in keys {
            ensure!(scheduler.next().await.is_some(), "the scheduler ended early");
        }
        if round == 0 {
            start = Instant::now();
        }
    }
    Ok(per_item(start.elapsed(), rounds * size))
}

/// Adds 1000 keys a thousand times each while nobody takes any.
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
    let mut held = 0;
    while held < keys.len() {
        ensure!(scheduler.next().await.is_some(), "the scheduler ended early");
        held += 1;
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

/// Lets the scheduler take in what was sent, and checks that no key is due.
async fn nothing_ready(mut scheduler: Pin<&mut Scheduler<Key, Requests>>) -> Result<()> {
    ensure!(poll!(scheduler.next()).is_pending(), "a key is ready that should not be");
    Ok(())
}

/// Delays between one and two hours in no order, the same every time (a 64-bit linear congruential generator).
fn delays(count: usize) -> Vec<Duration> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_hours(1) + Duration::from_micros((state >> 33) % 3_600_000_000)
    };
    (0..count).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_and_of_the_size_that_is_compared() {
        let keys = keys(1_000);
        assert_eq!(&*keys[42].text, "namespace-042/object-00000042");
        assert_eq!(size_of::<Key>(), 24);
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), 1_000);
    }

    #[test]
    fn delays_lie_between_one_and_two_hours() {
        let hour = Duration::from_hours(1);
        assert!(delays(10_000).iter().all(|delay| (hour..2 * hour).contains(delay)));
    }
}
