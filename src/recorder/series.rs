//! Equal events become one: a series with a count.
//!
//! What holds: an event that was said again within [`SILENCE`] of the last time is counted, never a second object; what is counted is written when its
//! object's bucket allows, at the latest when the series is over. There are no more series than allowed; the longest silent one goes first.

use super::{RecorderOptions, bucket::Buckets, said::Said};
use hashbrown::HashMap;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;
use tokio::time::Instant;

/// After so long a series is over: client-go's.
pub(super) const SILENCE: Duration = Duration::from_mins(6);

/// How many series, and objects, are remembered: client-go's.
const MOST: usize = 4096;

#[derive(Clone, Debug)]
pub(super) struct Series {
    /// Of the event object.
    pub(super) name: String,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) count: u32,
    /// How many the server knows of; 0 if it knows nothing.
    pub(super) written: u32,
    seen: Instant,
}

/// What is to be done about an event.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Write the series.
    Write,
    /// It was counted, and will be written.
    Later,
    /// Too much was said of its object.
    Limited,
}

pub(super) struct Correlator {
    buckets: Buckets,
    series: HashMap<Said, Series>,
    most: usize,
    /// Of the last name given.
    nanos: u64,
}

impl Correlator {
    pub(super) fn new(options: &RecorderOptions) -> Self {
        let buckets = Buckets::new(options.per_object, MOST);
        Self { buckets, series: HashMap::new(), most: MOST, nanos: 0 }
    }

    pub(super) fn take(&mut self, said: &Said, at: Timestamp, now: Instant) -> Step {
        if let Some(series) = self.series.get_mut(said)
            && now.duration_since(series.seen) <= SILENCE
        {
            series.count = series.count.saturating_add(1);
            (series.seen, series.last) = (now, at);
            return if self.buckets.take(&said.regarding, now) { Step::Write } else { Step::Later };
        }
        if !self.buckets.take(&said.regarding, now) {
            return Step::Limited;
        }
        // Two events of one nanosecond are two events.
        let nanos = u64::try_from(at.as_nanosecond()).unwrap_or_default().max(self.nanos + 1);
        self.nanos = nanos;
        let begun = Series { name: said.name(nanos), first: at, last: at, count: 1, written: 0, seen: now };
        self.series.insert(said.clone(), begun);
        Step::Write
    }

    pub(super) fn get(&mut self, said: &Said) -> Option<&mut Series> {
        self.series.get_mut(said)
    }

    /// The server will never know of it: the next such event is a new one.
    pub(super) fn forget(&mut self, said: &Said) {
        self.series.remove(said);
    }

    pub(super) fn len(&self) -> usize {
        self.series.len()
    }

    /// What was counted and can be written now.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Said> {
        let buckets = &mut self.buckets;
        let due =
            self.series.iter().filter(|(_, series)| series.is_counted()).filter(|(said, series)| {
                now.duration_since(series.seen) > SILENCE || buckets.take(&said.regarding, now)
            });
        due.map(|(said, _)| said.clone()).collect()
    }

    /// Everything that was counted and not written.
    pub(super) fn counted(&self) -> Vec<Said> {
        self.series.iter().filter(|(_, series)| series.is_counted()).map(|(said, _)| said.clone()).collect()
    }

    /// Forget what is over.
    pub(super) fn end(&mut self, now: Instant) {
        self.series.retain(|_, series| now.duration_since(series.seen) <= SILENCE);
        self.buckets.forget_full(now);
    }

    /// One too many: to be written, if need be, and forgotten.
    pub(super) fn surplus(&self) -> Option<Said> {
        if self.series.len() <= self.most {
            return None;
        }
        self.series.iter().min_by_key(|(_, series)| series.seen).map(|(said, _)| said.clone())
    }
}

impl Series {
    /// Something that the server does not know.
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

    fn said(note: &str) -> Said {
        let web = Reference::new(&GroupVersionKind::gvk("", "v1", "Pod"), &ObjectKey::new("shop", "web"));
        Said::new(web, None, EventType::Normal, "Scaled", "Scale", note).unwrap()
    }

    fn correlator(burst: u32) -> Correlator {
        let per_object = Rate { burst, every: Duration::from_mins(5) };
        Correlator::new(&RecorderOptions { per_object, ..RecorderOptions::default() })
    }

    impl Correlator {
        fn say(&mut self, note: &str) -> Step {
            let step = self.take(&said(note), Timestamp::UNIX_EPOCH, Instant::now());
            if step == Step::Write {
                let series = self.get(&said(note)).unwrap();
                series.written = series.count;
            }
            step
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_is_said_again_within_six_minutes_is_counted_and_after_that_it_is_new() {
        let mut correlator = correlator(25);
        assert_eq!(correlator.say("x"), Step::Write);
        let name = correlator.get(&said("x")).unwrap().name.clone();
        advance(SILENCE).await;
        assert_eq!(correlator.say("x"), Step::Write);
        let series = correlator.get(&said("x")).unwrap();
        assert_eq!((series.count, &series.name), (2, &name));
        advance(SILENCE + Duration::from_secs(1)).await;
        assert_eq!(correlator.say("x"), Step::Write);
        let series = correlator.get(&said("x")).unwrap();
        assert!(series.count == 1 && series.name != name);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_bucket_does_not_allow_is_dropped_if_new_and_kept_if_counted() {
        let mut correlator = correlator(2);
        assert_eq!([correlator.say("x"), correlator.say("y")], [Step::Write, Step::Write]);
        assert_eq!([correlator.say("z"), correlator.say("x")], [Step::Limited, Step::Later]);
        assert_eq!(correlator.len(), 2);
        assert!(correlator.due(Instant::now()).is_empty());
        assert_eq!(correlator.counted(), [said("x")]);
        advance(Duration::from_mins(5)).await;
        assert_eq!(correlator.due(Instant::now()), [said("x")]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_counted_is_due_when_its_series_is_over() {
        let mut correlator = correlator(1);
        assert_eq!([correlator.say("x"), correlator.say("x")], [Step::Write, Step::Later]);
        // Another event takes what the bucket has meanwhile.
        advance(Duration::from_mins(5)).await;
        assert_eq!(correlator.say("y"), Step::Write);
        assert!(correlator.due(Instant::now()).is_empty());
        advance(Duration::from_secs(61)).await;
        assert_eq!(correlator.due(Instant::now()), [said("x")]);
        correlator.end(Instant::now());
        assert_eq!(correlator.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_series_the_longest_silent_one_goes() {
        let mut correlator = correlator(25);
        correlator.most = 2;
        for note in ["x", "y", "x", "z"] {
            assert_eq!(correlator.surplus(), None);
            correlator.say(note);
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(correlator.surplus(), Some(said("y")));
    }

    #[tokio::test(start_paused = true)]
    async fn two_events_of_one_moment_have_two_names() {
        let mut correlator = correlator(25);
        let [x, y] = ["x", "y"].map(|note| {
            correlator.say(note);
            correlator.get(&said(note)).unwrap().name.clone()
        });
        assert_ne!(x, y);
    }
}
