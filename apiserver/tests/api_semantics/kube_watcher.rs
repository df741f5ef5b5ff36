//! kube-rs watchers on a server that compacts its history and breaks watches.

use crate::support::*;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::{reflector, reflector::ObjectRef, watcher, watcher::Event},
};
use serde_json::json;
use std::collections::BTreeSet;
use steersman_apiserver::Fault;

type WatcherEvent = Result<Event<ConfigMap>, watcher::Error>;

fn watch_config_maps(
    server: &Server,
    config: watcher::Config,
) -> impl Stream<Item = WatcherEvent> + Unpin {
    let client = Client::new(server.server.service(), "default");
    watcher(Api::<ConfigMap>::default_namespaced(client), config).boxed()
}

/// Returns an event as text, such as `apply a`.
fn describe(event: &WatcherEvent) -> String {
    let name = |object: &ConfigMap| object.metadata.name.clone().unwrap_or_default();
    match event {
        Ok(Event::Init) => "init".into(),
        Ok(Event::InitApply(object)) => format!("has {}", name(object)),
        Ok(Event::InitDone) => "done".into(),
        Ok(Event::Apply(object)) => format!("apply {}", name(object)),
        Ok(Event::Delete(object)) => format!("delete {}", name(object)),
        Err(_) => "error".into(),
    }
}

async fn take(events: &mut (impl Stream<Item = WatcherEvent> + Unpin), n: usize) -> Vec<String> {
    let mut described = Vec::new();
    while described.len() < n {
        let event = tokio::time::timeout(std::time::Duration::from_secs(20), events.next()).await;
        described.push(describe(
            &event
                .expect("an event in time")
                .expect("a watcher never ends"),
        ));
    }
    described
}

/// Breaks the first watch after its first event following the initial ones, compacts the history
/// meanwhile and checks that the watcher relists.
async fn check_recovery(config: watcher::Config, initial_events: u64) {
    let server = Server::start();
    for name in ["a", "b"] {
        server.post(CONFIG_MAPS, config_map(name)).await.expect(201);
    }
    let broken = server.server.faults().add(
        Fault::on("watch configmaps")
            .drop_watch_after(initial_events + 1)
            .times(1),
    );
    let (reader, writer) = reflector::store();
    let mut events = Box::pin(reflector(writer, watch_config_maps(&server, config)));
    assert_eq!(
        take(&mut events, 4).await,
        ["init", "has a", "has b", "done"]
    );
    server
        .merge(&format!("{CONFIG_MAPS}/a"), json!({"data": {"k": "w"}}))
        .await
        .expect(200);
    assert_eq!(take(&mut events, 1).await, ["apply a"]);
    assert_eq!(broken.hits(), 1);

    server.delete(&format!("{CONFIG_MAPS}/b")).await.expect(200);
    server.post(CONFIG_MAPS, config_map("c")).await.expect(201);
    server.server.compact();
    let mut seen = take(&mut events, 1).await;
    while seen.last().is_none_or(|last| last != "done") {
        seen.extend(take(&mut events, 1).await);
    }
    let events_seen: Vec<_> = seen.iter().filter(|event| *event != "error").collect();
    assert_eq!(events_seen, ["init", "has a", "has c", "done"], "{seen:?}");
    let stored: BTreeSet<_> = reader
        .state()
        .iter()
        .filter_map(|object| object.metadata.name.clone())
        .collect();
    assert_eq!(stored, ["a", "c"].map(String::from).into());

    server.delete(&format!("{CONFIG_MAPS}/c")).await.expect(200);
    assert_eq!(take(&mut events, 1).await, ["delete c"]);
}

#[tokio::test]
async fn a_listing_watcher_recovers_from_compaction() {
    check_recovery(watcher::Config::default(), 0).await;
}

#[tokio::test]
async fn a_paging_watcher_recovers_from_compaction() {
    check_recovery(watcher::Config::default().page_size(1), 0).await;
}

#[tokio::test]
async fn a_streaming_watcher_recovers_from_compaction() {
    // Two objects and the bookmark after them.
    check_recovery(watcher::Config::default().streaming_lists(), 3).await;
}

#[tokio::test]
async fn a_watcher_resumes_after_a_broken_watch() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    server
        .server
        .faults()
        .add(Fault::on("watch configmaps").drop_watch_after(1).times(3));
    let mut events = watch_config_maps(&server, watcher::Config::default());
    assert_eq!(take(&mut events, 3).await, ["init", "has a", "done"]);
    server.delete(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    for name in ["b", "c", "d"] {
        server.post(CONFIG_MAPS, config_map(name)).await.expect(201);
    }
    let mut events_seen = Vec::new();
    while events_seen.len() < 4 {
        events_seen.extend(
            take(&mut events, 1)
                .await
                .into_iter()
                .filter(|event| event != "error"),
        );
    }
    assert_eq!(events_seen, ["delete a", "apply b", "apply c", "apply d"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reflectors_over_a_socket_converge_under_concurrent_writes() {
    let server = Server::start();
    let running = server
        .server
        .listen(([127, 0, 0, 1], 0).into(), None)
        .await
        .expect("a free port");
    let config = kube::Config::new(running.url().parse().expect("a URL"));
    let api: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).expect("a client"));
    let watchers = [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
    ]
    .map(|config| {
        let (reader, writer) = reflector::store();
        let mut events = Box::pin(reflector(writer, watcher(api.clone(), config)));
        tokio::spawn(async move {
            while reader
                .get(&ObjectRef::new("last").within("default"))
                .is_none()
            {
                _ = events.next().await;
            }
            reader
                .state()
                .iter()
                .map(|object| object.metadata.clone())
                .collect::<Vec<_>>()
        })
    });
    let writers = (0..4).map(|writer| {
        let api = api.clone();
        tokio::spawn(async move {
            for n in 0..25 {
                let name = format!("m{}", (writer + n) % 8);
                let object = serde_json::from_value(json!({"metadata": {"name": &name}}))
                    .expect("a config map");
                _ = api.create(&PostParams::default(), &object).await;
                let patch = json!({"data": {"by": format!("{writer}.{n}")}});
                _ = api
                    .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                    .await;
                if n % 3 == 0 {
                    _ = api.delete(&name, &DeleteParams::default()).await;
                }
            }
        })
    });
    futures::future::join_all(writers)
        .await
        .into_iter()
        .for_each(Result::unwrap);
    server
        .post(CONFIG_MAPS, config_map("last"))
        .await
        .expect(201);
    let mut expected: Vec<_> = api
        .list(&ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .map(|object| object.metadata)
        .collect();
    expected.sort_by(|a, b| a.name.cmp(&b.name));
    for watcher in watchers {
        let mut seen = watcher.await.unwrap();
        seen.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(seen, expected);
    }
}
