//! Informers for benchmarks, fed with decoded objects.
//!
//! Benchmarks measure the store and its handlers without a server and a decoder. Behind the feature
//! `__internals`; not part of the API.

use super::{
    Informer,
    core::{Condition, Core},
    namespace_core::NamespaceCore,
    refcount::{InformerRef, RefCount, Requirement},
    reflector::Sink,
    registry::WeakCache,
    scope::Scope,
    store::Entry,
};
use crate::object::{Compact, Decoder, MetadataOnly, Payload, StaticKind};
use kube_core::TypeMeta;
use std::sync::Arc;

/// Input of a benchmark's informer. Reads use the [`Informer`] returned with it.
pub trait Feed: Send + Sync + 'static {
    /// Decoded object. Clones share it, so that the benchmark and not the measured code frees it.
    type Object: Clone + Send + 'static;

    /// Decodes an object from JSON.
    fn decode(&self, json: &[u8]) -> Self::Object;
    /// Replaces all objects, like a list.
    fn all(&self, objects: Vec<Self::Object>, revision: u64);
    /// Stores an object and notifies handlers, like a watch event.
    fn put(&self, object: Self::Object, revision: u64);
    /// Stores an object without notifying handlers.
    fn store(&self, object: Self::Object, revision: u64);
}

impl<P: Payload> Feed for NamespaceCore<P> {
    type Object = Entry<P>;

    fn decode(&self, json: &[u8]) -> Entry<P> {
        let payload: P = self.decoder().decode(json).expect("an object");
        let bytes = self.decoder().estimate_size(&payload, json.len());
        Entry::new(payload.key(), Arc::new(payload), bytes)
    }

    fn all(&self, objects: Vec<Entry<P>>, revision: u64) {
        Sink::replace(self, objects, Vec::new(), revision);
    }

    fn put(&self, object: Entry<P>, revision: u64) {
        Sink::put(self, object, revision);
        self.wake_handlers();
    }

    fn store(&self, object: Entry<P>, revision: u64) {
        drop(self.core.store.put(object, revision));
    }
}

/// Creates an informer that stores decoded objects.
pub fn typed<K: StaticKind>() -> (Informer<K>, impl Feed) {
    fed::<K, K>()
}

/// Creates an informer that stores compact objects.
pub fn compact<K: StaticKind>() -> (Informer<K>, impl Feed) {
    fed::<K, Compact>()
}

/// Creates an informer that stores metadata only.
pub fn metadata<K: StaticKind>() -> (Informer<K>, impl Feed) {
    fed::<K, MetadataOnly>()
}

fn fed<K: StaticKind, P: Payload>() -> (Informer<K>, NamespaceCore<P>) {
    let gvk = K::static_gvk();
    let types = TypeMeta {
        api_version: gvk.api_version(),
        kind: gvk.kind.clone(),
    };
    let core = Arc::new(Core::<P>::new(Decoder::new(types)));
    let part = core.add_namespace(None);
    core.set_namespaces_condition(Condition::Synced);
    core.namespaces_complete();
    let refs = RefCount::new(gvk, Scope::cluster_scoped(&[]).expect("all of them"));
    (
        Informer::new(
            core,
            InformerRef::new(&refs, Requirement::Required),
            WeakCache::default(),
        ),
        part,
    )
}
