//! Tests of the cache's statistics and metrics, and of the work it avoids.

use super::support::{create_map, running, until};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Resource,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams},
    core::GroupVersionKind,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{LazyLock, Mutex},
    time::Duration,
};
use steersman::{
    cache::{CacheError, CacheMetrics, Informer, InformerEvent, Namespaces, Query, Select},
    object::ObjectKey,
    testing::{Embedded, Env, TestServer},
};

/// Config map that counts its decodings and fails to decode the color `green`.
#[derive(Clone, Debug, Serialize, Deserialize, Resource)]
#[resource(inherit = ConfigMap)]
#[serde(try_from = "Plain")]
struct Counted {
    metadata: ObjectMeta,
    data: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Plain {
    metadata: ObjectMeta,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

/// Decodings by namespace. Each test has its own namespace.
static DECODES: LazyLock<Mutex<BTreeMap<String, usize>>> = LazyLock::new(Mutex::default);

fn decodes(namespace: &str) -> usize {
    DECODES
        .lock()
        .expect("not poisoned")
        .get(namespace)
        .copied()
        .unwrap_or_default()
}

impl TryFrom<Plain> for Counted {
    type Error = &'static str;

    fn try_from(Plain { metadata, data }: Plain) -> Result<Self, Self::Error> {
        let namespace = metadata.namespace.clone().unwrap_or_default();
        *DECODES
            .lock()
            .expect("not poisoned")
            .entry(namespace)
            .or_default() += 1;
        match data.get("color").map(String::as_str) {
            Some("green") => Err("colors are not green"),
            _ => Ok(Self { metadata, data }),
        }
    }
}

steersman::env_test! {
    async fn a_handler_that_reads_only_metadata_decodes_nothing(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("decodes").await?);
        create_map(&client, &namespace, "a", "blue").await;
        let cache = running(client.clone(), &[&namespace]);
        let maps = cache.informer_of(Select::<Counted>::new().compact().labels("app"))?;
        let mut events = maps.events();
        maps.await_synced().await?;
        create_map(&client, &namespace, "b", "red").await;
        Api::<ConfigMap>::namespaced(client, &namespace).delete("a", &DeleteParams::default()).await?;
        let mut is_present = BTreeMap::new();
        while is_present.get("a").is_none_or(|present| *present) || !is_present.contains_key("b") {
            let Some(InformerEvent::Event(event)) = events.next().await else { continue };
            let object = event.object();
            assert_eq!(object.erase().gvk().expect("the kind is known").kind, "ConfigMap");
            assert!(object.meta().labels().contains("app"));
            let is_deleted = matches!(event, steersman::event::Event::Delete { .. });
            is_present.insert(object.name().to_owned(), !is_deleted);
        }
        assert!(maps.list(&Query::default().labels("app=green")?.fields("metadata.name=b")?)?.is_empty());
        assert_eq!(decodes(&namespace), 0);
        // Check that decodings are counted at all.
        assert_eq!(maps.list(&Query::default())?[0].data["color"], "red");
        assert_eq!(decodes(&namespace), 1);
        cache.stop().await;
        Ok(())
    }

    async fn an_index_omits_and_counts_objects_that_do_not_decode(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("index-errors").await?);
        create_map(&client, &namespace, "a", "green").await;
        create_map(&client, &namespace, "b", "red").await;
        let cache = running(client.clone(), &[&namespace]);
        let maps = cache.informer_of(Select::<Counted>::new().compact().labels("app"))?;
        maps.await_synced().await?;
        let by_color = maps.index(|map: &Counted| vec![map.data["color"].clone()]);
        let keys = |color: &str| by_color.keys(&color.to_owned());
        assert_eq!((keys("green"), keys("red").len()), (vec![], 1));
        let stats = maps.stats();
        assert_eq!((stats.index_errors, stats.decode_errors), (1, 0), "the object is stored without decoding");
        let error = stats.last_index_error.expect("an error");
        assert!(error.contains(&format!("{namespace}/a")) && error.contains("colors are not green"), "{error}");

        let patch = Patch::Merge(json!({"data": {"color": "blue"}}));
        Api::<ConfigMap>::namespaced(client, &namespace).patch("a", &PatchParams::default(), &patch).await?;
        until(|| keys("blue").len() == 1).await;
        assert_eq!(maps.stats().index_errors, 1, "no other error");
        cache.stop().await;
        Ok(())
    }

