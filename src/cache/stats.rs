//! What an informer counts, and what it says of itself.
//!
//! Counting is cheap enough for every event, and reading it costs no walk over objects: a page of all informers can be asked for at any time. Only
//! [`InformerReport::largest`] looks at every object's size, which was told when it came.

use super::{InformerState, OwnWrites, Representation};
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

/// Over how long events per second are told.
const WINDOW: Duration = Duration::from_mins(1);

/// How many of the largest objects are told.
pub(super) const LARGEST: usize = 5;

/// How many objects that readers could not read are remembered.
const MISFITS: usize = 1024;

/// One informer, for debug pages: made by [`Cache::informers`](super::Cache::informers). It serialises to a page that can be read.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct InformerReport {
    /// The kind of its objects.
    #[serde(flatten)]
    pub gvk: GroupVersionKind,
    /// Which of them it keeps, in words; empty if it is all of them.
    pub scope: String,
    /// In what form.
    pub representation: Representation,
    /// How it is.
    #[serde(flatten)]
    pub state: InformerState,
    /// What is in it, and what has happened.
    #[serde(flatten)]
    pub stats: InformerStats,
    /// The objects that take the most memory, the largest first.
    pub largest: Vec<ObjectSize>,
}

/// What is in an informer, and what has happened.
///
/// How far behind the server it is cannot be known: events do not say when they happened. What can be known is how long the server has said nothing,
/// [`since_heard`](Self::since_heard), and how far each handler is behind the informer, [`handlers`](Self::handlers).
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct InformerStats {
    /// How many there are.
    pub objects: usize,
    /// About how much memory they take, without what readers hold. What is kept compact or as metadata is counted; of typed objects some are measured
    /// and the others taken for as large as their messages say.
    pub approximate_bytes: u64,
    /// Changes so far, those of the first list included.
    pub events: u64,
    /// Changes a second, of about the last minute.
    pub events_per_second: f64,
    /// How long ago something last changed.
    #[serde(serialize_with = "seconds")]
    pub since_last_event: Option<Duration>,
    /// How long ago the server last said something: an event, a bookmark, a list, or that it watches. It says something every minute or so where all is
    /// well. Of several namespaces it is the one that was heard of longest ago.
    #[serde(serialize_with = "seconds")]
    pub since_heard: Option<Duration>,
    /// Lists after the first one: each is a gap in what the server could tell, or a watch that it refused with 504 twice in a row.
    pub relists: u64,
    /// Watches after the first one. Servers end one after some minutes.
    pub watch_restarts: u64,
    /// Number of objects whose current version does not decode.
    ///
    /// `get` returns [`Undecodable`](super::CacheError::Undecodable) for each of them. Lists and
    /// views contain the last version that decoded, or omit the object if no version did.
    pub undecoded: usize,
    /// Number of received versions of objects that did not fit the type.
    ///
    /// What is kept compact is not looked at when it comes. It counts when it is read by `get` or `list`, which fail then: once, however often, until it changes; where there
    /// are more than a thousand such objects, some count again. Who decodes what a view shows, or an event tells, has the error, and it does not count.
    pub decode_errors: u64,
    /// The last one, and what to do about it.
    pub last_decode_error: Option<String>,
    /// Objects that an [`Index`](super::Index) left out, each time one came, because they did not fit its type, or its function or its
    /// values panicked.
    pub index_errors: u64,
    /// The last one, and why.
    pub last_index_error: Option<String>,
    /// How it keeps up with what is written through clients that read from it.
    pub own_writes: OwnWrites,
    /// How its handlers, each an [`Events`](super::Events), keep up.
    pub handlers: Vec<HandlerStats>,
}

/// How a handler keeps up with its informer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HandlerStats {
    /// Events it has still to be told, one by one; also of what was there when it came. What a resync tells again is counted shortly before it is told.
    pub behind: usize,
    /// Objects whose events were combined because the handler was behind by more than 4,096 of them. Each is an object in the cache or a deletion.
    pub pending: usize,
    /// Events told, those of the beginning included. It is some events late.
    pub delivered: u64,
    /// Events that were not told as such, because they became one with others.
    pub coalesced: u64,
    /// Objects of `pending` that are deleted. The deletions are kept until they are delivered, so that their memory adds to that of the objects in the cache.
    pub deletions: usize,
    /// Deletions of which only the object's metadata is kept: those beyond the first 4,096. [`Event`](crate::event::Event) describes what that means for a handler.
    pub metadata_only_deletions: usize,
}

/// How much memory an object takes, about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ObjectSize {
    /// The object.
    pub key: ObjectKey,
    /// As measured, not guessed.
    pub approximate_bytes: u64,
}

/// What an informer counts.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) relists: AtomicU64,
    pub(super) watch_restarts: AtomicU64,
    events: AtomicU64,
    recent: Mutex<Option<Recent>>,
}

