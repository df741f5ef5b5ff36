//! Reads while namespaces come and go: what happens between two steps of a read happens here at that very point.

use super::*;
use crate::{
    cache::{
        erased::{BoxFuture, Feed, Seen},
        ledger::{Fate, Ledger},
        life::{Life, Need},
        reflect::{Place, Sink},
        scope::Scope,
        store::{Entry, Indexer},
    },
    client::Link,
    object::{Body, Decoder, Metadata, MetadataOnly, Payload},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::TypeMeta;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use tokio::sync::watch;

type Kept = Core<MetadataOnly>;
type Happening = fn(&Arc<Kept>);

/// An informer to which something happens once, after it was asked for an object or before it is asked for several; unless who asks holds its parts.
struct Meanwhile {
    core: Arc<Kept>,
    happens: Mutex<Option<Happening>>,
}

impl Meanwhile {
    fn happen(&self) {
        if self.core.parts.try_write().is_some()
            && let Some(happens) = self.happens.lock().take()
        {
            happens(&self.core);
        }
    }
}

#[rustfmt::skip]
impl Informing for Meanwhile {
    fn get(&self, key: &ObjectKey) -> Option<Body> {
        let found = Informing::get(&*self.core, key);
        self.happen();
        found
    }
    fn select(&self, namespace: Option<&str>, lookups: &[Lookup<'_>]) -> Box<dyn Seen> {
        self.happen();
        Informing::select(&*self.core, namespace, lookups)
    }
    fn knows(&self, namespace: &str) -> bool { self.core.knows(namespace) }
    fn settled(&self) -> Settled<'_> { self.core.settled() }
    fn is_listed(&self) -> bool { self.core.is_listed() }
    fn condition(&self) -> Condition { self.core.condition() }
    fn ledger(&self) -> &Arc<Ledger> { &self.core.ledger }

    fn revision(&self) -> u64 { unreachable!() }
    fn add_index(&self, _: Arc<dyn Indexer<Body>>) -> usize { unreachable!() }
    fn remove_index(&self, _: usize) { unreachable!() }
    fn subscribe(self: Arc<Self>) -> Box<dyn Feed> { unreachable!() }
    fn conditions(&self) -> watch::Receiver<Condition> { unreachable!() }
    fn set_condition(&self, _: Condition) { unreachable!() }
    fn misfit(&self, _: &Misfit) { unreachable!() }
    fn stats(&self) -> InformerStats { unreachable!() }
    fn largest(&self) -> Vec<ObjectSize> { unreachable!() }
    fn largest_bytes(&self) -> Option<u64> { unreachable!() }
    fn synced(self: Arc<Self>) -> BoxFuture<bool> { unreachable!() }
    fn ended(self: Arc<Self>) -> BoxFuture<()> { unreachable!() }
    fn clear(&self) { unreachable!() }
    fn end(&self) { unreachable!() }
    fn decoder(&self) -> &Decoder { unreachable!() }
    fn fate(&self, _: &ObjectKey, _: Option<&str>) -> Fate { unreachable!() }
    fn begin(&self) { unreachable!() }
    fn join(self: Arc<Self>, _: &Link, _: Option<String>, _: Place, _: u32) -> BoxFuture<crate::cache::reflect::Failure> { unreachable!() }
    fn leave(&self, _: &str) { unreachable!() }
    fn all_joined(&self) { unreachable!() }
    fn parts_are(&self, _: Condition) { unreachable!() }
}

/// The namespace is kept now, and what is in it is there.
fn arrives(core: &Arc<Kept>) {
    let json = br#"{"metadata": {"name": "o", "namespace": "a", "resourceVersion": "1"}}"#;
    let object = core.decoder.decode::<MetadataOnly>(json).expect("an object");
    core.join(Some("a".into())).all(vec![Entry::new(object.key(), Arc::new(object), 0)], Vec::new(), 10);
}

/// An informer of namespaces that come and go, which has none yet.
fn informer(happens: Happening, before: Happening) -> Informer<Metadata<ConfigMap>> {
    let types = TypeMeta { api_version: "v1".into(), kind: "ConfigMap".into() };
    let core = Arc::new(Kept::new(Decoder::new(types)));
    core.all_joined();
    before(&core);
    let scope = Scope { labelled: Some("tenant".into()), parts: BTreeMap::new(), own: false };
    let life = Life::new(GroupVersionKind::gvk("", "v1", "ConfigMap"), scope);
    let core = Arc::new(Meanwhile { core, happens: Mutex::new(Some(happens)) });
    Informer::new(core, Lease::new(&life, Need::Must), WeakCache::default())
}

#[test]
fn an_object_whose_namespace_is_listed_while_it_is_looked_for_is_found() {
    let maps = informer(arrives, |_| ());
    let found = maps.get(&ObjectKey::new("a", "o"));
    assert!(matches!(found, Ok(Some(_))), "{found:?}");
    let none = maps.get(&ObjectKey::new("a", "other"));
    assert!(matches!(none, Ok(None)), "{none:?}");
    let elsewhere = maps.get(&ObjectKey::new("b", "o"));
    assert!(matches!(elsewhere, Err(CacheError::NotKept { .. })), "{elsewhere:?}");
}

#[test]
fn a_list_of_a_namespace_that_leaves_meanwhile_is_not_empty() {
    let maps = informer(|core| core.leave("a"), arrives);
    let query = Query::default().namespace(Some("a"));
    let listed = maps.list(&query).map(|all| all.len());
    assert!(matches!(listed, Ok(1) | Err(CacheError::NotKept { .. })), "{listed:?}");
}
