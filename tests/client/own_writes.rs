//! What a client's reads wait for, and what they do not, with a cache whose watches are held.

use super::{
    held::Gate,
    support::{map, of},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::client::Body;
use kube_core::ObjectMeta;
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use steersman::{
    cache::{Cache, CacheError, CacheMetrics, CacheOptions, Informer, Query, Select},
    client::{Client, Consistency, Error, Patch},
    object::ObjectKey,
    testing::{Env, TestServer},
};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};

/// How late watches tell: so that a read that does not wait comes too early.
const LATE: Duration = Duration::from_millis(20);
/// For what must not come.
const SOON: Consistency = Consistency::Block(Duration::from_millis(100));
/// For what must come: a test has its own limit.
const EVER: Consistency = Consistency::Block(Duration::from_hours(1));

/// A client that reads from a cache whose watches can be held.
pub(crate) struct Scene {
    gate: Gate,
    pub(crate) cache: Cache,
    pub(crate) client: Client,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), CacheError>>,
}

impl Scene {
    pub(crate) fn new(env: &Env, options: CacheOptions) -> anyhow::Result<Self> {
        let gate = Gate::new(LATE);
        let cache = Cache::new(gate.before(env.client()?), options)?;
        let client = Client::new(env.client()?)?.with_cache(cache.clone()).consistency(EVER);
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(cache.clone().run_until(async { drop(stopped.await) }));
        Ok(Self { gate, cache, client, stop, running })
    }

    /// With config maps, synced.
    async fn of_maps(env: &Env, namespace: &str) -> anyhow::Result<(Self, Informer<ConfigMap>)> {
        let scene = Self::new(env, of(&[namespace]))?;
        let maps = scene.cache.informer()?;
        maps.await_synced().await?;
        Ok((scene, maps))
    }

    fn hasty(&self) -> Client {
        self.client.consistency(SOON)
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.gate.open();
        drop(self.stop);
        Ok(self.running.await??)
    }
}

fn is_behind<T>(read: Result<T, Error>, key: &ObjectKey) -> bool {
    matches!(read, Err(Error::Cache(CacheError::Behind { key: missing, .. })) if missing == *key)
}

