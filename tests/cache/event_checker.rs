//! Expectations about informers and the events of their handlers.
//!
//! A [`EventChecker`] is built from events alone. It checks that a created object was unknown, that an
//! update continues the last known state, that a deleted object was known, and that nothing becomes
//! older. A [`Subject`] is an informer with its handlers, compared with the server.

use super::faulty_network::FaultyNetwork;
use http::Request;
use kube_client::Client;
use kube_core::Resource;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use steersman::{
    cache::{Events, Index, Informer, InformerEvent, InformerState, Query},
    event::Event,
    object::{KubeObject, Object, ObjectKey},
};
use tokio::{task::JoinHandle, time::sleep};

pub(crate) type Contents = BTreeMap<ObjectKey, Value>;

/// State of an object: its uid and revision.
type Version = (String, u64);
pub(crate) type Versions = BTreeMap<ObjectKey, Version>;

/// Objects that a handler knows from its events.
#[derive(Default)]
pub(crate) struct EventChecker {
    known: Versions,
    /// Newest revision ever reported per key.
    newest: BTreeMap<ObjectKey, u64>,
    /// Whether revisions may decrease, because an older state was restored.
    pub(crate) may_go_back: bool,
    /// Whether a removed object may return with the same revision.
    may_come_back: bool,
    initial_done: bool,
    violations: Vec<String>,
}

impl EventChecker {
    /// Records an event that the handler received.
    pub(crate) fn record<K>(&mut self, item: &InformerEvent<K>) {
        let InformerEvent::Event(event) = item else {
            self.check(!self.initial_done, || "Synced was reported twice".into());
            self.initial_done = true;
            return;
        };
        let (key, now) = (
            event.object().key().clone(),
            version_of_object(event.object()),
        );
        let before = self.known.get(&key).cloned();
        let newest = self.newest.get(&key).copied().unwrap_or_default();
        let is_newer = match event {
            Event::Create { initial, .. } => {
                self.check(before.is_none(), || format!("{key} was created, but known"));
                self.check(!(*initial && self.initial_done), || {
                    format!("initial event of {key} after Synced")
                });
                now.1 > newest || self.may_come_back && now.1 == newest
            }
            Event::Update { old, .. } => {
                let old = version_of_object(old);
                self.check(before.as_ref() == Some(&old), || {
                    format!("update of {key} from {old:?}, but {before:?} was known")
                });
                now.1 > newest
            }
            Event::Delete { .. } => {
                self.check(before.is_some(), || {
                    format!("{key} was deleted, but unknown")
                });
                now.1 >= newest
            }
            Event::Generic { .. } => false,
        };
        self.check(is_newer || self.may_go_back, || {
            format!("{key} is {now:?} after {newest}: {event:?}")
        });
        self.newest.insert(key.clone(), now.1);
        match event {
            Event::Delete { .. } => drop(self.known.remove(&key)),
            _ => drop(self.known.insert(key, now)),
        }
    }

    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(what());
        }
    }

    /// Returns how the known objects differ from the store, if it does.
    pub(crate) fn differs(&self, store: &Versions) -> Option<String> {
        if !self.violations.is_empty() {
            Some(self.violations.join("; "))
        } else if !self.initial_done {
            Some("Synced was not reported".into())
        } else {
            (self.known != *store).then(|| {
                format!(
                    "the handler knows {:?}, the store has {store:?}",
                    self.known
                )
            })
        }
    }
}

fn version_of_object<K>(object: &Object<K>) -> Version {
    let meta = object.meta();
    let revision = meta
        .resource_version()
        .and_then(|version| version.parse().ok());
    (
        meta.uid().unwrap_or_default().to_owned(),
        revision.unwrap_or_default(),
    )
}

pub(crate) fn version_of(object: &impl Resource) -> Version {
    let meta = object.meta();
    let revision = meta
        .resource_version
        .as_ref()
        .and_then(|version| version.parse().ok());
    (
        meta.uid.clone().unwrap_or_default(),
        revision.unwrap_or_default(),
    )
}

/// Returns the revisions of the informer's objects.
pub(crate) fn versions<K: KubeObject>(informer: &Informer<K>) -> Versions {
    let all = informer
        .list(&Query::default())
        .expect("the informer is synced");
    all.iter()
        .map(|object| (ObjectKey::of(&**object), version_of(&**object)))
        .collect()
}

/// Event handler. Dropping it unsubscribes.
pub(crate) struct CheckedHandler {
    pub(crate) checker: Arc<Mutex<EventChecker>>,
    task: JoinHandle<()>,
}

impl Drop for CheckedHandler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl CheckedHandler {
    /// Creates a handler.
    ///
    /// `then` sees each event and returns how long the handler is busy with it.
    pub(crate) fn new<K: KubeObject>(
        mut events: Events<K>,
        checker: EventChecker,
        mut then: impl FnMut(&InformerEvent<K>) -> Option<Duration> + Send + 'static,
    ) -> Self {
        let checker = Arc::new(Mutex::new(checker));
        let shared = checker.clone();
        let task = tokio::spawn(async move {
            while let Some(item) = events.next().await {
                shared.lock().record(&item);
                if let Some(pause) = then(&item) {
                    sleep(pause).await;
                }
            }
        });
        Self { checker, task }
    }
}

