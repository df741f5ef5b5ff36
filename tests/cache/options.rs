//! Tests of scopes and transformations, per kind and as defaults.

use super::support::{cache, create_map, namespace_list, stored_objects, until};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube_client::{Api, api::DeleteParams, core::GroupVersionKind};
use std::{collections::BTreeSet, time::Duration};
use steersman::{
    cache::{
        Cache, CacheError, CacheOptions, Informer, InformerEvent, MetadataTransform,
        NamespaceScope, Namespaces, Query, Select,
    },
    event::Event,
    object::{AnyKind, Metadata, ObjectKey},
    testing::{Embedded, Env, TestServer},
};

type Maps = Select<ConfigMap>;
/// Selects objects of a test by the index of their namespace and by their name.
type Wanted = Box<dyn Fn(usize, &str) -> bool>;

steersman::env_test! {
    /// Selectors of the kind, of the cache and of one of several namespaces, by labels and fields.
    async fn an_informer_stores_exactly_the_selected_objects(env: Env) -> anyhow::Result<()> {
        let client = env.client()?;
        let names = [env.namespace("one").await?, env.namespace("two").await?, env.namespace("three").await?];
        let [one, two, three] = [&*names[0], &*names[1], &*names[2]];
        for namespace in &names {
            create_map(&client, namespace, "a", "blue").await;
            create_map(&client, namespace, "b", "red").await;
        }
        let (all, blue, b) = (|_: usize, _: &str| true, |_: usize, name: &str| name == "a", |_: usize, name: &str| name == "b");
        let only = || namespace_list(&[one]);
        let (blue_in_one, others) = (|| NamespaceScope::from(one).labels("app=blue"), NamespaceScope::others);
        let option = |namespaces: Namespaces, labels: &str, fields: &str| CacheOptions {
            namespaces,
            labels: Some(labels.into()).filter(|text: &String| !text.is_empty()),
            fields: Some(fields.into()).filter(|text: &String| !text.is_empty()),
            ..CacheOptions::default()
        };
        let default = CacheOptions::default;
        let everywhere = || Namespaces::All;
        let table: Vec<(CacheOptions, Maps, Wanted)> = vec![
            (default(), Maps::new(), Box::new(all)),
            (default(), Maps::new().labels("app=blue"), Box::new(blue)),
            (default(), Maps::new().fields("metadata.name=b"), Box::new(b)),
            (default(), Maps::new().fields("metadata.name=b").labels("app=blue"), Box::new(|_, _| false)),
            (option(everywhere(), "app=blue", ""), Maps::new(), Box::new(blue)),
            (option(everywhere(), "", "metadata.name=b"), Maps::new(), Box::new(b)),
            (option(everywhere(), "app=red", ""), Maps::new().labels("app=blue"), Box::new(blue)),
            (option(everywhere(), "app=blue", "metadata.name=b"), Maps::new().labels(""), Box::new(b)),
            (option(only(), "", ""), Maps::new(), Box::new(|at, _| at == 0)),
            (option(only(), "app=blue", ""), Maps::new(), Box::new(|at, name| at == 0 && name == "a")),
            (option(only(), "", ""), Maps::new().fields("metadata.name=b"), Box::new(|at, name| at == 0 && name == "b")),
            (option(only(), "app=red", ""), Maps::new().namespaces(namespace_list(&[two, three])), Box::new(|at, name| at > 0 && name == "b")),
            (option(only(), "app=red", ""), Maps::new().namespaces(everywhere()), Box::new(b)),
            (
                option(Namespaces::List(vec![blue_in_one(), two.into()]), "", ""),
                Maps::new(),
                Box::new(|at, name| at == 1 || (at == 0 && name == "a")),
            ),
            (
                option(Namespaces::List(vec![blue_in_one(), two.into()]), "", ""),
                Maps::new().labels("app=red"),
                Box::new(|at, name| at < 2 && name == "b"),
            ),
            (
                option(Namespaces::List(vec![one.into(), others().labels("app=red")]), "", ""),
                Maps::new(),
                Box::new(|at, name| at == 0 || name == "b"),
            ),
            (
                default(),
                Maps::new().namespaces(Namespaces::List(vec![blue_in_one(), others().fields("metadata.name=b")])),
                Box::new(|at, name| (at == 0) == (name == "a")),
            ),
            (
                CacheOptions { kinds: vec![Maps::new().labels("app=blue").namespaces(namespace_list(&[two])).into()], ..default() },
                Maps::new(),
                Box::new(|at, name| at == 1 && name == "a"),
            ),
        ];
        for (number, (options, select, wanted)) in table.into_iter().enumerate() {
            let cache = cache(&client, options);
            let maps = cache.informer_of(select)?;
            maps.await_synced().await?;
            let expected = (0..3).flat_map(|at| ["a", "b"].map(|name| (at, name.to_owned())));
            let expected: BTreeSet<_> = expected.filter(|(at, name)| wanted(*at, name)).collect();
            assert_eq!(stored_objects(&maps, &[one, two, three]), expected, "case {number}");
            cache.stop().await;
        }
        Ok(())
    }

    /// Named and other namespaces have different watches, and different selectors.
    async fn named_and_other_namespaces_are_watched_with_their_own_selectors(env: Env) -> anyhow::Result<()> {
        let client = env.client()?;
        let (one, two) = (env.namespace("named").await?, env.namespace("other").await?);
        let namespaces = Namespaces::List(vec![NamespaceScope::from(&*one).labels("app=blue"), NamespaceScope::others()]);
        let cache = cache(&client, CacheOptions { namespaces, ..CacheOptions::default() });
        let maps = cache.informer::<ConfigMap>()?;
        maps.await_synced().await?;
        for namespace in [&one, &two] {
            create_map(&client, namespace, "a", "blue").await;
            create_map(&client, namespace, "b", "red").await;
        }
        let all: BTreeSet<_> = [(0, "a"), (1, "a"), (1, "b")].map(|(at, name)| (at, name.to_owned())).into();
        until(|| stored_objects(&maps, &[&one, &two]) == all).await;
        Api::<ConfigMap>::namespaced(client, &two).delete("b", &DeleteParams::default()).await?;
        until(|| stored_objects(&maps, &[&one, &two]).len() == 2).await;
        cache.stop().await;
        Ok(())
    }

    /// Order of controller-runtime: `ByObject.Namespaces[ns].Transform`, then `ByObject.Transform`.
    async fn the_transform_of_a_namespace_overrides_that_of_the_kind(env: Env) -> anyhow::Result<()> {
        let client = env.client()?;
        let (one, two) = (env.namespace("changed").await?, env.namespace("plain").await?);
        for select in [Maps::new(), Maps::new().compact()] {
            for namespace in [&one, &two] {
                create_map(&client, namespace, "a", "blue").await;
            }
            let here = NamespaceScope::from(&*one).transform(|map: &mut ConfigMap| map.data = None);
            let namespaces = Namespaces::List(vec![here, (&*two).into()]);
            let all = |map: &mut ConfigMap| map.data.get_or_insert_default().extend([("seen".into(), "yes".into())]);
            let kinds = vec![select.namespaces(namespaces).transform(all).into()];
            let cache = cache(&client, CacheOptions { kinds, ..CacheOptions::default() });
            let maps = cache.informer::<ConfigMap>()?;
            maps.await_synced().await?;
            for namespace in [&one, &two] {
                create_map(&client, namespace, "b", "red").await;
            }
            // Listed objects, and objects from the watch.
            until(|| stored_objects(&maps, &[&one, &two]).len() == 4).await;
            for name in ["a", "b"] {
                let data = |namespace: &str| maps.get(&ObjectKey::new(namespace, name)).map(|map| map.expect("exists").data.clone());
                assert_eq!(data(&one)?, None);
                assert_eq!(data(&two)?.expect("some").into_keys().collect::<Vec<_>>(), ["color", "seen"].map(String::from));
                for namespace in [&one, &two] {
                    Api::<ConfigMap>::namespaced(client.clone(), namespace).delete(name, &DeleteParams::default()).await?;
                }
            }
            cache.stop().await;
        }
        Ok(())
    }

    async fn the_resync_of_a_namespace_repeats_only_its_objects(env: Env) -> anyhow::Result<()> {
        let client = env.client()?;
        let (one, two) = (env.namespace("again").await?, env.namespace("once").await?);
        for namespace in [&one, &two] {
            create_map(&client, namespace, "a", "blue").await;
        }
        let often = NamespaceScope::from(&*one).resync(Duration::from_millis(20));
        let namespaces = Namespaces::List(vec![often, (&*two).into()]);
        let cache = cache(&client, CacheOptions { namespaces, ..CacheOptions::default() });
        let mut events = cache.informer_of(Maps::new().labels("app=blue"))?.events();
        let (mut received, mut resyncs) = (BTreeSet::new(), 0);
        while resyncs < 3 {
            match events.next().await.expect("the cache runs") {
                InformerEvent::Event(Event::Create { object, .. }) => drop(received.insert(object.namespace().map(str::to_owned))),
                InformerEvent::Event(Event::Update { old, new }) => {
                    assert_eq!(old.meta().resource_version(), new.meta().resource_version());
                    assert_eq!(new.namespace(), Some(&*one));
                    resyncs += 1;
                }
                InformerEvent::Synced => assert_eq!(received.len(), 2, "both namespaces are in the initial events"),
                other @ InformerEvent::Event(_) => panic!("{other:?}"),
            }
        }
        cache.stop().await;
        Ok(())
    }

    async fn a_transform_changes_objects_before_they_are_stored(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("transform").await?);
        create_map(&client, &namespace, "before", "blue").await;
        let select = || Maps::new().namespaces(namespace_list(&[&namespace])).labels("app");
        let drop_data = |map: &mut ConfigMap| {
            assert_ne!(map.metadata.name.as_deref(), Some("bad"), "the transform panics for this object");
            map.data = None;
            map.metadata.resource_version = None;
        };
        for (name, select) in [("typed", select()), ("compact", select().compact())] {
            let cache = cache(&client, CacheOptions { kinds: vec![select.transform(drop_data).into()], ..CacheOptions::default() });
            let maps = cache.informer::<ConfigMap>()?;
            let metadata = cache.informer::<Metadata<ConfigMap>>()?;
            maps.await_synced().await?;
            assert_eq!(cache.informers().len(), 1);
            let made = create_map(&client, &namespace, name, "red").await;
            create_map(&client, &namespace, "bad", "red").await;
            until(|| maps.stats().decode_errors > 0).await;
            let map = maps.get(&ObjectKey::new(&namespace, name))?.expect("the last version that decoded");
            assert_eq!((&map.data, &map.metadata.labels), (&None, &made.metadata.labels));
            assert_eq!(map.metadata.resource_version, made.metadata.resource_version, "a transform cannot change the resource version");
            assert!(metadata.get(&ObjectKey::new(&namespace, "before"))?.expect("exists").metadata.uid.is_some());
            let bad = maps.get(&ObjectKey::new(&namespace, "bad"));
            assert!(matches!(bad, Err(CacheError::Undecodable { .. })), "{bad:?}");
            let message = maps.stats().last_decode_error.expect("an error");
            assert!(message.contains("bad") && message.contains("transform"), "{message}");
            Api::<ConfigMap>::namespaced(client.clone(), &namespace).delete("bad", &DeleteParams::default()).await?;
            cache.stop().await;
        }
        let cache = cache(&client, CacheOptions::default());
        let without = Select::<Metadata<ConfigMap>>::new().namespaces(namespace_list(&[&namespace])).transform(|map| map.metadata.labels = None);
        let metadata = cache.informer_of(without)?;
        metadata.await_synced().await?;
        let read = metadata.get(&ObjectKey::new(&namespace, "before"))?.expect("exists");
        assert!(read.metadata.labels.is_none() && read.metadata.uid.is_some());
        cache.stop().await;
        Ok(())
    }

    /// Precedence: options of the kind, then defaults of the namespace, then defaults of the cache,
    /// for every representation.
    async fn the_metadata_transform_of_the_cache_applies_to_kinds_without_their_own(env: Env) -> anyhow::Result<()> {
        let (client, one, two) = (env.client()?, env.namespace("one").await?, env.namespace("two").await?);
        for namespace in [&one, &two] {
            create_map(&client, namespace, "a", "blue").await;
        }
        let named = |label: &'static str| move |object: &mut Metadata| {
            let kind = object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default();
            object.metadata.labels = Some([(label.to_owned(), kind)].into());
        };
        let other_in_two = NamespaceScope::from(&*two).transform(named("two"));
        let options = CacheOptions {
            namespaces: Namespaces::List(vec![(&*one).into(), other_in_two]),
            transform: Some(MetadataTransform::new(named("all"))),
            ..CacheOptions::default()
        };
        let label = |labels: &Option<std::collections::BTreeMap<String, String>>| {
            labels.iter().flatten().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
        };
        for select in [Maps::new(), Maps::new().compact()] {
            let cache = cache(&client, options.clone());
            let (maps, namespaces) = (cache.informer_of(select.labels("app"))?, cache.informer::<Metadata<Namespace>>()?);
            cache.await_synced().await?;
            let map = |namespace: &str| maps.get(&ObjectKey::new(namespace, "a")).map(|map| map.expect("exists"));
            assert_eq!(label(&map(&one)?.metadata.labels), "all=ConfigMap");
            assert_eq!(label(&map(&two)?.metadata.labels), "two=ConfigMap");
            assert!(map(&one)?.data.is_some() && map(&one)?.metadata.uid.is_some());
            let namespace = namespaces.get(&ObjectKey::cluster_scoped(&one))?.expect("exists");
            assert_eq!(label(&namespace.metadata.labels), "all=Namespace", "a cluster-scoped kind");
            cache.stop().await;
        }
        let kinds = vec![Maps::new().labels("app").transform(|map| map.data = None).into()];
        let cache = cache(&client, CacheOptions { kinds, ..options });
        let maps = cache.informer::<ConfigMap>()?;
        maps.await_synced().await?;
        for map in maps.list(&Query::default())? {
            assert_eq!((label(&map.metadata.labels).as_str(), &map.data), ("app=blue", &None), "only the transform of the kind");
        }
        cache.stop().await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_declaration_overrides_the_options_of_its_kind() {
    let server = Embedded::start().expect("the server starts");
    let client = server.client().expect("a client");
    for (name, app) in [("a", "blue"), ("b", "red")] {
        create_map(&client, "default", name, app).await;
    }
    let kinds = vec![
        Maps::new()
            .labels("app=blue")
            .transform(|map| map.data = None)
            .into(),
    ];
    let cache = cache(
        &client,
        CacheOptions {
            kinds,
            ..CacheOptions::default()
        },
    );
    let metadata = cache
        .informer::<Metadata<ConfigMap>>()
        .expect("a typed one serves it");
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is shared");
    let red = cache
        .informer_of(Maps::new().labels("app=red"))
        .expect("another informer is declared");
    cache.await_synced().await.expect("synced");
    assert_eq!(cache.informers().len(), 2);
    let names = |maps: &Informer<ConfigMap>| {
        maps.list(&Query::default()).expect("a list")[0]
            .metadata
            .name
            .clone()
    };
    assert_eq!(
        (names(&maps).as_deref(), names(&red).as_deref()),
        (Some("a"), Some("b"))
    );
    assert!(
        red.list(&Query::default()).expect("a list")[0]
            .data
            .is_none(),
        "the transform is the kind's"
    );
    assert_eq!(metadata.list(&Query::default()).expect("a list").len(), 1);

    let other = cache
        .informer_of(Maps::new().transform(|_| {}))
        .expect_err("another transform");
    assert!(
        matches!(other, CacheError::TransformMismatch { .. })
            && other.to_string().contains("clones"),
        "{other}"
    );
    let nodes = cache
        .informer_of(Select::<Node>::new().namespaces(namespace_list(&["default"])))
        .expect_err("the kind has no namespaces");
    assert!(matches!(nodes, CacheError::NotNamespaced { .. }), "{nodes}");
    cache.stop().await;
}