steersman::env_test! {
    async fn a_read_waits_for_its_own_key_only_and_not_for_ever(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let (scene, maps) = Scene::of_maps(&env, &namespace).await?;
        let (old, new) = (ObjectKey::new(&namespace, "old"), ObjectKey::new(&namespace, "new"));
        let made = scene.client.create(&map(&namespace, "old", "blue")).await?;
        scene.client.caught_up().await?;
        scene.gate.hold();
        scene.client.update(&made).await?;
        assert!(scene.client.get::<ConfigMap>(&old).await?.is_some(), "an update of nothing is there already");
        scene.client.dry_run().create(&map(&namespace, "dry", "red")).await?;
        scene.client.create(&map(&namespace, "new", "red")).await?;
        assert!(scene.client.get::<ConfigMap>(&old).await?.is_some(), "it is not about the other one");
        assert!(scene.client.get::<ConfigMap>(&ObjectKey::new(&namespace, "dry")).await?.is_none());

        let behind = scene.hasty().get::<ConfigMap>(&new).await;
        assert!(is_behind(behind, &new));
        let all = Query::<ConfigMap>::default().namespace(Some(&namespace));
        assert!(is_behind(scene.hasty().list(&all).await, &new));
        assert!(is_behind(scene.hasty().caught_up().await, &new));
        let ignores = scene.client.consistency(Consistency::Ignore);
        assert_eq!((ignores.get::<ConfigMap>(&new).await?, ignores.list(&all).await?.len()), (None, 1));
        let other = Client::new(env.client()?)?.with_cache(scene.cache.clone());
        assert_eq!(other.get::<ConfigMap>(&new).await?, None, "another client has written nothing");
        assert_eq!(maps.stats().own_writes.timeouts, 3);

        let waiting = tokio::spawn({
            let client = scene.client.clone();
            async move { client.list(&all).await }
        });
        scene.gate.open();
        assert_eq!(waiting.await??.len(), 2);
        assert!(scene.client.get::<ConfigMap>(&new).await?.is_some());
        scene.stop().await
    }

    async fn waits_and_lag_are_on_the_metrics_page(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let (scene, maps) = Scene::of_maps(&env, &namespace).await?;
        let mut registry = Registry::default();
        registry.register_collector(Box::new(CacheMetrics::new(&scene.cache)));
        let page = || {
            let mut page = String::new();
            encode(&mut page, &registry).map(|()| page)
        };
        let of_maps = format!("{{cluster=\"\",group=\"\",version=\"v1\",kind=\"ConfigMap\",scope=\"in {namespace}\"}}");
        let numbers = |pending: usize| [
            format!("own_writes_pending{of_maps} {pending}.0"),
            format!("own_writes_total{of_maps} 1"),
            format!("own_write_waits_total{of_maps} 2"),
            format!("own_write_timeouts_total{of_maps} 1"),
        ];
        scene.gate.hold();
        let key = ObjectKey::of(&scene.client.create(&map(&namespace, "late", "blue")).await?);
        assert!(is_behind(scene.hasty().get::<ConfigMap>(&key).await, &key));
        let mut waiting = Box::pin(scene.client.get::<ConfigMap>(&key));
        assert!(futures::poll!(&mut waiting).is_pending());
        let held = page()?;
        assert!(numbers(1).iter().all(|line| held.contains(&format!("steersman_cache_{line}\n"))), "{held}");
        scene.gate.open();
        assert!(waiting.await?.is_some());
        let shown = page()?;
        assert!(numbers(0).iter().all(|line| shown.contains(&format!("steersman_cache_{line}\n"))), "{shown}");
        let lag = maps.stats().own_writes.last_lag;
        let lag_line = format!("steersman_cache_own_write_lag_seconds{of_maps} {}\n", lag.as_secs_f64());
        assert!(lag > Duration::from_millis(100) && shown.contains(&lag_line), "{lag:?} {shown}");
        scene.stop().await
    }

    async fn what_the_selectors_leave_out_is_not_waited_for(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let scene = Scene::new(&env, of(&[&namespace]))?;
        let web = scene.cache.informer_of(Select::<ConfigMap>::new().labels("app=web"))?;
        let chosen = scene.cache.informer_of(Select::<ConfigMap>::new().fields("metadata.name=chosen"))?;
        scene.cache.await_synced().await?;
        let client = &scene.client;
        let key = |name: &str| ObjectKey::new(&namespace, name);
        let relabel = |app: &str| Patch::Merge(json!({"metadata": {"labels": {"app": app}}}));
        scene.gate.hold();
        client.create(&map(&namespace, "db", "blue")).await?;
        client.delete::<ConfigMap>(&key("db")).await?;
        client.caught_up().await?;
        client.create(&map(&namespace, "chosen", "blue")).await?;
        assert!(is_behind(scene.hasty().caught_up().await, &key("chosen")));
        scene.gate.open();
        client.caught_up().await?;
        assert_eq!((chosen.list(&Query::default())?.len(), web.list(&Query::default())?.len()), (1, 0));

        // In, and out again: both are told.
        for (app, there) in [("web", 1), ("db", 0)] {
            scene.gate.hold();
            client.patch::<ConfigMap>(&key("chosen"), &relabel(app)).await?;
            assert!(is_behind(scene.hasty().caught_up().await, &key("chosen")), "{app}");
            scene.gate.open();
            client.caught_up().await?;
            assert_eq!(web.list(&Query::default())?.len(), there, "{app}");
        }
        scene.stop().await
    }

    async fn a_delete_is_waited_for_even_of_what_the_cache_has_never_seen(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let (scene, _maps) = Scene::of_maps(&env, &namespace).await?;
        let key = ObjectKey::new(&namespace, "brief");
        scene.gate.hold();
        Client::new(env.client()?)?.create(&map(&namespace, "brief", "blue")).await?;
        assert!(scene.client.delete::<ConfigMap>(&key).await?);
        assert!(!scene.client.delete::<ConfigMap>(&key).await?);
        assert!(is_behind(scene.hasty().get::<ConfigMap>(&key).await, &key));
        scene.gate.open();
        assert_eq!(scene.client.get::<ConfigMap>(&key).await?, None);

        let made = scene.client.create(&map(&namespace, "brief", "red")).await?;
        scene.client.delete::<ConfigMap>(&key).await?;
        let again = scene.client.create(&map(&namespace, "brief", "green")).await?;
        let read = scene.client.get::<ConfigMap>(&key).await?.expect("it is there again");
        assert_eq!(read.metadata.uid, again.metadata.uid);
        assert_ne!(read.metadata.uid, made.metadata.uid);
        scene.stop().await
    }

    async fn a_delete_on_its_way_is_waited_for_by_who_reads_from_an_informer_declared_since(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let scene = Scene::new(&env, of(&[&namespace]))?;
        let key = ObjectKey::of(&Client::new(env.client()?)?.create(&map(&namespace, "brief", "blue")).await?);
        let (asked, may) = (Arc::new(watch::Sender::new(false)), Arc::new(watch::Sender::new(false)));
        let slow = tower::service_fn({
            let (inner, asked, may) = (env.client()?, asked.clone(), may.clone());
            move |request: http::Request<Body>| {
                let (inner, asked, mut may) = (inner.clone(), asked.clone(), may.subscribe());
                async move {
                    asked.send_replace(true);
                    may.wait_for(|may| *may).await.expect("it is here");
                    inner.send(request).await
                }
            }
        });
        let client = Client::new(kube_client::Client::new(slow, "default"))?.with_cache(scene.cache.clone());
        let deleted = tokio::spawn({
            let (client, key) = (client.clone(), key.clone());
            async move { client.delete::<ConfigMap>(&key).await }
        });
        asked.subscribe().wait_for(|asked| *asked).await?;
        let maps = scene.cache.informer::<ConfigMap>()?;
        maps.await_synced().await?;
        assert!(maps.get(&key)?.is_some(), "it is there as yet");
        scene.gate.hold();
        may.send_replace(true);
        assert!(deleted.await??);
        assert!(is_behind(client.consistency(SOON).get::<ConfigMap>(&key).await, &key));
        scene.gate.open();
        assert_eq!(client.consistency(EVER).get::<ConfigMap>(&key).await?, None);
        scene.stop().await
    }

    async fn a_collection_that_is_deleted_is_gone_or_marked_in_the_next_list(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let (scene, _maps) = Scene::of_maps(&env, &namespace).await?;
        let mut stays = map(&namespace, "stays", "blue");
        stays.metadata.finalizers = Some(vec!["example.com/own-writes".into()]);
        scene.client.create(&stays).await?;
        scene.client.create(&map(&namespace, "goes", "blue")).await?;
        scene.client.caught_up().await?;
        let ours = Query::<ConfigMap>::default().namespace(Some(&namespace)).labels("app in (stays, goes)")?;
        scene.client.delete_collection(&ours).await?;
        let left = scene.client.list(&ours).await?;
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(left[0].metadata.deletion_timestamp.is_some());
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        scene.client.patch::<ConfigMap>(&ObjectKey::of(&*left[0]), &free).await?;
        assert!(scene.client.list(&ours).await?.is_empty());
        scene.stop().await
    }

    async fn a_collection_that_is_deleted_is_waited_for_even_of_what_the_cache_has_never_seen(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let scene = Scene::new(&env, of(&[&namespace]))?;
        let _maps = scene.cache.informer::<ConfigMap>()?;
        let _web = scene.cache.informer_of(Select::<ConfigMap>::new().labels("app=web"))?;
        scene.cache.await_synced().await?;
        let key = ObjectKey::new(&namespace, "brief");
        let ours = Query::<ConfigMap>::default().namespace(Some(&namespace)).labels("app=brief")?;
        scene.gate.hold();
        Client::new(env.client()?)?.create(&map(&namespace, "brief", "blue")).await?;
        scene.client.delete_collection(&ours).await?;
        assert!(is_behind(scene.hasty().get::<ConfigMap>(&key).await, &key));
        assert!(is_behind(scene.hasty().caught_up().await, &key));
        scene.gate.open();
        assert_eq!(scene.client.get::<ConfigMap>(&key).await?, None);
        scene.client.caught_up().await?;
        scene.stop().await
    }

    async fn a_cache_that_ends_lets_its_readers_go_and_denies_nothing(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let (scene, maps) = Scene::of_maps(&env, &namespace).await?;
        scene.gate.hold();
        scene.client.create(&map(&namespace, "late", "blue")).await?;
        let (client, key) = (scene.client.clone(), ObjectKey::new(&namespace, "late"));
        let mut waiting = Box::pin(client.get::<ConfigMap>(&key));
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(scene.stop);
        scene.running.await??;
        let has_ended = |read: &Result<_, Error>| matches!(read, Err(Error::Cache(CacheError::Ended)));
        assert!(has_ended(&waiting.await.map(drop)), "it was written, and will not be shown");
        client.create(&map(&namespace, "later", "blue")).await?;
        let key = ObjectKey::new(&namespace, "later");
        assert!(has_ended(&client.get::<ConfigMap>(&key).await.map(drop)));
        assert!(has_ended(&client.list::<ConfigMap>(&Query::default()).await.map(drop)));
        assert!(has_ended(&client.caught_up().await));
        assert_eq!(client.consistency(Consistency::Ignore).get::<ConfigMap>(&key).await?, None, "what it had");
        assert_eq!(maps.get(&key)?, None, "what it had");
        assert!(client.live().get::<ConfigMap>(&key).await?.is_some());
        Ok(())
    }

    async fn a_kind_that_is_removed_lets_its_readers_go_and_denies_nothing(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let (scene, maps) = Scene::of_maps(&env, &namespace).await?;
        scene.gate.hold();
        let key = ObjectKey::of(&scene.client.create(&map(&namespace, "late", "blue")).await?);
        let (client, wanted) = (scene.client.clone(), key.clone());
        let mut waiting = Box::pin(client.get::<ConfigMap>(&wanted));
        assert!(futures::poll!(&mut waiting).is_pending());
        scene.cache.remove(maps.gvk()).await;
        let read = waiting.await;
        assert!(matches!(read, Err(Error::Cache(CacheError::Removed { .. }))), "{read:?}");
        let read = client.get::<ConfigMap>(&key).await;
        assert!(matches!(read, Err(Error::Cache(CacheError::NotCached { .. }))), "{read:?}");
        client.caught_up().await?;
        scene.stop().await
    }

    async fn a_transform_of_metadata_keeps_no_read_waiting(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let bare = |map: &mut ConfigMap| {
            map.metadata = ObjectMeta { labels: map.metadata.labels.take(), ..ObjectMeta::default() };
        };
        let kinds = vec![Select::<ConfigMap>::new().transform(bare).into()];
        let scene = Scene::new(&env, CacheOptions { kinds, ..of(&[&namespace]) })?;
        let _maps = scene.cache.informer::<ConfigMap>()?;
        scene.cache.await_synced().await?;
        let mut stays = map(&namespace, "stays", "blue");
        stays.metadata.finalizers = Some(vec!["example.com/own-writes".into()]);
        let key = ObjectKey::of(&scene.client.create(&stays).await?);
        let all = Query::<ConfigMap>::default().namespace(Some(&namespace)).labels("app=stays")?;
        scene.client.delete_collection(&all).await?;
        let left = scene.client.get::<ConfigMap>(&key).await?.expect("it has a finalizer");
        assert_eq!((left.metadata.deletion_timestamp.is_some(), &left.metadata.finalizers), (true, &stays.metadata.finalizers));
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        scene.client.patch::<ConfigMap>(&key, &free).await?;
        assert_eq!(scene.client.get::<ConfigMap>(&key).await?, None);
        scene.stop().await
    }
}
