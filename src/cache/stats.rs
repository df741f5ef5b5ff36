//! Counters and reports of an informer.
//!
//! Counting is cheap enough for every event. Reading the counters does not iterate over the
//! objects, so reports of all informers can be requested at any time. Only
//! [`InformerReport::largest`] looks at the size of every object, which is recorded when the object
//! is received.

use super::{CacheError, InformerState, OwnWrites, Representation};
use crate::object::{DecodeError, Meta, ObjectKey};
use hashbrown::HashMap;
use k8s_openapi::jiff::Timestamp;
use kube_core::GroupVersionKind;
use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, SystemTime},
};
use tokio::time::Instant;

/// Window of the average in [`InformerStats::events_per_second`].
const WINDOW: Duration = Duration::from_mins(1);

/// Number of objects in [`InformerReport::largest`].
pub(super) const LARGEST_OBJECTS: usize = 5;

/// Maximum number of objects that are known not to decode as the type of a reader.
const MAX_DECODE_FAILURES: usize = 1024;

/// Report on one informer, for debug pages.
///
/// Returned by [`Cache::informers`](super::Cache::informers). Serializes to readable JSON.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct InformerReport {
    /// Kind of the objects.
    #[serde(flatten)]
    pub gvk: GroupVersionKind,
    /// Scope of the informer as text. Empty for all objects of the kind.
    pub scope: String,
    /// Representation of the objects in memory.
    pub representation: Representation,
    /// Current state of the informer.
    #[serde(flatten)]
    pub state: InformerState,
    /// Counters of the informer.
    #[serde(flatten)]
    pub stats: InformerStats,
    /// Objects that take the most memory, the largest first.
    pub largest: Vec<ObjectSize>,
}

/// Counters of an informer.
///
/// The lag behind the API server is unknown, because watch events have no timestamp. Use
/// [`since_heard`](Self::since_heard) for the time since the last message of the API server, and
/// [`handlers`](Self::handlers) for the lag of each handler behind the informer.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct InformerStats {
    /// Number of objects in memory.
    pub objects: usize,
    /// Approximate memory of the objects, without copies that readers hold.
    ///
    /// Compact objects and metadata are measured. Of typed objects a sample is measured, and the
    /// size of the others is estimated from their JSON.
    pub approximate_bytes: u64,
    /// Number of changes, including the objects of the first list.
    pub events: u64,
    /// Changes per second, averaged over about the last minute.
    pub events_per_second: f64,
    /// Time since the last change.
    #[serde(serialize_with = "seconds")]
    pub since_last_event: Option<Duration>,
    /// Time since the last message of the API server.
    ///
    /// Messages are events, bookmarks, lists and responses to watch requests. A healthy API server
    /// sends a bookmark about every minute. With several namespaces this is the longest of their
    /// times.
    #[serde(serialize_with = "seconds")]
    pub since_heard: Option<Duration>,
    /// Number of lists after the first one.
    ///
    /// A relist follows a gap in the watch, or a watch request that failed twice in a row with 504.
    pub relists: u64,
    /// Number of watches after the first one. API servers end a watch after some minutes.
    pub watch_restarts: u64,
    /// Number of objects whose current version does not decode.
    ///
    /// `get` returns [`Undecodable`](super::CacheError::Undecodable) for each of them. Lists and
    /// views contain the last version that decoded, or omit the object if no version did.
    ///
    /// A compact informer decodes objects when they are read. There, an object counts after `get`
    /// or `list` failed to decode it as the type of the reader; at most 1,024 objects do. Lists
    /// omit it.
    pub undecoded: usize,
    /// Number of received versions of objects that did not decode.
    ///
    /// In a compact informer, a version counts when `get` or `list` first fails to decode it. If
    /// there are more than 1,024 such objects, the others count at each read and are not logged. An
    /// error of `decode` on an object of a view or an event does not count.
    pub decode_errors: u64,
    /// Last decode error, with the suggested fix.
    pub last_decode_error: Option<String>,
    /// Number of received objects that an [`Index`](super::Index) omits.
    ///
    /// An index omits an object that does not decode as its type, and one for which the index
    /// function, or hashing or comparing its values, panics.
    pub index_errors: u64,
    /// Last index error.
    pub last_index_error: Option<String>,
    /// Counters of the writes by clients that read from this informer.
    pub own_writes: OwnWrites,
    /// Counters of each handler. A handler is an [`Events`](super::Events).
    pub handlers: Vec<HandlerStats>,
}