/// controller-runtime's constructor also rejects namespaces of a cluster-scoped kind and invalid
/// selectors.
#[tokio::test]
async fn invalid_options_are_rejected_when_the_cache_is_created() {
    let server = Embedded::start().expect("the server starts");
    let of_kind = |kind: Select<AnyKind>| CacheOptions {
        kinds: vec![kind],
        ..CacheOptions::default()
    };
    let in_namespaces = |namespaces| CacheOptions {
        namespaces,
        ..CacheOptions::default()
    };
    let create_cache = |options| Cache::new(server.client().expect("a client"), options).map(drop);
    let bad = || NamespaceScope::from("shop").labels("a in");
    for options in [
        of_kind(Maps::new().labels("a in").into()),
        of_kind(
            Maps::new()
                .namespaces(Namespaces::Labelled("a in".into()))
                .into(),
        ),
        of_kind(Maps::new().namespaces(Namespaces::List(vec![bad()])).into()),
        in_namespaces(Namespaces::List(vec![bad()])),
        in_namespaces(Namespaces::Labelled("a in".into())),
        CacheOptions {
            labels: Some("a in".into()),
            ..of_kind(Maps::new().labels("").into())
        },
    ] {
        let created = create_cache(options);
        assert!(
            matches!(created, Err(CacheError::InvalidLabelSelector(_))),
            "{created:?}"
        );
    }
    for options in [
        of_kind(Maps::new().fields("a b").into()),
        CacheOptions {
            fields: Some("a b".into()),
            ..CacheOptions::default()
        },
        of_kind(
            Maps::new()
                .namespaces(Namespaces::List(vec![
                    NamespaceScope::others().fields("a b"),
                ]))
                .into(),
        ),
    ] {
        let created = create_cache(options);
        assert!(
            matches!(created, Err(CacheError::InvalidFieldSelector { .. })),
            "{created:?}"
        );
    }
    let dropping = || {
        Namespaces::List(vec![
            NamespaceScope::from("shop").transform(|node: &mut Node| node.spec = None),
        ])
    };
    let mistyped = create_cache(of_kind(Maps::new().namespaces(dropping()).into()))
        .expect_err("a transform of nodes");
    assert!(
        matches!(mistyped, CacheError::TransformTypeMismatch { .. })
            && mistyped.to_string().contains("pass a transform for"),
        "{mistyped}"
    );
    let of_all = create_cache(in_namespaces(dropping())).expect_err("a transform for one type");
    assert!(
        matches!(of_all, CacheError::TransformNotForAllKinds)
            && of_all.to_string().contains("CacheOptions::kinds"),
        "{of_all}"
    );
    let nodes = create_cache(of_kind(
        Select::<Node>::new()
            .namespaces(namespace_list(&["shop"]))
            .into(),
    ));
    assert!(
        matches!(&nodes, Err(CacheError::NotNamespaced { kind }) if kind == "Node"),
        "{nodes:?}"
    );
    // Unknown before discovery, or still correctable by a declaration.
    let dynamic = Select::dynamic(GroupVersionKind::gvk("", "v1", "Node"))
        .namespaces(namespace_list(&["shop"]));
    assert!(create_cache(of_kind(dynamic.into())).is_ok());
    assert!(create_cache(in_namespaces(namespace_list(&[]))).is_ok());
}
