//! What is kept: by namespace, label and field, said of a kind or of everything; and how objects are changed before that.

use super::support::{cache, kept, make, these, until};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube_client::{Api, api::DeleteParams, core::GroupVersionKind};
use std::{collections::BTreeSet, time::Duration};
use steersman::{
    cache::{
        Cache, CacheError, CacheOptions, InNamespace, Informer, MetadataTransform, Namespaces, Notice, Query, Select,
    },
    event::Event,
    object::{AnyKind, Metadata, ObjectKey},
    testing::{Embedded, Env, TestServer},
};

type Maps = Select<ConfigMap>;
/// Of the objects of a test: of which namespace, and which name.
type Wanted = Box<dyn Fn(usize, &str) -> bool>;

steersman::env_test! {
    /// Said of the kind, of everything, or of one of several namespaces; as labels and as fields.
    async fn what_is_selected_is_kept_and_nothing_else(env: Env) -> anyhow::Result<()> {
        let client = env.client()?;
        let names = [env.namespace("one").await?, env.namespace("two").await?, env.namespace("three").await?];
        let [one, two, three] = [&*names[0], &*names[1], &*names[2]];
        for namespace in &names {
            make(&client, namespace, "a", "blue").await;
            make(&client, namespace, "b", "red").await;
        }
        let (all, blue, b) = (|_: usize, _: &str| true, |_: usize, name: &str| name == "a", |_: usize, name: &str| name == "b");
        let only = || these(&[one]);
        let (blue_in_one, others) = (|| InNamespace::from(one).labels("app=blue"), InNamespace::others);
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
            (option(only(), "app=red", ""), Maps::new().namespaces(these(&[two, three])), Box::new(|at, name| at > 0 && name == "b")),
            (option(only(), "app=red", ""), Maps::new().namespaces(everywhere()), Box::new(b)),
            (
                option(Namespaces::These(vec![blue_in_one(), two.into()]), "", ""),
                Maps::new(),
                Box::new(|at, name| at == 1 || (at == 0 && name == "a")),
            ),
            (
                option(Namespaces::These(vec![blue_in_one(), two.into()]), "", ""),
                Maps::new().labels("app=red"),
                Box::new(|at, name| at < 2 && name == "b"),
            ),
            (
                option(Namespaces::These(vec![one.into(), others().labels("app=red")]), "", ""),
                Maps::new(),
                Box::new(|at, name| at == 0 || name == "b"),
            ),
            (
                default(),
                Maps::new().namespaces(Namespaces::These(vec![blue_in_one(), others().fields("metadata.name=b")])),
                Box::new(|at, name| (at == 0) == (name == "a")),
            ),
            (
                CacheOptions { kinds: vec![Maps::new().labels("app=blue").namespaces(these(&[two])).into()], ..default() },
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
            assert_eq!(kept(&maps, &[one, two, three]), expected, "case {number}");
            cache.stop().await;
        }
        Ok(())
    }

    /// What is in a namespace that is named, and in one that is not, comes by different watches, and stays apart.
    async fn what_happens_in_other_namespaces_is_followed_beside_the_named_ones(env: Env) -> anyhow::Result<()> {
        let client = env.client()?;
        let (one, two) = (env.namespace("named").await?, env.namespace("other").await?);
        let namespaces = Namespaces::These(vec![InNamespace::from(&*one).labels("app=blue"), InNamespace::others()]);
        let cache = cache(&client, CacheOptions { namespaces, ..CacheOptions::default() });
        let maps = cache.informer::<ConfigMap>()?;
        maps.await_synced().await?;
        for namespace in [&one, &two] {
            make(&client, namespace, "a", "blue").await;
            make(&client, namespace, "b", "red").await;
        }
        let all: BTreeSet<_> = [(0, "a"), (1, "a"), (1, "b")].map(|(at, name)| (at, name.to_owned())).into();
        until(|| kept(&maps, &[&one, &two]) == all).await;
        Api::<ConfigMap>::namespaced(client, &two).delete("b", &DeleteParams::default()).await?;
        until(|| kept(&maps, &[&one, &two]).len() == 2).await;
        cache.stop().await;
        Ok(())
    }

    /// controller-runtime: `ByObject.Namespaces[ns].Transform` before `ByObject.Transform`.
    async fn objects_are_changed_as_is_said_of_their_namespace_and_else_of_all(env: Env) -> anyhow::Result<()> {
        let client = env.client()?;
        let (one, two) = (env.namespace("changed").await?, env.namespace("plain").await?);
        for select in [Maps::new(), Maps::new().compact()] {
            for namespace in [&one, &two] {
                make(&client, namespace, "a", "blue").await;
            }
            let here = InNamespace::from(&*one).transform(|map: &mut ConfigMap| map.data = None);
            let namespaces = Namespaces::These(vec![here, (&*two).into()]);
            let all = |map: &mut ConfigMap| map.data.get_or_insert_default().extend([("seen".into(), "yes".into())]);
            let kinds = vec![select.namespaces(namespaces).transform(all).into()];
            let cache = cache(&client, CacheOptions { kinds, ..CacheOptions::default() });
            let maps = cache.informer::<ConfigMap>()?;
            maps.await_synced().await?;
            for namespace in [&one, &two] {
                make(&client, namespace, "b", "red").await;
            }
            // As they were listed, and as they came.
            until(|| kept(&maps, &[&one, &two]).len() == 4).await;
            for name in ["a", "b"] {
                let data = |namespace: &str| maps.get(&ObjectKey::new(namespace, name)).map(|map| map.expect("it is there").data.clone());
                assert_eq!(data(&one)?, None);
                assert_eq!(data(&two)?.expect("some").into_keys().collect::<Vec<_>>(), ["door", "seen"].map(String::from));
                for namespace in [&one, &two] {
                    Api::<ConfigMap>::namespaced(client.clone(), namespace).delete(name, &DeleteParams::default()).await?;
                }
            }
            cache.stop().await;
        }
        Ok(())
    }

    async fn a_resync_of_a_namespace_tells_of_its_objects_and_of_no_others(env: Env) -> anyhow::Result<()> {
        let client = env.client()?;
        let (one, two) = (env.namespace("again").await?, env.namespace("once").await?);
        for namespace in [&one, &two] {
            make(&client, namespace, "a", "blue").await;
        }
        let often = InNamespace::from(&*one).resync(Duration::from_millis(20));
        let namespaces = Namespaces::These(vec![often, (&*two).into()]);
        let cache = cache(&client, CacheOptions { namespaces, ..CacheOptions::default() });
        let mut events = cache.informer_of(Maps::new().labels("app=blue"))?.events();
        let (mut told, mut again) = (BTreeSet::new(), 0);
        while again < 3 {
            match events.next().await.expect("it goes on") {
                Notice::Event(Event::Create { object, .. }) => drop(told.insert(object.namespace().map(str::to_owned))),
                Notice::Event(Event::Update { old, new }) => {
                    assert_eq!(old.meta().resource_version(), new.meta().resource_version());
                    assert_eq!(new.namespace(), Some(&*one));
                    again += 1;
                }
                Notice::InitialDone => assert_eq!(told.len(), 2, "both are told in the beginning"),
                other @ Notice::Event(_) => panic!("{other:?}"),
            }
        }
        cache.stop().await;
        Ok(())
    }

    async fn objects_are_changed_before_they_are_kept(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("transform").await?);
        make(&client, &namespace, "before", "blue").await;
        let select = || Maps::new().namespaces(these(&[&namespace])).labels("app");
        let drop_data = |map: &mut ConfigMap| {
            assert_ne!(map.metadata.name.as_deref(), Some("bad"), "this one is not liked");
            map.data = None;
            map.metadata.resource_version = None;
        };
        for (name, select) in [("typed", select()), ("compact", select().compact())] {
            let cache = cache(&client, CacheOptions { kinds: vec![select.transform(drop_data).into()], ..CacheOptions::default() });
            let maps = cache.informer::<ConfigMap>()?;
            let metadata = cache.informer::<Metadata<ConfigMap>>()?;
            maps.await_synced().await?;
            assert_eq!(cache.informers().len(), 1);
            let made = make(&client, &namespace, name, "red").await;
            make(&client, &namespace, "bad", "red").await;
            until(|| maps.stats().decode_errors > 0).await;
            let map = maps.get(&ObjectKey::new(&namespace, name))?.expect("it came before the bad one");
            assert_eq!((&map.data, &map.metadata.labels), (&None, &made.metadata.labels));
            assert_eq!(map.metadata.resource_version, made.metadata.resource_version, "it is the server's");
            assert!(metadata.get(&ObjectKey::new(&namespace, "before"))?.expect("it is there").metadata.uid.is_some());
            let bad = maps.get(&ObjectKey::new(&namespace, "bad"));
            assert!(matches!(bad, Err(CacheError::Undecodable { .. })), "{bad:?}");
            let said = maps.stats().last_decode_error.expect("why");
            assert!(said.contains("bad") && said.contains("transform"), "{said}");
            Api::<ConfigMap>::namespaced(client.clone(), &namespace).delete("bad", &DeleteParams::default()).await?;
            cache.stop().await;
        }
        let cache = cache(&client, CacheOptions::default());
        let without = Select::<Metadata<ConfigMap>>::new().namespaces(these(&[&namespace])).transform(|map| map.metadata.labels = None);
        let metadata = cache.informer_of(without)?;
        metadata.await_synced().await?;
        let read = metadata.get(&ObjectKey::new(&namespace, "before"))?.expect("it is there");
        assert!(read.metadata.labels.is_none() && read.metadata.uid.is_some());
        cache.stop().await;
        Ok(())
    }

    /// Defaults in a namespace count before those of everything, and what is said of a kind before both; whatever the form.
    async fn metadata_of_every_kind_is_changed_where_nothing_else_is_said(env: Env) -> anyhow::Result<()> {
        let (client, one, two) = (env.client()?, env.namespace("one").await?, env.namespace("two").await?);
        for namespace in [&one, &two] {
            make(&client, namespace, "a", "blue").await;
        }
        let named = |label: &'static str| move |object: &mut Metadata| {
            let kind = object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default();
            object.metadata.labels = Some([(label.to_owned(), kind)].into());
        };
        let other_in_two = InNamespace::from(&*two).transform(named("two"));
        let options = CacheOptions {
            namespaces: Namespaces::These(vec![(&*one).into(), other_in_two]),
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
            let map = |namespace: &str| maps.get(&ObjectKey::new(namespace, "a")).map(|map| map.expect("it is there"));
            assert_eq!(label(&map(&one)?.metadata.labels), "all=ConfigMap");
            assert_eq!(label(&map(&two)?.metadata.labels), "two=ConfigMap");
            assert!(map(&one)?.data.is_some() && map(&one)?.metadata.uid.is_some());
            let namespace = namespaces.get(&ObjectKey::cluster_scoped(&one))?.expect("it is there");
            assert_eq!(label(&namespace.metadata.labels), "all=Namespace", "one that is in no namespace");
            cache.stop().await;
        }
        let kinds = vec![Maps::new().labels("app").transform(|map| map.data = None).into()];
        let cache = cache(&client, CacheOptions { kinds, ..options });
        let maps = cache.informer::<ConfigMap>()?;
        maps.await_synced().await?;
        for map in maps.list(&Query::default())? {
            assert_eq!((label(&map.metadata.labels).as_str(), &map.data), ("app=blue", &None), "its own, and no other");
        }
        cache.stop().await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_what_the_options_say_unless_the_declaration_says_more() {
    let server = Embedded::start().expect("it starts");
    let client = server.client().expect("a client");
    for (name, app) in [("a", "blue"), ("b", "red")] {
        make(&client, "default", name, app).await;
    }
    let kinds = vec![Maps::new().labels("app=blue").transform(|map| map.data = None).into()];
    let cache = cache(&client, CacheOptions { kinds, ..CacheOptions::default() });
    let metadata = cache.informer::<Metadata<ConfigMap>>().expect("a typed one serves it");
    let maps = cache.informer::<ConfigMap>().expect("it is the same one");
    let red = cache.informer_of(Maps::new().labels("app=red")).expect("it is another one");
    cache.await_synced().await.expect("it syncs");
    assert_eq!(cache.informers().len(), 2);
    let names = |maps: &Informer<ConfigMap>| maps.list(&Query::default()).expect("a list")[0].metadata.name.clone();
    assert_eq!((names(&maps).as_deref(), names(&red).as_deref()), (Some("a"), Some("b")));
    assert!(red.list(&Query::default()).expect("a list")[0].data.is_none(), "the transform is the kind's");
    assert_eq!(metadata.list(&Query::default()).expect("a list").len(), 1);

    let other = cache.informer_of(Maps::new().transform(|_| {})).expect_err("it has another one");
    assert!(matches!(other, CacheError::OtherTransform { .. }) && other.to_string().contains("clones"), "{other}");
    let nodes = cache.informer_of(Select::<Node>::new().namespaces(these(&["default"]))).expect_err("they have none");
    assert!(matches!(nodes, CacheError::NotNamespaced { .. }), "{nodes}");
    cache.stop().await;
}

