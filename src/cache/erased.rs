//! An informer's core, whatever it keeps: what handles and the cache hold, so that one informer serves readers of several types.

use super::{
    core::{Condition, Core},
    fan::{self, Cursor, Item, ObjectState},
    ledger::{Fate, Ledger},
    parts::Parts,
    reflect::{Failure, Place, Reflector},
    resync::Periods,
    stats::{InformerStats, Misfit, ObjectSize},
    store::{Entry, Indexer, Lookup, Slot, Snapshot, Table, Values},
};
use crate::{
    client::Link,
    event::Event,
    object::{AnyKind, Body, Decoder, Meta, Object, ObjectKey, Payload},
};
use parking_lot::RwLockReadGuard;
use std::{
    any::Any,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::watch;

pub(super) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pub(super) type Settled<'a> = RwLockReadGuard<'a, Parts>;

/// An informer that knows what it keeps finds that out by [`Any`].
pub(super) trait Informing: Any + Send + Sync {
    fn get(&self, key: &ObjectKey) -> Option<Body>;
    /// The objects of a namespace that all the lookups find, as they are at one moment.
    fn select(&self, namespace: Option<&str>, lookups: &[Lookup<'_>]) -> Box<dyn Seen>;
    fn revision(&self) -> u64;
    /// See [`Core::knows`].
    fn knows(&self, namespace: &str) -> bool;
    /// See [`Core::settled`].
    fn settled(&self) -> Settled<'_>;
    /// Gives the number of the index.
    fn add_index(&self, indexer: Arc<dyn Indexer<Body>>) -> usize;
    fn remove_index(&self, number: usize);
    fn subscribe(self: Arc<Self>) -> Box<dyn Feed>;
    fn condition(&self) -> Condition;
    fn conditions(&self) -> watch::Receiver<Condition>;
    fn set_condition(&self, condition: Condition);
    /// See [`Core::misfit`].
    fn misfit(&self, misfit: &Misfit);
    fn stats(&self) -> InformerStats;
    /// A walk over all of them.
    fn largest(&self) -> Vec<ObjectSize>;
    /// See [`Core::largest_bytes`].
    fn largest_bytes(&self) -> Option<u64>;
    fn is_listed(&self) -> bool;
    /// See [`Core::synced`].
    fn synced(self: Arc<Self>) -> BoxFuture<bool>;
    /// Until it has ended.
    fn ended(self: Arc<Self>) -> BoxFuture<()>;
    /// See [`Core::clear`].
    fn clear(&self);
    fn end(&self);
    fn ledger(&self) -> &Arc<Ledger>;
    fn decoder(&self) -> &Decoder;
    /// What became of the object with this uid.
    fn fate(&self, key: &ObjectKey, uid: Option<&str>) -> Fate;
    /// See [`Core::begin`].
    fn begin(&self);
    /// The loop that keeps a namespace, or what is in none of them, up to date. It ends only if there is nobody to ask whether there is such a kind. See [`Core::join`].
    fn join(
        self: Arc<Self>,
        client: &Link,
        namespace: Option<String>,
        place: Place,
        page_size: u32,
    ) -> BoxFuture<Failure>;
    /// The loop of this namespace has ended. See [`Core::leave`].
    fn leave(&self, namespace: &str);
    /// See [`Core::all_joined`].
    fn all_joined(&self);
    /// See [`Core::parts_are`].
    fn parts_are(&self, condition: Condition);
}

/// A [`Snapshot`] of whatever.
pub(super) trait Seen: Send + Sync {
    fn len(&self) -> usize;
    fn slots(&self) -> Box<dyn Iterator<Item = (Slot, &dyn Kept)> + '_>;
    /// See [`Snapshot::only`].
    fn only(self: Box<Self>, slots: Vec<Slot>) -> Box<dyn Seen>;
}

impl<P: Payload> Seen for Snapshot<P> {
    fn len(&self) -> usize {
        Snapshot::len(self)
    }
    fn slots(&self) -> Box<dyn Iterator<Item = (Slot, &dyn Kept)> + '_> {
        Box::new(Snapshot::slots(self).map(|(slot, entry)| (slot, entry as &dyn Kept)))
    }
    fn only(self: Box<Self>, slots: Vec<Slot>) -> Box<dyn Seen> {
        Box::new(Snapshot::only(*self, slots.into()))
    }
}

/// An [`Entry`] of whatever.
pub(super) trait Kept: Send + Sync {
    fn key(&self) -> &ObjectKey;
    fn meta(&self) -> Meta<'_>;
    fn body(&self) -> Body;
}

impl<P: Payload> Kept for Entry<P> {
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

/// A handler's place in the events.
pub(super) trait Feed: Send {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Fed>>;
    /// Tell of every object that has this period once more, as an update from itself to itself, when nothing else is to be told.
    fn resync(&mut self, period: Duration, periods: &Periods);
}

pub(super) enum Fed {
    Event(Event<AnyKind>),
    InitialDone,
}

struct Subscribed<P> {
    cursor: Cursor<P>,
    core: Arc<Core<P>>,
}

impl<P: Payload> Feed for Subscribed<P> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Fed>> {
        self.cursor.poll_next(cx).map(|item| {
            Some(match item? {
                Item::InitialDone => Fed::InitialDone,
                Item::Event(event) => Fed::Event(event.into()),
            })
        })
    }

    fn resync(&mut self, period: Duration, periods: &Periods) {
        self.cursor.resync(period, || {
            let (snapshot, periods) = (self.core.store.snapshot(), periods.clone());
            let has = move |entry: &Entry<P>| *periods.of(entry.key.namespace()) == period;
            (snapshot.len(), snapshot.into_entries().filter(has))
        });
    }
}

impl<P: Payload> From<fan::Event<P>> for Event {
    fn from(event: fan::Event<P>) -> Self {
        let object = |key: ObjectKey, state: ObjectState<P>| match state {
            ObjectState::Full(object) => Object::stored(key, object),
            ObjectState::Metadata(metadata) => Object::dropped(key, metadata),
        };
        match event {
            fan::Event::Create { key, object: state, initial } => Self::Create { object: object(key, state), initial },
            fan::Event::Update { key, old, new } => {
                Self::Update { old: object(key.clone(), old), new: object(key, new) }
            }
            fan::Event::Delete { key, object: state, state_unknown } => {
                Self::Delete { object: object(key, state), state_unknown }
            }
        }
    }
}

/// An index of bodies as one of what is kept.
struct OfBodies(Arc<dyn Indexer<Body>>);

impl<P: Payload> Indexer<Arc<P>> for OfBodies {
    fn values(&self, object: &Arc<P>) -> Result<Values, String> {
        self.0.values(&object.clone().into_body())
    }
    fn table(&self) -> Box<dyn Table> {
        self.0.table()
    }
}

impl<P: Payload> Informing for Core<P> {
    fn get(&self, key: &ObjectKey) -> Option<Body> {
        self.store.get(key).map(Payload::into_body)
    }

    fn select(&self, namespace: Option<&str>, lookups: &[Lookup<'_>]) -> Box<dyn Seen> {
        Box::new(self.store.select(namespace, lookups))
    }

    fn revision(&self) -> u64 {
        self.store.revision()
    }

    fn knows(&self, namespace: &str) -> bool {
        Core::knows(self, namespace)
    }

    fn settled(&self) -> Settled<'_> {
        Core::settled(self)
    }

    fn add_index(&self, indexer: Arc<dyn Indexer<Body>>) -> usize {
        self.store.add_indexer(Arc::new(OfBodies(indexer)))
    }

    fn remove_index(&self, number: usize) {
        self.store.remove_index(number);
    }

    fn subscribe(self: Arc<Self>) -> Box<dyn Feed> {
        Box::new(Subscribed { cursor: Core::subscribe(&self), core: self })
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

    fn misfit(&self, misfit: &Misfit) {
        Core::misfit(self, misfit);
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

    fn ended(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move { Core::ended(&self).await })
    }

    fn clear(&self) {
        Core::clear(self);
    }

    fn end(&self) {
        Core::end(self);
    }

    fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn fate(&self, key: &ObjectKey, uid: Option<&str>) -> Fate {
        Core::fate(self, key, uid)
    }

    fn begin(&self) {
        Core::begin(self);
    }

    fn join(
        self: Arc<Self>,
        client: &Link,
        namespace: Option<String>,
        place: Place,
        page_size: u32,
    ) -> BoxFuture<Failure> {
        Box::pin(Reflector::new(client.clone(), place, Core::join(&self, namespace), page_size).run())
    }

    fn leave(&self, namespace: &str) {
        Core::leave(self, namespace);
    }

    fn all_joined(&self) {
        Core::all_joined(self);
    }

    fn parts_are(&self, condition: Condition) {
        Core::parts_are(self, condition);
    }
}
