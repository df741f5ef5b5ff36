//! kube-rs's watcher on a server that forgets: it recovers, and believes in nothing that is gone.

use crate::support::*;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    runtime::{reflector, watcher, watcher::Event},
};
use serde_json::json;
use std::collections::BTreeSet;
use steersman_apiserver::Fault;

type Told = Result<Event<ConfigMap>, watcher::Error>;

fn started(server: &Server, config: watcher::Config) -> impl Stream<Item = Told> + Unpin {
    let client = Client::new(server.server.service(), "default");
    watcher(Api::<ConfigMap>::default_namespaced(client), config).boxed()
}

/// An event in short: what happened, and to whom.
fn short(told: &Told) -> String {
    let name = |object: &ConfigMap| object.metadata.name.clone().unwrap_or_default();
    match told {
        Ok(Event::Init) => "init".into(),
        Ok(Event::InitApply(object)) => format!("has {}", name(object)),
        Ok(Event::InitDone) => "done".into(),
        Ok(Event::Apply(object)) => format!("apply {}", name(object)),
        Ok(Event::Delete(object)) => format!("delete {}", name(object)),
        Err(_) => "error".into(),
    }
}

async fn take(events: &mut (impl Stream<Item = Told> + Unpin), n: usize) -> Vec<String> {
    let mut taken = Vec::new();
    while taken.len() < n {
        let event = tokio::time::timeout(std::time::Duration::from_secs(20), events.next()).await;
        taken.push(short(&event.expect("an event in time").expect("a watcher never ends")));
    }
    taken
}

/// Case 16. The first watch breaks after its first live event; meanwhile the rest is forgotten.
async fn recovers(config: watcher::Config, initial_events: u64) {
    let server = Server::start();
    for name in ["a", "b"] {
        server.post(CONFIG_MAPS, config_map(name)).await.expect(201);
    }
    let broken =
        server.server.faults().add(Fault::on("watch configmaps").drop_watch_after(initial_events + 1).times(1));
    let (reader, writer) = reflector::store();
    let mut events = Box::pin(reflector(writer, started(&server, config)));
    assert_eq!(take(&mut events, 4).await, ["init", "has a", "has b", "done"]);
    server.merge(&format!("{CONFIG_MAPS}/a"), json!({"data": {"k": "w"}})).await.expect(200);
    assert_eq!(take(&mut events, 1).await, ["apply a"]);
    assert_eq!(broken.hits(), 1);

    server.delete(&format!("{CONFIG_MAPS}/b")).await.expect(200);
    server.post(CONFIG_MAPS, config_map("c")).await.expect(201);
    server.server.compact();
    let mut seen = take(&mut events, 1).await;
    while seen.last().is_none_or(|last| last != "done") {
        seen.extend(take(&mut events, 1).await);
    }
    let told: Vec<_> = seen.iter().filter(|event| *event != "error").collect();
    assert_eq!(told, ["init", "has a", "has c", "done"], "{seen:?}");
    let known: BTreeSet<_> = reader.state().iter().filter_map(|object| object.metadata.name.clone()).collect();
    assert_eq!(known, ["a", "c"].map(String::from).into());

    server.delete(&format!("{CONFIG_MAPS}/c")).await.expect(200);
    assert_eq!(take(&mut events, 1).await, ["delete c"]);
}

/// Case 16.
#[tokio::test]
async fn a_watcher_that_lists_recovers_from_lost_history() {
    recovers(watcher::Config::default(), 0).await;
}

/// Case 16.
#[tokio::test]
async fn a_watcher_that_pages_recovers_from_lost_history() {
    recovers(watcher::Config::default().page_size(1), 0).await;
}

/// Case 16.
#[tokio::test]
async fn a_watcher_that_streams_recovers_from_lost_history() {
    // Two objects and the bookmark behind them.
    recovers(watcher::Config::default().streaming_lists(), 3).await;
}

#[tokio::test]
async fn a_watcher_whose_watch_breaks_goes_on_where_it_was() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    server.server.faults().add(Fault::on("watch configmaps").drop_watch_after(1).times(3));
    let mut events = started(&server, watcher::Config::default());
    assert_eq!(take(&mut events, 3).await, ["init", "has a", "done"]);
    server.delete(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    for name in ["b", "c", "d"] {
        server.post(CONFIG_MAPS, config_map(name)).await.expect(201);
    }
    let mut told = Vec::new();
    while told.len() < 4 {
        told.extend(take(&mut events, 1).await.into_iter().filter(|event| event != "error"));
    }
    assert_eq!(told, ["delete a", "apply b", "apply c", "apply d"]);
}
