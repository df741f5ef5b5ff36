//! Tests of upserts with a cache that transforms objects.
//!
//! Omitted fields stay on the server.

use super::{
    interceptors::Calls,
    support::{Running, cache_options, color, config_map, live},
    watch_gate::WatchGate,
};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use serde_json::json;
use std::{collections::BTreeMap, marker::PhantomData, time::Duration};
use steersman::{
    cache::{Cache, CacheOptions, Informer, MetadataTransform, Select},
    client::{BoxError, Change, Client, Consistency, Result, owner},
    object::{Metadata, ObjectKey},
    testing::{Env, TestServer},
};

const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Empties fields that the test does not read.
///
/// Of the data, only the color is left.
fn drop_fields(map: &mut ConfigMap) {
    let metadata = &mut map.metadata;
    metadata
        .annotations
        .iter_mut()
        .for_each(|annotations| drop(annotations.remove(APPLIED)));
    metadata.labels.iter_mut().for_each(BTreeMap::clear);
    metadata.owner_references.iter_mut().for_each(Vec::clear);
    map.data
        .iter_mut()
        .for_each(|data| data.retain(|name, _| name == "color"));
}

fn reducing_options(namespace: &str) -> CacheOptions {
    CacheOptions {
        kinds: vec![Select::<ConfigMap>::new().transform(drop_fields).into()],
        ..cache_options(&[namespace])
    }
}

/// Runs a cache that reduces config maps, and a client that reads from it.
async fn start_reduced(
    env: &Env,
    namespace: &str,
) -> anyhow::Result<(Running, Informer<ConfigMap>, Client)> {
    let running = Running::new(env, reducing_options(namespace))?;
    let maps = running.cache.informer::<ConfigMap>()?;
    maps.await_synced().await?;
    let client = Client::new(env.client()?)?.with_cache(running.cache.clone());
    Ok((running, maps, client))
}

/// Creates an object of which the cache keeps little.
async fn made(client: &Client, namespace: &str) -> anyhow::Result<ConfigMap> {
    let shop = client
        .create(&config_map(namespace, "shop", "blue"))
        .await?;
    let mut colors = config_map(namespace, "colors", "blue");
    colors.metadata.annotations = Some([(APPLIED.to_owned(), "{}".to_owned())].into());
    colors
        .data
        .get_or_insert_default()
        .insert("roof".into(), "grey".into());
    owner::set_controller(&shop, &mut colors)?;
    Ok(client.create(&colors).await?)
}

/// Returns the object without the color and the fields that each write changes.
fn rest(map: &ConfigMap) -> ConfigMap {
    let mut rest = map.clone();
    rest.data
        .iter_mut()
        .for_each(|data| drop(data.remove("color")));
    (rest.metadata.resource_version, rest.metadata.managed_fields) = (None, None);
    rest
}

fn named(namespace: &str) -> ConfigMap {
    let mut named = config_map(namespace, "colors", "");
    (named.data, named.metadata.labels) = (None, None);
    named
}

fn paint(color: &str) -> impl FnMut(&mut ConfigMap) -> Result<(), BoxError> {
    move |map| {
        map.data
            .get_or_insert_default()
            .insert("color".into(), color.into());
        Ok(())
    }
}

fn verbs(calls: &Calls) -> Vec<String> {
    calls
        .take()
        .iter()
        .filter_map(|call| call.split(' ').next().map(str::to_owned))
        .collect()
}

