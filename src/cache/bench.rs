//! What the benches need and nobody else: an informer that is fed by hand with objects that are decoded already, so that what is measured is the
//! store and its handlers, and neither a server nor a decoder. Feature `bench-internals`; no part of the API.

use super::{
    Informer,
    core::{Condition, Core},
    life::{Lease, Life, Need},
    part::Part,
    reflect::Sink,
    registry::WeakCache,
    scope::Scope,
    store::Entry,
};
use crate::object::{Compact, Decoder, MetadataOnly, Payload, StaticKind};
use kube_core::TypeMeta;
use std::sync::Arc;

/// Where the objects come from. Reading is done by the [`Informer`] that came with it.
pub trait Feed: Send + Sync + 'static {
    /// A decoded object. A clone is the same one: who holds it frees it, and not who is measured.
    type Object: Clone + Send + 'static;

    /// From JSON.
    fn decode(&self, json: &[u8]) -> Self::Object;
    /// What a list does.
    fn all(&self, objects: Vec<Self::Object>, revision: u64);
    /// What a watch event does: store and handlers.
    fn put(&self, object: Self::Object, revision: u64);
    /// The store alone.
    fn store(&self, object: Self::Object, revision: u64);
}

impl<P: Payload> Feed for Part<P> {
    type Object = Entry<P>;

    fn decode(&self, json: &[u8]) -> Entry<P> {
        let payload: P = self.decoder().decode(json).expect("an object");
        let bytes = self.decoder().weigh(&payload, json.len());
        Entry::new(payload.key(), Arc::new(payload), bytes)
    }

    fn all(&self, objects: Vec<Entry<P>>, revision: u64) {
        Sink::all(self, objects, Vec::new(), revision);
    }

    fn put(&self, object: Entry<P>, revision: u64) {
        Sink::put(self, object, revision);
        self.tell();
    }

    fn store(&self, object: Entry<P>, revision: u64) {
        drop(self.core.store.put(object, revision));
    }
}

/// Kept as its type.
pub fn typed<K: StaticKind>() -> (Informer<K>, impl Feed) {
    fed::<K, K>()
}

/// Kept compact.
pub fn compact<K: StaticKind>() -> (Informer<K>, impl Feed) {
    fed::<K, Compact>()
}

/// Kept as metadata only.
pub fn metadata<K: StaticKind>() -> (Informer<K>, impl Feed) {
    fed::<K, MetadataOnly>()
}

fn fed<K: StaticKind, P: Payload>() -> (Informer<K>, Part<P>) {
    let gvk = K::static_gvk();
    let types = TypeMeta { api_version: gvk.api_version(), kind: gvk.kind.clone() };
    let core = Arc::new(Core::<P>::new(Decoder::new(types)));
    let part = core.join(None);
    core.parts_are(Condition::Synced);
    core.all_joined();
    let life = Life::new(gvk, Scope::whole(&[]).expect("all of them"));
    (Informer::new(core, Lease::new(&life, Need::Must), WeakCache::default()), part)
}
