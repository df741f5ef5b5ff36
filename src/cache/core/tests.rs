mod restored;
mod revisions;
mod undecoded;

use super::*;
use crate::{
    cache::{
        fanout::Item,
        ledger::{DeleteAnnouncement, Token, Writer},
        reflector::{Failure, ListWatch, Reflector, Sink},
        store::FnIndexer,
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

/// Server, and a running informer of its config maps.
struct Fixture<P> {
    server: ApiServer,
    maps: Api<ConfigMap>,
    core: Arc<Core<P>>,
    running: tokio::task::JoinHandle<()>,
}

impl<P> Drop for Fixture<P> {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl<P: Payload> Fixture<P> {
    fn new() -> Self {
        Self::with(|_| {})
    }

    /// Starts an informer of a server after `prepare` has run.
    fn with(prepare: impl FnOnce(&ApiServer)) -> Self {
        let server = ApiServer::new(Options::default()).expect("a server without data starts");
        prepare(&server);
        let client = Client::new(server.service(), "default");
        let types = TypeMeta {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
        };
        let core = Arc::new(Core::<P>::new(Decoder::new(types)));
        let list_watch = ListWatch {
            path: "/api/v1/configmaps".into(),
            labels: None,
            fields: None,
            metadata_only: std::any::type_name::<P>().ends_with("MetadataOnly"),
            kind_checks: None,
        };
        let part = whole(&core);
        let counted = Connection::from(client.clone())
            .client()
            .expect("a ready client");
        let reflector = Reflector::new(counted, list_watch, part, 2);
        let running = tokio::spawn(async { drop(reflector.run().await) });
        Self {
            server,
            maps: Api::default_namespaced(client),
            core,
            running,
        }
    }

    async fn make(&self, name: &str) -> ConfigMap {
        let map = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": "0"}}))
            .expect("a map");
        self.maps
            .create(&PostParams::default(), &map)
            .await
            .expect("the object is created")
    }

    /// Waits until the store equals the server's objects.
    async fn converge(&self) {
        let server = async || {
            let list = self
                .maps
                .list(&ListParams::default())
                .await
                .expect("a list");
            let pair =
                |map: &ConfigMap| (map.name_any(), map.resource_version().expect("a version"));
            list.items.iter().map(pair).collect::<BTreeMap<_, _>>()
        };
        let store = || {
            let pair = |entry: &Entry<P>| {
                let version = entry
                    .object
                    .meta()
                    .resource_version()
                    .unwrap_or_default()
                    .to_owned();
                (entry.key.name().to_owned(), version)
            };
            self.core
                .store
                .snapshot()
                .iter()
                .map(pair)
                .collect::<BTreeMap<_, _>>()
        };
        let alike = async {
            while server().await != store() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let done = tokio::time::timeout(Duration::from_mins(10), alike).await;
        let (server, store) = (server().await, store());
        assert!(
            done.is_ok(),
            "the server has {server:?}, the store {store:?}, {:?}",
            self.core.condition()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn listed_and_watched_objects_are_in_the_store() {
    let fixture = Fixture::<ConfigMap>::new();
    fixture.make("a").await;
    fixture.core.synced().await;
    fixture.make("b").await;
    fixture.converge().await;
    fixture
        .maps
        .delete("a", &DeleteParams::default())
        .await
        .expect("the object exists");
    fixture.converge().await;
    assert_eq!(fixture.core.condition(), Condition::Synced);
    let kept = fixture
        .core
        .store
        .get(&ObjectKey::new("default", "b"))
        .expect("the object exists");
    assert!(kept.metadata.managed_fields.is_none());
}

#[tokio::test(start_paused = true)]
async fn every_representation_is_kept_up_to_date() {
    async fn check<P: Payload>() {
        let fixture = Fixture::<P>::new();
        for name in ["a", "b", "c"] {
            fixture.make(name).await;
        }
        fixture.converge().await;
    }
    check::<ConfigMap>().await;
    check::<Compact>().await;
    check::<MetadataOnly>().await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_resource_version_causes_a_relist_that_deletes_missing_objects() {
    let fixture = Fixture::<Compact>::new();
    fixture.make("a").await;
    fixture.converge().await;
    let mut subscription = fixture.core.subscribe();
    assert!(matches!(
        subscription.next().await,
        Some(Item::Event(Event::Create { initial: true, .. }))
    ));
    assert!(matches!(subscription.next().await, Some(Item::InitialDone)));

    fixture
        .server
        .faults()
        .add(Fault::on("watch configmaps").status(500).times(3));
    fixture
        .server
        .faults()
        .add(Fault::on("watch configmaps").drop_watch_after(0).times(1));
    fixture.make("b").await;
    fixture
        .maps
        .delete("a", &DeleteParams::default())
        .await
        .expect("the object exists");
    fixture.server.compact();
    fixture.converge().await;
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_reported_with_the_servers_message_until_it_ends() {
    let fixture = Fixture::<Compact>::with(|server| {
        server
            .faults()
            .add(Fault::on("watch configmaps").status(403).times(2));
    });
    let mut condition = fixture.core.condition.subscribe();
    let degraded = condition
        .wait_for(|condition| matches!(condition, Condition::Degraded { .. }))
        .await;
    let Condition::Degraded { error, .. } = degraded.expect("the cache is open").clone() else {
        unreachable!()
    };
    assert!(error.to_lowercase().contains("forbidden"), "{error}");
    fixture.core.synced().await;
    assert_eq!(fixture.core.condition(), Condition::Synced);
}

/// Adds the only part of an informer.
fn whole<P: Payload>(core: &Arc<Core<P>>) -> NamespaceCore<P> {
    let part = core.add_namespace(None);
    core.set_namespaces_condition(Condition::Synced);
    core.namespaces_complete();
    part
}

/// Creates a core without a reflector, and a function that creates its objects.
fn metadata_core() -> (
    Arc<Core<MetadataOnly>>,
    impl Fn(&str, u64) -> Entry<MetadataOnly>,
) {
    let types = TypeMeta {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
    };
    let core = Arc::new(Core::<MetadataOnly>::new(Decoder::new(types)));
    let decoding = core.clone();
    let entry = move |namespace: &str, version: u64| {
        let json = json!({"metadata": {"name": "o", "namespace": namespace, "resourceVersion": version.to_string()}});
        let object = decoding
            .decoder
            .decode::<MetadataOnly>(json.to_string().as_bytes())
            .expect("an object");
        Entry::new(object.key(), Arc::new(object), 0)
    };
    (core, entry)
}

#[test]
fn repeated_events_change_nothing() {
    let (core, entry) = metadata_core();
    let part = whole(&core);
    part.replace(vec![entry("a", 3)], Vec::new(), 5);
    let last =
        |version| Some(Arc::into_inner(entry("a", version).object).expect("the only reference"));
    let key = entry("a", 3).key;
    part.delete(&key, last(6), 6);
    part.put(entry("a", 4), 4);
    assert_eq!(
        (core.store.len(), core.store.revision()),
        (0, 6),
        "an old event does not restore a deleted object"
    );
    part.put(entry("a", 7), 7);
    part.delete(&key, last(6), 6);
    assert_eq!(
        (core.store.len(), core.store.revision()),
        (1, 7),
        "an old deletion does not delete a newer object"
    );
    part.put(entry("a", 7), 7);
    part.advance(2);
    assert_eq!(
        (core.stats().events, core.store.revision()),
        (3, 7),
        "the revision does not decrease"
    );
    part.replace(vec![entry("a", 3)], Vec::new(), 5);
    assert_eq!(
        core.store.get(&key).and_then(|object| object.revision()),
        Some(3),
        "unless the server itself has"
    );
    part.put(entry("a", 6), 6);
    assert_eq!(core.store.revision(), 6);
}

#[tokio::test(start_paused = true)]
async fn the_statistics_follow_the_events() {
    let fixture = Fixture::<Compact>::new();
    assert_eq!(
        (
            fixture.core.stats().since_heard,
            fixture.core.stats().approximate_bytes
        ),
        (None, 0)
    );
    fixture.make("a").await;
    fixture.core.synced().await;
    fixture.make("b").await;
    fixture.converge().await;
    let mut subscription = fixture.core.subscribe();
    let stats = fixture.core.stats();
    let measured: usize = fixture
        .core
        .store
        .snapshot()
        .iter()
        .map(|entry| entry.object.heap_bytes())
        .sum();
    assert_eq!(stats.approximate_bytes, measured as u64);
    assert_eq!(
        (
            stats.objects,
            stats.events,
            stats.relists,
            stats.watch_restarts
        ),
        (2, 2, 0, 0)
    );
    while subscription.try_next().is_some() {}

    // The server closes watches after some minutes, and sends a bookmark every minute.
    tokio::time::sleep(Duration::from_mins(30)).await;
    let stats = fixture.core.stats();
    assert!(stats.watch_restarts >= 3 && stats.relists == 0, "{stats:?}");
    assert!(
        stats.since_last_event >= Some(Duration::from_mins(29)) && stats.events_per_second < 0.01,
        "{stats:?}"
    );
    assert!(
        stats.since_heard < Some(Duration::from_mins(2)),
        "{stats:?}"
    );
    fixture
        .server
        .faults()
        .add(Fault::on("watch configmaps").status(503));
    fixture
        .server
        .faults()
        .add(Fault::on("list configmaps").status(503));
    fixture
        .server
        .faults()
        .add(Fault::on("watch configmaps").drop_watch_after(0).times(1));
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert!(
        fixture.core.stats().since_heard > Some(Duration::from_mins(15)),
        "{:?}",
        fixture.core.stats()
    );
    fixture.make("c").await;
    assert_eq!(fixture.core.stats().handlers.len(), 1);
    drop(subscription);
    assert!(fixture.core.stats().handlers.is_empty());
}

#[test]
fn several_namespaces_are_listed_once_all_are_at_the_smallest_revision() {
    let (core, entry) = metadata_core();
    let parts = ["a", "b"].map(|name| core.add_namespace(Some(name.to_owned())));
    core.set_namespaces_condition(Condition::Synced);
    core.namespaces_complete();
    let mut subscription = core.subscribe();
    parts[0].replace(vec![entry("a", 7)], Vec::new(), 10);
    parts[0].succeeded();
    assert_eq!(
        (core.is_listed(), core.store.revision(), core.condition()),
        (false, 0, Condition::Starting)
    );
    parts[1].replace(vec![entry("b", 3)], Vec::new(), 5);
    parts[1].succeeded();
    assert_eq!(
        (core.is_listed(), core.store.revision(), core.condition()),
        (true, 5, Condition::Synced)
    );
    for _ in 0..2 {
        assert!(matches!(
            subscription.try_next(),
            Some(Item::Event(Event::Create { initial: true, .. }))
        ));
    }
    assert!(
        matches!(subscription.try_next(), Some(Item::InitialDone)),
        "delivered after all namespaces are listed"
    );

    parts[0].advance(20);
    assert_eq!(
        core.store.revision(),
        5,
        "the other namespace limits the revision"
    );
    parts[1].put(entry("b", 15), 15);
    assert_eq!(core.store.revision(), 15);
    parts[1].replace(Vec::new(), Vec::new(), 30);
    assert_eq!(
        (core.store.len(), core.store.revision()),
        (1, 20),
        "a list of one leaves the other alone"
    );
    parts[1].failed(&Failure::ClosedAtOnce);
    assert!(
        matches!(core.condition(), Condition::Degraded { .. }),
        "the worst of them counts"
    );
    core.close();
    parts[1].succeeded();
    assert_eq!(
        core.condition(),
        Condition::Closed,
        "a closed informer stays closed"
    );
}

/// Waker that reads immediately, as a worker on another thread may.
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
fn reads_succeed_once_a_waiter_is_notified_of_the_sync() {
    let (core, _) = metadata_core();
    let part = whole(&core);
    let mut subscription = core.subscribe();
    let mut conditions = core.conditions();
    let waiting = core.clone();
    let reader = || {
        Arc::new(ReadsWhenWoken {
            core: core.clone(),
            served: Mutex::default(),
        })
    };
    let (handler, watcher, waiter) = (reader(), reader(), reader());
    let wakers = [&handler, &watcher, &waiter].map(|reader| reader.clone().into());
    let [mut handles, mut watches, mut waits] = wakers.each_ref().map(Context::from_waker);
    let mut condition = pin!(conditions.wait_for(|condition| *condition == Condition::Synced));
    let mut synced = pin!(waiting.synced());
    assert!(subscription.poll_next(&mut handles).is_pending());
    assert!(condition.as_mut().poll(&mut watches).is_pending());
    assert!(synced.as_mut().poll(&mut waits).is_pending());
    part.replace(Vec::new(), Vec::new(), 1);
    assert!(matches!(subscription.try_next(), Some(Item::InitialDone)));
    for reader in [handler, watcher, waiter] {
        let served = reader.served.lock();
        assert!(
            !served.is_empty() && served.iter().all(|served| *served),
            "{served:?}"
        );
    }
}

/// Sends a delete as soon as it is woken, as a worker on another thread may.
struct DeletesWhenWoken {
    ledger: Arc<Ledger>,
    key: ObjectKey,
    sent: Mutex<Option<DeleteAnnouncement>>,
}

impl Wake for DeletesWhenWoken {
    fn wake(self: Arc<Self>) {
        *self.sent.lock() = Some(self.ledger.announce_delete(&self.key));
    }
}

#[test]
fn a_delete_sent_after_the_first_list_is_not_taken_for_shown_by_it() {
    let (core, _) = metadata_core();
    let (part, token) = (whole(&core), Token::default());
    let worker = Arc::new(DeletesWhenWoken {
        ledger: core.ledger.clone(),
        key: ObjectKey::new("a", "brief"),
        sent: Mutex::default(),
    });
    let waker = worker.clone().into();
    let waiting = core.clone();
    let mut synced = pin!(waiting.synced());
    assert!(
        synced
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    part.replace(Vec::new(), Vec::new(), 10);
    let sent = worker.sent.lock().take().expect("the worker was woken");
    // Another client created the object after the list.
    sent.deleted(&Writer::of(&token), "1", true, &|key, uid| {
        core.existence(key, uid)
    });
    assert!(!core.ledger.is_caught_up(&token), "the list is older");
    part.delete(&worker.key, None, 12);
    assert!(core.ledger.is_caught_up(&token));
}

#[test]
fn a_list_after_a_restart_of_the_reflectors_is_a_new_list() {
    let types = TypeMeta {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
    };
    let core = Arc::new(Core::<MetadataOnly>::new(Decoder::new(types)));
    let list = |namespace: &str, revision| {
        core.add_namespace(Some(namespace.into()))
            .replace(Vec::new(), Vec::new(), revision);
    };
    core.restart();
    list("a", 1);
    core.namespaces_complete();
    list("b", 2);
    assert_eq!(core.stats().relists, 0, "each for the first time");
    core.restart();
    core.restart();
    assert!(
        core.is_namespace_listed("a")
            && core.is_namespace_listed("b")
            && !core.is_namespace_listed("c"),
        "listed namespaces are served during a restart"
    );
    list("a", 3);
    assert_eq!(core.stats().relists, 1);
    core.namespaces_complete();
    assert!(
        core.is_namespace_listed("a") && !core.is_namespace_listed("b"),
        "a namespace that is not added again is removed"
    );
    list("c", 4);
    list("b", 5);
    assert_eq!(
        core.stats().relists,
        1,
        "first lists of added namespaces are not relists"
    );
}

#[test]
fn added_namespaces_report_creates_and_removed_ones_deletes() {
    let types = TypeMeta {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
    };
    let core = Arc::new(Core::<MetadataOnly>::new(Decoder::new(types)));
    let entry = |namespace: &str, version: u64| {
        let json = json!({"metadata": {"name": "o", "namespace": namespace, "resourceVersion": version.to_string()}});
        let object = core
            .decoder
            .decode::<MetadataOnly>(json.to_string().as_bytes())
            .expect("an object");
        Entry::new(object.key(), Arc::new(object), 0)
    };
    let mut subscription = core.subscribe();
    let a = core.add_namespace(Some("a".into()));
    a.replace(vec![entry("a", 7)], Vec::new(), 10);
    a.succeeded();
    assert!(!core.is_listed(), "there may be more");
    core.set_namespaces_condition(Condition::Synced);
    core.namespaces_complete();
    assert_eq!(
        (core.is_listed(), core.condition()),
        (true, Condition::Synced)
    );
    assert!(matches!(
        subscription.try_next(),
        Some(Item::Event(Event::Create { initial: true, .. }))
    ));
    assert!(matches!(subscription.try_next(), Some(Item::InitialDone)));

    let b = core.add_namespace(Some("b".into()));
    assert_eq!(
        (core.is_listed(), core.condition()),
        (true, Condition::Starting),
        "listed objects are served"
    );
    a.advance(20);
    assert_eq!(
        core.store.revision(),
        20,
        "an unlisted namespace does not decrease the revision"
    );
    assert_eq!(
        (
            core.revision_of("a"),
            core.revision_of("b"),
            core.revision_of("c")
        ),
        (Some(20), None, None)
    );
    b.replace(vec![entry("b", 21)], Vec::new(), 22);
    b.succeeded();
    assert!(matches!(
        subscription.try_next(),
        Some(Item::Event(Event::Create { initial: false, .. }))
    ));
    assert_eq!(
        (
            core.store.revision(),
            core.condition(),
            core.stats().relists
        ),
        (20, Condition::Synced, 0)
    );

    core.remove_namespace("a");
    let event = subscription.try_next();
    assert!(
        matches!(
            event,
            Some(Item::Event(Event::Delete {
                state_unknown: true,
                ..
            }))
        ),
        "{event:?}"
    );
    assert_eq!(
        (
            core.store.len(),
            core.store.revision(),
            core.revision_of("a")
        ),
        (1, 22, None)
    );
    a.put(entry("a", 30), 30);
    a.failed(&Failure::ClosedAtOnce);
    assert_eq!(
        (core.store.len(), core.condition()),
        (1, Condition::Synced),
        "a removed namespace has no effect"
    );
}

#[test]
fn objects_of_unnamed_namespaces_share_a_core() {
    let types = TypeMeta {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
    };
    let core = Arc::new(Core::<MetadataOnly>::new(Decoder::new(types)));
    let entry = |namespace: &str| {
        let json =
            json!({"metadata": {"name": "o", "namespace": namespace, "resourceVersion": "1"}});
        let object = core
            .decoder
            .decode::<MetadataOnly>(json.to_string().as_bytes())
            .expect("an object");
        Entry::new(object.key(), Arc::new(object), 0)
    };
    let [named, others] =
        [Some("a".to_owned()), None].map(|namespace| core.add_namespace(namespace));
    core.set_namespaces_condition(Condition::Synced);
    core.namespaces_complete();
    named.replace(vec![entry("a")], Vec::new(), 5);
    others.replace(vec![entry("b"), entry("c")], Vec::new(), 6);
    others.replace(vec![entry("c")], Vec::new(), 7);
    let mut kept: Vec<_> = core
        .store
        .snapshot()
        .iter()
        .map(|entry| entry.key.to_string())
        .collect();
    kept.sort();
    assert_eq!(kept, ["a/o", "c/o"]);
    assert_eq!(
        (
            core.revision_of("a"),
            core.revision_of("x"),
            core.store.revision()
        ),
        (Some(5), Some(7), 5)
    );
}

#[test]
fn an_index_function_does_not_block_reads_of_statistics() {
    /// Runs `work` on a thread. Panics if it blocks.
    fn run_on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, answer) = channel();
        thread::spawn(move || done.send(work()));
        answer
            .recv_timeout(Duration::from_secs(30))
            .expect("the index function does not block")
    }
    let types = TypeMeta {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
    };
    let core = Arc::new(Core::<MetadataOnly>::new(Decoder::new(types)));
    let entry = |version: u64| {
        let json = json!({"metadata": {"name": "o", "namespace": "a", "resourceVersion": version.to_string()}});
        let object = core
            .decoder
            .decode::<MetadataOnly>(json.to_string().as_bytes())
            .expect("an object");
        Entry::new(object.key(), Arc::new(object), 0)
    };
    let ((begun, begins), (end, ends)) = (channel(), channel::<()>());
    let (own, ends) = (Arc::downgrade(&core), parking_lot::Mutex::new(ends));
    core.store
        .add_indexer(Arc::new(FnIndexer::new(move |_: &Arc<MetadataOnly>| {
            let objects = own.upgrade().map_or(0, |core| core.stats().objects);
            begun.send(()).expect("the test waits for it");
            // Blocks until the test continues.
            let _ = ends.lock().recv();
            Ok(vec![objects])
        })));
    let part = Arc::new(core.add_namespace(Some("a".into())));
    core.set_namespaces_condition(Condition::Synced);
    core.namespaces_complete();
    let seen = || {
        begins
            .recv_timeout(Duration::from_secs(30))
            .expect("the handler is called");
        let core = core.clone();
        let seen = run_on_thread(move || {
            (
                core.revision_of("a"),
                core.stats().objects,
                core.stats().since_heard.is_some(),
            )
        });
        end.send(()).expect("the other thread waits");
        seen
    };
    let (lists, first) = (part.clone(), entry(1));
    let lists = thread::spawn(move || lists.replace(vec![first], Vec::new(), 10));
    assert_eq!(
        seen(),
        (None, 0, false),
        "no event or state precedes the store"
    );
    lists.join().expect("the list completes");
    let second = entry(11);
    let puts = thread::spawn(move || part.put(second, 11));
    // The index function is called for the old and the new object.
    assert_eq!([seen(), seen()], [(Some(10), 1, true); 2]);
    puts.join().expect("the object is stored");
    assert_eq!(
        (core.revision_of("a"), core.store.revision()),
        (Some(11), 11)
    );
}
