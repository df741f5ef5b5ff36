//! Combines equal events into a series with a count.
//!
//! Invariant: an event that repeats within [`SERIES_EXPIRY`] is counted and does not become a
//! second object. The count is written when the limit of its object allows it, at the latest when
//! the series expires. The number of series is limited; the one that has been silent longest is
//! removed first.

use super::{RecorderOptions, event_key::EventKey, object_limiter::ObjectLimiter};
use hashbrown::HashMap;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;
use tokio::time::Instant;

/// Time after which a series expires, as in client-go.
pub(super) const SERIES_EXPIRY: Duration = Duration::from_mins(6);

/// Largest number of series and of objects, as in client-go.
const MAX_SERIES: usize = 4096;

#[derive(Clone, Debug)]
pub(super) struct Series {
    /// Name of the event object.
    pub(super) name: String,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) count: u32,
    /// Count that the API server has; 0 if the event was not written.
    pub(super) written: u32,
    seen: Instant,
}

/// Decision about an event.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Write the series now.
    Write,
    /// The event was counted and is written later.
    Deferred,
    /// The event is dropped because its object has too many.
    Limited,
}

pub(super) struct Correlator {
    per_object: ObjectLimiter,
    series: HashMap<EventKey, Series>,
    max_series: usize,
    /// Nanoseconds in the last event name.
    nanos: u64,
}

impl Correlator {
    pub(super) fn new(options: &RecorderOptions) -> Self {
        Self {
            per_object: ObjectLimiter::new(options.per_object, MAX_SERIES),
            series: HashMap::new(),
            max_series: MAX_SERIES,
            nanos: 0,
        }
    }

    /// Adds an event to its series, or starts a series.
    pub(super) fn take(&mut self, event: &EventKey, at: Timestamp, now: Instant) -> Step {
        if let Some(series) = self.series.get_mut(event)
            && now.duration_since(series.seen) <= SERIES_EXPIRY
        {
            series.count = series.count.saturating_add(1);
            (series.seen, series.last) = (now, at);
            return if self.per_object.take(&event.regarding) {
                Step::Write
            } else {
                Step::Deferred
            };
        }
        if !self.per_object.take(&event.regarding) {
            return Step::Limited;
        }
        // Two events in the same nanosecond need different names.
        let nanos = u64::try_from(at.as_nanosecond())
            .unwrap_or_default()
            .max(self.nanos + 1);
        self.nanos = nanos;
        let started = Series {
            name: event.name(nanos),
            first: at,
            last: at,
            count: 1,
            written: 0,
            seen: now,
        };
        self.series.insert(event.clone(), started);
        Step::Write
    }

    pub(super) fn get(&mut self, event: &EventKey) -> Option<&mut Series> {
        self.series.get_mut(event)
    }

    /// Removes a series that could not be written.
    ///
    /// The next equal event starts a new one.
    pub(super) fn forget(&mut self, event: &EventKey) {
        self.series.remove(event);
    }

    pub(super) fn len(&self) -> usize {
        self.series.len()
    }

    /// Returns the series with unwritten counts that can be written now.
    pub(super) fn due(&self, now: Instant) -> Vec<EventKey> {
        let due = self
            .series
            .iter()
            .filter(|(_, series)| series.is_counted())
            .filter(|(event, series)| {
                now.duration_since(series.seen) > SERIES_EXPIRY
                    || self.per_object.take(&event.regarding)
            });
        due.map(|(event, _)| event.clone()).collect()
    }

    /// Returns all series with unwritten counts.
    pub(super) fn counted(&self) -> Vec<EventKey> {
        self.series
            .iter()
            .filter(|(_, series)| series.is_counted())
            .map(|(event, _)| event.clone())
            .collect()
    }

    /// Removes expired series.
    pub(super) fn remove_expired(&mut self, now: Instant) {
        self.series
            .retain(|_, series| now.duration_since(series.seen) <= SERIES_EXPIRY);
        self.per_object.forget_replenished();
    }

