//! From the queue to the server.
//!
//! What holds: one run at a time is at the desk, and writes one event after the other; whoever waits for it loses nothing. What is in the queue when it is
//! told to stop is written within [`DRAIN`], or counted as dropped.

use super::{
    Heard, Recorder, RecorderOptions, Shared,
    bucket::Bucket,
    said::Said,
    series::{Correlator, Series, Step},
    stats::Counters,
};
use crate::{
    client::{Error, Patch},
    object::ObjectKey,
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

/// How long what is queued may take to be written when it is told to stop.
pub(super) const DRAIN: Duration = Duration::from_secs(5);

/// How often it is looked after what was counted and what is over.
const ROUND: Duration = Duration::from_secs(30);

/// How often a server that cannot be asked is asked, and how long it is waited for at most each time: client-go's two minutes in all, about.
const TRIES: u32 = 14;
const PAUSE: Duration = Duration::from_secs(10);

/// What is known between events.
pub(super) struct Desk {
    inbox: mpsc::Receiver<Heard>,
    correlator: Correlator,
    /// Of all objects; `None` before the first.
    overall: Option<Bucket>,
    /// When to look after the series; `None` if there are none.
    round: Option<Instant>,
    /// The last write has failed: the next one to do so is no news.
    fails: bool,
}

impl Recorder {
    /// Write events until `stop` resolves; then what was said before, within five seconds. Run it once at a time; a second one waits for its turn.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) {
        let mut stop = pin!(stop);
        let mut sits = Sits { desk: self.0.desk.lock().await, counters: &self.0.counters, told: false, done: false };
        let closing = CancellationToken::new();
        let Sits { desk, told, done, .. } = &mut sits;
        let mut work = pin!(desk.work(&self.0, &closing));
        select! {
            biased;
            () = &mut stop => {}
            () = &mut work => return, // It ends only when told.
        }
        *told = true;
        closing.cancel();
        *done = timeout(DRAIN, work).await.is_ok();
    }
}

/// One who sits at the desk. What is left when it goes after it was told to is counted, also if it was not given the time.
struct Sits<'a> {
    desk: MutexGuard<'a, Desk>,
    counters: &'a Counters,
    told: bool,
    done: bool,
}

impl Drop for Sits<'_> {
    fn drop(&mut self) {
        if !self.told || self.done {
            return;
        }
        let mut dropped = 1; // What was at the desk.
        while self.desk.inbox.try_recv().is_ok() {
            dropped += 1;
        }
        self.counters.dropped.fetch_add(dropped, Relaxed);
        tracing::warn!(dropped, "not all events were written before the end");
    }
}

impl Desk {
    pub(super) fn new(inbox: mpsc::Receiver<Heard>, options: &RecorderOptions) -> Self {
        Self { inbox, correlator: Correlator::new(options), overall: None, round: None, fails: false }
    }

    async fn work(&mut self, shared: &Shared, closing: &CancellationToken) {
        loop {
            let round = self.round;
            let due = async {
                match round {
                    Some(round) => sleep_until(round).await,
                    None => pending().await,
                }
            };
            select! {
                biased;
                Some(heard) = self.inbox.recv() => self.hear(shared, heard).await,
                () = closing.cancelled() => break,
                () = due => self.make_a_round(shared).await,
            }
        }
        for said in self.correlator.counted() {
            self.write(shared, &said).await;
        }
    }

    async fn hear(&mut self, shared: &Shared, Heard { said, at }: Heard) {
        let counters = &shared.counters;
        let step = self.correlator.take(&said, at, Instant::now());
        let repeated = self.correlator.get(&said).is_some_and(|series| series.count > 1);
        if repeated && step != Step::Limited {
            counters.repeated.fetch_add(1, Relaxed);
        }
        match step {
            Step::Write => self.write(shared, &said).await,
            Step::Later => {}
            Step::Limited => {
                counters.limited.fetch_add(1, Relaxed);
                tracing::debug!(regarding = %said.regarding.key(), reason = said.reason, "too many events of this object");
            }
        }
        while let Some(surplus) = self.correlator.surplus() {
            if self.correlator.get(&surplus).is_some_and(|series| series.is_counted()) {
                self.write(shared, &surplus).await;
            }
            self.correlator.forget(&surplus);
        }
        self.round.get_or_insert_with(|| Instant::now() + ROUND);
    }

    /// Write what was counted, and forget what is over.
    async fn make_a_round(&mut self, shared: &Shared) {
        for said in self.correlator.due(Instant::now()) {
            self.write(shared, &said).await;
        }
        self.correlator.end(Instant::now());
        self.round = (self.correlator.len() > 0).then(|| Instant::now() + ROUND);
    }

    /// Until the server has it, refuses it, or could not be asked for too long.
    async fn write(&mut self, shared: &Shared, said: &Said) {
        let Some(series) = self.correlator.get(said).cloned() else { return };
        self.permit(shared).await;
        match try_often(shared, said, &series).await {
            Ok(()) => {
                shared.counters.written.fetch_add(1, Relaxed);
                self.fails = false;
                if let Some(known) = self.correlator.get(said) {
                    known.written = series.count;
                }
            }
            Err(error) => {
                shared.counters.failed.fetch_add(1, Relaxed);
                self.correlator.forget(said);
                let regarding = said.regarding.key();
                if self.fails {
                    tracing::debug!(%regarding, reason = said.reason, error = error.describe(), "an event was not written");
                } else {
                    tracing::warn!(%regarding, reason = said.reason, error = error.describe(), "an event was not written");
                }
                self.fails = true;
            }
        }
    }

    async fn permit(&mut self, shared: &Shared) {
        let rate = shared.options.overall;
        let bucket = self.overall.get_or_insert_with(|| Bucket::full(rate, Instant::now()));
        while let Err(wait) = bucket.take(rate, Instant::now()) {
            sleep(wait).await;
        }
    }
}

async fn try_often(shared: &Shared, said: &Said, series: &Series) -> Result<(), Error> {
    let mut tried = 0;
    loop {
        let Err(error) = send(shared, said, series).await else { return Ok(()) };
        tried += 1;
        if tried == TRIES || !may_pass(&error) {
            return Err(error);
        }
        let pause = Duration::from_secs(1 << tried.min(4)).min(PAUSE);
        sleep(error.retry_after().map_or(pause, |asked| asked.min(PAUSE))).await;
    }
}

/// Whether another try can end otherwise.
fn may_pass(error: &Error) -> bool {
    let is_busy = |status: &Status| status.code == 429 || status.code >= 500;
    matches!(error, Error::Connection(_)) || error.is_timeout() || error.status().is_some_and(is_busy)
}

async fn send(shared: &Shared, said: &Said, series: &Series) -> Result<(), Error> {
    let count = (series.count > 1).then_some((series.count, series.last));
    if let Some((count, last)) = count
        && series.written > 0
    {
        let key = ObjectKey::new(said.namespace(), &series.name);
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let repeated = EventSeries { count, last_observed_time: MicroTime(last) };
        match shared.client.patch::<Event>(&key, &Patch::Merge(json!({ "series": repeated }))).await {
            // The server forgets events after an hour.
            Err(error) if error.is_not_found() => {}
            other => return other.map(drop),
        }
    }
    let event = said.event(&series.name, &shared.reporter, series.first, count);
    match shared.client.create(&event).await {
        // The answer to an earlier try was lost.
        Err(error) if error.is_already_exists() => Ok(()),
        other => other.map(drop),
    }
}
