//! kube-rs watchers and reflectors: no event is lost or invented when connections break.

use super::{QUIET, config_map, config_maps, start};
use futures::{Stream, StreamExt, TryStreamExt, pin_mut};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt, reflector, watcher as watch,
        watcher::{self, Event, InitialListStrategy, watch_object},
    },
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;
use std::{collections::BTreeMap, fmt::Debug};
use steersman_apiserver::{ApiServer, Fault};
use steersman_testkit::{Seeds, this_test};
use tokio::time::timeout;

fn streaming() -> watcher::Config {
    watcher::Config {
        initial_list_strategy: InitialListStrategy::StreamingList,
        ..watcher::Config::default()
    }
}

/// Calls the deprecated `metadata_watcher`.
#[expect(deprecated, reason = "most programs still call it")]
fn deprecated_metadata_watcher(
    api: Api<ConfigMap>,
    config: watcher::Config,
) -> impl Stream<Item = Result<Event<PartialObjectMeta<ConfigMap>>, watcher::Error>> {
    kube::runtime::metadata_watcher(api, config)
}

async fn create(client: &Client, names: std::ops::Range<u32>) {
    for n in names {
        config_maps(client)
            .create(
                &PostParams::default(),
                &config_map(&format!("c{n:03}"), "0"),
            )
            .await
            .expect("created");
    }
}

async fn set(client: &Client, name: &str, value: &str) {
    let patch = Patch::Merge(json!({"data": {"value": value}}));
    config_maps(client)
        .patch(name, &PatchParams::default(), &patch)
        .await
        .expect("patched");
}

async fn delete(client: &Client, name: &str) {
    config_maps(client)
        .delete(name, &DeleteParams::default())
        .await
        .expect("deleted");
}

/// Collects events until the stream is quiet: `+name` for initial objects, then `=name` for changes
/// and `-name` for deletions.
async fn drain<K: ResourceExt + Debug>(
    stream: &mut (impl Stream<Item = Result<Event<K>, watcher::Error>> + Unpin),
) -> Vec<String> {
    let mut events = Vec::new();
    while let Ok(event) = timeout(QUIET / 2, stream.next()).await {
        events.push(
            match event.expect("watchers do not end").expect("an event") {
                Event::Init => "init".into(),
                Event::InitApply(object) => format!("+{}", object.name_any()),
                Event::InitDone => "done".into(),
                Event::Apply(object) => format!("={}", object.name_any()),
                Event::Delete(object) => format!("-{}", object.name_any()),
            },
        );
    }
    events
}

/// Returns the expected initial events of `count` config maps.
fn initial_events(count: u32) -> Vec<String> {
    let names = (0..count).map(|n| format!("+c{n:03}"));
    ["init".to_owned()]
        .into_iter()
        .chain(names)
        .chain(["done".to_owned()])
        .collect()
}

async fn check_events<K: ResourceExt + Debug>(
    client: &Client,
    stream: impl Stream<Item = Result<Event<K>, watcher::Error>>,
) {
    pin_mut!(stream);
    assert_eq!(drain(&mut stream).await, initial_events(50));
    set(client, "c007", "1").await;
    delete(client, "c007").await;
    create(client, 50..51).await;
    assert_eq!(drain(&mut stream).await, ["=c007", "-c007", "=c050"]);
    delete(client, "c050").await;
    create(client, 7..8).await;
}

#[tokio::test(start_paused = true)]
async fn watchers_report_initial_objects_and_then_changes() {
    let (server, client) = start();
    create(&client, 0..50).await;
    let api = || config_maps(&client);
    check_events(
        &client,
        watch(api(), watcher::Config::default().page_size(7)),
    )
    .await;
    check_events(
        &client,
        watch(api(), watcher::Config::default().any_semantic()),
    )
    .await;
    check_events(
        &client,
        deprecated_metadata_watcher(api(), watcher::Config::default().page_size(50)),
    )
    .await;
    let lists = server.journal().count("list configmaps");
    assert_eq!(lists, 8 + 1 + 1);
    check_events(&client, watch(api(), streaming())).await;
    check_events(&client, deprecated_metadata_watcher(api(), streaming())).await;
    assert_eq!(
        server.journal().count("list configmaps"),
        lists,
        "a streaming list is a watch"
    );
}

