//! An informer's core, whatever it keeps: what handles and the cache hold, so that one informer serves readers of several types.

use super::{
    core::{Condition, Core, Counts},
    fan::{self, Cursor, Item},
    ledger::{Fate, Ledger},
    reflect::{Place, Reflector},
    store::{Entry, Indexer, Lookup, Table, Values},
};
use crate::{
    event::Event,
    object::{AnyKind, Body, Meta, Object, ObjectKey, Payload},
};
use kube_client::Client;
use std::{
    any::TypeId,
    future::Future,
    ops::ControlFlow,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

pub(super) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// A namespace, or everything, and where it is.
pub(super) type Places = Vec<(Option<String>, Place)>;

pub(super) trait Informing: Send + Sync {
    /// Of what is kept.
    fn payload_type(&self) -> TypeId;
    fn get(&self, key: &ObjectKey) -> Option<Body>;
    /// Shows the objects of a namespace that all the lookups find, as they are at one moment, until told to stop.
    fn visit(
        &self,
        namespace: Option<&str>,
        lookups: &[Lookup<'_>],
        see: &mut dyn FnMut(&dyn Shown) -> ControlFlow<()>,
    );
    /// How many are there at most, for who keeps what they are shown.
    fn len(&self) -> usize;
    /// A walk over all of them.
    fn heap_bytes(&self) -> usize;
    fn revision(&self) -> u64;
    /// Gives the number of the index.
    fn add_index(&self, indexer: Arc<dyn Indexer<Body>>) -> usize;
    fn remove_index(&self, number: usize);
    fn subscribe(&self) -> Box<dyn Feed>;
    fn condition(&self) -> Condition;
    fn set_condition(&self, condition: Condition);
    fn counts(&self) -> Counts;
    fn is_listed(&self) -> bool;
    /// See [`Core::synced`].
    fn synced(self: Arc<Self>) -> BoxFuture<bool>;
    fn end(&self);
    fn ledger(&self) -> &Arc<Ledger>;
    /// What became of the object with this uid.
    fn fate(&self, key: &ObjectKey, uid: &str) -> Fate;
    /// The loops that keep it up to date: one for each place.
    fn loops(self: Arc<Self>, client: &Client, places: Places, page_size: u32) -> Vec<BoxFuture<()>>;
}

/// An object that a visitor is shown.
pub(super) trait Shown {
    fn key(&self) -> &ObjectKey;
    fn meta(&self) -> Meta<'_>;
    fn body(&self) -> Body;
}

impl<P: Payload> Shown for Entry<P> {
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
}

pub(super) enum Fed {
    Event(Event<AnyKind>),
    InitialDone,
}

impl<P: Payload> Feed for Cursor<P> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Fed>> {
        Cursor::poll_next(self, cx).map(|item| {
            Some(match item? {
                Item::InitialDone => Fed::InitialDone,
                Item::Event(event) => Fed::Event(event.into()),
            })
        })
    }
}

impl<P: Payload> From<fan::Event<P>> for Event {
    fn from(event: fan::Event<P>) -> Self {
        let stored = |entry: Entry<P>| Object::stored(entry.key, entry.object);
        match event {
            fan::Event::Create { object, initial } => Self::Create { object: stored(object), initial },
            fan::Event::Update { old, new } => {
                Self::Update { old: Object::stored(new.key.clone(), old), new: stored(new) }
            }
            fan::Event::Delete { object, state_unknown } => Self::Delete { object: stored(object), state_unknown },
        }
    }
}

/// An index of bodies as one of what is kept.
struct OfBodies(Arc<dyn Indexer<Body>>);

impl<P: Payload> Indexer<Arc<P>> for OfBodies {
    fn values(&self, object: &Arc<P>) -> Values {
        self.0.values(&object.clone().into_body())
    }
    fn table(&self) -> Box<dyn Table> {
        self.0.table()
    }
}

impl<P: Payload> Informing for Core<P> {
    fn payload_type(&self) -> TypeId {
        TypeId::of::<P>()
    }

    fn get(&self, key: &ObjectKey) -> Option<Body> {
        self.store.get(key).map(Payload::into_body)
    }

    fn visit(
        &self,
        namespace: Option<&str>,
        lookups: &[Lookup<'_>],
        see: &mut dyn FnMut(&dyn Shown) -> ControlFlow<()>,
    ) {
        let snapshot = self.store.select(namespace, lookups);
        let _ = snapshot.iter().try_for_each(|entry| see(entry));
    }

    fn len(&self) -> usize {
        self.store.len()
    }

    fn heap_bytes(&self) -> usize {
        self.store.snapshot().iter().map(|entry| entry.object.heap_bytes()).sum()
    }

    fn revision(&self) -> u64 {
        self.store.revision()
    }

    fn add_index(&self, indexer: Arc<dyn Indexer<Body>>) -> usize {
        self.store.add_indexer(Arc::new(OfBodies(indexer)))
    }

    fn remove_index(&self, number: usize) {
        self.store.remove_index(number);
    }

    fn subscribe(&self) -> Box<dyn Feed> {
        Box::new(Core::subscribe(self))
    }

    fn condition(&self) -> Condition {
        Core::condition(self)
    }

    fn set_condition(&self, condition: Condition) {
        Core::set_condition(self, condition);
    }

    fn counts(&self) -> Counts {
        Core::counts(self)
    }

    fn is_listed(&self) -> bool {
        Core::is_listed(self)
    }

    fn synced(self: Arc<Self>) -> BoxFuture<bool> {
        Box::pin(async move { Core::synced(&self).await })
    }

    fn end(&self) {
        Core::end(self);
    }

    fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    fn fate(&self, key: &ObjectKey, uid: &str) -> Fate {
        Core::fate(self, key, uid)
    }

    fn loops(self: Arc<Self>, client: &Client, places: Places, page_size: u32) -> Vec<BoxFuture<()>> {
        let (namespaces, places): (Vec<_>, Vec<_>) = places.into_iter().unzip();
        let parts = self.parts(namespaces).into_iter().zip(places);
        let run = |(part, place)| -> BoxFuture<()> {
            let reflector = Reflector::new(client.clone(), place, part, page_size);
            Box::pin(async { match reflector.run().await {} })
        };
        parts.map(run).collect()
    }
}
