mod revisions;
mod set_back;
mod unread;

use super::*;
use crate::{
    cache::{
        fan::Item,
        reflect::{Failure, Place, Reflector, Sink},
        store::Function,
    },
    client::Connection,
    object::{Compact, MetadataOnly},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use kube_core::{ResourceExt, TypeMeta};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    collections::BTreeMap,
    pin::pin,
    sync::mpsc::channel,
    task::{Context, Wake},
    thread,
    time::Duration,
};
use steersman_apiserver::{ApiServer, Fault, Options};

/// A server, and an informer of its config maps that runs.
struct Scene<P> {
    server: ApiServer,
    maps: Api<ConfigMap>,
    core: Arc<Core<P>>,
    running: tokio::task::JoinHandle<()>,
}

impl<P> Drop for Scene<P> {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl<P: Payload> Scene<P> {
    fn new() -> Self {
        Self::with(|_| {})
    }

    /// With what the server is like before it is asked.
    fn with(prepare: impl FnOnce(&ApiServer)) -> Self {
        let server = ApiServer::new(Options::default()).expect("a server without data starts");
        prepare(&server);
        let client = Client::new(server.service(), "default");
        let types = TypeMeta { api_version: "v1".into(), kind: "ConfigMap".into() };
        let core = Arc::new(Core::<P>::new(Decoder::new(types)));
        let place = Place {
            path: "/api/v1/configmaps".into(),
            labels: None,
            fields: None,
            metadata_only: std::any::type_name::<P>().ends_with("MetadataOnly"),
            doubts: None,
        };
        let part = whole(&core);
        let link = Connection::from(client.clone()).client().expect("a ready client");
        let reflector = Reflector::new(link, place, part, 2);
        let running = tokio::spawn(async { drop(reflector.run().await) });
        Self { server, maps: Api::default_namespaced(client), core, running }
    }

    async fn make(&self, name: &str) -> ConfigMap {
        let map = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": "0"}})).expect("a map");
        self.maps.create(&PostParams::default(), &map).await.expect("it is new")
    }