#[tokio::test(start_paused = true)]
async fn metadata_has_labels_and_type_but_no_data() {
    let (_server, client) = start();
    create(&client, 0..1).await;
    for config in [watcher::Config::default(), streaming()] {
        let objects = watch(
            Api::<PartialObjectMeta<ConfigMap>>::all(client.clone()),
            config.labels("app=a"),
        )
        .applied_objects();
        pin_mut!(objects);
        let object: PartialObjectMeta<ConfigMap> = objects
            .try_next()
            .await
            .expect("no error")
            .expect("an object");
        assert_eq!(object.labels()["app"], "a");
        let text = serde_json::to_value(&object).expect("JSON");
        assert_eq!(
            (&text["kind"], text.get("data")),
            (&json!("PartialObjectMetadata"), None),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_is_silent_and_does_not_relist_on_a_day_without_changes() {
    let (server, client) = start();
    create(&client, 0..3).await;
    let stream = watch(config_maps(&client), watcher::Config::default());
    pin_mut!(stream);
    assert_eq!(drain(&mut stream).await, initial_events(3));
    let day = std::time::Duration::from_hours(24);
    timeout(day, stream.next()).await.expect_err("no event");
    assert_eq!(
        server.journal().count("list configmaps"),
        1,
        "the end of a watch does not cause a relist"
    );
    assert!(
        server.journal().count("watch configmaps") > 250,
        "watches end at their timeout"
    );
    // Bookmarks keep the watch ahead of the compaction.
    server.compact();
    timeout(day, stream.next()).await.expect_err("no event");
    assert_eq!(server.journal().count("list configmaps"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_reports_a_deletion_between_list_and_watch() {
    let (server, client) = start();
    create(&client, 0..3).await;
    let failed = server
        .faults()
        .add(Fault::on("watch configmaps").status(500).times(1));
    let stream = watch(config_maps(&client), watcher::Config::default());
    pin_mut!(stream);
    while failed.hits() == 0 {
        _ = stream.next().await;
    }
    delete(&client, "c001").await;
    assert_eq!(drain(&mut stream).await, ["-c001"]);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_relists_after_a_compaction() {
    for config in [watcher::Config::default(), streaming()] {
        let (server, client) = start();
        create(&client, 0..5).await;
        let stream = watch(config_maps(&client), config);
        pin_mut!(stream);
        assert_eq!(drain(&mut stream).await, initial_events(5));
        server
            .faults()
            .add(Fault::on("watch configmaps").close().times(2));
        let broken = server
            .faults()
            .add(Fault::on("watch configmaps").drop_watch_after(1).times(1));
        // The open watch ends at its timeout. The next attempts fail, so the changes below are
        // missed.
        while broken.hits() == 0 {
            _ = timeout(QUIET, stream.next()).await;
        }
        set(&client, "c000", "1").await;
        assert_eq!(
            stream
                .try_next()
                .await
                .expect("no error")
                .map(|event| matches!(event, Event::Apply(_))),
            Some(true)
        );
        delete(&client, "c003").await;
        set(&client, "c001", "1").await;
        server.compact();
        let mut names = Vec::new();
        while let Ok(event) = timeout(QUIET / 2, stream.next()).await {
            // The broken watch and the expired resource version are errors that the watcher
            // recovers from.
            if let Ok(Event::InitApply(object)) = event.expect("watchers do not end") {
                names.push(object.name_any());
            }
        }
        assert_eq!(names, ["c000", "c001", "c002", "c004"]);
    }
}

#[tokio::test(start_paused = true)]
async fn watch_object_reports_one_object() {
    let (_server, client) = start();
    create(&client, 0..2).await;
    let values = watch_object(config_maps(&client), "c001")
        .map_ok(|map| map.map(|map| map.data.expect("data")["value"].clone()));
    pin_mut!(values);
    assert_eq!(
        values.try_next().await.expect("no error"),
        Some(Some("0".into()))
    );
    set(&client, "c000", "1").await;
    set(&client, "c001", "2").await;
    assert_eq!(
        values.try_next().await.expect("no error"),
        Some(Some("2".into()))
    );
    delete(&client, "c001").await;
    assert_eq!(values.try_next().await.expect("no error"), Some(None));
}

/// Value and resource version of each config map by name.
type State = BTreeMap<String, (String, String)>;

fn state(maps: impl Iterator<Item = ConfigMap>) -> State {
    let row = |map: ConfigMap| {
        (
            map.name_any(),
            (
                map.data.clone().unwrap_or_default()["value"].clone(),
                map.resource_version().unwrap_or_default(),
            ),
        )
    };
    maps.map(row).collect()
}

/// Writes random changes and compacts the history now and then.
async fn write_randomly(server: &ApiServer, client: &Client, random: &mut StdRng) {
    let maps = config_maps(client);
    for step in 0..400 {
        let name = format!("c{:03}", random.random_range(0..20));
        match random.random_range(0..4) {
            0 => _ = maps.delete(&name, &DeleteParams::default()).await,
            1 => {
                _ = maps
                    .create(
                        &PostParams::default(),
                        &config_map(&name, &step.to_string()),
                    )
                    .await;
            }
            _ => {
                let patch = Patch::Merge(json!({"data": {"value": step.to_string()}}));
                _ = maps.patch(&name, &PatchParams::default(), &patch).await;
            }
        }
        match random.random_range(0..40) {
            0 => server.compact(),
            1..4 => tokio::time::sleep(std::time::Duration::from_secs(2)).await,
            _ => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn soak_reflectors_converge_under_random_writes_and_broken_watches() {
    for seed in Seeds::new(this_test!(), 4) {
        for config in [watcher::Config::default().page_size(6), streaming()] {
            let (server, client) = start();
            server.faults().add(
                "watch configmaps -> drop after 5 30 times"
                    .parse()
                    .expect("a rule"),
            );
            server
                .faults()
                .add("watch configmaps -> 500 5 times".parse().expect("a rule"));
            let (store, writer) = reflector::store::<ConfigMap>();
            let stream = reflector(
                writer,
                watch(config_maps(&client), config).default_backoff(),
            );
            let reading = tokio::spawn(stream.for_each(|_| std::future::ready(())));
            write_randomly(&server, &client, &mut StdRng::seed_from_u64(seed)).await;
            // Longer than any backoff, including one more broken watch.
            server.faults().clear();
            tokio::time::sleep(10 * QUIET).await;
            let listed = config_maps(&client)
                .list(&ListParams::default())
                .await
                .expect("a list")
                .items;
            assert_eq!(
                state(store.state().iter().map(|map| (**map).clone())),
                state(listed.into_iter()),
                "seed {seed}"
            );
            reading.abort();
        }
    }
}
