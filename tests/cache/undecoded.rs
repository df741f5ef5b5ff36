//! Tests of objects whose current version does not decode: reads and events.

use super::{
    response_proxy::{ResponseAction, is_request_for, proxy_client},
    support::{cache, create_map, running, until},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Resource,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams},
};
use kube_client::{Api, Client as Connection};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use steersman::{
    cache::{CacheError, CacheOptions, Events, InformerEvent, Query, Select},
    client::{Client, Error},
    event::Event,
    object::{Metadata, ObjectKey},
    testing::{Env, TestServer},
};
use steersman_apiserver::{ApiServer, Fault, Options};
use tokio::time::timeout;

/// Config map whose color is red or green.
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
    // Excludes the config map that servers create in every namespace.
    Select::new().labels("app")
}

async fn paint(connection: &Connection, key: &ObjectKey, color: &str) {
    let maps =
        Api::<ConfigMap>::namespaced(connection.clone(), key.namespace().unwrap_or_default());
    let patch = Patch::Merge(json!({"data": {"color": color}}));
    maps.patch(key.name(), &PatchParams::default(), &patch)
        .await
        .expect("the object exists");
}

fn is_undecodable<T: std::fmt::Debug>(read: Result<T, CacheError>, key: &ObjectKey) -> bool {
    match read {
        Err(CacheError::Undecodable {
            kind,
            key: of,
            error,
        }) => {
            // The error must not contain the value, which may be secret.
            kind == "ConfigMap"
                && of == *key
                && error.contains("expected `red` or `green`")
                && !error.contains("blue")
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the next event as verb and name.
async fn next_event(events: &mut Events<Painted>) -> String {
    match events.next().await {
        Some(InformerEvent::Synced) => "initial done".into(),
        Some(InformerEvent::Event(event)) => {
            let verb = match &event {
                Event::Create { .. } => "create",
                Event::Update { .. } => "update",
                Event::Delete { .. } => "delete",
                Event::Generic { object } => {
                    assert!(
                        object
                            .decode()
                            .expect_err("undecodable")
                            .to_string()
                            .contains("expected `red`")
                    );
                    assert!(
                        object.meta().labels().contains("app"),
                        "its metadata is there"
                    );
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
        let colors = || -> Vec<Color> {
            maps.list(&Query::default()).expect("a list").iter().map(|map| map.data["color"]).collect()
        };

        // Created invalid: lists have no earlier state to return.
        create_map(&connection, &namespace, "a", "blue").await;
        until(|| maps.stats().undecoded == 1).await;
        assert!(is_undecodable(maps.get(&key), &key));
        assert!(colors().is_empty() && maps.view(&Query::default())?.is_empty());
        assert!(maps.stats().decode_errors > 0);

        paint(&connection, &key, "red").await;
        until(|| maps.stats().undecoded == 0).await;
        assert_eq!(maps.get(&key)?.map(|map| map.data["color"]), Some(Color::Red));

        // Updated to an invalid state: lists return the last valid state.
        paint(&connection, &key, "blue").await;
        until(|| maps.stats().undecoded == 1).await;
        assert!(is_undecodable(maps.get(&key), &key));
        assert_eq!((colors(), maps.view(&Query::default())?.len()), (vec![Color::Red], 1));

        let api = Api::<ConfigMap>::namespaced(connection.clone(), &namespace);
        api.delete("a", &DeleteParams::default()).await?;
        until(|| maps.stats().undecoded == 0).await;
        assert_eq!((maps.get(&key)?, colors()), (None, Vec::new()));
        cache.stop().await;
        Ok(())
    }

    async fn a_client_gets_the_error_of_an_object_that_it_wrote_and_its_metadata(env: Env) -> anyhow::Result<()> {
        let (connection, namespace) = (env.client()?, env.namespace("undecoded").await?);
        let cache = running(connection.clone(), &[&namespace]);
        cache.informer_of(Select::<Painted>::new())?.await_synced().await?;
        let client = Client::new(connection)?.with_cache(cache.clone());
        let map = json!({"metadata": {"name": "a", "namespace": namespace}, "data": {"color": "blue"}});
        let key = ObjectKey::of(&client.create(&serde_json::from_value::<ConfigMap>(map)?).await?);
        let error = client.get::<Painted>(&key).await.expect_err("undecodable");
        assert!(matches!(&error, Error::Cache(CacheError::Undecodable { key: of, .. }) if *of == key), "{error}");
        let metadata = client.get::<Metadata<Painted>>(&key).await?.expect("its metadata decodes");
        assert_eq!(metadata.metadata.name.as_deref(), Some("a"));
        client.delete::<ConfigMap>(&key).await?;
        assert!(client.get::<Painted>(&key).await?.is_none());
        cache.stop().await;
        Ok(())
    }

    async fn a_compact_informer_lists_without_the_objects_that_do_not_decode(env: Env) -> anyhow::Result<()> {
        let (connection, namespace) = (env.client()?, env.namespace("undecoded").await?);
        for (name, color) in [("a", "blue"), ("b", "red"), ("c", "green")] {
            create_map(&connection, &namespace, name, color).await;
        }
        let select = select().compact();
        let cache = cache(&connection, CacheOptions { kinds: vec![select.clone().into()], ..CacheOptions::default() });
        let maps = cache.informer_of(select)?;
        maps.await_synced().await?;
        let key = ObjectKey::new(&namespace, "a");
        let all = Query::default().namespace(Some(&namespace));
        let names = |maps: Vec<Arc<Painted>>| -> Vec<_> { maps.iter().filter_map(|map| map.metadata.name.clone()).collect() };
        assert_eq!(maps.stats().undecoded, 0, "nothing was decoded");

        assert_eq!(names(maps.list(&all.clone().sorted())?), ["b", "c"]);
        assert_eq!(names(maps.list(&all.clone().sorted().limit(1))?), ["b"]);
        assert_eq!(maps.list(&all.clone().labels("app")?)?.len(), 2);
        assert_eq!(maps.list(&all.clone().limit(2))?.len(), 2);
        assert!(is_undecodable(maps.get(&key), &key));
        let client = Client::new(connection.clone())?.with_cache(cache.clone());
        assert_eq!(client.list(&all).await?.len(), 2);
        let error = client.get::<Painted>(&key).await.expect_err("undecodable");
        assert!(matches!(error, Error::Cache(CacheError::Undecodable { .. })), "{error}");
        assert_eq!((maps.stats().undecoded, maps.stats().decode_errors), (1, 1));
        let error = maps.stats().last_decode_error.expect("an error");
        assert!(error.contains("expected `red` or `green`") && !error.contains("blue"), "{error}");

        // Readers of other types have it, and a view does not decode.
        assert_eq!(client.list::<ConfigMap>(&Query::default().namespace(Some(&namespace)).labels("app")?).await?.len(), 3);
        assert!(client.get::<Metadata<Painted>>(&key).await?.is_some());
        let view = maps.view(&all)?;
        assert_eq!((view.len(), view.iter().filter(|map| map.decode().is_err()).count()), (3, 1));

        paint(&connection, &key, "green").await;
        until(|| maps.list(&all).is_ok_and(|maps| maps.len() == 3)).await;
        assert_eq!((maps.stats().undecoded, maps.stats().decode_errors), (0, 1));
        cache.stop().await;
        Ok(())
    }

    async fn events_report_each_version_that_does_not_decode_once(env: Env) -> anyhow::Result<()> {
        let (connection, namespace) = (env.client()?, env.namespace("undecoded").await?);
        let key = ObjectKey::new(&namespace, "a");
        create_map(&connection, &namespace, "a", "blue").await;
        let cache = running(connection.clone(), &[&namespace]);
        let maps = cache.informer_of(select())?;
        let mut events = maps.events();
        assert_eq!(next_event(&mut events).await, "generic a");
        assert_eq!(next_event(&mut events).await, "initial done");
        let mut late = maps.events();
        assert_eq!(next_event(&mut late).await, "generic a", "also to a subscription that begins later");
        assert_eq!(next_event(&mut late).await, "initial done");

        paint(&connection, &key, "red").await;
        assert_eq!(next_event(&mut events).await, "create a");
        paint(&connection, &key, "white").await;
        assert_eq!(next_event(&mut events).await, "generic a");
        paint(&connection, &key, "black").await;
        assert_eq!(next_event(&mut events).await, "generic a");
        paint(&connection, &key, "green").await;
        assert_eq!(next_event(&mut events).await, "update a");
        cache.stop().await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_relist_keeps_and_removes_objects_that_do_not_decode() {
    let server = ApiServer::new(Options::default()).expect("a server without data starts");
    // Forces paged lists.
    server
        .faults()
        .add(Fault::on("watch configmaps").status(400).times(1));
    let direct_client = Connection::new(server.service(), "default");
    for name in ["stays", "goes"] {
        create_map(&direct_client, "default", name, "blue").await;
    }
    // Each watch ends with 410, which forces a list.
    let expired = json!({"code": 410, "reason": "Expired", "message": "too old resource version"});
    let expired = format!("{}\n", json!({"type": "ERROR", "object": expired}));
    let connection = proxy_client(&server, move |request| {
        if is_request_for(request, "configmaps", "&resourceVersion=") {
            return ResponseAction::ReplaceTimed(vec![(Duration::from_secs(10), expired.clone())]);
        }
        ResponseAction::Pass
    });
    let cache = cache(&connection, CacheOptions::default());
    let maps = cache
        .informer_of(select())
        .expect("the informer is declared");
    let mut events = maps.events();
    let mut first = [next_event(&mut events).await, next_event(&mut events).await];
    first.sort();
    assert_eq!(first, ["generic goes", "generic stays"]);
    assert_eq!(next_event(&mut events).await, "initial done");
    let api = Api::<ConfigMap>::namespaced(direct_client.clone(), "default");
    api.delete("goes", &DeleteParams::default())
        .await
        .expect("the object exists");
    let relists = maps.stats().relists;
    until(|| maps.stats().relists > relists + 1).await;
    assert_eq!(maps.stats().undecoded, 1);
    assert!(is_undecodable(
        maps.get(&ObjectKey::new("default", "stays")),
        &ObjectKey::new("default", "stays")
    ));
    assert_eq!(
        maps.get(&ObjectKey::new("default", "goes"))
            .expect("no error"),
        None
    );
    let next = timeout(Duration::from_mins(1), next_event(&mut events)).await;
    assert!(
        next.is_err(),
        "the same version is not reported again: {next:?}"
    );
    cache.stop().await;
}
