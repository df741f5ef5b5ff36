//! What an informer must be in the end, and what its handlers may be told on the way.
//!
//! A [`Ledger`] is kept from events alone: what is created was not there, what is updated is what was told before, what is deleted was there, and nothing
//! becomes older. A [`Subject`] is an informer with its handlers, held against what the server has.

use super::chaos::Door;
use http::Request;
use kube_client::Client;
use kube_core::Resource;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use steersman::{
    cache::{Events, Index, Informer, InformerState, Notice, Query},
    event::Event,
    object::{KubeObject, Object, ObjectKey},
};
use tokio::{task::JoinHandle, time::sleep};

pub(crate) type Contents = BTreeMap<ObjectKey, Value>;

/// A state of an object: its uid and version.
type Version = (String, u64);
pub(crate) type Versions = BTreeMap<ObjectKey, Version>;

/// What a handler knows.
#[derive(Default)]
pub(crate) struct Ledger {
    known: Versions,
    /// The newest version that was ever told of a key.
    newest: BTreeMap<ObjectKey, u64>,
    /// The server went back in time, and so may what is told.
    pub(crate) may_go_back: bool,
    /// What leaves may come back as it was.
    may_come_back: bool,
    initial_done: bool,
    wrong: Vec<String>,
}

impl Ledger {
    /// After the handler was told so.
    pub(crate) fn note<K>(&mut self, notice: &Notice<K>) {
        let Notice::Event(event) = notice else {
            self.check(!self.initial_done, || "the beginning is over twice".into());
            self.initial_done = true;
            return;
        };
        let (key, now) = (event.object().key().clone(), version(event.object()));
        let before = self.known.get(&key).cloned();
        let newest = self.newest.get(&key).copied().unwrap_or_default();
        let is_newer = match event {
            Event::Create { initial, .. } => {
                self.check(before.is_none(), || format!("{key} was created, and was there"));
                self.check(!(*initial && self.initial_done), || format!("{key} was there in the beginning, told late"));
                now.1 > newest || self.may_come_back && now.1 == newest
            }
            Event::Update { old, .. } => {
                let old = version(old);
                self.check(before.as_ref() == Some(&old), || format!("{key} was {old:?}, and {before:?} was told"));
                now.1 > newest
            }
            Event::Delete { .. } => {
                self.check(before.is_some(), || format!("{key} was deleted, and was not there"));
                now.1 >= newest
            }
            Event::Generic { .. } => false,
        };
        self.check(is_newer || self.may_go_back, || format!("{key} is {now:?} after {newest}: {event:?}"));
        self.newest.insert(key.clone(), now.1);
        match event {
            Event::Delete { .. } => drop(self.known.remove(&key)),
            _ => drop(self.known.insert(key, now)),
        }
    }

    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(what());
        }
    }

    /// Why it is not what the store shows.
    pub(crate) fn differs(&self, store: &Versions) -> Option<String> {
        if !self.wrong.is_empty() {
            Some(self.wrong.join("; "))
        } else if !self.initial_done {
            Some("it was never told that the beginning is over".into())
        } else {
            (self.known != *store).then(|| format!("it knows {:?}, the store shows {store:?}", self.known))
        }
    }
}

fn version<K>(object: &Object<K>) -> Version {
    let meta = object.meta();
    let revision = meta.resource_version().and_then(|version| version.parse().ok());
    (meta.uid().unwrap_or_default().to_owned(), revision.unwrap_or_default())
}

pub(crate) fn version_of(object: &impl Resource) -> Version {
    let meta = object.meta();
    let revision = meta.resource_version.as_ref().and_then(|version| version.parse().ok());
    (meta.uid.clone().unwrap_or_default(), revision.unwrap_or_default())
}

/// What an informer shows.
pub(crate) fn versions<K: KubeObject>(informer: &Informer<K>) -> Versions {
    let all = informer.list(&Query::default()).expect("it is synced");
    all.iter().map(|object| (ObjectKey::of(&**object), version_of(&**object))).collect()
}