    /// Wait until the store is what the server has.
    async fn converge(&self) {
        let server = async || {
            let list = self.maps.list(&ListParams::default()).await.expect("a list");
            let pair = |map: &ConfigMap| (map.name_any(), map.resource_version().expect("a version"));
            list.items.iter().map(pair).collect::<BTreeMap<_, _>>()
        };
        let store = || {
            let pair = |entry: &Entry<P>| {
                let version = entry.object.meta().resource_version().unwrap_or_default().to_owned();
                (entry.key.name().to_owned(), version)
            };
            self.core.store.snapshot().iter().map(pair).collect::<BTreeMap<_, _>>()
        };
        let alike = async {
            while server().await != store() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let done = tokio::time::timeout(Duration::from_mins(10), alike).await;
        let (server, store) = (server().await, store());
        assert!(done.is_ok(), "the server has {server:?}, the store {store:?}, {:?}", self.core.condition());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_there_and_what_comes_is_in_the_store() {
    let scene = Scene::<ConfigMap>::new();
    scene.make("a").await;
    scene.core.synced().await;
    scene.make("b").await;
    scene.converge().await;
    scene.maps.delete("a", &DeleteParams::default()).await.expect("it is there");
    scene.converge().await;
    assert_eq!(scene.core.condition(), Condition::Synced);
    let kept = scene.core.store.get(&ObjectKey::new("default", "b")).expect("it is there");
    assert!(kept.metadata.managed_fields.is_none());
}

#[tokio::test(start_paused = true)]
async fn each_form_of_an_object_is_kept_up_to_date() {
    async fn check<P: Payload>() {
        let scene = Scene::<P>::new();
        for name in ["a", "b", "c"] {
            scene.make(name).await;
        }
        scene.converge().await;
    }
    check::<ConfigMap>().await;
    check::<Compact>().await;
    check::<MetadataOnly>().await;
}

#[tokio::test(start_paused = true)]
async fn a_history_that_is_too_short_ends_in_a_new_list_and_deletes_what_is_gone() {
    let scene = Scene::<Compact>::new();
    scene.make("a").await;
    scene.converge().await;
    let mut cursor = scene.core.subscribe();
    assert!(matches!(cursor.next().await, Some(Item::Event(Event::Create { initial: true, .. }))));
    assert!(matches!(cursor.next().await, Some(Item::InitialDone)));

    scene.server.faults().add(Fault::on("watch configmaps").status(500).times(3));
    scene.server.faults().add(Fault::on("watch configmaps").drop_watch_after(0).times(1));
    scene.make("b").await;
    scene.maps.delete("a", &DeleteParams::default()).await.expect("it is there");
    scene.server.compact();
    scene.converge().await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_in_the_servers_words_and_ends() {
    let scene = Scene::<Compact>::with(|server| {
        server.faults().add(Fault::on("watch configmaps").status(403).times(2));
    });
    let mut condition = scene.core.condition.subscribe();
    let degraded = condition.wait_for(|condition| matches!(condition, Condition::Degraded { .. })).await;
    let Condition::Degraded { error, .. } = degraded.expect("it is there").clone() else { unreachable!() };
    assert!(error.to_lowercase().contains("forbidden"), "{error}");
    scene.core.synced().await;
    assert_eq!(scene.core.condition(), Condition::Synced);
}

/// The one part of an informer that has no others.
fn whole<P: Payload>(core: &Arc<Core<P>>) -> Part<P> {
    let part = core.join(None);
    core.parts_are(Condition::Synced);
    core.all_joined();
    part
}

/// An informer by itself, and objects for it, one in a namespace.
fn metadata_core() -> (Arc<Core<MetadataOnly>>, impl Fn(&str, u64) -> Entry<MetadataOnly>) {
    let types = TypeMeta { api_version: "v1".into(), kind: "ConfigMap".into() };
    let core = Arc::new(Core::<MetadataOnly>::new(Decoder::new(types)));
    let decoding = core.clone();
    let entry = move |namespace: &str, version: u64| {
        let json = json!({"metadata": {"name": "o", "namespace": namespace, "resourceVersion": version.to_string()}});
        let object = decoding.decoder.decode::<MetadataOnly>(json.to_string().as_bytes()).expect("an object");
        Entry::new(object.key(), Arc::new(object), 0)
    };
    (core, entry)
}

#[test]
fn what_is_told_again_is_nothing() {
    let (core, entry) = metadata_core();
    let part = whole(&core);
    part.all(vec![entry("a", 3)], Vec::new(), 5);
    let last = |version| Some(Arc::into_inner(entry("a", version).object).expect("nobody else has it"));
    let key = entry("a", 3).key;
    part.deleted(&key, last(6), 6);
    part.put(entry("a", 4), 4);
    assert_eq!((core.store.len(), core.store.revision()), (0, 6), "an old event does not bring back what is gone");
    part.put(entry("a", 7), 7);
    part.deleted(&key, last(6), 6);
    assert_eq!((core.store.len(), core.store.revision()), (1, 7), "an old deletion is not one of what was made since");
    part.put(entry("a", 7), 7);
    part.nothing_up_to(2);
    assert_eq!((core.stats().events, core.store.revision()), (3, 7), "nor does anything go back");
    part.all(vec![entry("a", 3)], Vec::new(), 5);
    assert_eq!(core.store.get(&key).and_then(|object| object.revision()), Some(3), "unless the server itself has");
    part.put(entry("a", 6), 6);
    assert_eq!(core.store.revision(), 6);
}

#[tokio::test(start_paused = true)]
async fn what_is_counted_follows_what_happens() {
    let scene = Scene::<Compact>::new();
    assert_eq!((scene.core.stats().since_heard, scene.core.stats().approximate_bytes), (None, 0));
    scene.make("a").await;
    scene.core.synced().await;
    scene.make("b").await;
    scene.converge().await;
    let mut cursor = scene.core.subscribe();
    let stats = scene.core.stats();
    let measured: usize = scene.core.store.snapshot().iter().map(|entry| entry.object.heap_bytes()).sum();
    assert_eq!(stats.approximate_bytes, measured as u64);
    assert_eq!((stats.objects, stats.events, stats.relists, stats.watch_restarts), (2, 2, 0, 0));
    while cursor.try_next().is_some() {}

    // The server closes watches after some minutes, and sends a bookmark every minute.
    tokio::time::sleep(Duration::from_mins(30)).await;
    let stats = scene.core.stats();
    assert!(stats.watch_restarts >= 3 && stats.relists == 0, "{stats:?}");
    assert!(stats.since_last_event >= Some(Duration::from_mins(29)) && stats.events_per_second < 0.01, "{stats:?}");
    assert!(stats.since_heard < Some(Duration::from_mins(2)), "{stats:?}");
    scene.server.faults().add(Fault::on("watch configmaps").status(503));
    scene.server.faults().add(Fault::on("list configmaps").status(503));
    scene.server.faults().add(Fault::on("watch configmaps").drop_watch_after(0).times(1));
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert!(scene.core.stats().since_heard > Some(Duration::from_mins(15)), "{:?}", scene.core.stats());
    scene.make("c").await;
    assert_eq!(scene.core.stats().handlers.len(), 1);
    drop(cursor);
    assert!(scene.core.stats().handlers.is_empty());
}

#[test]
fn several_parts_are_listed_when_all_are_and_at_the_smallest_of_their_revisions() {
    let (core, entry) = metadata_core();
    let parts = ["a", "b"].map(|name| core.join(Some(name.to_owned())));
    core.parts_are(Condition::Synced);
    core.all_joined();
    let mut cursor = core.subscribe();
    parts[0].all(vec![entry("a", 7)], Vec::new(), 10);
    parts[0].well();
    assert_eq!((core.is_listed(), core.store.revision(), core.condition()), (false, 0, Condition::Starting));
    parts[1].all(vec![entry("b", 3)], Vec::new(), 5);
    parts[1].well();
    assert_eq!((core.is_listed(), core.store.revision(), core.condition()), (true, 5, Condition::Synced));
    for _ in 0..2 {
        assert!(matches!(cursor.try_next(), Some(Item::Event(Event::Create { initial: true, .. }))));
    }
    assert!(matches!(cursor.try_next(), Some(Item::InitialDone)), "once all have told");

    parts[0].nothing_up_to(20);
    assert_eq!(core.store.revision(), 5, "nothing is known of the other one beyond that");
    parts[1].put(entry("b", 15), 15);
    assert_eq!(core.store.revision(), 15);
    parts[1].all(Vec::new(), Vec::new(), 30);
    assert_eq!((core.store.len(), core.store.revision()), (1, 20), "a list of one leaves the other alone");
    parts[1].failed(&Failure::EndedAtOnce);
    assert!(matches!(core.condition(), Condition::Degraded { .. }), "the worst of them counts");
    core.end();
    parts[1].well();
    assert_eq!(core.condition(), Condition::Ended, "what has ended stays so");
}

/// Reads as soon as it is woken, as a worker on another thread may.
struct ReadsWhenWoken {
    core: Arc<Core<MetadataOnly>>,
    served: Mutex<Vec<bool>>,
}

impl Wake for ReadsWhenWoken {
    fn wake(self: Arc<Self>) {
        self.served.lock().push(self.core.is_listed());
    }
}

#[test]
fn who_is_told_that_the_first_list_has_come_is_served_at_once() {
    let (core, _) = metadata_core();
    let part = whole(&core);
    let mut cursor = core.subscribe();
    let mut conditions = core.conditions();
    let waiting = core.clone();
    let reader = || Arc::new(ReadsWhenWoken { core: core.clone(), served: Mutex::default() });
    let (handler, watcher, waiter) = (reader(), reader(), reader());
    let wakers = [&handler, &watcher, &waiter].map(|reader| reader.clone().into());
    let [mut handles, mut watches, mut waits] = wakers.each_ref().map(Context::from_waker);
    let mut condition = pin!(conditions.wait_for(|condition| *condition == Condition::Synced));
    let mut synced = pin!(waiting.synced());
    assert!(cursor.poll_next(&mut handles).is_pending());
    assert!(condition.as_mut().poll(&mut watches).is_pending());
    assert!(synced.as_mut().poll(&mut waits).is_pending());
    part.all(Vec::new(), Vec::new(), 1);
    assert!(matches!(cursor.try_next(), Some(Item::InitialDone)));
    for reader in [handler, watcher, waiter] {
        let served = reader.served.lock();
        assert!(!served.is_empty() && served.iter().all(|served| *served), "{served:?}");
    }
}

#[test]
fn a_list_after_the_loops_were_started_again_is_another_one() {
    let types = TypeMeta { api_version: "v1".into(), kind: "ConfigMap".into() };
    let core = Arc::new(Core::<MetadataOnly>::new(Decoder::new(types)));
    let list = |namespace: &str, revision| core.join(Some(namespace.into())).all(Vec::new(), Vec::new(), revision);
    core.begin();
    list("a", 1);
    core.all_joined();
    list("b", 2);
    assert_eq!(core.stats().relists, 0, "each for the first time");
    core.begin();
    core.begin();
    assert!(core.knows("a") && core.knows("b") && !core.knows("c"), "what was there is served meanwhile");
    list("a", 3);
    assert_eq!(core.stats().relists, 1);
    core.all_joined();
    assert!(core.knows("a") && !core.knows("b"), "it has left");
    list("c", 4);
    list("b", 5);
    assert_eq!(core.stats().relists, 1, "one that has joined, and one that left and came back");
}

#[test]
fn a_part_that_joins_later_is_told_as_new_and_one_that_leaves_takes_its_objects_along() {
    let types = TypeMeta { api_version: "v1".into(), kind: "ConfigMap".into() };
    let core = Arc::new(Core::<MetadataOnly>::new(Decoder::new(types)));
    let entry = |namespace: &str, version: u64| {
        let json = json!({"metadata": {"name": "o", "namespace": namespace, "resourceVersion": version.to_string()}});
        let object = core.decoder.decode::<MetadataOnly>(json.to_string().as_bytes()).expect("an object");
        Entry::new(object.key(), Arc::new(object), 0)
    };
    let mut cursor = core.subscribe();
    let a = core.join(Some("a".into()));
    a.all(vec![entry("a", 7)], Vec::new(), 10);
    a.well();
    assert!(!core.is_listed(), "there may be more");
    core.parts_are(Condition::Synced);
    core.all_joined();
    assert_eq!((core.is_listed(), core.condition()), (true, Condition::Synced));
    assert!(matches!(cursor.try_next(), Some(Item::Event(Event::Create { initial: true, .. }))));
    assert!(matches!(cursor.try_next(), Some(Item::InitialDone)));

    let b = core.join(Some("b".into()));
    assert_eq!((core.is_listed(), core.condition()), (true, Condition::Starting), "what is there is served");
    a.nothing_up_to(20);
    assert_eq!(core.store.revision(), 20, "what is not listed yet does not turn it back");
    assert_eq!((core.revision_of("a"), core.revision_of("b"), core.revision_of("c")), (Some(20), None, None));
    b.all(vec![entry("b", 21)], Vec::new(), 22);
    b.well();
    assert!(matches!(cursor.try_next(), Some(Item::Event(Event::Create { initial: false, .. }))));
    assert_eq!((core.store.revision(), core.condition(), core.stats().relists), (20, Condition::Synced, 0));

    core.leave("a");
    let told = cursor.try_next();
    assert!(matches!(told, Some(Item::Event(Event::Delete { state_unknown: true, .. }))), "{told:?}");
    assert_eq!((core.store.len(), core.store.revision(), core.revision_of("a")), (1, 22, None));
    a.put(entry("a", 30), 30);
    a.failed(&Failure::EndedAtOnce);
    assert_eq!((core.store.len(), core.condition()), (1, Condition::Synced), "it has nothing to say any more");
}

#[test]
fn what_is_in_no_named_namespace_is_a_part_of_its_own() {
    let types = TypeMeta { api_version: "v1".into(), kind: "ConfigMap".into() };
    let core = Arc::new(Core::<MetadataOnly>::new(Decoder::new(types)));
    let entry = |namespace: &str| {
        let json = json!({"metadata": {"name": "o", "namespace": namespace, "resourceVersion": "1"}});
        let object = core.decoder.decode::<MetadataOnly>(json.to_string().as_bytes()).expect("an object");
        Entry::new(object.key(), Arc::new(object), 0)
    };
    let [named, others] = [Some("a".to_owned()), None].map(|namespace| core.join(namespace));
    core.parts_are(Condition::Synced);
    core.all_joined();
    named.all(vec![entry("a")], Vec::new(), 5);
    others.all(vec![entry("b"), entry("c")], Vec::new(), 6);
    others.all(vec![entry("c")], Vec::new(), 7);
    let mut kept: Vec<_> = core.store.snapshot().iter().map(|entry| entry.key.to_string()).collect();
    kept.sort();
    assert_eq!(kept, ["a/o", "c/o"]);
    assert_eq!((core.revision_of("a"), core.revision_of("x"), core.store.revision()), (Some(5), Some(7), 5));
}

#[test]
fn an_index_function_may_ask_for_numbers_and_who_else_does_is_not_kept_waiting() {
    /// Fails if it is.
    fn soon<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, answer) = channel();
        thread::spawn(move || done.send(work()));
        answer.recv_timeout(Duration::from_secs(30)).expect("it waits for the index")
    }
    let types = TypeMeta { api_version: "v1".into(), kind: "ConfigMap".into() };
    let core = Arc::new(Core::<MetadataOnly>::new(Decoder::new(types)));
    let entry = |version: u64| {
        let json = json!({"metadata": {"name": "o", "namespace": "a", "resourceVersion": version.to_string()}});
        let object = core.decoder.decode::<MetadataOnly>(json.to_string().as_bytes()).expect("an object");
        Entry::new(object.key(), Arc::new(object), 0)
    };
    let ((begun, begins), (end, ends)) = (channel(), channel::<()>());
    let (own, ends) = (Arc::downgrade(&core), parking_lot::Mutex::new(ends));
    core.store.add_indexer(Arc::new(Function::new(move |_: &Arc<MetadataOnly>| {
        let objects = own.upgrade().map_or(0, |core| core.stats().objects);
        begun.send(()).expect("the test waits for it");
        // Until the test lets go of it.
        let _ = ends.lock().recv();
        Ok(vec![objects])
    })));
    let part = Arc::new(core.join(Some("a".into())));
    core.parts_are(Condition::Synced);
    core.all_joined();
    let seen = || {
        begins.recv_timeout(Duration::from_secs(30)).expect("it is asked, and has its answer");
        let core = core.clone();
        let seen = soon(move || (core.revision_of("a"), core.stats().objects, core.stats().since_heard.is_some()));
        end.send(()).expect("it waits");
        seen
    };
    let (lists, first) = (part.clone(), entry(1));
    let lists = thread::spawn(move || lists.all(vec![first], Vec::new(), 10));
    assert_eq!(seen(), (None, 0, false), "nothing is said to be there before the store shows it");
    lists.join().expect("it is listed");
    let second = entry(11);
    let puts = thread::spawn(move || part.put(second, 11));
    // Of what was, and of what is.
    assert_eq!([seen(), seen()], [(Some(10), 1, true); 2]);
    puts.join().expect("it is put in");
    assert_eq!((core.revision_of("a"), core.store.revision()), (Some(11), 11));
}
