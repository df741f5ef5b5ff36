//! Reads while namespaces are added and removed between two steps of a read.

use super::*;
use crate::{
    cache::{
        erased::{BoxFuture, ErasedSnapshot, ErasedSubscription},
        ledger::{Existence, Ledger},
        refcount::{RefCount, Requirement},
        reflector::{ListWatch, Sink},
        scope::Scope,
        store::{Entry, Indexer},
    },
    client::CountedClient,
    object::{Body, Decoder, Metadata, MetadataOnly, Payload},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::TypeMeta;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use tokio::sync::watch;

type MetadataCore = Core<MetadataOnly>;
type ConcurrentChange = fn(&Arc<MetadataCore>);

/// Core that runs a change once, during a read.
///
/// The change runs after a `get` or before a `select`, unless the reader holds the lock of the
/// parts.
struct RaceFixture {
    core: Arc<MetadataCore>,
    happens: Mutex<Option<ConcurrentChange>>,
}

impl RaceFixture {
    fn happen(&self) {
        if self.core.namespace_cores.try_write().is_some()
            && let Some(happens) = self.happens.lock().take()
        {
            happens(&self.core);
        }
    }
}

#[rustfmt::skip]
impl ErasedCore for RaceFixture {
    fn get(&self, key: &ObjectKey) -> Option<Body> {
        let found = ErasedCore::get(&*self.core, key);
        self.happen();
        found
    }
    fn select(&self, namespace: Option<&str>, lookups: &[Lookup<'_>]) -> Box<dyn ErasedSnapshot> {
        self.happen();
        ErasedCore::select(&*self.core, namespace, lookups)
    }
    fn is_namespace_listed(&self, namespace: &str) -> bool { self.core.is_namespace_listed(namespace) }
    fn lock_namespaces(&self) -> NamespacesGuard<'_> { self.core.lock_namespaces() }
    fn is_listed(&self) -> bool { self.core.is_listed() }
    fn condition(&self) -> Condition { self.core.condition() }
    fn ledger(&self) -> &Arc<Ledger> { &self.core.ledger }

    fn revision(&self) -> u64 { unreachable!() }
    fn add_index(&self, _: Arc<dyn Indexer<Body>>) -> usize { unreachable!() }
    fn remove_index(&self, _: usize) { unreachable!() }
    fn subscribe(self: Arc<Self>) -> Box<dyn ErasedSubscription> { unreachable!() }
    fn conditions(&self) -> watch::Receiver<Condition> { unreachable!() }
    fn set_condition(&self, _: Condition) { unreachable!() }
    fn record_decode_failure(&self, _: &DecodeFailure) { unreachable!() }
    fn stats(&self) -> InformerStats { unreachable!() }
    fn largest(&self) -> Vec<ObjectSize> { unreachable!() }
    fn largest_bytes(&self) -> Option<u64> { unreachable!() }
    fn synced(self: Arc<Self>) -> BoxFuture<bool> { unreachable!() }
    fn closed(self: Arc<Self>) -> BoxFuture<()> { unreachable!() }
    fn clear(&self) { unreachable!() }
    fn close(&self) { unreachable!() }
    fn decoder(&self) -> &Decoder { unreachable!() }
    fn existence(&self, _: &ObjectKey, _: Option<&str>) -> Existence { unreachable!() }
    fn restart(&self) { unreachable!() }
    fn reflect_namespace(self: Arc<Self>, _: &CountedClient, _: Option<String>, _: ListWatch, _: u32) -> BoxFuture<crate::cache::reflector::Failure> { unreachable!() }
    fn remove_namespace(&self, _: &str) { unreachable!() }
    fn namespaces_complete(&self) { unreachable!() }
    fn set_namespaces_condition(&self, _: Condition) { unreachable!() }
}

/// Adds the namespace `a` with its object.
fn arrives(core: &Arc<MetadataCore>) {
    let json = br#"{"metadata": {"name": "o", "namespace": "a", "resourceVersion": "1"}}"#;
    let object = core
        .decoder
        .decode::<MetadataOnly>(json)
        .expect("an object");
    core.add_namespace(Some("a".into())).replace(
        vec![Entry::new(object.key(), Arc::new(object), 0)],
        Vec::new(),
        10,
    );
}

/// Creates an informer with namespaces selected by label, none of which exists yet.
fn informer(happens: ConcurrentChange, before: ConcurrentChange) -> Informer<Metadata<ConfigMap>> {
    let types = TypeMeta {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
    };
    let core = Arc::new(MetadataCore::new(Decoder::new(types)));
    core.namespaces_complete();
    before(&core);
    let scope = Scope {
        labelled: Some("tenant".into()),
        parts: BTreeMap::new(),
        internal: false,
    };
    let refs = RefCount::new(GroupVersionKind::gvk("", "v1", "ConfigMap"), scope);
    let core = Arc::new(RaceFixture {
        core,
        happens: Mutex::new(Some(happens)),
    });
    Informer::new(
        core,
        InformerRef::new(&refs, Requirement::Required),
        WeakCache::default(),
    )
}

#[test]
fn an_object_whose_namespace_is_listed_while_it_is_looked_for_is_found() {
    let maps = informer(arrives, |_| ());
    let found = maps.get(&ObjectKey::new("a", "o"));
    assert!(matches!(found, Ok(Some(_))), "{found:?}");
    let none = maps.get(&ObjectKey::new("a", "other"));
    assert!(matches!(none, Ok(None)), "{none:?}");
    let elsewhere = maps.get(&ObjectKey::new("b", "o"));
    assert!(
        matches!(elsewhere, Err(CacheError::NamespaceNotCached { .. })),
        "{elsewhere:?}"
    );
}

#[test]
fn a_list_of_a_namespace_that_leaves_meanwhile_is_not_empty() {
    let maps = informer(|core| core.remove_namespace("a"), arrives);
    let query = Query::default().namespace(Some("a"));
    let listed = maps.list(&query).map(|all| all.len());
    assert!(
        matches!(listed, Ok(1) | Err(CacheError::NamespaceNotCached { .. })),
        "{listed:?}"
    );
}
