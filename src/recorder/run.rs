//! Writes queued events to the API server.
//!
//! Invariant: one run at a time owns the queue and writes one event after another. A run that waits
//! for another loses no events. Events that are queued at the stop are written within [`DRAIN`] or
//! counted as dropped.

use super::{
    QueuedEvent, Recorder, RecorderOptions, Shared,
    event_key::EventKey,
    series::{Correlator, Series, Step},
    stats::Counters,
};
use crate::{
    client::{Error, Patch},
    object::ObjectKey,
    rate_limit::Permits,
};
use k8s_openapi::{
    api::events::v1::{Event, EventSeries},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube_core::Status;
use serde_json::json;
use std::{future::pending, pin::pin, sync::atomic::Ordering::Relaxed, time::Duration};
use tokio::{
    select,
    sync::{MutexGuard, mpsc},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

/// Time to write queued events after the stop.
pub(super) const DRAIN: Duration = Duration::from_secs(5);

/// Interval at which counted events are written and expired series are removed.
const FLUSH_INTERVAL: Duration = Duration::from_secs(30);

/// Time after the first attempt in which retries start, about that of client-go.
const RETRY_FOR: Duration = Duration::from_mins(2);
/// Longest delay between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// State of the writer between events.
pub(super) struct EventWriter {
    queue: mpsc::Receiver<QueuedEvent>,
    correlator: Correlator,
    limiter: Permits,
    /// Time of the next round; `None` if there are no series.
    next_flush: Option<Instant>,
    /// Whether the last write failed. Further failures are logged at debug level.
    failing: bool,
}

impl Recorder {
    /// Writes events until `stop` resolves, then the queued ones within five seconds.
    ///
    /// One run is active at a time. A second one waits until the first has ended.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) {
        let mut stop = pin!(stop);
        let mut guard = WriterGuard {
            writer: self.0.writer.lock().await,
            counters: &self.0.counters,
            stopping: false,
            drained: false,
        };
        let closing = CancellationToken::new();
        let WriterGuard {
            writer,
            stopping,
            drained: done,
            ..
        } = &mut guard;
        let mut work = pin!(writer.run(&self.0, &closing));
        select! {
            biased;
            () = &mut stop => {}
            () = &mut work => return, // It ends only after the stop.
        }
        *stopping = true;
        closing.cancel();
        *done = timeout(DRAIN, work).await.is_ok();
    }
}

/// Guard of a run.
///
/// On drop after a stop, it counts the events that were not written.
struct WriterGuard<'a> {
    writer: MutexGuard<'a, EventWriter>,
    counters: &'a Counters,
    stopping: bool,
    drained: bool,
}

impl Drop for WriterGuard<'_> {
    fn drop(&mut self) {
        if !self.stopping || self.drained {
            return;
        }
        let mut dropped = 1; // The event that was being written.
        while self.writer.queue.try_recv().is_ok() {
            dropped += 1;
        }
        self.counters.dropped.fetch_add(dropped, Relaxed);
        tracing::warn!(dropped, "recorder stopped before all events were written");
    }
}

impl EventWriter {
    pub(super) fn new(queue: mpsc::Receiver<QueuedEvent>, options: &RecorderOptions) -> Self {
        Self {
            queue,
            correlator: Correlator::new(options),
            limiter: Permits::new(options.overall),
            next_flush: None,
            failing: false,
        }
    }

    async fn run(&mut self, shared: &Shared, closing: &CancellationToken) {
        loop {
            let next_flush = self.next_flush;
            let due = async {
                match next_flush {
                    Some(next_flush) => sleep_until(next_flush).await,
                    None => pending().await,
                }
            };
            select! {
                biased;
                Some(queued) = self.queue.recv() => self.process(shared, queued).await,
                () = closing.cancelled() => break,
                () = due => self.flush(shared).await,
            }
        }
        for event in self.correlator.counted() {
            self.write(shared, &event).await;
        }
    }