    async fn a_compact_object_that_does_not_decode_is_counted_once_per_resource_version(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("misfits").await?);
        create_map(&client, &namespace, "a", "green").await;
        create_map(&client, &namespace, "b", "red").await;
        let cache = running(client.clone(), &[&namespace]);
        let maps = cache.informer_of(Select::<Counted>::new().compact().labels("app"))?;
        maps.await_synced().await?;
        let (key, counted) = (ObjectKey::new(&namespace, "a"), || maps.stats().decode_errors);
        assert_eq!((counted(), maps.stats().last_decode_error), (0, None), "nothing was decoded");
        for _ in 0..3 {
            assert_eq!(maps.list(&Query::default())?.len(), 1, "the other one is listed");
            assert!(matches!(maps.get(&key), Err(CacheError::Undecodable { .. })));
        }
        assert_eq!((counted(), maps.stats().undecoded), (1, 1), "repeated reads count once");
        let error = maps.stats().last_decode_error.expect("an error");
        assert!(error.contains(&format!("{namespace}/a")) && error.contains("colors are not green"), "{error}");
        assert!(maps.get(&ObjectKey::new(&namespace, "b"))?.is_some());

        let api = Api::<ConfigMap>::namespaced(client, &namespace);
        let patch = async |data: Value| api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": data}))).await;
        patch(json!({"shape": "round"})).await?;
        until(|| maps.get(&key).is_err() && counted() == 2).await;
        patch(json!({"color": "blue"})).await?;
        until(|| maps.list(&Query::default()).is_ok_and(|all| all.len() == 2)).await;
        assert_eq!((counted(), maps.stats().undecoded), (2, 0), "no other error");
        cache.stop().await;
        Ok(())
    }

    async fn stats_include_the_size_of_the_store_and_its_largest_objects(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("large").await?);
        let api = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
        for number in 0..8 {
            create_map(&client, &namespace, &format!("m{number}"), "blue").await;
            let patch = Patch::Merge(json!({"data": {"text": "x".repeat(1000 * number)}}));
            api.patch(&format!("m{number}"), &PatchParams::default(), &patch).await?;
        }
        let cache = running(client, &[&namespace]);
        let typed = cache.informer_of(Select::<ConfigMap>::new().labels("app"))?;
        let compact = cache.informer_of(Select::<ConfigMap>::new().labels("app=blue").compact())?;
        cache.await_synced().await?;
        for maps in [&typed, &compact] {
            let largest = maps.largest();
            let names: Vec<_> = largest.iter().map(|object| object.key.name()).collect();
            assert_eq!(names, ["m7", "m6", "m5", "m4", "m3"]);
            assert!(largest[0].approximate_bytes > 7000);
            let stats = maps.stats();
            assert_eq!((stats.objects, stats.events), (8, 8));
            assert!((28_000..60_000).contains(&stats.approximate_bytes), "{stats:?}");
            assert!(stats.events_per_second > 0.0 && stats.since_heard.is_some(), "{stats:?}");
        }
        let before = compact.stats().approximate_bytes;
        api.delete("m7", &DeleteParams::default()).await?;
        until(|| compact.stats().objects == 7).await;
        assert!(compact.stats().approximate_bytes < before - 7000);
        cache.stop().await;
        Ok(())
    }
}

fn page(registry: &Registry) -> String {
    let mut page = String::new();
    encode(&mut page, registry).expect("written");
    page
}

