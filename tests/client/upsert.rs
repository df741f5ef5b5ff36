//! Objects made as they are wanted, whether they are there or not.

use super::{
    calls::{Before, Calls},
    support::{Running, door, live, map, of},
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

fn paint(colour: &str) -> impl FnMut(&mut ConfigMap) -> Result<(), BoxError> {
    move |map| {
        map.data.get_or_insert_default().insert("door".into(), colour.into());
        Ok(())
    }
}

steersman::env_test! {
    async fn an_update_replaces_what_is_there_if_anything_differs(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let calls = Calls::default();
        let watched = client.intercepted(calls.clone());
        let named = || ConfigMap { data: None, ..map(&namespace, "colors", "") };
        for (colour, change, write) in [
            ("blue", Change::Created, Some("Create")),
            ("blue", Change::None, None),
            ("red", Change::Updated, Some("Update")),
        ] {
            let (done, given) = watched.create_or_update(named(), paint(colour)).await?;
            assert_eq!((done, door(&given)), (change, Some(colour)));
            let expected = ["Get"].into_iter().chain(write).map(|verb| format!("{verb} ConfigMap {namespace}/colors"));
            assert_eq!(calls.take(), expected.collect::<Vec<_>>());
            assert_eq!(*client.get::<ConfigMap>(&ObjectKey::of(&given)).await?.expect("it was made"), given);
        }
        Ok(())
    }

    async fn what_the_server_has_filled_in_is_no_difference(env: Env) -> anyhow::Result<()> {
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
                    // A list is written as a whole: the server fills in the same again.
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
            let wanted = map(&namespace, "colors", "blue");
            let replace = |map: &mut ConfigMap| -> Result<(), BoxError> {
                *map = wanted.clone();
                Ok(())
            };
            let (change, given) = client.create_or_patch(wanted.clone(), replace).await?;
            assert_eq!(change, expected, "a whole object without what only the server knows");
            assert!(given.metadata.uid.is_some());
        }
        assert_eq!(calls.take().len(), 3, "two reads and one write");
        Ok(())
    }

    async fn who_makes_it_in_between_is_not_overrun(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let calls = Calls::default();
        let (theirs, seen, wanted) = (client.clone(), calls.clone(), map(&namespace, "colors", "green"));
        let racing = client.intercepted(Before(move |verb| {
            let (theirs, wanted, seen) = (theirs.clone(), wanted.clone(), seen.clone());
            async move {
                seen.push(format!("{verb:?}"));
                if verb == Verb::Create { theirs.create(&wanted).await.map(drop) } else { Ok(()) }
            }
        }));
        let metadata = ObjectMeta { labels: None, ..map(&namespace, "colors", "").metadata };
        let named = ConfigMap { metadata, ..ConfigMap::default() };
        let mut found = Vec::new();
        let (change, given) = racing
            .create_or_patch(named.clone(), |map| {
                found.push(door(map).map(str::to_owned));
                paint("blue")(map)
            })
            .await?;
        assert_eq!((change, door(&given)), (Change::Updated, Some("blue")));
        assert_eq!(found, [None, Some("green".to_owned())], "what is theirs is seen");
        assert_eq!(given.metadata.labels.expect("theirs stay")["app"], "colors");
        assert_eq!(calls.take(), ["Get", "Create", "Get", "Patch"]);

        client.delete::<ConfigMap>(&ObjectKey::of(&named)).await?;
        assert_eq!(racing.create_or_update(named, paint("blue")).await?.0, Change::Updated);
        assert_eq!(calls.take(), ["Get", "Create", "Get", "Update"]);
        Ok(())
    }

    async fn who_makes_it_in_between_and_takes_it_away_again_is_told_of(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let colors = map(&namespace, "colors", "green");
        let (theirs, wanted, key) = (client.clone(), colors.clone(), ObjectKey::of(&colors));
        let made = Arc::new(AtomicBool::new(false));
        let racing = client.intercepted(Before(move |verb| {
            let (theirs, wanted, key, made) = (theirs.clone(), wanted.clone(), key.clone(), made.clone());
            async move {
                match verb {
                    Verb::Create => theirs.create(&wanted).await.map(|_| made.store(true, Relaxed)),
                    Verb::Get if made.load(Relaxed) => theirs.delete::<ConfigMap>(&key).await.map(drop),
                    _ => Ok(()),
                }
            }
        }));
        let error = racing.create_or_patch(colors, paint("blue")).await.expect_err("it was there, and is not");
        assert!(error.is_already_exists(), "{error}");
        Ok(())
    }

    async fn who_changes_it_in_between_makes_it_a_conflict(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let colors = map(&namespace, "colors", "green");
        let key = ObjectKey::of(&client.create(&colors).await?);
        let theirs = client.clone();
        let racing = client.intercepted(Before(move |verb| {
            let (theirs, key) = (theirs.clone(), key.clone());
            async move {
                if matches!(verb, Verb::Patch | Verb::Update) {
                    theirs.patch::<ConfigMap>(&key, &Patch::Merge(json!({"data": {"at": format!("{verb:?}")}}))).await?;
                }
                Ok(())
            }
        }));
        let error = racing.create_or_patch(colors.clone(), paint("blue")).await.expect_err("theirs came first");
        assert!(error.is_conflict(), "{error}");
        let error = racing.create_or_update(colors.clone(), paint("blue")).await.expect_err("theirs came first");
        assert!(error.is_conflict(), "{error}");
        assert_eq!(client.create_or_patch(colors, paint("blue")).await?.0, Change::Updated);
        Ok(())
    }

    async fn what_cannot_be_wanted_is_refused_before_it_is_written(env: Env) -> anyhow::Result<()> {
        type Mutate = fn(&mut ConfigMap) -> Result<(), BoxError>;
        type Expected = fn(&Error) -> bool;
        let (client, namespace) = live(&env).await?;
        let refusals: [(Mutate, Expected); 3] = [
            (|_| Err(io::Error::other("no paint").into()), |error| matches!(error, Error::Mutate(_))),
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
        let colors = map(&namespace, "colors", "green");
        for there in [false, true] {
            if there {
                client.create(&colors).await?;
            }
            for (mutate, expected) in refusals {
                let patch = watched.create_or_patch(colors.clone(), mutate).await.expect_err("refused");
                let update = watched.create_or_update(colors.clone(), mutate).await.expect_err("refused");
                assert!(expected(&patch) && expected(&update), "{patch}, {update}");
            }
        }
        let metadata = ObjectMeta { name: None, generate_name: Some("colors-".into()), ..colors.metadata.clone() };
        let nameless = ConfigMap { metadata, ..ConfigMap::default() };
        let error = watched.create_or_patch(nameless, paint("blue")).await.expect_err("which one?");
        assert!(matches!(error, Error::NoName { .. }), "{error}");
        let error = watched.status().create_or_patch(colors, paint("blue")).await.expect_err("a part");
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(calls.take().iter().all(|call| call.starts_with("Get")), "nothing is written");
        Ok(())
    }

    async fn the_namespace_is_the_clients_where_none_is_named(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let client = client.namespace(&namespace);
        let shop = client.create(&map("", "shop", "blue")).await?;
        for expected in [Change::Created, Change::None] {
            let own = |map: &mut ConfigMap| -> Result<(), BoxError> { Ok(owner::set_controller(&shop, map)?) };
            let (change, colors) = client.create_or_patch(map("", "colors", "blue"), own).await?;
            assert_eq!((change, colors.metadata.namespace.as_ref()), (expected, Some(&namespace)));
            assert!(owner::is_controlled_by(&colors, &shop));
        }
        Ok(())
    }

    async fn what_is_there_is_read_as_the_client_reads(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let running = Running::new(&env, of(&[&namespace]))?;
        let maps = running.cache.informer::<ConfigMap>()?;
        let secrets = running.cache.informer_of(Select::dynamic(Secret::static_gvk()))?;
        maps.await_synced().await?;
        secrets.await_synced().await?;
        let cached = client.with_cache(running.cache.clone());

        let colors = map(&namespace, "colors", "green");
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
        assert!(known.metadata.managed_fields.is_none(), "which the server would have given");

        let secret: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": "key"},
        }))?;
        assert_eq!(cached.create_or_patch(secret, |_| Ok(())).await?.0, Change::Created);
        let service: Service = serde_json::from_value(json!({"metadata": {"namespace": namespace, "name": "web"}}))?;
        let error = cached.create_or_patch(service, |_| Ok(())).await.expect_err("it is not kept");
        assert!(matches!(error, Error::Cache(CacheError::NotCached { .. })), "{error}");
        running.stop().await
    }
}
