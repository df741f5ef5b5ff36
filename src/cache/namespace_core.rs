//! Sink of one reflector: updates the store, notifies handlers and waiting reads.
//!
//! Invariant: the revision of a part only decreases with a list. Events that are repeated or late
//! change nothing. A list that is older than the known state shows that the API server was set
//! back, for example by a restore from a backup. Then equal resource versions do not imply equal
//! objects. If the server has reached the known revision again before the list, this cannot be
//! detected: objects whose resource versions were assigned twice stay in the first state until they
//! change.

use super::{
    core::{Condition, Core, Listing},
    fanout::Event,
    ledger::{Observation, ServedReads},
    namespace_cores::NamespaceCores,
    reflector::{Failure, Sink},
    store::{Entry, ListScope},
};
use crate::object::{Decoder, ObjectKey, Payload, Undecodable, Undecoded};
use parking_lot::RwLockUpgradableReadGuard;
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::SystemTime,
};
use tokio::time::Instant;

/// Part of an informer: one namespace, or all objects outside of the other parts.
///
/// Ignores all calls after the part was removed.
pub(crate) struct NamespaceCore<P> {
    pub(super) core: Arc<Core<P>>,
    pub(super) namespace: Option<String>,
}

impl<P: Payload> NamespaceCore<P> {
    /// Moves this part to a revision, and changes the store.
    ///
    /// `change` gets the revision of the informer, which is 0 until all parts are listed, the
    /// parts, and the previous revision of this part, and returns the number of changes. The part's
    /// own revision is updated only after the store shows the change.
    fn apply(
        &self,
        revision: u64,
        is_list: bool,
        change: impl FnOnce(u64, &NamespaceCores, Option<u64>) -> u64,
    ) {
        let now = Instant::now();
        let namespace = self.namespace.as_deref();
        let parts = self.core.namespace_cores.upgradable_read();
        let Some(state) = parts.get(namespace) else {
            return;
        };
        let before = state.revision;
        // A list is the current state, even if the server was restored. Other revisions that are
        // older are late.
        let revision = if is_list {
            revision
        } else {
            before.map_or(revision, |before| before.max(revision))
        };
        let changes = change(
            parts.revision_with(state, revision, self.core.published()),
            &parts,
            before,
        );
        let mut parts = RwLockUpgradableReadGuard::upgrade(parts);
        if let Some(state) = parts.get_mut(namespace) {
            (state.revision, state.last_message) = (Some(revision), Some(now));
        }
        drop(parts);
        self.core.counters.count(changes, now);
    }

    fn update(&self, change: impl FnOnce(&mut Condition)) {
        let mut parts = self.core.namespace_cores.write();
        if let Some(state) = parts.get_mut(self.namespace.as_deref()) {
            change(&mut state.condition);
            self.core.update_condition(&parts);
        }
    }

    /// Notifies reads that wait for own writes.
    ///
    /// If there are any, wakes the handlers first, so that they do not wait for the end of a burst.
    fn observe(&self, revision: u64, known: &Observation<'_>) {
        self.core
            .ledger
            .observe(self.namespace.as_deref(), revision, known, || {
                self.core.fanout.wake();
            });
    }
}

impl<P: Payload> Sink for NamespaceCore<P> {
    type Payload = P;

    fn decoder(&self) -> &Decoder {
        &self.core.decoder
    }

    fn replace(&self, entries: Vec<Entry<P>>, undecoded: Vec<Arc<Undecoded>>, revision: u64) {
        let core = &self.core;
        let mut served_reads = ServedReads::default();
        self.apply(revision, true, |reached, parts, before| {
            // A restarted reflector has no revision of its own, but had the published one.
            let known = before.max(core.published()).unwrap_or_default();
            let listing = match before {
                None if !core.is_listed() => Listing::First,
                // A revision of 0 is a resource version that is not a number.
                _ if (1..known).contains(&revision) => Listing::Restored,
                _ => Listing::Relist,
            };
            let again = before.is_some()
                || parts
                    .get(self.namespace.as_deref())
                    .is_some_and(|part| part.listed_before);
            core.counters.relists.fetch_add(u64::from(again), Relaxed);
            let in_no_other = |key: &ObjectKey| parts.is_rest(key);
            let about = self
                .namespace
                .as_deref()
                .map_or(ListScope::Matching(&in_no_other), ListScope::Namespace);
            let changes = core.replace(about, entries, undecoded, reached, listing);
            // The ledger is updated before the part counts as listed, because another part can
            // publish the sync from then on: a delete that is sent after the sync is not in this
            // list.
            let known = Observation::All(&|key, uid| core.existence(key, uid));
            served_reads =
                core.ledger
                    .observe_without_wake(self.namespace.as_deref(), revision, &known);
            changes
        });
        // Waiting reads are woken after the sync, because they are served only then.
        self.succeeded();
        served_reads.wake(|| core.fanout.wake());
    }

