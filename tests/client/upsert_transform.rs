//! Objects made as they are wanted, where the cache leaves a part of them out: on the server it stays.

use super::{
    calls::Calls,
    held::Gate,
    support::{Running, door, live, map, of},
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

/// Empties what is not read, and leaves it empty. Of the data only the door is left.
fn reduce(map: &mut ConfigMap) {
    let metadata = &mut map.metadata;
    metadata.annotations.iter_mut().for_each(|annotations| drop(annotations.remove(APPLIED)));
    metadata.labels.iter_mut().for_each(BTreeMap::clear);
    metadata.owner_references.iter_mut().for_each(Vec::clear);
    map.data.iter_mut().for_each(|data| data.retain(|what, _| what == "door"));
}

fn reducing(namespace: &str) -> CacheOptions {
    CacheOptions { kinds: vec![Select::<ConfigMap>::new().transform(reduce).into()], ..of(&[namespace]) }
}

/// A cache that reduces config maps, and a client that reads from it.
async fn reduced(env: &Env, namespace: &str) -> anyhow::Result<(Running, Informer<ConfigMap>, Client)> {
    let running = Running::new(env, reducing(namespace))?;
    let maps = running.cache.informer::<ConfigMap>()?;
    maps.await_synced().await?;
    let client = Client::new(env.client()?)?.with_cache(running.cache.clone());
    Ok((running, maps, client))
}

/// An object of which the cache has little.
async fn made(client: &Client, namespace: &str) -> anyhow::Result<ConfigMap> {
    let shop = client.create(&map(namespace, "shop", "blue")).await?;
    let mut colors = map(namespace, "colors", "blue");
    colors.metadata.annotations = Some([(APPLIED.to_owned(), "{}".to_owned())].into());
    colors.data.get_or_insert_default().insert("roof".into(), "grey".into());
    owner::set_controller(&shop, &mut colors)?;
    Ok(client.create(&colors).await?)
}

/// All of it but the door and what each write changes.
fn rest(map: &ConfigMap) -> ConfigMap {
    let mut rest = map.clone();
    rest.data.iter_mut().for_each(|data| drop(data.remove("door")));
    (rest.metadata.resource_version, rest.metadata.managed_fields) = (None, None);
    rest
}

fn named(namespace: &str) -> ConfigMap {
    let mut named = map(namespace, "colors", "");
    (named.data, named.metadata.labels) = (None, None);
    named
}

fn paint(colour: &str) -> impl FnMut(&mut ConfigMap) -> Result<(), BoxError> {
    move |map| {
        map.data.get_or_insert_default().insert("door".into(), colour.into());
        Ok(())
    }
}

fn verbs(calls: &Calls) -> Vec<String> {
    calls.take().iter().filter_map(|call| call.split(' ').next().map(str::to_owned)).collect()
}

steersman::env_test! {
    async fn what_a_transform_has_emptied_is_not_taken_away(env: Env) -> anyhow::Result<()> {
        let (live, namespace) = live(&env).await?;
        let (running, maps, client) = reduced(&env, &namespace).await?;
        let made = made(&client, &namespace).await?;
        let key = ObjectKey::of(&made);
        let calls = Calls::default();
        let watched = client.intercepted(calls.clone());
        assert_eq!(watched.create_or_patch(named(&namespace), |_| Ok(())).await?.0, Change::None);
        assert_eq!(watched.create_or_update(named(&namespace), |_| Ok(())).await?.0, Change::None);
        assert_eq!(verbs(&calls), ["Get", "Get"], "nothing is wanted, and nothing sent");
        let kept = maps.get(&key)?.expect("it was made");
        assert!(kept.metadata.annotations.as_ref().is_some_and(BTreeMap::is_empty), "it is there, and empty");
        assert_eq!(*live.get::<ConfigMap>(&key).await?.expect("it was made"), made);
        running.stop().await
    }

    async fn what_a_transform_has_left_out_stays_when_something_else_is_written(env: Env) -> anyhow::Result<()> {
        let (live, namespace) = live(&env).await?;
        let (running, _maps, client) = reduced(&env, &namespace).await?;
        let made = made(&client, &namespace).await?;
        let calls = Calls::default();
        let watched = client.intercepted(calls.clone());
        let is = async |colour: &str| -> anyhow::Result<()> {
            let now = live.get::<ConfigMap>(&ObjectKey::of(&made)).await?.expect("it was made");
            assert_eq!((door(&now), rest(&now)), (Some(colour), rest(&made)));
            Ok(())
        };
        assert_eq!(watched.create_or_patch(named(&namespace), paint("red")).await?.0, Change::Updated);
        assert_eq!(verbs(&calls), ["Get", "Patch"], "a field is sent by itself");
        is("red").await?;
        assert_eq!(watched.create_or_update(named(&namespace), paint("green")).await?.0, Change::Updated);
        assert_eq!(verbs(&calls), ["Get", "Get", "Update"], "what is replaced is the whole object");
        is("green").await?;

        let label = |map: &mut ConfigMap| -> Result<(), BoxError> {
            map.metadata.labels.get_or_insert_default().insert("tier".into(), "front".into());
            Ok(())
        };
        let (_, labelled) = watched.create_or_patch(named(&namespace), label).await?;
        let labels = labelled.metadata.labels.unwrap_or_default();
        assert_eq!(labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(), ["app=colors", "tier=front"]);
        running.stop().await
    }

    async fn a_list_that_a_transform_has_shortened_is_read_whole_before_it_is_written(env: Env) -> anyhow::Result<()> {
        let (_, namespace) = live(&env).await?;
        let (running, _maps, client) = reduced(&env, &namespace).await?;
        let made = made(&client, &namespace).await?;
        let other = client.create(&map(&namespace, "other", "blue")).await?;
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
        assert_eq!(seen, [0, 1], "first as it is here, then as it is there");
        let owners = |map: &ConfigMap| -> Vec<String> {
            map.metadata.owner_references.iter().flatten().map(|owner| owner.name.clone()).collect()
        };
        assert_eq!(owners(&made), ["shop"]);
        assert_eq!(owners(&owned), ["shop", "other"]);

        // The same of metadata alone, which is read from the same informer.
        let third = client.create(&map(&namespace, "third", "blue")).await?;
        let metadata = Metadata::<ConfigMap> { types: None, metadata: named(&namespace).metadata, _phantom: PhantomData };
        let (_, owned) = watched.create_or_patch(metadata, |map| Ok(owner::add(&third, map)?)).await?;
        assert_eq!(owned.metadata.owner_references.map(|owners| owners.len()), Some(3));
        running.stop().await
    }

    async fn a_transform_of_metadata_leaves_the_lists_of_bodies_whole(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let transform = MetadataTransform::new(|object| {
            object.metadata.annotations.iter_mut().for_each(|annotations| drop(annotations.remove(APPLIED)));
        });
        let running = Running::new(&env, CacheOptions { transform: Some(transform), ..of(&[&namespace]) })?;
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
        assert_eq!(verbs(&calls), ["Get", "Patch"], "nothing is left out of it");
        assert!(web.metadata.annotations.is_some_and(|annotations| annotations.contains_key(APPLIED)));
        running.stop().await
    }

    async fn what_is_gone_when_it_is_read_whole_is_not_found(env: Env) -> anyhow::Result<()> {
        let (live, namespace) = live(&env).await?;
        let gate = Gate::new(Duration::ZERO);
        let cache = Cache::new(gate.before(env.client()?), reducing(&namespace))?;
        let running = tokio::spawn(cache.clone().run_until(std::future::pending()));
        let maps = cache.informer::<ConfigMap>()?;
        maps.await_synced().await?;
        let client = live.with_cache(cache);
        let key = ObjectKey::of(&made(&client, &namespace).await?);
        assert!(client.get::<ConfigMap>(&key).await?.is_some());
        gate.hold();
        live.delete::<ConfigMap>(&key).await?;
        let calls = Calls::default();
        let hasty = client.consistency(Consistency::Ignore).intercepted(calls.clone());
        let error = hasty.create_or_update(named(&namespace), paint("red")).await.expect_err("it is gone");
        assert!(error.is_not_found(), "{error}");
        assert_eq!(verbs(&calls), ["Get", "Get", "Update"]);
        running.abort();
        Ok(())
    }
}
