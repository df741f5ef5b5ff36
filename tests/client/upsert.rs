//! Tests of upserts, which create or update an object.

use super::{
    interceptors::{Calls, RunBefore},
    support::{Running, cache_options, color, config_map, live},
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube_core::{DynamicObject, ObjectMeta};
use serde_json::json;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use steersman::{
    cache::{CacheError, Select},
    client::{BoxError, Change, Error, Patch, Result, Verb, owner},
    object::{ObjectKey, StaticKind},
    testing::Env,
};

fn paint(color: &str) -> impl FnMut(&mut ConfigMap) -> Result<(), BoxError> {
    move |map| {
        map.data
            .get_or_insert_default()
            .insert("color".into(), color.into());
        Ok(())
    }
}

steersman::env_test! {
    async fn create_or_update_writes_only_differences(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let calls = Calls::default();
        let watched = client.intercepted(calls.clone());
        let named = || ConfigMap { data: None, ..config_map(&namespace, "colors", "") };
        for (expected_color, expected_change, write) in [
            ("blue", Change::Created, Some("Create")),
            ("blue", Change::None, None),
            ("red", Change::Updated, Some("Update")),
        ] {
            let (change, object) = watched.create_or_update(named(), paint(expected_color)).await?;
            assert_eq!((change, color(&object)), (expected_change, Some(expected_color)));
            let expected = ["Get"].into_iter().chain(write).map(|verb| format!("{verb} ConfigMap {namespace}/colors"));
            assert_eq!(calls.take(), expected.collect::<Vec<_>>());
            assert_eq!(*client.get::<ConfigMap>(&ObjectKey::of(&object)).await?.expect("the object exists"), object);
        }
        Ok(())
    }

    async fn defaults_of_the_server_are_not_a_difference(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let service: Service = serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": "web"},
            "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}},
        }))?;
        for expected in [Change::Created, Change::None, Change::None] {
            let (change, _) = client
                .create_or_patch(service.clone(), |service| {
                    let spec = service.spec.get_or_insert_default();
                    spec.selector.get_or_insert_default().insert("app".into(), "web".into());
                    // Lists are replaced as a whole, and the server sets the same defaults again.
                    spec.ports = Some(vec![serde_json::from_value(json!({"port": 80}))?]);
                    service.metadata.labels.get_or_insert_default();
                    service.metadata.finalizers.get_or_insert_default();
                    Ok(())
                })
                .await?;
            assert_eq!(change, expected);
        }
        let calls = Calls::default();
        let client = client.intercepted(calls.clone());
        for expected in [Change::Created, Change::None] {
            let wanted = config_map(&namespace, "colors", "blue");
            let replace = |map: &mut ConfigMap| -> Result<(), BoxError> {
                *map = wanted.clone();
                Ok(())
            };
            let (change, object) = client.create_or_patch(wanted.clone(), replace).await?;
            assert_eq!(change, expected, "a replacement without the fields set by the server");
            assert!(object.metadata.uid.is_some());
        }
        assert_eq!(calls.take().len(), 3, "two reads and one write");
        Ok(())
    }

    async fn create_or_patch_updates_an_object_created_concurrently(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let calls = Calls::default();
        let (theirs, seen, wanted) = (client.clone(), calls.clone(), config_map(&namespace, "colors", "green"));
        let racing = client.intercepted(RunBefore(move |verb| {
            let (theirs, wanted, seen) = (theirs.clone(), wanted.clone(), seen.clone());
            async move {
                seen.push(format!("{verb:?}"));
                if verb == Verb::Create { theirs.create(&wanted).await.map(drop) } else { Ok(()) }
            }
        }));
        let metadata = ObjectMeta { labels: None, ..config_map(&namespace, "colors", "").metadata };
        let named = ConfigMap { metadata, ..ConfigMap::default() };
        let mut found = Vec::new();
        let (change, object) = racing
            .create_or_patch(named.clone(), |map| {
                found.push(color(map).map(str::to_owned));
                paint("blue")(map)
            })
            .await?;
        assert_eq!((change, color(&object)), (Change::Updated, Some("blue")));
        assert_eq!(found, [None, Some("green".to_owned())], "the closure runs again with the concurrent object");
        assert_eq!(object.metadata.labels.expect("labels are kept")["app"], "colors");
        assert_eq!(calls.take(), ["Get", "Create", "Get", "Patch"]);

        client.delete::<ConfigMap>(&ObjectKey::of(&named)).await?;
        assert_eq!(racing.create_or_update(named, paint("blue")).await?.0, Change::Updated);
        assert_eq!(calls.take(), ["Get", "Create", "Get", "Update"]);
        Ok(())
    }

    async fn create_or_patch_reports_an_object_created_and_deleted_concurrently(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let colors = config_map(&namespace, "colors", "green");
        let (theirs, wanted, key) = (client.clone(), colors.clone(), ObjectKey::of(&colors));
        let made = Arc::new(AtomicBool::new(false));
        let racing = client.intercepted(RunBefore(move |verb| {
            let (theirs, wanted, key, made) = (theirs.clone(), wanted.clone(), key.clone(), made.clone());
            async move {
                match verb {
                    Verb::Create => theirs.create(&wanted).await.map(|_| made.store(true, Relaxed)),
                    Verb::Get if made.load(Relaxed) => theirs.delete::<ConfigMap>(&key).await.map(drop),
                    _ => Ok(()),
                }
            }
        }));
        let error = racing.create_or_patch(colors, paint("blue")).await.expect_err("created and deleted");
        assert!(error.is_already_exists(), "{error}");
        Ok(())
    }

    async fn a_concurrent_change_is_a_conflict(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let colors = config_map(&namespace, "colors", "green");
        let key = ObjectKey::of(&client.create(&colors).await?);
        let theirs = client.clone();
        let racing = client.intercepted(RunBefore(move |verb| {
            let (theirs, key) = (theirs.clone(), key.clone());
            async move {
                if matches!(verb, Verb::Patch | Verb::Update) {
                    theirs.patch::<ConfigMap>(&key, &Patch::Merge(json!({"data": {"at": format!("{verb:?}")}}))).await?;
                }
                Ok(())
            }
        }));
        let error = racing.create_or_patch(colors.clone(), paint("blue")).await.expect_err("a concurrent write");
        assert!(error.is_conflict(), "{error}");
        let error = racing.create_or_update(colors.clone(), paint("blue")).await.expect_err("a concurrent write");
        assert!(error.is_conflict(), "{error}");
        assert_eq!(client.create_or_patch(colors, paint("blue")).await?.0, Change::Updated);
        Ok(())
    }

    async fn invalid_mutations_are_rejected_before_the_write(env: Env) -> anyhow::Result<()> {
        type Mutate = fn(&mut ConfigMap) -> Result<(), BoxError>;
        type Expected = fn(&Error) -> bool;
        let (client, namespace) = live(&env).await?;
        let rejections: [(Mutate, Expected); 3] = [
            (|_| Err(io::Error::other("invalid color").into()), |error| matches!(error, Error::Mutate(_))),
            (
                |map| {
                    map.metadata.name = Some("other".into());
                    Ok(())
                },
                |error| matches!(error, Error::Renamed { changed, .. } if changed.name() == "other"),
            ),
            (
                |map| {
                    map.metadata.namespace = None;
                    Ok(())
                },
                |error| matches!(error, Error::Renamed { changed, .. } if changed.namespace().is_none()),
            ),
        ];
        let calls = Calls::default();
        let watched = client.intercepted(calls.clone());
        let colors = config_map(&namespace, "colors", "green");
        for there in [false, true] {
            if there {
                client.create(&colors).await?;
            }
            for (mutate, expected) in rejections {
                let patch = watched.create_or_patch(colors.clone(), mutate).await.expect_err("rejected");
                let update = watched.create_or_update(colors.clone(), mutate).await.expect_err("rejected");
                assert!(expected(&patch) && expected(&update), "{patch}, {update}");
            }
        }
        let metadata = ObjectMeta { name: None, generate_name: Some("colors-".into()), ..colors.metadata.clone() };
        let nameless = ConfigMap { metadata, ..ConfigMap::default() };
        let error = watched.create_or_patch(nameless, paint("blue")).await.expect_err("no name");
        assert!(matches!(error, Error::NoName { .. }), "{error}");
        let error = watched.status().create_or_patch(colors, paint("blue")).await.expect_err("a subresource");
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(calls.take().iter().all(|call| call.starts_with("Get")), "nothing is written");
        Ok(())
    }

    async fn an_upsert_uses_the_namespace_of_the_client(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let client = client.namespace(&namespace);
        let shop = client.create(&config_map("", "shop", "blue")).await?;
        for expected in [Change::Created, Change::None] {
            let own = |map: &mut ConfigMap| -> Result<(), BoxError> { Ok(owner::set_controller(&shop, map)?) };
            let (change, colors) = client.create_or_patch(config_map("", "colors", "blue"), own).await?;
            assert_eq!((change, colors.metadata.namespace.as_ref()), (expected, Some(&namespace)));
            assert!(owner::is_controlled_by(&colors, &shop));
        }
        Ok(())
    }

    async fn an_upsert_reads_from_the_cache_of_the_client(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let running = Running::new(&env, cache_options(&[&namespace]))?;
        let maps = running.cache.informer::<ConfigMap>()?;
        let secrets = running.cache.informer_of(Select::dynamic(Secret::static_gvk()))?;
        maps.await_synced().await?;
        secrets.await_synced().await?;
        let cached = client.with_cache(running.cache.clone());

        let colors = config_map(&namespace, "colors", "green");
        let (change, made) = cached.create_or_patch(colors.clone(), paint("blue")).await?;
        assert_eq!(change, Change::Created);
        let known = loop {
            match maps.get(&ObjectKey::of(&made))? {
                Some(known) => break known,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        let mut read = None;
        let keep = |map: &mut ConfigMap| -> Result<(), BoxError> {
            read = Some(map.clone());
            Ok(())
        };
        assert_eq!(cached.create_or_patch(colors.clone(), keep).await?.0, Change::None);
        assert_eq!(read.as_ref(), Some(&*known));
        assert!(known.metadata.managed_fields.is_none(), "the cache drops managed fields");

        let secret: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": "key"},
        }))?;
        assert_eq!(cached.create_or_patch(secret, |_| Ok(())).await?.0, Change::Created);
        let service: Service = serde_json::from_value(json!({"metadata": {"namespace": namespace, "name": "web"}}))?;
        let error = cached.create_or_patch(service, |_| Ok(())).await.expect_err("not cached");
        assert!(matches!(error, Error::Cache(CacheError::NotCached { .. })), "{error}");
        running.stop().await
    }
}