    async fn process(&mut self, shared: &Shared, QueuedEvent { event, at }: QueuedEvent) {
        let counters = &shared.counters;
        let step = self.correlator.take(&event, at, Instant::now());
        let repeated = self
            .correlator
            .get(&event)
            .is_some_and(|series| series.count > 1);
        if repeated && step != Step::Limited {
            counters.repeated.fetch_add(1, Relaxed);
        }
        match step {
            Step::Write => self.write(shared, &event).await,
            Step::Deferred => {}
            Step::Limited => {
                counters.limited.fetch_add(1, Relaxed);
                let object = event.regarding.inner();
                tracing::debug!(
                    kind = object.kind,
                    namespace = object.namespace,
                    name = object.name,
                    reason = event.reason,
                    "too many events of object, event dropped"
                );
            }
        }
        while let Some(surplus) = self.correlator.over_limit() {
            if self
                .correlator
                .get(&surplus)
                .is_some_and(|series| series.is_counted())
            {
                self.write(shared, &surplus).await;
            }
            self.correlator.forget(&surplus);
        }
        self.next_flush
            .get_or_insert_with(|| Instant::now() + FLUSH_INTERVAL);
    }

    /// Writes counted events and removes expired series.
    async fn flush(&mut self, shared: &Shared) {
        for event in self.correlator.due(Instant::now()) {
            self.write(shared, &event).await;
        }
        self.correlator.remove_expired(Instant::now());
        self.next_flush = (self.correlator.len() > 0).then(|| Instant::now() + FLUSH_INTERVAL);
    }

    /// Writes a series until the API server accepts or rejects it, or the retries end.
    async fn write(&mut self, shared: &Shared, event: &EventKey) {
        let Some(series) = self.correlator.get(event).cloned() else {
            return;
        };
        self.limiter.acquire().await;
        match send_with_retries(shared, event, &series).await {
            Ok(()) => {
                shared.counters.written.fetch_add(1, Relaxed);
                self.failing = false;
                if let Some(known) = self.correlator.get(event) {
                    known.written = series.count;
                }
            }
            Err(error) => {
                shared.counters.failed.fetch_add(1, Relaxed);
                self.correlator.forget(event);
                let object = event.regarding.inner();
                let (kind, namespace, name) = (&object.kind, &object.namespace, &object.name);
                let (reason, error) = (&event.reason, error.describe());
                if self.failing {
                    tracing::debug!(kind, namespace, name, reason, error, "writing event failed");
                } else {
                    tracing::warn!(kind, namespace, name, reason, error, "writing event failed");
                }
                self.failing = true;
            }
        }
    }
}

async fn send_with_retries(
    shared: &Shared,
    event: &EventKey,
    series: &Series,
) -> Result<(), Error> {
    let started = Instant::now();
    let mut attempts = 0;
    loop {
        let Err(error) = send(shared, event, series).await else {
            return Ok(());
        };
        attempts += 1;
        let backoff = Duration::from_secs(1 << attempts.min(4));
        let delay = error.retry_after().unwrap_or(backoff).min(MAX_PAUSE);
        if !is_retryable(&error) || started.elapsed() + delay > RETRY_FOR {
            return Err(error);
        }
        sleep(delay).await;
    }
}

/// Returns whether a retry may succeed.
fn is_retryable(error: &Error) -> bool {
    let is_busy = |status: &Status| status.code == 429 || status.code >= 500;
    matches!(error, Error::Connection(_))
        || error.is_timeout()
        || error.status().is_some_and(is_busy)
}

async fn send(shared: &Shared, event: &EventKey, series: &Series) -> Result<(), Error> {
    let count = (series.count > 1).then_some((series.count, series.last));
    if let Some((count, last)) = count
        && series.written > 0
    {
        let key = ObjectKey::new(event.namespace(), &series.name);
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let repeated = EventSeries {
            count,
            last_observed_time: MicroTime(last),
        };
        match shared
            .client
            .patch::<Event>(&key, &Patch::Merge(json!({ "series": repeated })))
            .await
        {
            // The API server deletes events after an hour.
            Err(error) if error.is_not_found() => {}
            other => return other.map(drop),
        }
    }
    let event = event.event(&series.name, &shared.reporter, series.first, count);
    match shared.client.create(&event).await {
        // An earlier attempt succeeded, but its response was lost.
        Err(error) if error.is_already_exists() => Ok(()),
        other => other.map(drop),
    }
}