/// Events decay: one that happened a [`WINDOW`] ago counts for a third, and so on.
#[derive(Clone, Copy)]
struct Recent {
    last: Instant,
    /// A second, at that time.
    rate: f64,
}

impl Tally {
    pub(super) fn happened(&self, events: u64, now: Instant) {
        if events > 0 {
            self.events.fetch_add(events, Relaxed);
            let mut recent = self.recent.lock();
            let before = recent.map_or(0.0, |recent| recent.rate_at(now));
            *recent = Some(Recent { last: now, rate: before + events as f64 / WINDOW.as_secs_f64() });
        }
    }

    /// What is counted here.
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

impl Recent {
    fn rate_at(&self, now: Instant) -> f64 {
        self.rate * (-now.duration_since(self.last).as_secs_f64() / WINDOW.as_secs_f64()).exp()
    }
}

/// How often something went wrong, and what did last.
pub(crate) struct Trouble<E>(Mutex<(u64, Option<E>)>);

impl<E> Default for Trouble<E> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<E: fmt::Display> Trouble<E> {
    pub(crate) fn note(&self, error: E) {
        let mut trouble = self.0.lock();
        trouble.0 += 1;
        trouble.1 = Some(error);
    }

    pub(crate) fn read(&self) -> (u64, Option<String>) {
        let trouble = self.0.lock();
        (trouble.0, trouble.1.as_ref().map(ToString::to_string))
    }
}

/// An object that a reader could not read as what it asked for.
pub(super) struct Misfit {
    pub(super) error: DecodeError,
    /// Of the object.
    version: Option<String>,
}

impl Misfit {
    pub(super) fn new(object: Meta<'_>, error: DecodeError) -> Self {
        Self { error, version: object.resource_version().map(Into::into) }
    }
}

/// Those that are known, in which version.
#[derive(Default)]
pub(super) struct Misfits(Mutex<HashMap<ObjectKey, Option<String>>>);

impl Misfits {
    /// Whether it is one more. If there are very many, all are forgotten: memory counts for more than the number.
    pub(super) fn is_new(&self, Misfit { error, version }: &Misfit) -> bool {
        let mut known = self.0.lock();
        if known.get(error.key()) == Some(version) {
            return false;
        }
        if known.len() >= MISFITS {
            known.clear();
        }
        known.insert(error.key().clone(), version.clone());
        true
    }
}

/// As a number.
#[expect(clippy::ref_option, reason = "serde's signature")]
fn seconds<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_secs_f64()).serialize(serializer)
}

/// As people write it.
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
    async fn events_a_second_are_those_of_about_the_last_minute() {
        let tally = Tally::default();
        let rate = || tally.read().events_per_second;
        assert!(rate() == 0.0 && tally.read().since_last_event.is_none());
        for _ in 0..600 {
            tally.happened(10, Instant::now());
            advance(Duration::from_secs(1)).await;
        }
        assert!((9.5..10.5).contains(&rate()), "{}", rate());
        assert_eq!((tally.read().events, tally.read().since_last_event), (6000, Some(Duration::from_secs(1))));
        advance(Duration::from_mins(10)).await;
        assert!(rate() < 0.01, "{}", rate());
    }

    #[test]
    fn what_cannot_be_read_is_one_more_until_it_is_known_as_it_is() {
        let misfits = Misfits::default();
        let is_new = |name: &str, version: Option<&str>| {
            let (kind, key) = ("Deployment".into(), ObjectKey::new("shop", name));
            let error = DecodeError::OtherType { kind, key };
            misfits.is_new(&Misfit { error, version: version.map(Into::into) })
        };
        let web = [Some("1"), Some("1"), Some("2"), Some("2"), None, None].map(|version| is_new("web", version));
        assert_eq!(web, [true, false, true, false, true, false]);
        for number in 0..3 * MISFITS {
            assert!(is_new(&number.to_string(), None));
        }
        assert!(misfits.0.lock().len() <= MISFITS, "not all of them are remembered");
    }

    /// Pages are read by people and by scripts: what changes here breaks them.
    #[test]
    fn a_report_is_a_page_that_can_be_read() {
        let report = InformerReport {
            gvk: GroupVersionKind::gvk("apps", "v1", "Deployment"),
            scope: "in shop".into(),
            representation: Representation::Compact,
            state: InformerState::Degraded { since: SystemTime::UNIX_EPOCH, error: "forbidden".into() },
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
            largest: vec![ObjectSize { key: ObjectKey::new("shop", "web"), approximate_bytes: 2000 }],
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
        assert_eq!(serde_json::to_value(&report).expect("it is serialised"), page);
        let state = |state| serde_json::to_value(state).expect("it is serialised");
        assert_eq!(state(InformerState::Synced), json!({"state": "synced"}));
    }
}