    fn put(&self, entry: Entry<P>, revision: u64) {
        let core = &self.core;
        let (key, object) = (entry.key.clone(), entry.object.clone());
        self.apply(revision, false, |reached, _, before| {
            if object.revision().is_some_and(|new| Some(new) <= before) {
                // A repeated event. The object may have been deleted since.
                return 0;
            }
            core.fanout.write(|publisher| {
                let old = core.store.put(entry.clone(), reached);
                publisher.publish(match old {
                    Some(old) => Event::update(old, entry),
                    None => Event::create(entry, false),
                });
            });
            core.undecoded.remove(&key);
            1
        });
        let meta = object.meta();
        let observation = |uid| Observation::Exists {
            key: &key,
            uid,
            deleting: meta.is_deleting(),
        };
        self.observe(
            revision,
            &meta.uid().map_or(Observation::Other, observation),
        );
    }

    fn put_undecoded(&self, object: Arc<Undecoded>, revision: u64) {
        let core = &self.core;
        self.apply(revision, false, |reached, _, before| {
            let is_late = revision > 0 && Some(revision) <= before;
            if !is_late {
                core.undecoded.put(object.clone());
            }
            core.store.advance(reached);
            0
        });
        let (key, meta) = (object.key(), object.meta());
        let observation = |uid| Observation::Exists {
            key: &key,
            uid,
            deleting: meta.is_deleting(),
        };
        self.observe(
            revision,
            &object.uid().map_or(Observation::Other, observation),
        );
    }

    fn delete(&self, key: &ObjectKey, last: Option<P>, revision: u64) {
        let core = &self.core;
        let uid = last
            .as_ref()
            .and_then(|last| last.meta().uid().map(str::to_owned));
        self.apply(revision, false, |reached, _, _| {
            let stored = core.store.get(key).and_then(|known| known.revision());
            let undecoded = core.undecoded.get(key).and_then(|known| known.revision());
            let known = stored.max(undecoded);
            if known.is_some_and(|known| known > revision && revision > 0) {
                // A repeated event. The object was recreated since.
                return 0;
            }
            let changes = core.fanout.write(|publisher| {
                let Some(mut entry) = core.store.remove(key, reached) else {
                    return 0;
                };
                if let Some(last) = last {
                    entry.object = Arc::new(last);
                }
                publisher.publish(Event::delete(entry, false));
                1
            });
            core.undecoded.remove(key);
            changes
        });
        self.observe(revision, &Observation::Gone(key, uid.as_deref()));
    }

    fn wake_handlers(&self) {
        self.core.fanout.wake();
    }

    fn advance(&self, revision: u64) {
        self.apply(revision, false, |reached, _, _| {
            self.core.store.advance(reached);
            0
        });
        self.observe(revision, &Observation::Other);
    }

    fn report_undecodable(&self, what: &Undecodable) {
        tracing::warn!(
            kind = what.kind,
            namespace = what.key.as_ref().and_then(ObjectKey::namespace),
            name = what.key.as_ref().map(ObjectKey::name),
            resource_version = what.revision,
            error = what.reason(),
            "object does not decode, get returns the error"
        );
        self.core.decode_errors.record(what.to_string());
    }

    fn watch_opened(&self) {
        let mut parts = self.core.namespace_cores.write();
        let Some(part) = parts.get_mut(self.namespace.as_deref()) else {
            return;
        };
        part.last_message = Some(Instant::now());
        if std::mem::replace(&mut part.watched, true) {
            self.core.counters.watch_restarts.fetch_add(1, Relaxed);
        }
    }

    fn succeeded(&self) {
        self.update(|condition| *condition = Condition::Synced);
    }

    fn failed(&self, failure: &Failure) {
        let (error, rejected) = (failure.to_string(), failure.is_rejection());
        self.update(|condition| {
            *condition = match condition {
                Condition::Degraded { since, .. } => Condition::Degraded {
                    since: *since,
                    error,
                    rejected,
                },
                _ => Condition::Degraded {
                    since: SystemTime::now(),
                    error,
                    rejected,
                },
            };
        });
    }
}