/// Counters of one handler of an informer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HandlerStats {
    /// Number of events that wait for the handler, including the initial objects.
    ///
    /// Events of a resync are counted shortly before they are delivered.
    pub behind: usize,
    /// Number of objects whose events were combined.
    ///
    /// Events are combined while the handler is behind by more than 4,096 of them. Each of the
    /// objects is in the cache or deleted.
    pub pending: usize,
    /// Number of delivered events, including the initial objects. Updated once per batch.
    pub delivered: u64,
    /// Number of events that were merged into other events.
    pub coalesced: u64,
    /// Number of deleted objects in `pending`.
    ///
    /// The deletions are kept until they are delivered, so their memory adds to that of the objects
    /// in the cache.
    pub deletions: usize,
    /// Number of deletions that have only the metadata of their object.
    ///
    /// These are the deletions beyond the first 4,096. [`Event`](crate::event::Event) describes
    /// what that means for a handler.
    pub metadata_only_deletions: usize,
}

/// Approximate size of an object in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ObjectSize {
    /// Key of the object.
    pub key: ObjectKey,
    /// Measured size, not an estimate.
    pub approximate_bytes: u64,
}

/// Counters of the events of an informer.
#[derive(Default)]
pub(super) struct EventCounters {
    pub(super) relists: AtomicU64,
    pub(super) watch_restarts: AtomicU64,
    events: AtomicU64,
    recent: Mutex<Option<EventRate>>,
}

/// Exponentially decaying event rate with [`WINDOW`] as the time constant.
#[derive(Clone, Copy)]
struct EventRate {
    last: Instant,
    /// Events per second at `last`.
    rate: f64,
}

impl EventCounters {
    pub(super) fn count(&self, events: u64, now: Instant) {
        if events > 0 {
            self.events.fetch_add(events, Relaxed);
            let mut recent = self.recent.lock();
            let before = recent.map_or(0.0, |recent| recent.rate_at(now));
            *recent = Some(EventRate {
                last: now,
                rate: before + events as f64 / WINDOW.as_secs_f64(),
            });
        }
    }

    /// Returns the counters of this tally. The other fields have their defaults.
    pub(super) fn read(&self) -> InformerStats {
        let recent = *self.recent.lock();
        InformerStats {
            events: self.events.load(Relaxed),
            events_per_second: recent.map_or(0.0, |recent| recent.rate_at(Instant::now())),
            since_last_event: recent.map(|recent| recent.last.elapsed()),
            relists: self.relists.load(Relaxed),
            watch_restarts: self.watch_restarts.load(Relaxed),
            ..InformerStats::default()
        }
    }
}

impl EventRate {
    fn rate_at(&self, now: Instant) -> f64 {
        self.rate * (-now.duration_since(self.last).as_secs_f64() / WINDOW.as_secs_f64()).exp()
    }
}

/// Number of errors, and the last one.
pub(crate) struct ErrorCount<E>(Mutex<(u64, Option<E>)>);

impl<E> Default for ErrorCount<E> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<E: fmt::Display> ErrorCount<E> {
    pub(crate) fn record(&self, error: E) {
        let mut errors = self.0.lock();
        errors.0 += 1;
        errors.1 = Some(error);
    }

    pub(crate) fn read(&self) -> (u64, Option<String>) {
        let errors = self.0.lock();
        (errors.0, errors.1.as_ref().map(ToString::to_string))
    }
}

/// An object that does not decode as the type of a reader.
pub(super) struct DecodeFailure {
    pub(super) key: ObjectKey,
    pub(super) error: CacheError,
    resource_version: Option<String>,
}

impl DecodeFailure {
    pub(super) fn new(object: Meta<'_>, error: DecodeError) -> Self {
        Self {
            key: error.key().clone(),
            error: error.into(),
            resource_version: object.resource_version().map(Into::into),
        }
    }
}

/// Result of [`DecodeFailures::add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The version is new.
    New,
    /// The version was added before.
    Known,
    /// The version is unknown, and there is no space for it.
    Full,
}

/// Objects that are known not to decode as the type of a reader, with their resource versions.
#[derive(Default)]
pub(super) struct DecodeFailures(Mutex<HashMap<ObjectKey, Option<String>>>);

impl DecodeFailures {
    /// Adds an object.
    pub(super) fn add(&self, failure: &DecodeFailure) -> Added {
        let mut known = self.0.lock();
        let is_full = known.len() >= MAX_DECODE_FAILURES;
        match known.get_mut(&failure.key) {
            Some(version) if *version == failure.resource_version => return Added::Known,
            Some(version) => version.clone_from(&failure.resource_version),
            None if is_full => return Added::Full,
            None => {
                known.insert(failure.key.clone(), failure.resource_version.clone());
            }
        }
        Added::New
    }

    /// Returns the number of objects, without those that `is_current` rejects: they have changed.
    pub(super) fn count(&self, is_current: impl Fn(&ObjectKey, Option<&str>) -> bool) -> usize {
        let mut known = self.0.lock();
        known.retain(|key, resource_version| is_current(key, resource_version.as_deref()));
        known.len()
    }
}

/// Serializes a duration as seconds.
#[expect(clippy::ref_option, reason = "serde's signature")]
fn seconds<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration
        .map(|duration| duration.as_secs_f64())
        .serialize(serializer)
}

