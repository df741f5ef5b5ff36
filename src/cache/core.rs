//! State of one informer: writes objects to the store and notifies handlers.
//!
//! There is one reflector for the whole kind, or one for each namespace. Each reports to its
//! [`NamespaceCore`]. The informer is synced when all parts are synced. The revision that it
//! publishes is the smallest of the parts' revisions, so that the store contains all writes up to
//! it in every namespace. A part that is added later does not count before its first list. When a
//! part is removed, its objects are deleted from the store.
//!
//! Invariant: a change of the store and its publication happen under the fan-out's gate, so that a
//! new subscription sees every object exactly once, before or after the change. An object that does
//! not decode keeps its last good state in the store, if it had one, until it decodes again or is
//! deleted. Meanwhile it is among the [undecoded objects](super::undecoded).

use super::{
    erased::NamespacesGuard,
    fanout::{Event, Fanout, Publisher, Subscription},
    ledger::{Existence, Ledger},
    namespace_core::NamespaceCore,
    namespace_cores::NamespaceCores,
    refcount::race,
    stats::{
        Added, DecodeFailure, DecodeFailures, ErrorCount, EventCounters, InformerStats,
        LARGEST_OBJECTS, ObjectSize,
    },
    store::{Change, Entry, ListScope, Store},
    undecoded::UndecodedObjects,
};
use crate::object::{Decoder, Meta, ObjectKey, Payload, Undecoded};
use hashbrown::HashSet;
use kube_core::TypeMeta;
use parking_lot::{RwLock, RwLockWriteGuard};
use std::{
    cmp::Reverse,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    time::SystemTime,
};
use tokio::{sync::watch, time::Instant};

/// Objects that are measured to find the largest ones.
const MEASURED_CANDIDATES: usize = 64;

/// Condition of an informer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    /// Declared, but its task does not run.
    Idle,
    /// The first list has not completed.
    Starting,
    /// The API server does not serve the kind. `error` also describes when discovery is repeated.
    KindNotFound { error: String },
    /// The store is up to date with the watch.
    Synced,
    /// The informer serves the last known objects and retries.
    ///
    /// `rejected` is set if an immediate retry cannot succeed, so that a lazy read does not wait
    /// for one: the server has rejected the list or watch, the kind is cluster-scoped and declared
    /// for some namespaces, or a panic has ended a reflector of the informer.
    Degraded {
        since: SystemTime,
        error: String,
        rejected: bool,
    },
    /// The informer is closed. This is final.
    Closed,
}

impl Condition {
    /// Returns whether the informer failed, so that optional users stop waiting.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(
            self,
            Self::KindNotFound { .. } | Self::Degraded { .. } | Self::Closed
        )
    }

    /// Returns whether a retry cannot succeed, so that lazy reads stop waiting.
    pub(crate) fn is_rejected(&self) -> bool {
        matches!(
            self,
            Self::KindNotFound { .. } | Self::Degraded { rejected: true, .. } | Self::Closed
        )
    }
}

pub(crate) struct Core<P> {
    pub(crate) store: Store<P>,
    pub(super) undecoded: UndecodedObjects,
    pub(super) fanout: Fanout<P>,
    /// Pending own writes. Notified of every change after the store shows it.
    pub(crate) ledger: Arc<Ledger>,
    pub(super) decoder: Decoder,
    /// State of each part.
    ///
    /// Writers of the store hold an upgradable lock, so that revisions are published in order.
    /// Readers are not blocked, because a write takes as long as the users' index functions.
    pub(super) namespace_cores: RwLock<NamespaceCores>,
    condition: watch::Sender<Condition>,
    /// Whether the first list of every part has completed. Reads are served from then on.
    listed: watch::Sender<bool>,
    /// Copy of `listed` for reads, which must not contend for a lock.
    is_listed: AtomicBool,
    pub(super) counters: EventCounters,
    pub(super) decode_errors: ErrorCount<String>,
    decode_failures: DecodeFailures,
}

impl<P: Payload> Core<P> {
    pub(crate) fn new(decoder: Decoder) -> Self {
        let types = decoder.types().clone();
        Self {
            store: Store::default(),
            undecoded: UndecodedObjects::default(),
            fanout: Fanout::new(Arc::new(move |key, object: &Arc<P>| {
                object.to_metadata(&types, key)
            })),
            ledger: Arc::default(),
            decoder,
            namespace_cores: RwLock::default(),
            condition: watch::Sender::new(Condition::Idle),
            listed: watch::Sender::new(false),
            is_listed: AtomicBool::new(false),
            counters: EventCounters::default(),
            decode_errors: ErrorCount::default(),
            decode_failures: DecodeFailures::default(),
        }
    }