    /// Returns the oldest series if there are too many.
    ///
    /// The caller writes and removes it.
    pub(super) fn over_limit(&self) -> Option<EventKey> {
        if self.series.len() <= self.max_series {
            return None;
        }
        self.series
            .iter()
            .min_by_key(|(_, series)| series.seen)
            .map(|(event, _)| event.clone())
    }
}

impl Series {
    /// Returns whether the count exceeds what the API server has.
    pub(super) fn is_counted(&self) -> bool {
        self.count > self.written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        object::ObjectKey,
        recorder::{EventType, Rate, Reference},
    };
    use kube_core::GroupVersionKind;
    use tokio::time::advance;

    fn event(note: &str) -> EventKey {
        let web = Reference::new(
            &GroupVersionKind::gvk("", "v1", "Pod"),
            &ObjectKey::new("shop", "web"),
        );
        EventKey::new(web, None, EventType::Normal, "Scaled", "Scale", note).unwrap()
    }

    fn correlator(burst: u32) -> Correlator {
        let per_object = Rate {
            burst,
            every: Duration::from_mins(5),
        };
        Correlator::new(&RecorderOptions {
            per_object,
            ..RecorderOptions::default()
        })
    }

    impl Correlator {
        fn record(&mut self, note: &str) -> Step {
            let step = self.take(&event(note), Timestamp::UNIX_EPOCH, Instant::now());
            if step == Step::Write {
                let series = self.get(&event(note)).unwrap();
                series.written = series.count;
            }
            step
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_repeated_within_six_minutes_is_counted() {
        let mut correlator = correlator(25);
        assert_eq!(correlator.record("x"), Step::Write);
        let name = correlator.get(&event("x")).unwrap().name.clone();
        advance(SERIES_EXPIRY).await;
        assert_eq!(correlator.record("x"), Step::Write);
        let series = correlator.get(&event("x")).unwrap();
        assert_eq!((series.count, &series.name), (2, &name));
        advance(SERIES_EXPIRY + Duration::from_secs(1)).await;
        assert_eq!(correlator.record("x"), Step::Write);
        let series = correlator.get(&event("x")).unwrap();
        assert!(series.count == 1 && series.name != name);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_event_over_the_limit_is_dropped_and_a_repeated_one_deferred() {
        let mut correlator = correlator(2);
        assert_eq!(
            [correlator.record("x"), correlator.record("y")],
            [Step::Write, Step::Write]
        );
        assert_eq!(
            [correlator.record("z"), correlator.record("x")],
            [Step::Limited, Step::Deferred]
        );
        assert_eq!(correlator.len(), 2);
        assert!(correlator.due(Instant::now()).is_empty());
        assert_eq!(correlator.counted(), [event("x")]);
        advance(Duration::from_mins(5)).await;
        assert_eq!(correlator.due(Instant::now()), [event("x")]);
    }

    #[tokio::test(start_paused = true)]
    async fn counted_events_are_due_when_their_series_expires() {
        let mut correlator = correlator(1);
        assert_eq!(
            [correlator.record("x"), correlator.record("x")],
            [Step::Write, Step::Deferred]
        );
        // Another event takes the next permit.
        advance(Duration::from_mins(5)).await;
        assert_eq!(correlator.record("y"), Step::Write);
        assert!(correlator.due(Instant::now()).is_empty());
        advance(Duration::from_secs(61)).await;
        assert_eq!(correlator.due(Instant::now()), [event("x")]);
        correlator.remove_expired(Instant::now());
        assert_eq!(correlator.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_silent_series_is_evicted() {
        let mut correlator = correlator(25);
        correlator.max_series = 2;
        for note in ["x", "y", "x", "z"] {
            assert_eq!(correlator.over_limit(), None);
            correlator.record(note);
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(correlator.over_limit(), Some(event("y")));
    }

    #[tokio::test(start_paused = true)]
    async fn simultaneous_events_have_different_names() {
        let mut correlator = correlator(25);
        let [x, y] = ["x", "y"].map(|note| {
            correlator.record(note);
            correlator.get(&event(note)).unwrap().name.clone()
        });
        assert_ne!(x, y);
    }
}
