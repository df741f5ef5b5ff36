//! Type-erased informer cores.
//!
//! Handles and the registry hold them, so that one informer serves reads of several types.

use super::{
    core::{Condition, Core},
    fanout::{self, Item, ObjectState, Subscription},
    ledger::{Existence, Ledger},
    namespace_cores::NamespaceCores,
    reflector::{Failure, ListWatch, Reflector},
    resync::Periods,
    stats::{DecodeFailure, InformerStats, ObjectSize},
    store::{Entry, Indexer, Lookup, Slot, Snapshot, Table, Values},
};
use crate::{
    client::CountedClient,
    event::Event,
    object::{AnyKind, Body, Decoder, Meta, Object, ObjectKey, Payload, Undecoded},
};
use parking_lot::RwLockReadGuard;
use std::{
    any::Any,
    collections::VecDeque,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::watch;

pub(super) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pub(super) type NamespacesGuard<'a> = RwLockReadGuard<'a, NamespaceCores>;

/// Core of an informer without its representation. Downcast by [`Any`].
pub(super) trait ErasedCore: Any + Send + Sync {
    fn get(&self, key: &ObjectKey) -> Option<Body>;
    /// Returns a snapshot of the objects of a namespace that all lookups find.
    fn select(&self, namespace: Option<&str>, lookups: &[Lookup<'_>]) -> Box<dyn ErasedSnapshot>;
    fn revision(&self) -> u64;
    /// See [`Core::is_namespace_listed`].
    fn is_namespace_listed(&self, namespace: &str) -> bool;
    /// See [`Core::lock_namespaces`].
    fn lock_namespaces(&self) -> NamespacesGuard<'_>;
    /// Adds an index, and returns its number.
    fn add_index(&self, indexer: Arc<dyn Indexer<Body>>) -> usize;
    fn remove_index(&self, number: usize);
    fn subscribe(self: Arc<Self>) -> Box<dyn ErasedSubscription>;
    fn condition(&self) -> Condition;
    fn conditions(&self) -> watch::Receiver<Condition>;
    fn set_condition(&self, condition: Condition);
    /// See [`Core::record_decode_failure`].
    fn record_decode_failure(&self, failure: &DecodeFailure);
    fn stats(&self) -> InformerStats;
    /// Iterates over all objects. See [`Core::largest`].
    fn largest(&self) -> Vec<ObjectSize>;
    /// See [`Core::largest_bytes`].
    fn largest_bytes(&self) -> Option<u64>;
    fn is_listed(&self) -> bool;
    /// See [`Core::synced`].
    fn synced(self: Arc<Self>) -> BoxFuture<bool>;
    /// Waits until the informer is closed.
    fn closed(self: Arc<Self>) -> BoxFuture<()>;
    /// See [`Core::clear`].
    fn clear(&self);
    fn close(&self);
    fn ledger(&self) -> &Arc<Ledger>;
    fn decoder(&self) -> &Decoder;
    /// See [`Core::existence`].
    fn existence(&self, key: &ObjectKey, uid: Option<&str>) -> Existence;
    /// See [`Core::restart`].
    fn restart(&self);
    /// Returns a reflector of a namespace, or of all objects of no other part.
    ///
    /// It ends only if the kind is missing and `list_watch` has no channel to confirm that. See
    /// [`Core::add_namespace`].
    fn reflect_namespace(
        self: Arc<Self>,
        client: &CountedClient,
        namespace: Option<String>,
        list_watch: ListWatch,
        page_size: u32,
    ) -> BoxFuture<Failure>;
    /// Called after the namespace's reflector has ended. See [`Core::remove_namespace`].
    fn remove_namespace(&self, namespace: &str);
    /// See [`Core::namespaces_complete`].
    fn namespaces_complete(&self);
    /// See [`Core::set_namespaces_condition`].
    fn set_namespaces_condition(&self, condition: Condition);
}

/// [`Snapshot`] without its representation.
pub(super) trait ErasedSnapshot: Send + Sync {
    fn len(&self) -> usize;
    fn slots(&self) -> Box<dyn Iterator<Item = (Slot, &dyn ErasedEntry)> + '_>;
    /// See [`Snapshot::only`].
    fn only(self: Box<Self>, slots: Vec<Slot>) -> Box<dyn ErasedSnapshot>;
}

impl<P: Payload> ErasedSnapshot for Snapshot<P> {
    fn len(&self) -> usize {
        Snapshot::len(self)
    }
    fn slots(&self) -> Box<dyn Iterator<Item = (Slot, &dyn ErasedEntry)> + '_> {
        Box::new(Snapshot::slots(self).map(|(slot, entry)| (slot, entry as &dyn ErasedEntry)))
    }
    fn only(self: Box<Self>, slots: Vec<Slot>) -> Box<dyn ErasedSnapshot> {
        Box::new(Snapshot::only(*self, slots.into()))
    }
}

/// [`Entry`] without its representation.
pub(super) trait ErasedEntry: Send + Sync {
    fn key(&self) -> &ObjectKey;
    fn meta(&self) -> Meta<'_>;
    fn body(&self) -> Body;
}

impl<P: Payload> ErasedEntry for Entry<P> {
    fn key(&self) -> &ObjectKey {
        &self.key
    }
    fn meta(&self) -> Meta<'_> {
        self.object.meta()
    }
    fn body(&self) -> Body {
        self.object.clone().into_body()
    }
}

/// Subscription to an informer without its representation.
pub(super) trait ErasedSubscription: Send {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<SubscriptionItem>>;
    /// Schedules an update without a change for every object whose period this is.
    ///
    /// These updates are delivered when no other events are pending.
    fn resync(&mut self, period: Duration, periods: &Periods);
}

pub(super) enum SubscriptionItem {
    Event(Event<AnyKind>),
    InitialDone,
}

struct CoreSubscription<P> {
    subscription: Subscription<P>,
    core: Arc<Core<P>>,
    /// Number of the last undecoded object that was taken.
    seen: u64,
    /// Undecoded objects that were taken and not reported yet.
    undecoded: VecDeque<Arc<Undecoded>>,
    /// Whether the initial objects were delivered and this was not reported yet.
    initial_done: bool,
}

impl<P: Payload> CoreSubscription<P> {
    /// Returns the next undecoded object that was not reported.
    fn next_undecoded(&mut self) -> Option<SubscriptionItem> {
        if self.undecoded.is_empty() {
            self.undecoded
                .extend(self.core.undecoded.since(&mut self.seen));
        }
        let object = Object::undecoded(self.undecoded.pop_front()?);
        Some(SubscriptionItem::Event(Event::Generic { object }))
    }
}

impl<P: Payload> ErasedSubscription for CoreSubscription<P> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<SubscriptionItem>> {
        if let Some(item) = self.next_undecoded() {
            return Poll::Ready(Some(item));
        }
        if mem::take(&mut self.initial_done) {
            return Poll::Ready(Some(SubscriptionItem::InitialDone));
        }
        match self.subscription.poll_next(cx) {
            Poll::Ready(Some(Item::Event(event))) => {
                Poll::Ready(Some(SubscriptionItem::Event(event.into())))
            }
            Poll::Ready(Some(Item::InitialDone)) => {
                // Reported after the undecoded objects of the first list, which are initial as
                // well.
                self.initial_done = true;
                self.poll_next(cx)
            }
            Poll::Ready(None) => Poll::Ready(None),
            // Look once more now that the cursor has the waker, so that none is missed.
            Poll::Pending => self
                .next_undecoded()
                .map_or(Poll::Pending, |item| Poll::Ready(Some(item))),
        }
    }

    fn resync(&mut self, period: Duration, periods: &Periods) {
        self.subscription.resync(period, || {
            let (snapshot, periods) = (self.core.store.snapshot(), periods.clone());
            let has = move |entry: &Entry<P>| *periods.of(entry.key.namespace()) == period;
            (snapshot.len(), snapshot.into_entries().filter(has))
        });
    }
}

