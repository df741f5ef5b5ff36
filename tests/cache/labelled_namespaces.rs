//! Tests of namespaces that are selected by label and change over time.

use super::support::{cache, create_map, stored_objects, until};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube_client::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;
use std::{
    collections::BTreeSet,
    sync::{Mutex, mpsc::channel},
    time::Duration,
};
use steersman::{
    cache::{CacheError, CacheOptions, InformerEvent, InformerState, Namespaces, Query, Select},
    event::Event,
    object::ObjectKey,
    testing::{Embedded, Env, TestServer, seed_jitter},
};
use steersman_apiserver::Fault;
use steersman_testkit::{Seeds, this_test};
use tokio::{sync::mpsc::unbounded_channel, time::timeout};

async fn label(client: &Client, namespace: &str, labels: serde_json::Value) {
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces
        .patch(namespace, &PatchParams::default(), &patch)
        .await
        .expect("exists");
}

fn labelled(selector: &str) -> Select<ConfigMap> {
    Select::new().namespaces(Namespaces::Labelled(selector.into()))
}

steersman::env_test! {
    async fn labelled_namespaces_join_and_leave_the_scope(env: Env) -> anyhow::Result<()> {
        let client = env.client()?;
        let (one, two) = (env.namespace("first").await?, env.namespace("second").await?);
        for namespace in [&one, &two] {
            create_map(&client, namespace, "a", "blue").await;
            create_map(&client, namespace, "b", "red").await;
        }
        // A label that no other test uses.
        let tenant = format!("tenant-of={one}");
        label(&client, &one, json!({"tenant-of": one})).await;
        let cache = cache(&client, CacheOptions { labels: Some("app=blue".into()), ..CacheOptions::default() });
        let maps = cache.informer_of(labelled(&tenant))?;
        maps.await_synced().await?;
        let at = |namespaces: &[usize]| namespaces.iter().map(|at| (*at, "a".to_owned())).collect::<BTreeSet<_>>();
        let stored_objects = || stored_objects(&maps, &[&one, &two]);
        assert_eq!(stored_objects(), at(&[0]));
        let mut events = maps.events();
        assert!(matches!(events.next().await, Some(InformerEvent::Event(Event::Create { initial: true, .. }))));
        assert!(matches!(events.next().await, Some(InformerEvent::Synced)));

        label(&client, &two, json!({"tenant-of": one})).await;
        let joined = events.next().await;
        assert!(
            matches!(&joined, Some(InformerEvent::Event(Event::Create { object, initial: false })) if object.namespace() == Some(&*two)),
            "{joined:?}"
        );
        until(|| maps.state() == InformerState::Synced).await;
        assert_eq!(stored_objects(), at(&[0, 1]));
        create_map(&client, &two, "c", "blue").await;
        assert!(matches!(events.next().await, Some(InformerEvent::Event(Event::Create { initial: false, .. }))));

        label(&client, &one, json!({"tenant-of": null})).await;
        let left = events.next().await;
        assert!(
            matches!(&left, Some(InformerEvent::Event(Event::Delete { object, state_unknown: true })) if object.namespace() == Some(&*one)),
            "{left:?}"
        );
        let read = maps.get(&ObjectKey::new(&one, "a"));
        assert!(matches!(read, Err(CacheError::NamespaceNotCached { .. })), "{read:?}");
        // Events of that namespace are ignored, and its objects are new when it returns.
        create_map(&client, &one, "d", "blue").await;
        let last = create_map(&client, &two, "e", "blue").await;
        let written = last.metadata.resource_version.and_then(|version| version.parse::<u64>().ok());
        until(|| maps.resource_version() >= written).await;
        assert!(maps.get(&ObjectKey::new(&one, "d")).is_err() && maps.get(&ObjectKey::new(&two, "e"))?.is_some());
        label(&client, &one, json!({"tenant-of": one})).await;
        until(|| maps.get(&ObjectKey::new(&one, "d")).is_ok_and(|read| read.is_some())).await;
        cache.stop().await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn informers_with_equal_namespace_selectors_share_one_watch_of_namespaces() {
    let server = Embedded::start().expect("the server starts");
    let client = server.client().expect("a client");
    let name = server.namespace("tenant").await.expect("a namespace");
    label(&client, &name, json!({"tenant": "", "paid": ""})).await;
    let cache = cache(
        &client,
        CacheOptions {
            namespaces: Namespaces::Labelled("tenant,paid".into()),
            ..CacheOptions::default()
        },
    );
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    let secrets = cache.informer_of(
        Select::<Secret>::new().namespaces(Namespaces::Labelled("paid, tenant".into())),
    );
    let secrets = secrets.expect("the informer is declared");
    // The user's own informer of the same namespaces keeps the user's options.
    let namespaces = cache
        .informer_of(Select::<Namespace>::new().labels("paid,tenant"))
        .expect("another informer is declared");
    cache.await_synced().await.expect("synced");
    assert!(
        namespaces
            .get(&ObjectKey::cluster_scoped(&name))
            .expect("synced")
            .is_some()
    );
    let journal = server.server().journal();
    assert_eq!(
        (
            journal.count("watch namespaces"),
            journal.count("watch configmaps"),
            journal.count("watch secrets")
        ),
        (2, 1, 1)
    );
    drop(namespaces);
    drop(maps);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(cache.informers().len(), 2, "secrets and the namespaces");
    drop(secrets);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(cache.informers().len(), 0);
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_list_of_namespaces_is_reported_and_an_empty_one_syncs() {
    let server = Embedded::start().expect("the server starts");
    let client = server.client().expect("a client");
    let rule = server
        .server()
        .faults()
        .add(Fault::on("watch namespaces").status(403));
    let cache = cache(&client, CacheOptions::default());
    let maps = cache
        .informer_of(labelled("tenant"))
        .expect("the informer is declared");
    until(|| matches!(maps.state(), InformerState::Degraded { .. })).await;
    let error = maps
        .list(&Query::default())
        .expect_err("nothing is known")
        .to_string();
    assert!(error.to_lowercase().contains("forbidden"), "{error}");
    rule.remove();
    maps.await_synced().await.expect("synced");
    assert!(maps.list(&Query::default()).expect("synced").is_empty());
    until(|| maps.state() == InformerState::Synced).await;

    // A namespace that cannot be listed does not block the others, and is ignored once it leaves.
    let (one, two) = (
        server.namespace("one").await.expect("one"),
        server.namespace("two").await.expect("two"),
    );
    server
        .server()
        .faults()
        .add(Fault::on(&format!("watch configmaps {two}/*")).status(403));
    for namespace in [&one, &two] {
        create_map(&client, namespace, "a", "blue").await;
        label(&client, namespace, json!({"tenant": ""})).await;
    }
    until(|| matches!(maps.state(), InformerState::Degraded { .. })).await;
    until(|| maps.list(&Query::default()).expect("synced").len() == 1).await;
    Api::<Namespace>::all(client.clone())
        .delete(&two, &DeleteParams::default())
        .await
        .expect("exists");
    until(|| maps.state() == InformerState::Synced).await;
    cache.stop().await;
}

/// The cache and a handler converge while namespaces and objects change at random and watches
/// break.
#[tokio::test(start_paused = true)]
async fn soak_an_informer_of_labelled_namespaces_converges_on_the_server() {
    for seed in Seeds::new(this_test!(), 40) {
        let _seeded = seed_jitter(seed);
        let mut random = StdRng::seed_from_u64(seed);
        let server = Embedded::start().expect("the server starts");
        let client = server.client().expect("a client");
        let mut names = Vec::new();
        for _ in 0..4 {
            names.push(server.namespace("n").await.expect("a namespace"));
        }
        let cache = cache(&client, CacheOptions::default());
        let maps = cache
            .informer_of(labelled("tenant").compact())
            .expect("the informer is declared");
        let mut events = maps.events();
        for _ in 0..60 {
            let name = &names[random.random_range(0..names.len())];
            let object = format!("o{}", random.random_range(0..3));
            let api = Api::<ConfigMap>::namespaced(client.clone(), name);
            match random.random_range(0..10) {
                0..2 => label(&client, name, json!({"tenant": ""})).await,
                2..4 => label(&client, name, json!({"tenant": null})).await,
                4..6 => {
                    let map = serde_json::from_value(json!({"metadata": {"name": object}}))
                        .expect("a map");
                    drop(
                        api.create(&kube_client::api::PostParams::default(), &map)
                            .await,
                    );
                }
                6 => drop(api.delete(&object, &DeleteParams::default()).await),
                7 => {
                    let fault = Fault::on(
                        ["watch configmaps", "watch namespaces"][random.random_range(0..2)],
                    );
                    server
                        .server()
                        .faults()
                        .add(match random.random_range(0..3) {
                            0 => fault.status(410).times(1),
                            1 => fault.status(500).times(1),
                            _ => fault.drop_watch_after(random.random_range(0..3)).times(1),
                        });
                }
                8 => server.server().compact(),
                _ => {
                    tokio::time::sleep(Duration::from_millis(random.random_range(0..20_000))).await;
                }
            }
        }
        let mut expected = BTreeSet::new();
        for namespace in Api::<Namespace>::all(client.clone())
            .list(&ListParams::default().labels("tenant"))
            .await
            .expect("a list")
        {
            let namespace = namespace.metadata.name.expect("a name");
            let api = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
            let list = api.list(&ListParams::default()).await.expect("a list");
            expected.extend(list.iter().map(ObjectKey::of));
        }
        let stored_objects = || {
            maps.list(&Query::default()).map(|all| {
                all.iter()
                    .map(|map| ObjectKey::of(&**map))
                    .collect::<BTreeSet<_>>()
            })
        };
        let converged = async {
            until(|| {
                stored_objects().is_ok_and(|stored_objects| stored_objects == expected)
                    && maps.state() == InformerState::Synced
            })
            .await;
        };
        let done = tokio::time::timeout(Duration::from_mins(30), converged).await;
        assert!(
            done.is_ok(),
            "seed {seed}: expected {expected:?}, stored {:?}, {:?}",
            stored_objects(),
            maps.state()
        );
        cache.stop().await;
        let mut received = BTreeSet::new();
        while let Some(item) = events.next().await {
            let InformerEvent::Event(event) = item else {
                continue;
            };
            let (key, known) = (
                event.object().key().clone(),
                received.contains(event.object().key()),
            );
            match event {
                Event::Create { .. } => assert!(!known && received.insert(key), "seed {seed}"),
                Event::Delete { .. } => assert!(known && received.remove(&key), "seed {seed}"),
                _ => assert!(known, "seed {seed}"),
            }
        }
        assert_eq!(received, expected, "seed {seed}");
    }
}

/// The index function blocks on a thread of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reads_do_not_wait_for_index_functions_of_labelled_namespaces() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let client = server.client()?;
    label(&client, "default", json!({"tenant": ""})).await;
    let cache = cache(
        &client,
        CacheOptions {
            kinds: vec![labelled("tenant").into()],
            ..CacheOptions::default()
        },
    );
    let (maps, _secrets) = (cache.informer::<ConfigMap>()?, cache.informer::<Secret>()?);
    cache.await_synced().await?;
    let ((started_sender, mut started), (finish_sender, finish)) =
        (unbounded_channel(), channel::<()>());
    let finish = Mutex::new(finish);
    let _index = maps.index(move |_: &ConfigMap| {
        started_sender.send(()).expect("the test waits for it");
        // Blocks until the test continues.
        let _ = finish.lock().expect("not poisoned").recv();
        vec![1]
    });
    create_map(&client, "default", "slow", "blue").await;
    started.recv().await.expect("the index function is called");
    let reads = steersman::client::Client::new(client)?.with_cache(cache.clone());
    let reads = tokio::spawn(async move {
        let key = ObjectKey::new("default", "slow");
        (
            reads.get::<ConfigMap>(&key).await,
            reads.get::<Secret>(&key).await,
        )
    });
    let reads = timeout(Duration::from_secs(30), reads).await;
    drop(finish_sender);
    let (map, secret) = reads.expect("reads do not wait")?;
    assert!(map?.is_none() && secret?.is_none());
    until(|| maps.stats().objects == 1).await;
    cache.stop().await;
    Ok(())
}