#[tokio::test(start_paused = true)]
async fn the_metrics_of_an_informer_disappear_with_it() {
    let server = Embedded::start().expect("the server starts");
    let client = server.client().expect("a client");
    create_map(&client, "default", "a", "blue").await;
    let cache = running(client, &["default"]);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(CacheMetrics::new(&cache)));
    assert_eq!(page(&registry), "# EOF\n", "no informer");

    let maps = cache
        .informer_of(Select::<ConfigMap>::new().labels("app=blue"))
        .expect("the informer is declared");
    let namespaces: Informer<Namespace> = cache.informer().expect("the informer is declared");
    let slow = maps.events();
    cache.await_synced().await.expect("synced");
    until(|| maps.stats().objects == 1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let text = page(&registry);
    drop(slow);
    let blue = r#"{cluster="",group="",version="v1",kind="ConfigMap",scope="in default, labelled app=blue"}"#;
    let bytes = maps.stats().approximate_bytes;
    let largest = maps.largest()[0].approximate_bytes;
    for line in [
        "# TYPE steersman_cache_objects gauge".to_owned(),
        "# TYPE steersman_cache_events counter".to_owned(),
        format!("steersman_cache_objects{blue} 1.0"),
        format!("steersman_cache_bytes{blue} {bytes}.0"),
        format!("steersman_cache_largest_object_bytes{blue} {largest}.0"),
        format!("steersman_cache_events_total{blue} 1"),
        format!("steersman_cache_relists_total{blue} 0"),
        format!("steersman_cache_watch_restarts_total{blue} 0"),
        format!("steersman_cache_decode_errors_total{blue} 0"),
        format!("steersman_cache_index_errors_total{blue} 0"),
        format!("steersman_cache_handler_behind{blue} 1.0"),
        r#"steersman_cache_handler_behind{cluster="",group="",version="v1",kind="Namespace",scope=""} 0.0"#.to_owned(),
        format!("steersman_cache_synced{blue} 1.0"),
        r#"steersman_cache_synced{cluster="",group="",version="v1",kind="Namespace",scope=""} 1.0"#.to_owned(),
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
    // One event per minute, the last one five seconds ago.
    for begins in [
        "since_last_event_seconds{} 5",
        "since_heard_seconds{} 5",
        "events_per_second{} 0.015",
    ] {
        let name = format!("steersman_cache_{}", begins.replace("{}", blue));
        assert!(text.contains(&name), "{name} is not in\n{text}");
    }
    assert!(
        maps.get(&ObjectKey::new("default", "a"))
            .expect("synced")
            .is_some()
    );

    drop(maps);
    tokio::time::sleep(Duration::from_secs(31)).await;
    let text = page(&registry);
    assert!(
        !text.contains("ConfigMap") && text.contains("Namespace"),
        "{text}"
    );
    drop(namespaces);
    cache.stop().await;
    assert_eq!(
        page(&registry),
        "# EOF\n",
        "the collector does not keep the cache alive"
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_is_behind_by_the_number_of_objects() {
    let server = Embedded::start().expect("the server starts");
    let client = server.client().expect("a client");
    for number in 0..50 {
        create_map(&client, "default", &format!("m{number}"), "blue").await;
    }
    let cache = running(client, &["default"]);
    let maps = cache
        .informer_of(Select::<ConfigMap>::new().labels("app=blue"))
        .expect("the informer is declared");
    maps.await_synced().await.expect("synced");
    let mut registry = Registry::default();
    registry.register_collector(Box::new(CacheMetrics::new(&cache)));
    let behind = || {
        let behind = maps
            .stats()
            .handlers
            .first()
            .map_or(0, |handler| handler.behind);
        let (text, value) = (page(&registry), format!(" {behind}.0"));
        let mut lines = text
            .lines()
            .filter(|line| line.starts_with("steersman_cache_handler_behind{"));
        assert!(
            lines.any(|line| line.ends_with(&value)),
            "{behind} is not in\n{text}"
        );
        behind
    };
    assert_eq!(behind(), 0, "no handler");
    let mut late = maps.events();
    assert_eq!(behind(), 50);
    for left in (0..50).rev() {
        assert!(matches!(late.next().await, Some(InformerEvent::Event(_))));
        assert_eq!(behind(), left);
    }
    assert!(matches!(late.next().await, Some(InformerEvent::Synced)));
    assert_eq!(behind(), 0);
    cache.stop().await;
}

/// Prometheus rejects a page with a duplicate series.
#[tokio::test(start_paused = true)]
async fn cache_metrics_have_no_duplicate_series() {
    let server = Embedded::start().expect("the server starts");
    let client = server.client().expect("a client");
    let cache = running(client, &["default"]);
    // This declares an internal informer of namespaces.
    let tenants = Select::<ConfigMap>::new().namespaces(Namespaces::Labelled("tenant".into()));
    let _maps = cache
        .informer_of(tenants)
        .expect("the informer is declared");
    let _namespaces = cache
        .informer_of(Select::<Namespace>::new().labels("tenant"))
        .expect("the informer is declared");
    // Declared before discovery shows that both have the same scope.
    let nodes = || Select::dynamic(GroupVersionKind::gvk("", "v1", "Node"));
    let _nodes = [nodes(), nodes().namespaces(Namespaces::All)]
        .map(|nodes| cache.informer_of(nodes).expect("a new informer"));
    cache.await_synced().await.expect("synced");
    let mut registry = Registry::default();
    registry.register_collector(Box::new(CacheMetrics::new(&cache)));
    let text = page(&registry);
    cache.stop().await;
    let mut seen = BTreeMap::new();
    for (series, _) in text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
    {
        *seen.entry(series).or_insert(0) += 1;
    }
    let twice: Vec<_> = seen.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    for (kind, many) in [("ConfigMap", 1), ("Namespace", 2), ("Node", 2)] {
        let kind = format!("kind=\"{kind}\"");
        let series = seen
            .keys()
            .filter(|name| name.starts_with("steersman_cache_synced") && name.contains(&kind));
        assert_eq!(series.count(), many, "{kind} in\n{text}");
    }
}