impl<P: Payload> From<fanout::Event<P>> for Event {
    fn from(event: fanout::Event<P>) -> Self {
        let object = |key: ObjectKey, state: ObjectState<P>| match state {
            ObjectState::Full(object) => Object::stored(key, object),
            ObjectState::Metadata(metadata) => Object::dropped(key, metadata),
        };
        match event {
            fanout::Event::Create {
                key,
                object: state,
                initial,
            } => Self::Create {
                object: object(key, state),
                initial,
            },
            fanout::Event::Update { key, old, new } => Self::Update {
                old: object(key.clone(), old),
                new: object(key, new),
            },
            fanout::Event::Delete {
                key,
                object: state,
                state_unknown,
            } => Self::Delete {
                object: object(key, state),
                state_unknown,
            },
        }
    }
}

/// Adapter from an indexer of bodies to one of the representation.
struct BodyIndexer(Arc<dyn Indexer<Body>>);

impl<P: Payload> Indexer<Arc<P>> for BodyIndexer {
    fn values(&self, object: &Arc<P>) -> Result<Values, String> {
        self.0.values(&object.clone().into_body())
    }
    fn table(&self) -> Box<dyn Table> {
        self.0.table()
    }
}

impl<P: Payload> ErasedCore for Core<P> {
    fn get(&self, key: &ObjectKey) -> Option<Body> {
        let undecoded = self.undecoded.get(key).map(Body::Undecoded);
        undecoded.or_else(|| self.store.get(key).map(Payload::into_body))
    }