    /// Prepares for new reflectors, which [`add_namespace`](Self::add_namespace) then adds.
    ///
    /// The published revision does not decrease, known objects are not reported as initial again,
    /// and a degraded condition stays until it is resolved.
    pub(crate) fn restart(&self) {
        let start = match self.condition() {
            degraded @ Condition::Degraded { .. } => degraded,
            _ => Condition::Starting,
        };
        let mut parts = self.namespace_cores.write();
        *parts = parts.restarted(start);
    }

    /// Adds a part for a namespace, or for all objects that have no part of their own.
    ///
    /// Replaces an earlier part of the namespace, whose reflector must have ended.
    pub(crate) fn add_namespace(self: &Arc<Self>, namespace: Option<String>) -> NamespaceCore<P> {
        let mut parts = self.namespace_cores.write();
        parts.add(namespace.as_deref());
        self.ledger.join(namespace.as_deref());
        self.update_condition(&parts);
        drop(parts);
        NamespaceCore {
            core: self.clone(),
            namespace,
        }
    }

    /// Removes the part of a namespace, and deletes its objects with an unknown state.
    pub(crate) fn remove_namespace(&self, namespace: &str) {
        let mut parts = self.namespace_cores.write();
        if parts.remove(namespace).is_none() {
            return;
        }
        let parts = RwLockWriteGuard::downgrade_to_upgradable(parts);
        let revision = parts.revision(self.published());
        let changes = self.replace(
            ListScope::Namespace(namespace),
            Vec::new(),
            Vec::new(),
            revision,
            Listing::Relist,
        );
        self.ledger.leave(namespace);
        self.update_condition(&parts);
        drop(parts);
        self.counters.count(changes, Instant::now());
    }

    /// Marks the initial set of parts as complete. The informer is synced once each is listed.
    ///
    /// Deletes objects of earlier parts that were not added again.
    pub(crate) fn namespaces_complete(&self) {
        let mut parts = self.namespace_cores.write();
        parts.set_complete();
        let parts = RwLockWriteGuard::downgrade_to_upgradable(parts);
        let of_none = |key: &ObjectKey| !parts.covers(key);
        let revision = parts.revision(self.published());
        let changes = self.replace(
            ListScope::Matching(&of_none),
            Vec::new(),
            Vec::new(),
            revision,
            Listing::Relist,
        );
        self.ledger.keep(|part| parts.contains(part));
        self.update_condition(&parts);
        drop(parts);
        self.counters.count(changes, Instant::now());
    }

    /// Returns the published revision, if reads are served.
    pub(super) fn published(&self) -> Option<u64> {
        self.is_listed().then(|| self.store.revision())
    }

    /// Subscribes to changes of the condition.
    pub(crate) fn conditions(&self) -> watch::Receiver<Condition> {
        self.condition.subscribe()
    }

    /// Sets the condition of the informer of namespaces that determines the parts.
    pub(crate) fn set_namespaces_condition(&self, condition: Condition) {
        let mut parts = self.namespace_cores.write();
        parts.set_condition(condition);
        self.update_condition(&parts);
    }

    /// Returns whether a namespace is in scope and listed.
    ///
    /// If so, an object that is missing here does not exist on the API server.
    pub(crate) fn is_namespace_listed(&self, namespace: &str) -> bool {
        self.lock_namespaces().is_listed(namespace)
    }