/// Somebody who listens. Dropped, it leaves.
pub(crate) struct Handler {
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    task: JoinHandle<()>,
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Handler {
    /// `then` sees what it was told, and says how long the handler is busy with it.
    pub(crate) fn new<K: KubeObject>(
        mut events: Events<K>,
        ledger: Ledger,
        mut then: impl FnMut(&Notice<K>) -> Option<Duration> + Send + 'static,
    ) -> Self {
        let ledger = Arc::new(Mutex::new(ledger));
        let kept = ledger.clone();
        let task = tokio::spawn(async move {
            while let Some(notice) = events.next().await {
                kept.lock().note(&notice);
                if let Some(pause) = then(&notice) {
                    sleep(pause).await;
                }
            }
        });
        Self { ledger, task }
    }
}

/// An informer, whatever it is of.
pub(crate) trait Subject {
    fn name(&self) -> &str;
    fn state(&self) -> InformerState;
    fn revision(&self) -> Option<u64>;
    /// Where on the server its objects are. What has `{tenant}` in it stands for the same in each namespace with that label.
    fn paths(&self) -> &[String];
    /// Whether nothing but one watch says what it has.
    fn is_one_watch(&self) -> bool {
        self.paths().len() == 1 && !self.is_of_tenants()
    }
    fn is_of_tenants(&self) -> bool {
        self.paths().iter().any(|path| path.contains("{tenant}"))
    }
    fn is_metadata(&self) -> bool;
    /// What it shows. Fails where two ways to read it disagree.
    fn contents(&self) -> Option<Contents>;
    fn versions(&self) -> Versions;
    /// With a pause after each event, as long as the door is not calm.
    fn join(&self, pause: Option<Duration>, door: Door, may_go_back: bool) -> Handler;
}

/// The label that objects are moved by.
pub(crate) const TIER: &str = "tier";
/// The one by which namespaces are.
pub(crate) const TENANT: &str = "tenant";

pub(crate) struct Of<K> {
    name: &'static str,
    informer: Informer<K>,
    by_tier: Index<K, String>,
    paths: Vec<String>,
}

impl<K: KubeObject> Of<K> {
    pub(crate) fn subject(name: &'static str, informer: Informer<K>, paths: &[&str]) -> Box<dyn Subject> {
        let by_tier = informer
            .index(|object: &K| object.meta().labels.iter().filter_map(|labels| labels.get(TIER).cloned()).collect());
        Box::new(Self { name, informer, by_tier, paths: paths.iter().map(|path| (*path).to_owned()).collect() })
    }
}

impl<K: KubeObject> Subject for Of<K> {
    fn name(&self) -> &str {
        self.name
    }
    fn state(&self) -> InformerState {
        self.informer.state()
    }
    fn revision(&self) -> Option<u64> {
        self.informer.resource_version()
    }
    fn paths(&self) -> &[String] {
        &self.paths
    }
    fn is_metadata(&self) -> bool {
        std::any::type_name::<K>().contains("PartialObjectMeta")
    }

    fn contents(&self) -> Option<Contents> {
        let all = self.informer.list(&Query::default()).ok()?;
        let mut contents = Contents::new();
        for object in &all {
            let key = ObjectKey::of(&**object);
            let read = self.informer.get(&key).expect("it is synced").expect("it is listed");
            let [read, shown] = [&read, object].map(|one| shown(serde_json::to_value(one).expect("it is JSON"), false));
            assert_eq!(read, shown, "{}: {key} is another when it is read alone", self.name);
            assert!(contents.insert(key, shown).is_none(), "{}: an object twice", self.name);
        }
        let mut in_namespaces = 0;
        for namespace in contents.keys().filter_map(ObjectKey::namespace).collect::<std::collections::BTreeSet<_>>() {
            let there = self.informer.list(&Query::default().namespace(Some(namespace))).expect("it is synced");
            assert!(there.iter().all(|object| object.meta().namespace.as_deref() == Some(namespace)));
            in_namespaces += there.len();
        }
        assert_eq!(in_namespaces, contents.len(), "{}: by namespace", self.name);
        for tier in ["front", "back"] {
            let mut found = self.by_tier.keys(&tier.to_owned());
            found.sort();
            let wanted = contents.iter().filter(|(_, object)| object["metadata"]["labels"][TIER] == tier);
            assert!(found.iter().eq(wanted.map(|(key, _)| key)), "{}: by index {found:?}", self.name);
        }
        Some(contents)
    }

    fn versions(&self) -> Versions {
        versions(&self.informer)
    }

    fn join(&self, pause: Option<Duration>, door: Door, may_go_back: bool) -> Handler {
        let ledger = Ledger { may_go_back, may_come_back: self.is_of_tenants(), ..Ledger::default() };
        Handler::new(self.informer.events(), ledger, move |_| pause.filter(|_| !door.is_calm()))
    }
}

/// What matters of an object, the same from the server and from the cache.
fn shown(mut object: Value, only_metadata: bool) -> Value {
    if only_metadata {
        return json!({"metadata": object["metadata"].take()});
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    object
}

/// What the server has of it.
pub(crate) async fn on_the_server(client: &Client, subject: &dyn Subject) -> Contents {
    let list = async |path: &str| {
        let request = Request::get(path).body(Vec::new()).expect("a path");
        client.request::<Value>(request).await.expect("the server answers")
    };
    let mut paths = subject.paths().to_vec();
    if subject.is_of_tenants() {
        let tenants = list(&format!("/api/v1/namespaces?labelSelector={TENANT}")).await;
        let tenants = tenants["items"].as_array().expect("items").iter();
        let names = tenants.filter_map(|tenant| tenant["metadata"]["name"].as_str());
        paths = names.flat_map(|name| paths.iter().map(move |path| path.replace("{tenant}", name))).collect();
    }
    let mut contents = Contents::new();
    for path in paths {
        let mut list = list(&path).await;
        for object in list["items"].as_array_mut().expect("items") {
            let of = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            let key = ObjectKey::new(of("namespace"), of("name"));
            contents.insert(key, shown(object.take(), subject.is_metadata()));
        }
    }
    contents
}