steersman::env_test! {
    async fn an_upsert_keeps_fields_that_a_transform_emptied(env: Env) -> anyhow::Result<()> {
        let (live, namespace) = live(&env).await?;
        let (running, maps, client) = start_reduced(&env, &namespace).await?;
        let made = made(&client, &namespace).await?;
        let key = ObjectKey::of(&made);
        let calls = Calls::default();
        let watched = client.intercepted(calls.clone());
        assert_eq!(watched.create_or_patch(named(&namespace), |_| Ok(())).await?.0, Change::None);
        assert_eq!(watched.create_or_update(named(&namespace), |_| Ok(())).await?.0, Change::None);
        assert_eq!(verbs(&calls), ["Get", "Get"], "no difference, no write");
        let kept = maps.get(&key)?.expect("the object exists");
        assert!(kept.metadata.annotations.as_ref().is_some_and(BTreeMap::is_empty), "the transform left an empty map");
        assert_eq!(*live.get::<ConfigMap>(&key).await?.expect("the object exists"), made);
        running.stop().await
    }

    async fn an_upsert_of_other_fields_keeps_those_that_a_transform_dropped(env: Env) -> anyhow::Result<()> {
        let (live, namespace) = live(&env).await?;
        let (running, _maps, client) = start_reduced(&env, &namespace).await?;
        let made = made(&client, &namespace).await?;
        let calls = Calls::default();
        let watched = client.intercepted(calls.clone());
        let assert_color = async |expected: &str| -> anyhow::Result<()> {
            let now = live.get::<ConfigMap>(&ObjectKey::of(&made)).await?.expect("the object exists");
            assert_eq!((color(&now), rest(&now)), (Some(expected), rest(&made)));
            Ok(())
        };
        assert_eq!(watched.create_or_patch(named(&namespace), paint("red")).await?.0, Change::Updated);
        assert_eq!(verbs(&calls), ["Get", "Patch"], "a patch contains only the field");
        assert_color("red").await?;
        assert_eq!(watched.create_or_update(named(&namespace), paint("green")).await?.0, Change::Updated);
        assert_eq!(verbs(&calls), ["Get", "Get", "Update"], "an update needs the whole object");
        assert_color("green").await?;

        let label = |map: &mut ConfigMap| -> Result<(), BoxError> {
            map.metadata.labels.get_or_insert_default().insert("tier".into(), "front".into());
            Ok(())
        };
        let (_, labelled) = watched.create_or_patch(named(&namespace), label).await?;
        let labels = labelled.metadata.labels.unwrap_or_default();
        assert_eq!(labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(), ["app=colors", "tier=front"]);
        running.stop().await
    }

    async fn an_upsert_reads_a_shortened_list_from_the_server_before_it_writes(env: Env) -> anyhow::Result<()> {
        let (_, namespace) = live(&env).await?;
        let (running, _maps, client) = start_reduced(&env, &namespace).await?;
        let made = made(&client, &namespace).await?;
        let other = client.create(&config_map(&namespace, "other", "blue")).await?;
        let calls = Calls::default();
        let watched = client.intercepted(calls.clone());
        let mut seen = Vec::new();
        let (change, owned) = watched
            .create_or_patch(named(&namespace), |map| {
                seen.push(map.metadata.owner_references.as_ref().map_or(0, Vec::len));
                Ok(owner::add(&other, map)?)
            })
            .await?;
        assert_eq!(change, Change::Updated);
        assert_eq!(verbs(&calls), ["Get", "Get", "Patch"]);
        assert_eq!(seen, [0, 1], "first the cached object, then the live one");
        let owners = |map: &ConfigMap| -> Vec<String> {
            map.metadata.owner_references.iter().flatten().map(|owner| owner.name.clone()).collect()
        };
        assert_eq!(owners(&made), ["shop"]);
        assert_eq!(owners(&owned), ["shop", "other"]);

        // The same for a metadata-only object, which is read from the same informer.
        let third = client.create(&config_map(&namespace, "third", "blue")).await?;
        let metadata = Metadata::<ConfigMap> { types: None, metadata: named(&namespace).metadata, _phantom: PhantomData };
        let (_, owned) = watched.create_or_patch(metadata, |map| Ok(owner::add(&third, map)?)).await?;
        assert_eq!(owned.metadata.owner_references.map(|owners| owners.len()), Some(3));
        running.stop().await
    }

    async fn a_metadata_transform_does_not_require_a_live_read(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let transform = MetadataTransform::new(|object| {
            object.metadata.annotations.iter_mut().for_each(|annotations| drop(annotations.remove(APPLIED)));
        });
        let running = Running::new(&env, CacheOptions { transform: Some(transform), ..cache_options(&[&namespace]) })?;
        let services = running.cache.informer::<Service>()?;
        services.await_synced().await?;
        let calls = Calls::default();
        let client = client.with_cache(running.cache.clone()).intercepted(calls.clone());
        let web: Service = serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": "web", "annotations": {APPLIED: "{}"}},
            "spec": {"ports": [{"port": 80}]},
        }))?;
        client.create(&web).await?;
        calls.take();
        assert_eq!(client.create_or_patch(web.clone(), |_| Ok(())).await?.0, Change::None);
        assert_eq!(verbs(&calls), ["Get"]);
        let (change, web) = client
            .create_or_patch(web, |web| {
                web.spec.get_or_insert_default().ports = Some(vec![serde_json::from_value(json!({"port": 81}))?]);
                Ok(())
            })
            .await?;
        assert_eq!(change, Change::Updated);
        assert_eq!(verbs(&calls), ["Get", "Patch"], "the body is complete");
        assert!(web.metadata.annotations.is_some_and(|annotations| annotations.contains_key(APPLIED)));
        running.stop().await
    }

    async fn an_upsert_of_an_object_deleted_on_the_server_is_not_found(env: Env) -> anyhow::Result<()> {
        let (live, namespace) = live(&env).await?;
        let gate = WatchGate::new(Duration::ZERO);
        let cache = Cache::new(gate.wrap(env.client()?), reducing_options(&namespace))?;
        let running = tokio::spawn(cache.clone().run_until(std::future::pending()));
        let maps = cache.informer::<ConfigMap>()?;
        maps.await_synced().await?;
        let client = live.with_cache(cache);
        let key = ObjectKey::of(&made(&client, &namespace).await?);
        assert!(client.get::<ConfigMap>(&key).await?.is_some());
        gate.hold();
        live.delete::<ConfigMap>(&key).await?;
        let calls = Calls::default();
        let short_wait = client.consistency(Consistency::Ignore).intercepted(calls.clone());
        let error = short_wait.create_or_update(named(&namespace), paint("red")).await.expect_err("deleted");
        assert!(error.is_not_found(), "{error}");
        assert_eq!(verbs(&calls), ["Get", "Get", "Update"]);
        running.abort();
        Ok(())
    }
}