/// An informer of any kind.
pub(crate) trait CheckedInformer {
    fn name(&self) -> &str;
    fn state(&self) -> InformerState;
    fn revision(&self) -> Option<u64>;
    /// Paths of its objects on the server.
    ///
    /// A path with `{tenant}` stands for one per labelled namespace.
    fn paths(&self) -> &[String];
    /// Returns whether the informer uses exactly one watch.
    fn is_one_watch(&self) -> bool {
        self.paths().len() == 1 && !self.selects_namespaces_by_label()
    }
    fn selects_namespaces_by_label(&self) -> bool {
        self.paths().iter().any(|path| path.contains("{tenant}"))
    }
    fn is_metadata(&self) -> bool;
    /// Returns the contents of the informer. Panics if two ways to read them disagree.
    fn contents(&self) -> Option<Contents>;
    fn versions(&self) -> Versions;
    /// Adds a handler that pauses after each event until the network is reliable.
    fn join(
        &self,
        pause: Option<Duration>,
        network: FaultyNetwork,
        may_go_back: bool,
    ) -> CheckedHandler;
}

/// Label of objects that selects them into scopes.
pub(crate) const TIER: &str = "tier";
/// Label of namespaces that selects them into scopes.
pub(crate) const TENANT: &str = "tenant";

pub(crate) struct TypedInformer<K> {
    name: &'static str,
    informer: Informer<K>,
    by_tier: Index<K, String>,
    paths: Vec<String>,
}

impl<K: KubeObject> TypedInformer<K> {
    pub(crate) fn subject(
        name: &'static str,
        informer: Informer<K>,
        paths: &[&str],
    ) -> Box<dyn CheckedInformer> {
        let by_tier = informer.index(|object: &K| {
            object
                .meta()
                .labels
                .iter()
                .filter_map(|labels| labels.get(TIER).cloned())
                .collect()
        });
        Box::new(Self {
            name,
            informer,
            by_tier,
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        })
    }
}

impl<K: KubeObject> CheckedInformer for TypedInformer<K> {
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
            let read = self
                .informer
                .get(&key)
                .expect("the informer is synced")
                .expect("a listed object");
            let [read, normalize] = [&read, object]
                .map(|one| normalize(serde_json::to_value(one).expect("valid JSON"), false));
            assert_eq!(
                read, normalize,
                "{}: get and list of {key} differ",
                self.name
            );
            assert!(
                contents.insert(key, normalize).is_none(),
                "{}: duplicate object",
                self.name
            );
        }
        let mut in_namespaces = 0;
        for namespace in contents
            .keys()
            .filter_map(ObjectKey::namespace)
            .collect::<std::collections::BTreeSet<_>>()
        {
            let in_namespace = self
                .informer
                .list(&Query::default().namespace(Some(namespace)))
                .expect("the informer is synced");
            assert!(
                in_namespace
                    .iter()
                    .all(|object| object.meta().namespace.as_deref() == Some(namespace))
            );
            in_namespaces += in_namespace.len();
        }
        assert_eq!(in_namespaces, contents.len(), "{}: by namespace", self.name);
        for tier in ["front", "back"] {
            let mut found = self.by_tier.keys(&tier.to_owned());
            found.sort();
            let wanted = contents
                .iter()
                .filter(|(_, object)| object["metadata"]["labels"][TIER] == tier);
            assert!(
                found.iter().eq(wanted.map(|(key, _)| key)),
                "{}: by index {found:?}",
                self.name
            );
        }
        Some(contents)
    }

    fn versions(&self) -> Versions {
        versions(&self.informer)
    }

    fn join(
        &self,
        pause: Option<Duration>,
        network: FaultyNetwork,
        may_go_back: bool,
    ) -> CheckedHandler {
        let checker = EventChecker {
            may_go_back,
            may_come_back: self.selects_namespaces_by_label(),
            ..EventChecker::default()
        };
        CheckedHandler::new(self.informer.events(), checker, move |_| {
            pause.filter(|_| !network.is_reliable())
        })
    }
}

/// Reduces an object to the fields that server and cache have in common.
fn normalize(mut object: Value, only_metadata: bool) -> Value {
    if only_metadata {
        return json!({"metadata": object["metadata"].take()});
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    object
}

/// Reads the subject's objects from the server.
pub(crate) async fn list_on_server(client: &Client, subject: &dyn CheckedInformer) -> Contents {
    let list = async |path: &str| {
        let request = Request::get(path).body(Vec::new()).expect("a path");
        client
            .request::<Value>(request)
            .await
            .expect("the server answers")
    };
    let mut paths = subject.paths().to_vec();
    if subject.selects_namespaces_by_label() {
        let tenants = list(&format!("/api/v1/namespaces?labelSelector={TENANT}")).await;
        let tenants = tenants["items"].as_array().expect("items").iter();
        let names = tenants.filter_map(|tenant| tenant["metadata"]["name"].as_str());
        paths = names
            .flat_map(|name| paths.iter().map(move |path| path.replace("{tenant}", name)))
            .collect();
    }
    let mut contents = Contents::new();
    for path in paths {
        let mut list = list(&path).await;
        for object in list["items"].as_array_mut().expect("items") {
            let of = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            let key = ObjectKey::new(of("namespace"), of("name"));
            contents.insert(key, normalize(object.take(), subject.is_metadata()));
        }
    }
    contents
}
