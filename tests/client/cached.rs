//! Tests of reads from the cache.

use super::support::{Running, cache_options, config_map, live};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use kube_core::GroupVersionKind;
use std::{sync::Arc, time::Duration};
use steersman::{
    cache::{Cache, CacheError, CacheOptions, InformerState, Query, Select},
    client::{Client, Error},
    object::{Metadata, ObjectKey},
    testing::{Embedded, Env, TestServer},
};
use steersman_apiserver::Fault;
use tokio::time::Instant;

steersman::env_test! {
    async fn a_read_of_a_declared_kind_is_cached_and_of_another_kind_an_error(env: Env) -> anyhow::Result<()> {
        let (live, namespace) = live(&env).await?;
        let key = ObjectKey::new(&namespace, "colors");
        let made = live.create(&config_map(&namespace, "colors", "blue")).await?;
        let cache = Running::new(&env, cache_options(&[&namespace]))?;
        let client = live.with_cache(cache.cache.clone());
        let error = client.get::<ConfigMap>(&key).await.expect_err("no informer");
        assert_eq!(
            error.to_string(),
            "cannot read v1 ConfigMap from the cache: no informer declared; call `cache.informer()`, watch the kind, or read with `client.live()`",
        );
        assert!(matches!(error, Error::Cache(CacheError::NotCached { .. })));
        assert!(client.live().get::<ConfigMap>(&key).await?.is_some());

        let maps = cache.cache.informer::<ConfigMap>()?;
        maps.await_synced().await?;
        let read = client.get::<ConfigMap>(&key).await?.expect("the object exists");
        assert!(Arc::ptr_eq(&read, &maps.get(&key)?.expect("the object exists")), "the object is shared");
        assert_eq!(read.metadata.uid, made.metadata.uid);
        let query = Query::default().labels("app=colors")?;
        assert!(Arc::ptr_eq(&client.list(&query).await?[0], &read));
        let index = maps.index(|map: &ConfigMap| map.metadata.name.iter().cloned().collect());
        assert_eq!(client.list(&Query::default().index(&index, "colors".to_owned())).await?.len(), 1);
        assert_eq!(client.namespace(&namespace).get::<ConfigMap>(&ObjectKey::new("", "colors")).await?, Some(read));
        assert!(client.get::<Metadata<ConfigMap>>(&key).await?.is_some(), "metadata of the cached object");
        let dynamic = client.dynamic(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let error = dynamic.get(&key).await.expect_err("the informer is typed").to_string();
        assert!(error.contains(".compact()"), "{error}");
        assert!(dynamic.get_metadata(&key).await?.is_some());

        for outside in [
            client.get::<ConfigMap>(&ObjectKey::new("default", "colors")).await.map(drop),
            client.list::<ConfigMap>(&Query::default().namespace(Some("default"))).await.map(drop),
            client.namespace("default").list::<ConfigMap>(&Query::default()).await.map(drop),
        ] {
            assert!(matches!(outside, Err(Error::Cache(CacheError::NamespaceNotCached { .. }))), "{outside:?}: not an empty result");
        }
        cache.stop().await
    }

    async fn the_state_of_the_informer_that_serves_a_read_is_known(env: Env) -> anyhow::Result<()> {
        let (live, namespace) = live(&env).await?;
        let cache = Running::new(&env, cache_options(&[&namespace]))?;
        let client = live.with_cache(cache.cache.clone());
        let kind = GroupVersionKind::gvk("", "v1", "ConfigMap");
        let states = |client: &Client| {
            let dynamic = client.dynamic(&kind).informer_state();
            [client.informer_state::<ConfigMap>(), client.informer_state::<Metadata<ConfigMap>>(), dynamic]
        };
        assert_eq!(states(&client), [None, None, None]);
        let metadata = cache.cache.informer::<Metadata<ConfigMap>>()?;
        metadata.await_synced().await?;
        let synced = || Some(InformerState::Synced);
        metadata.wait_for(|state| *state == InformerState::Synced).await;
        assert_eq!(states(&client), [None, synced(), None], "a metadata informer has no bodies");

        let secrets = cache.cache.informer_of(Select::<Secret>::new().compact())?;
        secrets.wait_for(|state| *state == InformerState::Synced).await;
        assert_eq!(client.informer_state::<Secret>(), synced());
        let secret = GroupVersionKind::gvk("", "v1", "Secret");
        assert_eq!(client.dynamic(&secret).informer_state(), synced());
        assert_eq!(client.live().informer_state::<Secret>(), None);
        assert_eq!(live.informer_state::<Secret>(), None, "a live client has no cache");

        let missing = GroupVersionKind::gvk("example.com", "v1", "Nothing");
        let informer = cache.cache.informer_of(Select::dynamic(missing.clone()))?;
        let is_missing = |state: &InformerState| matches!(state, InformerState::KindNotFound { .. });
        informer.wait_for(is_missing).await;
        assert!(client.dynamic(&missing).informer_state().is_some_and(|state| is_missing(&state)));
        cache.stop().await?;
        informer.wait_for(|state| *state == InformerState::Removed).await;
        Ok(())
    }

    async fn a_compact_informer_serves_all_representations(env: Env) -> anyhow::Result<()> {
        let (live, namespace) = live(&env).await?;
        live.create(&config_map(&namespace, "colors", "blue")).await?;
        let cache = Running::new(&env, cache_options(&[&namespace]))?;
        let _maps = cache.cache.informer_of(Select::<ConfigMap>::new().compact())?;
        let _namespaces = cache.cache.informer::<Namespace>()?;
        cache.cache.await_synced().await?;
        let (client, key) = (live.with_cache(cache.cache.clone()), ObjectKey::new(&namespace, "colors"));
        let dynamic = client.dynamic(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        assert!(client.get::<ConfigMap>(&key).await?.is_some());
        assert!(client.get::<Metadata<ConfigMap>>(&key).await?.is_some());
        assert_eq!(dynamic.get(&key).await?.expect("the object exists").data["data"]["color"], "blue");
        assert_eq!(dynamic.list(&Query::default().labels("app=colors")?).await?.len(), 1);
        let own = client.namespace(&namespace);
        let own = own.dynamic(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        assert!(own.get_metadata(&ObjectKey::cluster_scoped("colors")).await?.is_some());
        assert_eq!(own.list_metadata(&Query::default().labels("app=colors")?).await?.len(), 1);
        let namespaces = client.namespace(&namespace).list(&Query::<Namespace>::default()).await?;
        assert!(namespaces.len() > 1, "the namespace does not apply to a cluster-scoped kind");
        cache.stop().await
    }

    async fn keys_are_checked_alike_by_cached_and_live_reads(env: Env) -> anyhow::Result<()> {
        let (live, namespace) = live(&env).await?;
        let cache = Running::new(&env, CacheOptions::default())?;
        let (plain, cluster) = (GroupVersionKind::gvk("", "v1", "ConfigMap"), GroupVersionKind::gvk("", "v1", "Namespace"));
        let _maps = cache.cache.informer_of(Select::<ConfigMap>::new().compact())?;
        let _namespaces = cache.cache.informer_of(Select::<Namespace>::new().compact())?;
        cache.cache.await_synced().await?;
        let cached = live.with_cache(cache.cache.clone());
        for client in [&cached, &cached.live()] {
            let (maps, namespaces) = (client.dynamic(&plain), client.dynamic(&cluster));
            let key = ObjectKey::new("shop", &namespace);
            assert!(namespaces.get(&key).await?.is_some(), "the namespace of the key is ignored");
            assert!(client.get::<Namespace>(&key).await?.is_some());
            assert!(!namespaces.list(&Query::default().namespace(Some("shop"))).await?.is_empty());
            let of = |name: &str| ObjectKey::new(&namespace, name);
            for (key, words) in [
                (ObjectKey::cluster_scoped("x"), "has no namespace"),
                (of(""), "has no name"),
                (of(".."), "invalid name"),
                (of("a/b"), "invalid name"),
                (of("%41"), "invalid name"),
            ] {
                for error in [maps.get(&key).await.map(drop), client.get::<ConfigMap>(&key).await.map(drop)] {
                    let error = error.expect_err(words).to_string();
                    assert!(error.contains(words), "{key:?}: {error}");
                }
            }
            assert!(maps.get(&of("A b")).await?.is_none() && client.get::<ConfigMap>(&of("A b")).await?.is_none());
            let none = client.dynamic(&GroupVersionKind::gvk("", "v1", "Nothing")).get(&of("x")).await;
            assert!(matches!(none, Err(Error::NoSuchKind(_))), "{none:?}");
        }
        cache.stop().await
    }

    async fn a_lazy_read_declares_its_kind(env: Env) -> anyhow::Result<()> {
        let (live, namespace) = live(&env).await?;
        let made = live.create(&config_map(&namespace, "colors", "blue")).await?;
        let options = CacheOptions { allow_lazy: true, idle: Duration::ZERO, ..cache_options(&[&namespace]) };
        let cache = Running::new(&env, options)?;
        let client = live.with_cache(cache.cache.clone());
        let key = ObjectKey::of(&made);
        let all = Query::<ConfigMap>::default();
        let (one, other) = tokio::join!(client.get::<ConfigMap>(&key), client.list(&all));
        let (one, other) = (one?.expect("the object exists"), other?);
        assert!(other.iter().any(|map| Arc::ptr_eq(map, &one)), "one informer serves both");
        assert_eq!(cache.cache.informers().len(), 1);
        let outside = client.get::<ConfigMap>(&ObjectKey::new("default", "colors")).await;
        assert!(matches!(outside, Err(Error::Cache(CacheError::NamespaceNotCached { .. }))));
        cache.stop().await
    }
}

fn embedded(options: CacheOptions) -> anyhow::Result<(Embedded, Cache, Client)> {
    let server = Embedded::start()?;
    let cache = Cache::new(server.client()?, options)?;
    let client = Client::new(server.client()?)?.with_cache(cache.clone());
    Ok((server, cache, client))
}

#[tokio::test(start_paused = true)]
async fn a_lazily_declared_informer_stays_and_uses_one_watch() -> anyhow::Result<()> {
    let (server, cache, client) = embedded(CacheOptions {
        allow_lazy: true,
        ..CacheOptions::default()
    })?;
    let idle = client
        .get::<Secret>(&ObjectKey::new("default", "key"))
        .await
        .expect_err("the cache does not run");
    assert!(
        idle.to_string().contains("run_until") && server.server().journal().count("* *") == 0,
        "{idle}"
    );
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(cache.clone().run_until(async { drop(stopped.await) }));
    for _ in 0..3 {
        assert!(
            client
                .get::<Secret>(&ObjectKey::new("default", "key"))
                .await?
                .is_none()
        );
        tokio::time::sleep(Duration::from_hours(1)).await;
    }
    assert_eq!(
        cache
            .informers()
            .iter()
            .map(|report| report.state.clone())
            .collect::<Vec<_>>(),
        [InformerState::Synced]
    );
    assert_eq!(server.server().journal().count("get secrets"), 0);
    drop(stop);
    running.await??;
    let error = client
        .get::<ConfigMap>(&ObjectKey::new("default", "colors"))
        .await;
    assert!(
        matches!(error, Err(Error::Cache(CacheError::Closed))),
        "{error:?}"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_read_of_a_forbidden_kind_fails_at_once() -> anyhow::Result<()> {
    let (server, cache, client) = embedded(CacheOptions {
        allow_lazy: true,
        ..CacheOptions::default()
    })?;
    server.server().faults().add("* secrets -> 403".parse()?);
    server.server().faults().add("* configmaps -> 403".parse()?);
    let maps = cache.informer::<ConfigMap>()?;
    let running = tokio::spawn(cache.clone().run_until(std::future::pending()));
    let begun = Instant::now();
    for _ in 0..3 {
        let error = client
            .get::<Secret>(&ObjectKey::new("default", "key"))
            .await
            .expect_err("forbidden");
        assert!(
            matches!(&error, Error::Cache(CacheError::NotSynced { .. }))
                && error.to_string().contains("forbidden"),
            "{error}"
        );
    }
    let error = client
        .list(&Query::<ConfigMap>::default())
        .await
        .expect_err("forbidden");
    assert!(
        matches!(&error, Error::Cache(CacheError::NotSynced { .. }))
            && error.to_string().contains("forbidden"),
        "{error}"
    );
    assert!(
        begun.elapsed() < Duration::from_millis(100),
        "no wait after the error: {:?}",
        begun.elapsed()
    );
    drop(maps);
    running.abort();
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_lazy_read_waits_ten_seconds_for_the_first_list() -> anyhow::Result<()> {
    let (server, cache, client) = embedded(CacheOptions {
        allow_lazy: true,
        ..CacheOptions::default()
    })?;
    server
        .server()
        .faults()
        .add(Fault::on("watch secrets").drop_watch_after(0).times(1));
    server
        .server()
        .faults()
        .add("* services -> 503 once".parse()?);
    server
        .server()
        .faults()
        .add(Fault::on("* configmaps").delay(Duration::from_mins(1)));
    let running = tokio::spawn(cache.clone().run_until(std::future::pending()));
    let key = ObjectKey::new("default", "key");
    assert!(
        client.get::<Secret>(&key).await?.is_none(),
        "a broken watch is retried"
    );
    assert!(
        client.get::<Service>(&key).await?.is_none(),
        "a 503 is retried"
    );
    let begun = Instant::now();
    let error = client
        .get::<ConfigMap>(&key)
        .await
        .expect_err("no response");
    assert!(
        matches!(error, Error::Cache(CacheError::NotSynced { .. })),
        "{error}"
    );
    assert_eq!(begun.elapsed().as_secs(), 10, "the limit of lazy reads");
    running.abort();
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn cached_reads_send_no_requests_and_do_not_keep_the_informer_alive() -> anyhow::Result<()> {
    let (server, cache, client) = embedded(CacheOptions::default())?;
    let running = tokio::spawn(cache.clone().run_until(std::future::pending()));
    let maps = cache.informer::<ConfigMap>()?;
    maps.await_synced().await?;
    let before = server.server().journal().count("* *");
    for _ in 0..10 {
        client
            .get::<ConfigMap>(&ObjectKey::new("default", "colors"))
            .await?;
        client.list(&Query::<ConfigMap>::default()).await?;
    }
    assert_eq!(server.server().journal().count("* *"), before);
    assert!(
        client
            .status()
            .get::<ConfigMap>(&ObjectKey::new("default", "colors"))
            .await
            .is_err(),
        "subresources are read live"
    );
    assert!(server.server().journal().count("* *") > before);
    drop(maps);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let gone = client
        .get::<ConfigMap>(&ObjectKey::new("default", "colors"))
        .await;
    assert!(
        matches!(gone, Err(Error::Cache(CacheError::NotCached { .. }))),
        "{gone:?}"
    );
    running.abort();
    Ok(())
}
