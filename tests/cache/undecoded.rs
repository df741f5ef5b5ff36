//! Objects whose current version does not decode: what reads return, and what handlers are told.

use super::{
    between::{Turn, asks, between},
    support::{cache, make, running, until},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Resource,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams},
};
use kube_client::{Api, Client as Connection};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{collections::BTreeMap, time::Duration};
use steersman::{
    cache::{CacheError, CacheOptions, Events, Notice, Query, Select},
    client::{Client, Error},
    event::Event,
    object::{Metadata, ObjectKey},
    testing::{Env, TestServer},
};
use steersman_apiserver::{ApiServer, Fault, Options};
use tokio::time::timeout;

/// A config map whose doors are red or green.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = ConfigMap)]
struct Painted {
    metadata: ObjectMeta,
    data: BTreeMap<String, Color>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Color {
    Red,
    Green,
}

fn select() -> Select<Painted> {
    // Leaves out the config map that servers put into every namespace.
    Select::new().labels("app")
}

async fn paint(connection: &Connection, key: &ObjectKey, color: &str) {
    let maps = Api::<ConfigMap>::namespaced(connection.clone(), key.namespace().unwrap_or_default());
    let patch = Patch::Merge(json!({"data": {"door": color}}));
    maps.patch(key.name(), &PatchParams::default(), &patch).await.expect("it exists");
}

fn is_undecodable<T: std::fmt::Debug>(read: Result<T, CacheError>, key: &ObjectKey) -> bool {
    match read {
        Err(CacheError::Undecodable { kind, key: of, error }) => {
            // The value may be secret.
            kind == "ConfigMap" && of == *key && error.contains("expected `red` or `green`") && !error.contains("blue")
        }
        other => panic!("{other:?}"),
    }
}

/// The next event, as the verb and the name.
async fn told(events: &mut Events<Painted>) -> String {
    match events.next().await {
        Some(Notice::InitialDone) => "initial done".into(),
        Some(Notice::Event(event)) => {
            let verb = match &event {
                Event::Create { .. } => "create",
                Event::Update { .. } => "update",
                Event::Delete { .. } => "delete",
                Event::Generic { object } => {
                    assert!(object.decode().expect_err("it does not decode").to_string().contains("expected `red`"));
                    assert!(object.meta().labels().contains("app"), "its metadata is there");
                    assert_eq!(object.gvk().expect("its kind is known").kind, "ConfigMap");
                    "generic"
                }
            };
            format!("{verb} {}", event.object().name())
        }
        None => "ended".into(),
    }
}

steersman::env_test! {
    async fn get_of_an_object_that_does_not_decode_is_an_error(env: Env) -> anyhow::Result<()> {
        let (connection, namespace) = (env.client()?, env.namespace("undecoded").await?);
        let cache = running(connection.clone(), &[&namespace]);
        let maps = cache.informer_of(select())?;
        maps.await_synced().await?;
        let key = ObjectKey::new(&namespace, "a");
        let doors = || -> Vec<Color> {
            maps.list(&Query::default()).expect("lists go on").iter().map(|map| map.data["door"]).collect()
        };

        // Created so: there is no state to list.
        make(&connection, &namespace, "a", "blue").await;
        until(|| maps.stats().undecoded == 1).await;
        assert!(is_undecodable(maps.get(&key), &key));
        assert!(doors().is_empty() && maps.view(&Query::default())?.is_empty());
        assert!(maps.stats().decode_errors > 0);

        paint(&connection, &key, "red").await;
        until(|| maps.stats().undecoded == 0).await;
        assert_eq!(maps.get(&key)?.map(|map| map.data["door"]), Some(Color::Red));

        // Changed so: lists have the last good state.
        paint(&connection, &key, "blue").await;
        until(|| maps.stats().undecoded == 1).await;
        assert!(is_undecodable(maps.get(&key), &key));
        assert_eq!((doors(), maps.view(&Query::default())?.len()), (vec![Color::Red], 1));

        let api = Api::<ConfigMap>::namespaced(connection.clone(), &namespace);
        api.delete("a", &DeleteParams::default()).await?;
        until(|| maps.stats().undecoded == 0).await;
        assert_eq!((maps.get(&key)?, doors()), (None, Vec::new()));
        cache.stop().await;
        Ok(())
    }

    async fn a_client_gets_the_error_of_an_object_that_it_wrote_and_its_metadata(env: Env) -> anyhow::Result<()> {
        let (connection, namespace) = (env.client()?, env.namespace("undecoded").await?);
        let cache = running(connection.clone(), &[&namespace]);
        cache.informer_of(Select::<Painted>::new())?.await_synced().await?;
        let client = Client::new(connection)?.with_cache(cache.clone());
        let map = json!({"metadata": {"name": "a", "namespace": namespace}, "data": {"door": "blue"}});
        let key = ObjectKey::of(&client.create(&serde_json::from_value::<ConfigMap>(map)?).await?);
        let error = client.get::<Painted>(&key).await.expect_err("it does not decode");
        assert!(matches!(&error, Error::Cache(CacheError::Undecodable { key: of, .. }) if *of == key), "{error}");
        let metadata = client.get::<Metadata<Painted>>(&key).await?.expect("its metadata decodes");
        assert_eq!(metadata.metadata.name.as_deref(), Some("a"));
        client.delete::<ConfigMap>(&key).await?;
        assert!(client.get::<Painted>(&key).await?.is_none());
        cache.stop().await;
        Ok(())
    }

    async fn events_report_each_version_that_does_not_decode_once(env: Env) -> anyhow::Result<()> {
        let (connection, namespace) = (env.client()?, env.namespace("undecoded").await?);
        let key = ObjectKey::new(&namespace, "a");
        make(&connection, &namespace, "a", "blue").await;
        let cache = running(connection.clone(), &[&namespace]);
        let maps = cache.informer_of(select())?;
        let mut events = maps.events();
        assert_eq!(told(&mut events).await, "generic a");
        assert_eq!(told(&mut events).await, "initial done");
        let mut late = maps.events();
        assert_eq!(told(&mut late).await, "generic a", "also to a subscription that begins later");
        assert_eq!(told(&mut late).await, "initial done");

        paint(&connection, &key, "red").await;
        assert_eq!(told(&mut events).await, "create a");
        paint(&connection, &key, "white").await;
        assert_eq!(told(&mut events).await, "generic a");
        paint(&connection, &key, "black").await;
        assert_eq!(told(&mut events).await, "generic a");
        paint(&connection, &key, "green").await;
        assert_eq!(told(&mut events).await, "update a");
        cache.stop().await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_relist_keeps_and_removes_what_does_not_decode() {
    let server = ApiServer::new(Options::default()).expect("a server without data starts");
    // Lists by pages.
    server.faults().add(Fault::on("watch configmaps").status(400).times(1));
    let inside = Connection::new(server.service(), "default");
    for name in ["stays", "goes"] {
        make(&inside, "default", name, "blue").await;
    }
    // Each watch ends in a gap that only a list closes.
    let expired = json!({"code": 410, "reason": "Expired", "message": "too old resource version"});
    let expired = format!("{}\n", json!({"type": "ERROR", "object": expired}));
    let connection = between(&server, move |request| {
        if asks(request, "configmaps", "&resourceVersion=") {
            return Turn::Tell(vec![(Duration::from_secs(10), expired.clone())]);
        }
        Turn::Pass
    });
    let cache = cache(&connection, CacheOptions::default());
    let maps = cache.informer_of(select()).expect("it is new");
    let mut events = maps.events();
    let mut first = [told(&mut events).await, told(&mut events).await];
    first.sort();
    assert_eq!(first, ["generic goes", "generic stays"]);
    assert_eq!(told(&mut events).await, "initial done");
    let api = Api::<ConfigMap>::namespaced(inside.clone(), "default");
    api.delete("goes", &DeleteParams::default()).await.expect("it exists");
    let relists = maps.stats().relists;
    until(|| maps.stats().relists > relists + 1).await;
    assert_eq!(maps.stats().undecoded, 1);
    assert!(is_undecodable(maps.get(&ObjectKey::new("default", "stays")), &ObjectKey::new("default", "stays")));
    assert_eq!(maps.get(&ObjectKey::new("default", "goes")).expect("it is gone"), None);
    let next = timeout(Duration::from_mins(1), told(&mut events)).await;
    assert!(next.is_err(), "the same version is not reported again: {next:?}");
    cache.stop().await;
}
