//! Tests of reads that wait for own writes, with blocked watches.

use super::{
    support::{cache_options, config_map},
    watch_gate::WatchGate,
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

/// Delay of watches. A read that does not wait returns an older state.
const WATCH_DELAY: Duration = Duration::from_millis(20);
/// Wait for writes that the cache must not show.
const SHORT_WAIT: Consistency = Consistency::Block(Duration::from_millis(100));
/// Wait for writes that the cache must show. The test has its own timeout.
const LONG_WAIT: Consistency = Consistency::Block(Duration::from_hours(1));

/// Client that reads from a cache whose watches can be blocked.
pub(crate) struct Fixture {
    gate: WatchGate,
    pub(crate) cache: Cache,
    pub(crate) client: Client,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), CacheError>>,
}

impl Fixture {
    pub(crate) fn new(env: &Env, options: CacheOptions) -> anyhow::Result<Self> {
        let gate = WatchGate::new(WATCH_DELAY);
        let cache = Cache::new(gate.wrap(env.client()?), options)?;
        let client = Client::new(env.client()?)?
            .with_cache(cache.clone())
            .consistency(LONG_WAIT);
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(cache.clone().run_until(async { drop(stopped.await) }));
        Ok(Self {
            gate,
            cache,
            client,
            stop,
            running,
        })
    }

    /// Creates a scene with a synced informer of config maps.
    async fn with_config_maps(
        env: &Env,
        namespace: &str,
    ) -> anyhow::Result<(Self, Informer<ConfigMap>)> {
        let fixture = Self::new(env, cache_options(&[namespace]))?;
        let maps = fixture.cache.informer()?;
        maps.await_synced().await?;
        Ok((fixture, maps))
    }

    fn short_wait(&self) -> Client {
        self.client.consistency(SHORT_WAIT)
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.gate.open();
        drop(self.stop);
        Ok(self.running.await??)
    }
}

fn is_write_not_observed<T>(read: Result<T, Error>, key: &ObjectKey) -> bool {
    matches!(read, Err(Error::Cache(CacheError::WriteNotObserved { key: missing, .. })) if missing == *key)
}