    fn select(&self, namespace: Option<&str>, lookups: &[Lookup<'_>]) -> Box<dyn ErasedSnapshot> {
        Box::new(self.store.select(namespace, lookups))
    }

    fn revision(&self) -> u64 {
        self.store.revision()
    }

    fn is_namespace_listed(&self, namespace: &str) -> bool {
        Core::is_namespace_listed(self, namespace)
    }

    fn lock_namespaces(&self) -> NamespacesGuard<'_> {
        Core::lock_namespaces(self)
    }

    fn add_index(&self, indexer: Arc<dyn Indexer<Body>>) -> usize {
        self.store.add_indexer(Arc::new(BodyIndexer(indexer)))
    }

    fn remove_index(&self, number: usize) {
        self.store.remove_index(number);
    }

    fn subscribe(self: Arc<Self>) -> Box<dyn ErasedSubscription> {
        let subscription = Core::subscribe(&self);
        Box::new(CoreSubscription {
            subscription,
            core: self,
            seen: 0,
            undecoded: VecDeque::new(),
            initial_done: false,
        })
    }

    fn condition(&self) -> Condition {
        Core::condition(self)
    }

    fn conditions(&self) -> watch::Receiver<Condition> {
        Core::conditions(self)
    }

    fn set_condition(&self, condition: Condition) {
        Core::set_condition(self, condition);
    }

    fn record_decode_failure(&self, failure: &DecodeFailure) {
        Core::record_decode_failure(self, failure);
    }

    fn stats(&self) -> InformerStats {
        Core::stats(self)
    }

    fn largest(&self) -> Vec<ObjectSize> {
        Core::largest(self)
    }
    fn largest_bytes(&self) -> Option<u64> {
        Core::largest_bytes(self)
    }

    fn is_listed(&self) -> bool {
        Core::is_listed(self)
    }

    fn synced(self: Arc<Self>) -> BoxFuture<bool> {
        Box::pin(async move { Core::synced(&self).await })
    }

    fn closed(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move { Core::closed(&self).await })
    }

    fn clear(&self) {
        Core::clear(self);
    }

    fn close(&self) {
        Core::close(self);
    }

    fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn existence(&self, key: &ObjectKey, uid: Option<&str>) -> Existence {
        Core::existence(self, key, uid)
    }

    fn restart(&self) {
        Core::restart(self);
    }

    fn reflect_namespace(
        self: Arc<Self>,
        client: &CountedClient,
        namespace: Option<String>,
        list_watch: ListWatch,
        page_size: u32,
    ) -> BoxFuture<Failure> {
        Box::pin(
            Reflector::new(
                client.clone(),
                list_watch,
                Core::add_namespace(&self, namespace),
                page_size,
            )
            .run(),
        )
    }

    fn remove_namespace(&self, namespace: &str) {
        Core::remove_namespace(self, namespace);
    }

    fn namespaces_complete(&self) {
        Core::namespaces_complete(self);
    }

    fn set_namespaces_condition(&self, condition: Condition) {
        Core::set_namespaces_condition(self, condition);
    }
}