    /// Locks the set of parts: none is added, removed or marked as listed meanwhile.
    ///
    /// The objects of a list are in the store before its part is marked as listed.
    pub(super) fn lock_namespaces(&self) -> NamespacesGuard<'_> {
        self.namespace_cores.read()
    }

    /// Returns the revision of a namespace's part. `None` if it is not in scope or not listed.
    #[cfg(test)]
    pub(crate) fn revision_of(&self, namespace: &str) -> Option<u64> {
        self.namespace_cores.read().revision_of(namespace)
    }

    pub(crate) fn condition(&self) -> Condition {
        self.condition.borrow().clone()
    }

    /// Sets the condition while there are no parts. [`Condition::Closed`] is final.
    pub(crate) fn set_condition(&self, condition: Condition) {
        let mut before = None;
        self.condition.send_if_modified(|current| {
            let changes = *current != condition && *current != Condition::Closed;
            if changes {
                before = Some(std::mem::replace(current, condition.clone()));
            }
            changes
        });
        if let Some(before) = before {
            self.log(&before, &condition);
        }
    }

    /// Logs a change of the condition, once per change and not per retry.
    fn log(&self, before: &Condition, now: &Condition) {
        let TypeMeta { api_version, kind } = &**self.decoder.types();
        match (before, now) {
            (Condition::Degraded { .. }, Condition::Degraded { .. })
            | (Condition::KindNotFound { .. }, Condition::KindNotFound { .. }) => {}
            (_, Condition::Degraded { error, .. }) => {
                tracing::warn!(
                    api_version,
                    kind,
                    error,
                    "list or watch failed, serving last known objects and retrying"
                );
            }
            (_, Condition::KindNotFound { error }) => {
                tracing::info!(
                    api_version,
                    kind,
                    error,
                    "kind not served by API server, informer waits for CRD"
                );
            }
            (Condition::Degraded { .. }, Condition::Starting | Condition::Synced) => {
                tracing::info!(api_version, kind, "informer recovered");
            }
            (Condition::KindNotFound { .. }, Condition::Starting | Condition::Synced) => {
                tracing::info!(
                    api_version,
                    kind,
                    "kind served by API server, informer starts"
                );
            }
            _ => {}
        }
    }

    /// Deletes all objects, because the kind is not served any more. No reflector may run.
    pub(crate) fn clear(&self) {
        let revision = self.store.revision();
        let deleted = self.replace(
            ListScope::Matching(&|_| true),
            Vec::new(),
            Vec::new(),
            revision,
            Listing::Relist,
        );
        self.counters.count(deleted, Instant::now());
        self.ledger.forget();
    }

    /// Closes the informer. Handlers receive the remaining events, and then the end.
    pub(crate) fn close(&self) {
        self.fanout.close();
        self.set_condition(Condition::Closed);
        self.ledger.end();
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed.load(Acquire)
    }

    /// Waits for the first list. Returns `false` if the informer is closed before.
    pub(crate) async fn synced(&self) -> bool {
        let mut listed = self.listed.subscribe();
        // `self` owns the sender, so `wait_for` cannot fail.
        let listed = async { drop(listed.wait_for(|listed| *listed).await) };
        race(listed, self.closed()).await
    }

    pub(crate) async fn closed(&self) {
        let _ = self
            .condition
            .subscribe()
            .wait_for(|condition| *condition == Condition::Closed)
            .await;
    }

    /// Subscribes to the current objects and then to their changes.
    pub(crate) fn subscribe(&self) -> Subscription<P> {
        self.fanout.subscribe(|| {
            let snapshot = self.store.snapshot();
            (snapshot.len(), snapshot.into_entries())
        })
    }

    /// Returns whether the object, by uid if given, exists or is being deleted.
    pub(crate) fn existence(&self, key: &ObjectKey, uid: Option<&str>) -> Existence {
        let existence = |object: Meta<'_>| match object {
            object if uid.is_some() && object.uid() != uid => Existence::Gone,
            object if object.is_deleting() => Existence::Deleting,
            _ => Existence::Exists,
        };
        match self.undecoded.get(key) {
            Some(object) => existence(object.meta()),
            None => self
                .store
                .get(key)
                .map_or(Existence::Gone, |object| existence(object.meta())),
        }
    }

    /// Counts and logs an object that does not decode as the type of a reader, once per version.
    ///
    /// Counts without logging if there are too many to know which are new.
    pub(super) fn record_decode_failure(&self, failure: &DecodeFailure) {
        let added = self.decode_failures.add(failure);
        if added == Added::Known {
            return;
        }
        let error = failure.error.to_string();
        if added == Added::New {
            tracing::warn!(
                kind = self.decoder.types().kind,
                namespace = failure.key.namespace(),
                name = failure.key.name(),
                error,
                "object does not decode as the type of a reader, omitted from its lists"
            );
        }
        self.decode_errors.record(error);
    }

    /// Returns the number of objects that are known not to decode as the type of a reader.
    fn count_decode_failures(&self) -> usize {
        self.decode_failures.count(|key, resource_version| {
            let object = self.store.get(key);
            object.is_some_and(|object| object.meta().resource_version() == resource_version)
        })
    }

    pub(crate) fn stats(&self) -> InformerStats {
        let (decode_errors, last_decode_error) = self.decode_errors.read();
        let (index_errors, last_index_error) = self.store.index_errors.read();
        let last_message = self.namespace_cores.read().last_message();
        InformerStats {
            objects: self.store.len(),
            approximate_bytes: self.store.bytes(),
            since_heard: last_message.map(|at| at.elapsed()),
            undecoded: self.undecoded.len() + self.count_decode_failures(),
            decode_errors,
            last_decode_error,
            index_errors,
            last_index_error,
            handlers: self.fanout.stats(),
            own_writes: self.ledger.stats(),
            ..self.counters.read()
        }
    }

    /// Returns the largest objects. Selects candidates by estimated size, and measures these.
    pub(crate) fn largest(&self) -> Vec<ObjectSize> {
        let snapshot = self.store.snapshot();
        let mut entries: Vec<_> = snapshot.iter().collect();
        if entries.len() > MEASURED_CANDIDATES {
            entries.select_nth_unstable_by_key(MEASURED_CANDIDATES, |entry| Reverse(entry.bytes));
            entries.truncate(MEASURED_CANDIDATES);
        }
        let size = |entry: &Entry<P>| ObjectSize {
            key: entry.key.clone(),
            approximate_bytes: measured(entry),
        };
        let mut largest: Vec<_> = entries.into_iter().map(size).collect();
        largest.sort_by(|a, b| {
            (Reverse(a.approximate_bytes), &a.key).cmp(&(Reverse(b.approximate_bytes), &b.key))
        });
        largest.truncate(LARGEST_OBJECTS);
        largest
    }

    /// Returns the size of the largest object, selected by estimated size and measured.
    pub(crate) fn largest_bytes(&self) -> Option<u64> {
        self.store
            .snapshot()
            .iter()
            .max_by_key(|entry| entry.bytes)
            .map(measured)
    }

    /// Replaces the objects that a list is `about`, and publishes the changes. Returns their
    /// number.
    ///
    /// An object that does not decode keeps its last good state, unless its uid shows that it was
    /// created again.
    pub(super) fn replace(
        &self,
        about: ListScope<'_>,
        entries: Vec<Entry<P>>,
        undecoded: Vec<Arc<Undecoded>>,
        revision: u64,
        listing: Listing,
    ) -> u64 {
        let keys: HashSet<_> = undecoded.iter().map(|object| object.key()).collect();
        let is_known = |one: &&Arc<Undecoded>| {
            self.store
                .get(&one.key())
                .is_some_and(|known| one.may_be(known.meta()))
        };
        let kept: Vec<_> = undecoded
            .iter()
            .filter(is_known)
            .map(|one| one.key())
            .collect();
        let mut is_new = false;
        for object in undecoded {
            is_new |= self.undecoded.put(object);
        }
        let is_same = |old: &P, new: &P| listing != Listing::Restored && is_same(old, new);
        let count = self.fanout.write(|publisher| {
            let changes = self.store.replace(about, entries, &kept, revision, is_same);
            let count = changes.len() as u64;
            let first = listing == Listing::First;
            publisher.publish_all(
                changes
                    .into_iter()
                    .map(|change: Change<P>| Event::listed(change, first)),
            );
            count
        });
        self.undecoded
            .retain(|key| keys.contains(key) || !about.contains(key));
        if is_new {
            self.fanout.wake();
        }
        count
    }

    /// Updates the condition of the informer after a part has changed.
    ///
    /// Invariant: reads are served before any waiter is notified of a sync. Reads may be served
    /// shortly before the condition is [`Condition::Synced`].
    pub(super) fn update_condition(&self, parts: &NamespaceCores) {
        let syncs = parts.are_listed() && !self.is_listed();
        if syncs {
            self.is_listed.store(true, Release);
        }
        self.set_condition(parts.worst().clone());
        if syncs {
            self.fanout.write(|publisher| Publisher::synced(publisher));
            self.listed.send_replace(true);
        }
    }
}

/// Returns the measured size of an object, or the estimated one.
fn measured<P: Payload>(entry: &Entry<P>) -> u64 {
    Decoder::measure(&*entry.object).map_or(entry.bytes.into(), |bytes| bytes as u64)
}

/// Relation of a list to earlier lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    /// The first list. All its objects are initial.
    First,
    Relist,
    /// The list is older than the known state, as after a restore from a backup.
    ///
    /// The API server assigns resource versions a second time, so that objects with equal resource
    /// versions may differ.
    Restored,
}

/// Returns whether two states of an object are equal, by resource version and uid.
///
/// The uid differs if the object was recreated on a server that counts from the start again. Not
/// valid after the server was [restored](Listing::Restored) to an older state.
fn is_same<P: Payload>(old: &P, new: &P) -> bool {
    let (old, new) = (old.meta(), new.meta());
    old.resource_version() == new.resource_version() && old.uid() == new.uid()
}

#[cfg(test)]
mod tests;
