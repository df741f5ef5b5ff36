//! Namespaces that are selected by their labels, and come and go.

use super::support::{cache, kept, make, until};
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
    cache::{CacheError, CacheOptions, InformerState, Namespaces, Notice, Query, Select},
    event::Event,
    object::ObjectKey,
    testing::{Embedded, Env, TestServer},
};
use steersman_apiserver::Fault;
use steersman_testkit::{Seeds, this_test};
use tokio::{sync::mpsc::unbounded_channel, time::timeout};

async fn label(client: &Client, namespace: &str, labels: serde_json::Value) {
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.patch(namespace, &PatchParams::default(), &patch).await.expect("it is there");
}

fn labelled(selector: &str) -> Select<ConfigMap> {
    Select::new().namespaces(Namespaces::Labelled(selector.into()))
}

steersman::env_test! {
    async fn namespaces_that_are_selected_by_label_come_and_go(env: Env) -> anyhow::Result<()> {
        let client = env.client()?;
        let (one, two) = (env.namespace("first").await?, env.namespace("second").await?);
        for namespace in [&one, &two] {
            make(&client, namespace, "a", "blue").await;
            make(&client, namespace, "b", "red").await;
        }
        // A label that no other test has.
        let tenant = format!("tenant-of={one}");
        label(&client, &one, json!({"tenant-of": one})).await;
        let cache = cache(&client, CacheOptions { labels: Some("app=blue".into()), ..CacheOptions::default() });
        let maps = cache.informer_of(labelled(&tenant))?;
        maps.await_synced().await?;
        let at = |namespaces: &[usize]| namespaces.iter().map(|at| (*at, "a".to_owned())).collect::<BTreeSet<_>>();
        let kept = || kept(&maps, &[&one, &two]);
        assert_eq!(kept(), at(&[0]));
        let mut events = maps.events();
        assert!(matches!(events.next().await, Some(Notice::Event(Event::Create { initial: true, .. }))));
        assert!(matches!(events.next().await, Some(Notice::InitialDone)));

        label(&client, &two, json!({"tenant-of": one})).await;
        let joined = events.next().await;
        assert!(
            matches!(&joined, Some(Notice::Event(Event::Create { object, initial: false })) if object.namespace() == Some(&*two)),
            "{joined:?}"
        );
        until(|| maps.state() == InformerState::Synced).await;
        assert_eq!(kept(), at(&[0, 1]));
        make(&client, &two, "c", "blue").await;
        assert!(matches!(events.next().await, Some(Notice::Event(Event::Create { initial: false, .. }))));

        label(&client, &one, json!({"tenant-of": null})).await;
        let left = events.next().await;
        assert!(
            matches!(&left, Some(Notice::Event(Event::Delete { object, state_unknown: true })) if object.namespace() == Some(&*one)),
            "{left:?}"
        );
        let read = maps.get(&ObjectKey::new(&one, "a"));
        assert!(matches!(read, Err(CacheError::NotKept { .. })), "{read:?}");
        // What happens there is no concern any more, and what comes back is new again.
        make(&client, &one, "d", "blue").await;
        let last = make(&client, &two, "e", "blue").await;
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
async fn who_selects_namespaces_alike_shares_one_watch_of_them() {
    let server = Embedded::start().expect("it starts");
    let client = server.client().expect("a client");
    let name = server.namespace("tenant").await.expect("a namespace");
    label(&client, &name, json!({"tenant": "", "paid": ""})).await;
    let cache = cache(
        &client,
        CacheOptions { namespaces: Namespaces::Labelled("tenant,paid".into()), ..CacheOptions::default() },
    );
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    let secrets = cache.informer_of(Select::<Secret>::new().namespaces(Namespaces::Labelled("paid, tenant".into())));
    let secrets = secrets.expect("it is new");
    // A user's own informer of the same namespaces is kept as the user wants it.
    let namespaces = cache.informer_of(Select::<Namespace>::new().labels("paid,tenant")).expect("it is another one");
    cache.await_synced().await.expect("it syncs");
    assert!(namespaces.get(&ObjectKey::cluster_scoped(&name)).expect("synced").is_some());
    let journal = server.server().journal();
    assert_eq!(
        (journal.count("watch namespaces"), journal.count("watch configmaps"), journal.count("watch secrets")),
        (2, 1, 1)
    );
    drop(namespaces);
    drop(maps);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(cache.informers().len(), 2, "one kind is left, and its namespaces");
    drop(secrets);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(cache.informers().len(), 0);
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_set_of_namespaces_that_is_refused_is_told_and_an_empty_one_is_synced() {
    let server = Embedded::start().expect("it starts");
    let client = server.client().expect("a client");
    let rule = server.server().faults().add(Fault::on("watch namespaces").status(403));
    let cache = cache(&client, CacheOptions::default());
    let maps = cache.informer_of(labelled("tenant")).expect("it is new");
    until(|| matches!(maps.state(), InformerState::Degraded { .. })).await;
    let error = maps.list(&Query::default()).expect_err("nothing is known").to_string();
    assert!(error.to_lowercase().contains("forbidden"), "{error}");
    rule.remove();
    maps.await_synced().await.expect("it syncs");
    assert!(maps.list(&Query::default()).expect("it is known that there is nothing").is_empty());
    until(|| maps.state() == InformerState::Synced).await;

    // A namespace that cannot be listed does not keep the others from being read, and is nobody's concern once it has left.
    let (one, two) = (server.namespace("one").await.expect("one"), server.namespace("two").await.expect("two"));
    server.server().faults().add(Fault::on(&format!("watch configmaps {two}/*")).status(403));
    for namespace in [&one, &two] {
        make(&client, namespace, "a", "blue").await;
        label(&client, namespace, json!({"tenant": ""})).await;
    }
    until(|| matches!(maps.state(), InformerState::Degraded { .. })).await;
    until(|| maps.list(&Query::default()).expect("it serves what it has").len() == 1).await;
    Api::<Namespace>::all(client.clone()).delete(&two, &DeleteParams::default()).await.expect("it is there");
    until(|| maps.state() == InformerState::Synced).await;
    cache.stop().await;
}

/// Whatever the order in which namespaces and objects come and go, and watches break: in the end what is kept is what is there, and a handler knows just that.
#[tokio::test(start_paused = true)]
async fn soak_what_is_kept_of_namespaces_that_come_and_go_is_what_is_there() {
    for seed in Seeds::new(this_test!(), 40) {
        let mut random = StdRng::seed_from_u64(seed);
        let server = Embedded::start().expect("it starts");
        let client = server.client().expect("a client");
        let mut names = Vec::new();
        for _ in 0..4 {
            names.push(server.namespace("n").await.expect("a namespace"));
        }
        let cache = cache(&client, CacheOptions::default());
        let maps = cache.informer_of(labelled("tenant").compact()).expect("it is new");
        let mut events = maps.events();
        for _ in 0..60 {
            let name = &names[random.random_range(0..names.len())];
            let object = format!("o{}", random.random_range(0..3));
            let api = Api::<ConfigMap>::namespaced(client.clone(), name);
            match random.random_range(0..10) {
                0..2 => label(&client, name, json!({"tenant": ""})).await,
                2..4 => label(&client, name, json!({"tenant": null})).await,
                4..6 => {
                    let map = serde_json::from_value(json!({"metadata": {"name": object}})).expect("a map");
                    drop(api.create(&kube_client::api::PostParams::default(), &map).await);
                }
                6 => drop(api.delete(&object, &DeleteParams::default()).await),
                7 => {
                    let fault = Fault::on(["watch configmaps", "watch namespaces"][random.random_range(0..2)]);
                    server.server().faults().add(match random.random_range(0..3) {
                        0 => fault.status(410).times(1),
                        1 => fault.status(500).times(1),
                        _ => fault.drop_watch_after(random.random_range(0..3)).times(1),
                    });
                }
                8 => server.server().compact(),
                _ => tokio::time::sleep(Duration::from_millis(random.random_range(0..20_000))).await,
            }
        }
        let mut there = BTreeSet::new();
        for namespace in
            Api::<Namespace>::all(client.clone()).list(&ListParams::default().labels("tenant")).await.expect("a list")
        {
            let namespace = namespace.metadata.name.expect("a name");
            let api = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
            let list = api.list(&ListParams::default()).await.expect("a list");
            there.extend(list.iter().map(ObjectKey::of));
        }
        let kept = || {
            maps.list(&Query::default()).map(|all| all.iter().map(|map| ObjectKey::of(&**map)).collect::<BTreeSet<_>>())
        };
        let alike =
            async { until(|| kept().is_ok_and(|kept| kept == there) && maps.state() == InformerState::Synced).await };
        let done = tokio::time::timeout(Duration::from_mins(30), alike).await;
        assert!(done.is_ok(), "seed {seed}: there is {there:?}, kept is {:?}, {:?}", kept(), maps.state());
        cache.stop().await;
        let mut told = BTreeSet::new();
        while let Some(notice) = events.next().await {
            let Notice::Event(event) = notice else { continue };
            let (key, known) = (event.object().key().clone(), told.contains(event.object().key()));
            match event {
                Event::Create { .. } => assert!(!known && told.insert(key), "seed {seed}"),
                Event::Delete { .. } => assert!(known && told.remove(&key), "seed {seed}"),
                _ => assert!(known, "seed {seed}"),
            }
        }
        assert_eq!(told, there, "seed {seed}");
    }
}

/// It takes its time in a thread of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_do_not_wait_for_an_index_function_of_namespaces_that_come_and_go() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let client = server.client()?;
    label(&client, "default", json!({"tenant": ""})).await;
    let cache = cache(&client, CacheOptions { kinds: vec![labelled("tenant").into()], ..CacheOptions::default() });
    let (maps, _secrets) = (cache.informer::<ConfigMap>()?, cache.informer::<Secret>()?);
    cache.await_synced().await?;
    let ((begun, mut begins), (end, ends)) = (unbounded_channel(), channel::<()>());
    let ends = Mutex::new(ends);
    let _index = maps.index(move |_: &ConfigMap| {
        begun.send(()).expect("the test waits for it");
        // Until the test lets go of it.
        let _ = ends.lock().expect("nobody panics with it").recv();
        vec![1]
    });
    make(&client, "default", "slow", "blue").await;
    begins.recv().await.expect("it is asked");
    let reads = steersman::client::Client::new(client)?.with_cache(cache.clone());
    let reads = tokio::spawn(async move {
        let key = ObjectKey::new("default", "slow");
        (reads.get::<ConfigMap>(&key).await, reads.get::<Secret>(&key).await)
    });
    let reads = timeout(Duration::from_secs(30), reads).await;
    drop(end);
    let (map, secret) = reads.expect("they do not wait")?;
    assert!(map?.is_none() && secret?.is_none());
    until(|| maps.stats().objects == 1).await;
    cache.stop().await;
    Ok(())
}
