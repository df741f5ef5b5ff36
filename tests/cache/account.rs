//! What the cache says of itself: numbers, metrics, and what it does not do.

use super::support::{make, running, until};
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
    cache::{CacheError, CacheMetrics, Informer, Namespaces, Notice, Query, Select},
    object::ObjectKey,
    testing::{Embedded, Env, TestServer},
};

/// A config map that counts how often one is decoded, and whose door must not be green.
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

/// By namespace, of which each test has its own.
static DECODES: LazyLock<Mutex<BTreeMap<String, usize>>> = LazyLock::new(Mutex::default);

fn decodes(namespace: &str) -> usize {
    DECODES.lock().expect("nobody panics with it").get(namespace).copied().unwrap_or_default()
}

impl TryFrom<Plain> for Counted {
    type Error = &'static str;

    fn try_from(Plain { metadata, data }: Plain) -> Result<Self, Self::Error> {
        let namespace = metadata.namespace.clone().unwrap_or_default();
        *DECODES.lock().expect("nobody panics with it").entry(namespace).or_default() += 1;
        match data.get("door").map(String::as_str) {
            Some("green") => Err("doors are not green"),
            _ => Ok(Self { metadata, data }),
        }
    }
}

steersman::env_test! {
    async fn a_handler_that_looks_at_metadata_only_causes_no_decoding(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("decodes").await?);
        make(&client, &namespace, "a", "blue").await;
        let cache = running(client.clone(), &[&namespace]);
        let maps = cache.informer_of(Select::<Counted>::new().compact().labels("app"))?;
        let mut events = maps.events();
        maps.await_synced().await?;
        make(&client, &namespace, "b", "red").await;
        Api::<ConfigMap>::namespaced(client, &namespace).delete("a", &DeleteParams::default()).await?;
        let mut there = BTreeMap::new();
        while there.get("a").is_none_or(|there| *there) || !there.contains_key("b") {
            let Some(Notice::Event(event)) = events.next().await else { continue };
            let object = event.object();
            assert_eq!(object.erase().gvk().expect("it says so").kind, "ConfigMap");
            assert!(object.meta().labels().contains("app"));
            let gone = matches!(event, steersman::event::Event::Delete { .. });
            there.insert(object.name().to_owned(), !gone);
        }
        assert!(maps.list(&Query::default().labels("app=green")?.fields("metadata.name=b")?)?.is_empty());
        assert_eq!(decodes(&namespace), 0);
        // And that it is counted at all.
        assert_eq!(maps.list(&Query::default())?[0].data["door"], "red");
        assert_eq!(decodes(&namespace), 1);
        cache.stop().await;
        Ok(())
    }

    async fn what_an_index_cannot_read_is_left_out_counted_and_told(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("index-errors").await?);
        make(&client, &namespace, "a", "green").await;
        make(&client, &namespace, "b", "red").await;
        let cache = running(client.clone(), &[&namespace]);
        let maps = cache.informer_of(Select::<Counted>::new().compact().labels("app"))?;
        maps.await_synced().await?;
        let by_door = maps.index(|map: &Counted| vec![map.data["door"].clone()]);
        let keys = |door: &str| by_door.keys(&door.to_owned());
        assert_eq!((keys("green"), keys("red").len()), (vec![], 1));
        let stats = maps.stats();
        assert_eq!((stats.index_errors, stats.decode_errors), (1, 0), "it is kept, packed");
        let error = stats.last_index_error.expect("it is told");
        assert!(error.contains(&format!("{namespace}/a")) && error.contains("doors are not green"), "{error}");

        let patch = Patch::Merge(json!({"data": {"door": "blue"}}));
        Api::<ConfigMap>::namespaced(client, &namespace).patch("a", &PatchParams::default(), &patch).await?;
        until(|| keys("blue").len() == 1).await;
        assert_eq!(maps.stats().index_errors, 1, "nothing else went wrong");
        cache.stop().await;
        Ok(())
    }

    async fn what_is_kept_compact_and_does_not_fit_is_counted_when_it_is_read_and_once_until_it_changes(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("misfits").await?);
        make(&client, &namespace, "a", "green").await;
        make(&client, &namespace, "b", "red").await;
        let cache = running(client.clone(), &[&namespace]);
        let maps = cache.informer_of(Select::<Counted>::new().compact().labels("app"))?;
        maps.await_synced().await?;
        let (key, counted) = (ObjectKey::new(&namespace, "a"), || maps.stats().decode_errors);
        assert_eq!((counted(), maps.stats().last_decode_error), (0, None), "nobody has looked");
        for _ in 0..3 {
            assert!(matches!(maps.list(&Query::default()), Err(CacheError::Decode(_))));
            assert!(matches!(maps.get(&key), Err(CacheError::Decode(_))));
        }
        assert_eq!(counted(), 1, "it is one, however often it is read");
        let error = maps.stats().last_decode_error.expect("it is told");
        assert!(error.contains(&format!("{namespace}/a")) && error.contains("doors are not green"), "{error}");
        assert!(maps.get(&ObjectKey::new(&namespace, "b"))?.is_some());

        let api = Api::<ConfigMap>::namespaced(client, &namespace);
        let patch = async |data: Value| api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": data}))).await;
        patch(json!({"window": "open"})).await?;
        until(|| maps.get(&key).is_err() && counted() == 2).await;
        patch(json!({"door": "blue"})).await?;
        until(|| maps.list(&Query::default()).is_ok_and(|all| all.len() == 2)).await;
        assert_eq!(counted(), 2, "nothing else went wrong");
        cache.stop().await;
        Ok(())
    }

    async fn an_informer_says_how_much_it_has_and_what_is_large(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("large").await?);
        let api = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
        for number in 0..8 {
            make(&client, &namespace, &format!("m{number}"), "blue").await;
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
    encode(&mut page, registry).expect("it is written");
    page
}