/// controller-runtime: its constructor refuses namespaces of a cluster-scoped kind, and selectors that are none.
#[tokio::test]
async fn options_that_cannot_be_are_refused_when_the_cache_is_made() {
    let server = Embedded::start().expect("it starts");
    let of_kind = |kind: Select<AnyKind>| CacheOptions { kinds: vec![kind], ..CacheOptions::default() };
    let in_namespaces = |namespaces| CacheOptions { namespaces, ..CacheOptions::default() };
    let make = |options| Cache::new(server.client().expect("a client"), options).map(drop);
    let bad = || InNamespace::from("shop").labels("a in");
    for options in [
        of_kind(Maps::new().labels("a in").into()),
        of_kind(Maps::new().namespaces(Namespaces::Labelled("a in".into())).into()),
        of_kind(Maps::new().namespaces(Namespaces::These(vec![bad()])).into()),
        in_namespaces(Namespaces::These(vec![bad()])),
        in_namespaces(Namespaces::Labelled("a in".into())),
        CacheOptions { labels: Some("a in".into()), ..of_kind(Maps::new().labels("").into()) },
    ] {
        let made = make(options);
        assert!(matches!(made, Err(CacheError::Selector(_))), "{made:?}");
    }
    for options in [
        of_kind(Maps::new().fields("a b").into()),
        CacheOptions { fields: Some("a b".into()), ..CacheOptions::default() },
        of_kind(Maps::new().namespaces(Namespaces::These(vec![InNamespace::others().fields("a b")])).into()),
    ] {
        let made = make(options);
        assert!(matches!(made, Err(CacheError::FieldSelector { .. })), "{made:?}");
    }
    let dropping = || Namespaces::These(vec![InNamespace::from("shop").transform(|node: &mut Node| node.spec = None)]);
    let mistyped = make(of_kind(Maps::new().namespaces(dropping()).into())).expect_err("it is for nodes");
    assert!(
        matches!(mistyped, CacheError::TransformType { .. }) && mistyped.to_string().contains("give it one for"),
        "{mistyped}"
    );
    let of_all = make(in_namespaces(dropping())).expect_err("it is for all kinds");
    assert!(
        matches!(of_all, CacheError::TransformOfAll) && of_all.to_string().contains("CacheOptions::kinds"),
        "{of_all}"
    );
    let nodes = make(of_kind(Select::<Node>::new().namespaces(these(&["shop"])).into()));
    assert!(matches!(&nodes, Err(CacheError::NotNamespaced { kind }) if kind == "Node"), "{nodes:?}");
    // What is not known before the server says it, and what a declaration can still mend.
    let dynamic = Select::dynamic(GroupVersionKind::gvk("", "v1", "Node")).namespaces(these(&["shop"]));
    assert!(make(of_kind(dynamic.into())).is_ok());
    assert!(make(in_namespaces(these(&[]))).is_ok());
}