/// Serializes a time in RFC 3339 format, in whole seconds.
pub(super) fn rfc3339<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let time = Timestamp::try_from(*time).map_err(serde::ser::Error::custom)?;
    serializer.collect_str(&format_args!("{time:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn events_per_second_average_the_last_minute() {
        let tally = EventCounters::default();
        let rate = || tally.read().events_per_second;
        assert!(rate() == 0.0 && tally.read().since_last_event.is_none());
        for _ in 0..600 {
            tally.count(10, Instant::now());
            advance(Duration::from_secs(1)).await;
        }
        assert!((9.5..10.5).contains(&rate()), "{}", rate());
        assert_eq!(
            (tally.read().events, tally.read().since_last_event),
            (6000, Some(Duration::from_secs(1)))
        );
        advance(Duration::from_mins(10)).await;
        assert!(rate() < 0.01, "{}", rate());
    }

    #[test]
    fn an_object_that_does_not_decode_is_new_once_per_version_and_until_there_are_too_many() {
        let failures = DecodeFailures::default();
        let add = |name: &str, version: Option<&str>| {
            let (kind, key) = ("Deployment".into(), ObjectKey::new("shop", name));
            let error = DecodeError::OtherType { kind, key };
            failures.add(&DecodeFailure {
                key: error.key().clone(),
                error: error.into(),
                resource_version: version.map(Into::into),
            })
        };
        let web = [Some("1"), Some("1"), Some("2"), Some("2"), None, None]
            .map(|version| add("web", version));
        let (new, known) = (Added::New, Added::Known);
        assert_eq!(web, [new, known, new, known, new, known]);
        let list = || -> Vec<_> {
            let names = (1..3 * MAX_DECODE_FAILURES).map(|number| number.to_string());
            names.map(|name| add(&name, None)).collect()
        };
        let (first, second) = (list(), list());
        let (added, others) = first.split_at(MAX_DECODE_FAILURES - 1);
        assert!(added.iter().all(|added| *added == Added::New));
        assert!(others.iter().all(|added| *added == Added::Full));
        let (added, others) = second.split_at(MAX_DECODE_FAILURES - 1);
        assert!(added.iter().all(|added| *added == Added::Known));
        assert!(others.iter().all(|added| *added == Added::Full));
        assert_eq!(add("1", Some("2")), Added::New, "a known object changed");
        failures.count(|key, _| key.name() != "1");
        assert_eq!(add("other", None), Added::New, "there is space again");
    }

    /// People and scripts read this JSON. A change of it is a breaking change.
    #[test]
    fn an_informer_report_serializes_to_stable_json() {
        let report = InformerReport {
            gvk: GroupVersionKind::gvk("apps", "v1", "Deployment"),
            scope: "in shop".into(),
            representation: Representation::Compact,
            state: InformerState::Degraded {
                since: SystemTime::UNIX_EPOCH,
                error: "forbidden".into(),
            },
            stats: InformerStats {
                objects: 2,
                approximate_bytes: 3000,
                events: 7,
                events_per_second: 0.5,
                since_last_event: Some(Duration::from_millis(1500)),
                since_heard: None,
                relists: 1,
                watch_restarts: 3,
                undecoded: 1,
                decode_errors: 1,
                last_decode_error: Some("Deployment shop/web is left out".into()),
                index_errors: 0,
                last_index_error: None,
                own_writes: OwnWrites::default(),
                handlers: vec![HandlerStats {
                    behind: 1,
                    pending: 3,
                    delivered: 6,
                    coalesced: 0,
                    deletions: 2,
                    metadata_only_deletions: 1,
                }],
            },
            largest: vec![ObjectSize {
                key: ObjectKey::new("shop", "web"),
                approximate_bytes: 2000,
            }],
        };
        let page = json!({
            "group": "apps", "version": "v1", "kind": "Deployment",
            "scope": "in shop",
            "representation": "compact",
            "state": "degraded", "since": "1970-01-01T00:00:00Z", "error": "forbidden",
            "objects": 2,
            "approximate_bytes": 3000,
            "events": 7,
            "events_per_second": 0.5,
            "since_last_event": 1.5,
            "since_heard": null,
            "relists": 1,
            "watch_restarts": 3,
            "undecoded": 1,
            "decode_errors": 1,
            "last_decode_error": "Deployment shop/web is left out",
            "index_errors": 0,
            "last_index_error": null,
            "own_writes": {
                "pending": 0, "writes": 0, "waits": 0, "timeouts": 0, "last_lag": 0.0, "longest_lag": 0.0,
            },
            "handlers": [{
                "behind": 1, "pending": 3, "delivered": 6, "coalesced": 0, "deletions": 2, "metadata_only_deletions": 1,
            }],
            "largest": [{"key": "shop/web", "approximate_bytes": 2000}],
        });
        assert_eq!(serde_json::to_value(&report).expect("valid JSON"), page);
        let state = |state| serde_json::to_value(state).expect("valid JSON");
        assert_eq!(state(InformerState::Synced), json!({"state": "synced"}));
    }
}