/// On the embedded server, in its time.
#[tokio::test(start_paused = true)]
async fn informers_are_on_the_metrics_page_for_as_long_as_they_are_there() {
    let server = Embedded::start().expect("it starts");
    let client = server.client().expect("a client");
    make(&client, "default", "a", "blue").await;
    let cache = running(client, &["default"]);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(CacheMetrics::new(&cache)));
    assert_eq!(page(&registry), "# EOF\n", "there are none yet");

    let maps = cache.informer_of(Select::<ConfigMap>::new().labels("app=blue")).expect("it is new");
    let namespaces: Informer<Namespace> = cache.informer().expect("it is new");
    let slow = maps.events();
    cache.await_synced().await.expect("they sync");
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
    // One in a minute, five seconds ago.
    for begins in ["since_last_event_seconds{} 5", "since_heard_seconds{} 5", "events_per_second{} 0.015"] {
        let name = format!("steersman_cache_{}", begins.replace("{}", blue));
        assert!(text.contains(&name), "{name} is not in\n{text}");
    }
    assert!(maps.get(&ObjectKey::new("default", "a")).expect("synced").is_some());

    drop(maps);
    tokio::time::sleep(Duration::from_secs(31)).await;
    let text = page(&registry);
    assert!(!text.contains("ConfigMap") && text.contains("Namespace"), "{text}");
    drop(namespaces);
    cache.stop().await;
    assert_eq!(page(&registry), "# EOF\n", "and the cache is not kept alive");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_comes_late_is_behind_by_all_that_is_there() {
    let server = Embedded::start().expect("it starts");
    let client = server.client().expect("a client");
    for number in 0..50 {
        make(&client, "default", &format!("m{number}"), "blue").await;
    }
    let cache = running(client, &["default"]);
    let maps = cache.informer_of(Select::<ConfigMap>::new().labels("app=blue")).expect("it is new");
    maps.await_synced().await.expect("it syncs");
    let mut registry = Registry::default();
    registry.register_collector(Box::new(CacheMetrics::new(&cache)));
    let behind = || {
        let behind = maps.stats().handlers.first().map_or(0, |handler| handler.behind);
        let (text, value) = (page(&registry), format!(" {behind}.0"));
        let mut lines = text.lines().filter(|line| line.starts_with("steersman_cache_handler_behind{"));
        assert!(lines.any(|line| line.ends_with(&value)), "{behind} is not in\n{text}");
        behind
    };
    assert_eq!(behind(), 0, "nobody listens");
    let mut late = maps.events();
    assert_eq!(behind(), 50);
    for left in (0..50).rev() {
        assert!(matches!(late.next().await, Some(Notice::Event(_))));
        assert_eq!(behind(), left);
    }
    assert!(matches!(late.next().await, Some(Notice::InitialDone)));
    assert_eq!(behind(), 0);
    cache.stop().await;
}

/// A page on which a series is twice is refused as a whole.
#[tokio::test(start_paused = true)]
async fn no_series_is_there_twice_whatever_the_informers_keep() {
    let server = Embedded::start().expect("it starts");
    let client = server.client().expect("a client");
    let cache = running(client, &["default"]);
    // It declares an informer of these namespaces for itself.
    let tenants = Select::<ConfigMap>::new().namespaces(Namespaces::Labelled("tenant".into()));
    let _maps = cache.informer_of(tenants).expect("it is new");
    let _namespaces = cache.informer_of(Select::<Namespace>::new().labels("tenant")).expect("it is new");
    // Declared before anybody knows that they mean the same.
    let nodes = || Select::dynamic(GroupVersionKind::gvk("", "v1", "Node"));
    let _nodes =
        [nodes(), nodes().namespaces(Namespaces::All)].map(|nodes| cache.informer_of(nodes).expect("nobody knows"));
    cache.await_synced().await.expect("they sync");
    let mut registry = Registry::default();
    registry.register_collector(Box::new(CacheMetrics::new(&cache)));
    let text = page(&registry);
    cache.stop().await;
    let mut seen = BTreeMap::new();
    for (series, _) in text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' ')) {
        *seen.entry(series).or_insert(0) += 1;
    }
    let twice: Vec<_> = seen.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    for (kind, many) in [("ConfigMap", 1), ("Namespace", 2), ("Node", 2)] {
        let kind = format!("kind=\"{kind}\"");
        let series = seen.keys().filter(|name| name.starts_with("steersman_cache_synced") && name.contains(&kind));
        assert_eq!(series.count(), many, "{kind} in\n{text}");
    }
}