steersman::env_test! {
    async fn a_read_waits_only_for_writes_of_its_key_and_times_out(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let (fixture, maps) = Fixture::with_config_maps(&env, &namespace).await?;
        let (old, new) = (ObjectKey::new(&namespace, "old"), ObjectKey::new(&namespace, "new"));
        let made = fixture.client.create(&config_map(&namespace, "old", "blue")).await?;
        fixture.client.caught_up().await?;
        fixture.gate.hold();
        fixture.client.update(&made).await?;
        assert!(fixture.client.get::<ConfigMap>(&old).await?.is_some(), "an update without changes is not awaited");
        fixture.client.dry_run().create(&config_map(&namespace, "dry", "red")).await?;
        fixture.client.create(&config_map(&namespace, "new", "red")).await?;
        assert!(fixture.client.get::<ConfigMap>(&old).await?.is_some(), "only the written key is awaited");
        assert!(fixture.client.get::<ConfigMap>(&ObjectKey::new(&namespace, "dry")).await?.is_none());

        let result = fixture.short_wait().get::<ConfigMap>(&new).await;
        assert!(is_write_not_observed(result, &new));
        let all = Query::<ConfigMap>::default().namespace(Some(&namespace));
        assert!(is_write_not_observed(fixture.short_wait().list(&all).await, &new));
        assert!(is_write_not_observed(fixture.short_wait().caught_up().await, &new));
        let ignores = fixture.client.consistency(Consistency::Ignore);
        assert_eq!((ignores.get::<ConfigMap>(&new).await?, ignores.list(&all).await?.len()), (None, 1));
        let other = Client::new(env.client()?)?.with_cache(fixture.cache.clone());
        assert_eq!(other.get::<ConfigMap>(&new).await?, None, "another client has no own writes");
        assert_eq!(maps.stats().own_writes.timeouts, 3);

        let waiting = tokio::spawn({
            let client = fixture.client.clone();
            async move { client.list(&all).await }
        });
        fixture.gate.open();
        assert_eq!(waiting.await??.len(), 2);
        assert!(fixture.client.get::<ConfigMap>(&new).await?.is_some());
        fixture.stop().await
    }

    async fn metrics_include_own_writes_waits_and_lag(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let (fixture, maps) = Fixture::with_config_maps(&env, &namespace).await?;
        let mut registry = Registry::default();
        registry.register_collector(Box::new(CacheMetrics::new(&fixture.cache)));
        let page = || {
            let mut page = String::new();
            encode(&mut page, &registry).map(|()| page)
        };
        let with_config_maps = format!("{{cluster=\"\",group=\"\",version=\"v1\",kind=\"ConfigMap\",scope=\"in {namespace}\"}}");
        let numbers = |pending: usize| [
            format!("own_writes_pending{with_config_maps} {pending}.0"),
            format!("own_writes_total{with_config_maps} 1"),
            format!("own_write_waits_total{with_config_maps} 2"),
            format!("own_write_timeouts_total{with_config_maps} 1"),
        ];
        fixture.gate.hold();
        let key = ObjectKey::of(&fixture.client.create(&config_map(&namespace, "late", "blue")).await?);
        assert!(is_write_not_observed(fixture.short_wait().get::<ConfigMap>(&key).await, &key));
        let mut waiting = Box::pin(fixture.client.get::<ConfigMap>(&key));
        assert!(futures::poll!(&mut waiting).is_pending());
        let page_while_held = page()?;
        assert!(numbers(1).iter().all(|line| page_while_held.contains(&format!("steersman_cache_{line}\n"))), "{page_while_held}");
        fixture.gate.open();
        assert!(waiting.await?.is_some());
        let page_after = page()?;
        assert!(numbers(0).iter().all(|line| page_after.contains(&format!("steersman_cache_{line}\n"))), "{page_after}");
        let lag = maps.stats().own_writes.last_lag;
        let lag_line = format!("steersman_cache_own_write_lag_seconds{with_config_maps} {}\n", lag.as_secs_f64());
        assert!(lag > Duration::from_millis(100) && page_after.contains(&lag_line), "{lag:?} {page_after}");
        fixture.stop().await
    }

    async fn caught_up_skips_writes_outside_of_the_selectors(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let fixture = Fixture::new(&env, cache_options(&[&namespace]))?;
        let web = fixture.cache.informer_of(Select::<ConfigMap>::new().labels("app=web"))?;
        let chosen = fixture.cache.informer_of(Select::<ConfigMap>::new().fields("metadata.name=chosen"))?;
        fixture.cache.await_synced().await?;
        let client = &fixture.client;
        let key = |name: &str| ObjectKey::new(&namespace, name);
        let relabel = |app: &str| Patch::Merge(json!({"metadata": {"labels": {"app": app}}}));
        fixture.gate.hold();
        client.create(&config_map(&namespace, "db", "blue")).await?;
        client.delete::<ConfigMap>(&key("db")).await?;
        client.caught_up().await?;
        client.create(&config_map(&namespace, "chosen", "blue")).await?;
        assert!(is_write_not_observed(fixture.short_wait().caught_up().await, &key("chosen")));
        fixture.gate.open();
        client.caught_up().await?;
        assert_eq!((chosen.list(&Query::default())?.len(), web.list(&Query::default())?.len()), (1, 0));

        // Entering and leaving the selector are both events.
        for (app, there) in [("web", 1), ("db", 0)] {
            fixture.gate.hold();
            client.patch::<ConfigMap>(&key("chosen"), &relabel(app)).await?;
            assert!(is_write_not_observed(fixture.short_wait().caught_up().await, &key("chosen")), "{app}");
            fixture.gate.open();
            client.caught_up().await?;
            assert_eq!(web.list(&Query::default())?.len(), there, "{app}");
        }
        fixture.stop().await
    }

    async fn a_read_waits_for_the_delete_of_an_object_that_the_cache_never_had(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let (fixture, _maps) = Fixture::with_config_maps(&env, &namespace).await?;
        let key = ObjectKey::new(&namespace, "brief");
        fixture.gate.hold();
        Client::new(env.client()?)?.create(&config_map(&namespace, "brief", "blue")).await?;
        assert!(fixture.client.delete::<ConfigMap>(&key).await?);
        assert!(!fixture.client.delete::<ConfigMap>(&key).await?);
        assert!(is_write_not_observed(fixture.short_wait().get::<ConfigMap>(&key).await, &key));
        fixture.gate.open();
        assert_eq!(fixture.client.get::<ConfigMap>(&key).await?, None);

        let made = fixture.client.create(&config_map(&namespace, "brief", "red")).await?;
        fixture.client.delete::<ConfigMap>(&key).await?;
        let again = fixture.client.create(&config_map(&namespace, "brief", "green")).await?;
        let read = fixture.client.get::<ConfigMap>(&key).await?.expect("recreated");
        assert_eq!(read.metadata.uid, again.metadata.uid);
        assert_ne!(read.metadata.uid, made.metadata.uid);
        fixture.stop().await
    }

    async fn a_read_from_a_new_informer_waits_for_a_delete_in_flight(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let fixture = Fixture::new(&env, cache_options(&[&namespace]))?;
        let key = ObjectKey::of(&Client::new(env.client()?)?.create(&config_map(&namespace, "brief", "blue")).await?);
        let (received, released) = (Arc::new(watch::Sender::new(false)), Arc::new(watch::Sender::new(false)));
        let slow = tower::service_fn({
            let (inner, received, released) = (env.client()?, received.clone(), released.clone());
            move |request: http::Request<Body>| {
                let (inner, received, mut released) = (inner.clone(), received.clone(), released.subscribe());
                async move {
                    received.send_replace(true);
                    released.wait_for(|released| *released).await.expect("the sender is alive");
                    inner.send(request).await
                }
            }
        });
        let client = Client::new(kube_client::Client::new(slow, "default"))?.with_cache(fixture.cache.clone());
        let deleted = tokio::spawn({
            let (client, key) = (client.clone(), key.clone());
            async move { client.delete::<ConfigMap>(&key).await }
        });
        received.subscribe().wait_for(|received| *received).await?;
        let maps = fixture.cache.informer::<ConfigMap>()?;
        maps.await_synced().await?;
        assert!(maps.get(&key)?.is_some(), "not deleted yet");
        fixture.gate.hold();
        released.send_replace(true);
        assert!(deleted.await??);
        assert!(is_write_not_observed(client.consistency(SHORT_WAIT).get::<ConfigMap>(&key).await, &key));
        fixture.gate.open();
        assert_eq!(client.consistency(LONG_WAIT).get::<ConfigMap>(&key).await?, None);
        fixture.stop().await
    }

    async fn a_list_after_delete_collection_has_no_live_objects(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let (fixture, _maps) = Fixture::with_config_maps(&env, &namespace).await?;
        let mut stays = config_map(&namespace, "stays", "blue");
        stays.metadata.finalizers = Some(vec!["example.com/own-writes".into()]);
        fixture.client.create(&stays).await?;
        fixture.client.create(&config_map(&namespace, "goes", "blue")).await?;
        fixture.client.caught_up().await?;
        let ours = Query::<ConfigMap>::default().namespace(Some(&namespace)).labels("app in (stays, goes)")?;
        fixture.client.delete_collection(&ours).await?;
        let remaining = fixture.client.list(&ours).await?;
        assert_eq!(remaining.len(), 1, "{remaining:?}");
        assert!(remaining[0].metadata.deletion_timestamp.is_some());
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        fixture.client.patch::<ConfigMap>(&ObjectKey::of(&*remaining[0]), &free).await?;
        assert!(fixture.client.list(&ours).await?.is_empty());
        fixture.stop().await
    }

    async fn a_read_waits_for_delete_collection_of_objects_that_the_cache_never_had(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let fixture = Fixture::new(&env, cache_options(&[&namespace]))?;
        let _maps = fixture.cache.informer::<ConfigMap>()?;
        let _web = fixture.cache.informer_of(Select::<ConfigMap>::new().labels("app=web"))?;
        fixture.cache.await_synced().await?;
        let key = ObjectKey::new(&namespace, "brief");
        let ours = Query::<ConfigMap>::default().namespace(Some(&namespace)).labels("app=brief")?;
        fixture.gate.hold();
        Client::new(env.client()?)?.create(&config_map(&namespace, "brief", "blue")).await?;
        fixture.client.delete_collection(&ours).await?;
        assert!(is_write_not_observed(fixture.short_wait().get::<ConfigMap>(&key).await, &key));
        assert!(is_write_not_observed(fixture.short_wait().caught_up().await, &key));
        fixture.gate.open();
        assert_eq!(fixture.client.get::<ConfigMap>(&key).await?, None);
        fixture.client.caught_up().await?;
        fixture.stop().await
    }

    async fn a_stopped_cache_ends_waiting_reads_with_an_error(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let (fixture, maps) = Fixture::with_config_maps(&env, &namespace).await?;
        fixture.gate.hold();
        fixture.client.create(&config_map(&namespace, "late", "blue")).await?;
        let (client, key) = (fixture.client.clone(), ObjectKey::new(&namespace, "late"));
        let mut waiting = Box::pin(client.get::<ConfigMap>(&key));
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(fixture.stop);
        fixture.running.await??;
        let has_ended = |read: &Result<_, Error>| matches!(read, Err(Error::Cache(CacheError::Closed)));
        assert!(has_ended(&waiting.await.map(drop)), "the write will not be observed");
        client.create(&config_map(&namespace, "later", "blue")).await?;
        let key = ObjectKey::new(&namespace, "later");
        assert!(has_ended(&client.get::<ConfigMap>(&key).await.map(drop)));
        assert!(has_ended(&client.list::<ConfigMap>(&Query::default()).await.map(drop)));
        assert!(has_ended(&client.caught_up().await));
        assert_eq!(client.consistency(Consistency::Ignore).get::<ConfigMap>(&key).await?, None, "the last known objects");
        assert_eq!(maps.get(&key)?, None, "the last known objects");
        assert!(client.live().get::<ConfigMap>(&key).await?.is_some());
        Ok(())
    }

    async fn a_removed_kind_ends_waiting_reads_with_an_error(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let (fixture, maps) = Fixture::with_config_maps(&env, &namespace).await?;
        fixture.gate.hold();
        let key = ObjectKey::of(&fixture.client.create(&config_map(&namespace, "late", "blue")).await?);
        let (client, wanted) = (fixture.client.clone(), key.clone());
        let mut waiting = Box::pin(client.get::<ConfigMap>(&wanted));
        assert!(futures::poll!(&mut waiting).is_pending());
        fixture.cache.remove(maps.gvk()).await;
        let read = waiting.await;
        assert!(matches!(read, Err(Error::Cache(CacheError::Removed { .. }))), "{read:?}");
        let read = client.get::<ConfigMap>(&key).await;
        assert!(matches!(read, Err(Error::Cache(CacheError::NotCached { .. }))), "{read:?}");
        client.caught_up().await?;
        fixture.stop().await
    }

    async fn a_transform_that_drops_metadata_does_not_block_reads(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("own").await?;
        let bare = |map: &mut ConfigMap| {
            map.metadata = ObjectMeta { labels: map.metadata.labels.take(), ..ObjectMeta::default() };
        };
        let kinds = vec![Select::<ConfigMap>::new().transform(bare).into()];
        let fixture = Fixture::new(&env, CacheOptions { kinds, ..cache_options(&[&namespace]) })?;
        let _maps = fixture.cache.informer::<ConfigMap>()?;
        fixture.cache.await_synced().await?;
        let mut stays = config_map(&namespace, "stays", "blue");
        stays.metadata.finalizers = Some(vec!["example.com/own-writes".into()]);
        let key = ObjectKey::of(&fixture.client.create(&stays).await?);
        let all = Query::<ConfigMap>::default().namespace(Some(&namespace)).labels("app=stays")?;
        fixture.client.delete_collection(&all).await?;
        let remaining = fixture.client.get::<ConfigMap>(&key).await?.expect("the object has a finalizer");
        assert_eq!((remaining.metadata.deletion_timestamp.is_some(), &remaining.metadata.finalizers), (true, &stays.metadata.finalizers));
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        fixture.client.patch::<ConfigMap>(&key, &free).await?;
        assert_eq!(fixture.client.get::<ConfigMap>(&key).await?, None);
        fixture.stop().await
    }
}
