//! Tests of views: they match lists, and stay unchanged after updates.

use super::support::{Running, create_map, options, running, until};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::json;
use std::{ptr, sync::Arc};
use steersman::{
    cache::{Cache, CacheError, Index, Informer, Query, Select, View, ViewRow},
    object::{KubeObject, Metadata, ObjectKey},
    testing::{Env, TestServer},
};

fn names<K: KubeObject>(view: &View<K>) -> Vec<&str> {
    assert_eq!(
        (view.iter().count(), view.is_empty()),
        (view.len(), view.iter().next().is_none())
    );
    view.iter().map(ViewRow::name).collect()
}

fn by_app<K: KubeObject>(objects: &Informer<K>) -> Index<K, String> {
    objects.index(|object: &K| {
        object
            .meta()
            .labels
            .iter()
            .filter_map(|labels| labels.get("app").cloned())
            .collect()
    })
}

/// Asserts what holds for every representation.
fn assert_view_equals_list<K: KubeObject>(
    objects: &Informer<K>,
    one: &str,
) -> Result<(), CacheError> {
    let by_app = by_app(objects);
    let show = |query: &Query<K>| {
        let (view, list) = (objects.view(query)?, objects.list(query)?);
        let listed = list
            .iter()
            .map(|object| object.meta().name.clone().unwrap_or_default());
        let mut both = [
            names(&view).into_iter().map(Into::into).collect(),
            listed.collect::<Vec<String>>(),
        ];
        if format!("{query:?}").contains("sorted: false") {
            for names in &mut both {
                names.sort();
            }
        }
        assert_eq!(both[0], both[1], "{query:?} as a view and as a list");
        Ok::<_, CacheError>(both.into_iter().next().unwrap_or_default())
    };
    let (all, none) = (Query::default, <[&str; 0]>::default());
    assert_eq!(show(&all())?, ["a", "b", "c", "d"]);
    assert_eq!(show(&all().namespace(Some(one)))?, ["a", "b"]);
    assert_eq!(
        show(&all().namespace(Some(one)).labels("app=green")?)?,
        none
    );
    let nowhere = objects.view(&all().namespace(Some("nowhere")));
    assert!(
        matches!(nowhere, Err(CacheError::NamespaceNotCached { .. })),
        "{nowhere:?}"
    );
    assert_eq!(show(&all().labels("app=red")?)?, ["b", "d"]);
    assert_eq!(
        show(&all().labels("app!=red")?.namespace(Some(one)))?,
        ["a"]
    );
    assert_eq!(show(&all().fields("metadata.name!=c")?)?, ["a", "b", "d"]);
    assert_eq!(show(&all().index(&by_app, "blue".to_owned()))?, ["a", "c"]);
    assert_eq!(
        show(&all().index(&by_app, "blue".to_owned()).namespace(Some(one)))?,
        ["a"]
    );
    assert_eq!(show(&all().sorted().labels("app=red")?.limit(9))?.len(), 2);
    let sorted = objects.view(&all().sorted())?;
    assert!(sorted.iter().map(ViewRow::key).is_sorted(), "{sorted:?}");
    let first = objects.view(&all().sorted().limit(1))?;
    assert_eq!(
        names(&first)[0],
        names(&sorted)[0],
        "the first in sorted order"
    );
    assert_eq!(
        [0, 3, 9].map(|limit| objects
            .view(&all().limit(limit))
            .map(|view| view.len())
            .ok()),
        [0, 3, 4].map(Some)
    );
    let blue = by_app.view(&"blue".to_owned())?;
    assert!(
        blue.len() == 2
            && blue
                .iter()
                .all(|object| object.meta().labels().get("app") == Some("blue")),
        "{blue:?}"
    );
    assert!(by_app.view(&"green".to_owned())?.is_empty());
    for object in blue.iter() {
        let (key, whole) = (object.key(), object.decode().expect("readable"));
        assert_eq!(
            (ObjectKey::of(&*whole), key.namespace()),
            (key.clone(), object.namespace()),
            "{object:?}"
        );
    }
    Ok(())
}

steersman::env_test! {
    async fn a_view_equals_the_list_of_the_same_query_in_every_representation(env: Env) -> anyhow::Result<()> {
        let (client, one, two) = (env.client()?, env.namespace("view-one").await?, env.namespace("view-two").await?);
        for (namespace, name, app) in [(&one, "a", "blue"), (&one, "b", "red"), (&two, "c", "blue"), (&two, "d", "red")] {
            create_map(&client, namespace, name, app).await;
        }
        let cache = running(client, &[&one, &two]);
        let typed = cache.informer_of(Select::<ConfigMap>::new().labels("app"))?;
        let of_typed = cache.informer_of(Select::<Metadata<ConfigMap>>::new().labels("app"))?;
        let compact = cache.informer_of(Select::<ConfigMap>::new().labels("app,!none").compact())?;
        let gvk = GroupVersionKind::gvk("", "v1", "ConfigMap");
        let dynamic = cache.informer_of(Select::dynamic(gvk.clone()).labels("app,!none"))?;
        let metadata = cache.informer_of(Select::dynamic_metadata(gvk).labels("app,!nothing"))?;
        cache.await_synced().await?;
        assert_view_equals_list(&typed, &one)?;
        assert_view_equals_list(&of_typed, &one)?;
        assert_view_equals_list(&compact, &one)?;
        assert_view_equals_list(&dynamic, &one)?;
        assert_view_equals_list(&metadata, &one)?;
        for maps in [&typed, &compact] {
            assert_eq!(names(&maps.view(&Query::default().fields("data.color=red")?.sorted().limit(1))?).len(), 1);
        }
        let rejected = metadata.view(&Query::default().fields("data.color=red")?);
        assert!(matches!(rejected, Err(CacheError::FieldNotCached { .. })), "{rejected:?}");
        let other = by_app(&compact);
        let rejected = typed.view(&Query::default().index(&other, "red".to_owned()));
        assert!(matches!(rejected, Err(CacheError::IndexMismatch { .. })), "{rejected:?}");
        cache.stop().await;
        Ok(())
    }

    async fn a_view_is_an_unchanging_snapshot_without_copies(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("past").await?);
        create_map(&client, &namespace, "a", "blue").await;
        create_map(&client, &namespace, "b", "blue").await;
        let cache = running(client.clone(), &[&namespace]);
        let maps = cache.informer_of(Select::<ConfigMap>::new().labels("app"))?;
        let blue = by_app(&maps);
        maps.await_synced().await?;
        let held = maps.get(&ObjectKey::new(&namespace, "a"))?.expect("exists");
        let count = Arc::strong_count(&held);
        let (all, sorted) = (maps.view(&Query::default())?, maps.view(&Query::default().sorted())?);
        let found = blue.view(&"blue".to_owned())?;
        assert_eq!(Arc::strong_count(&held), count, "a view does not hold references to objects");
        for view in [&all, &sorted, &found] {
            let shown = view.iter().find(|map| map.name() == "a").expect("exists");
            let whole = shown.decode()?;
            assert!(ptr::eq(&raw const *whole, &raw const *held), "a view of a typed informer borrows the cached object");
            assert_eq!(Arc::strong_count(&held), count);
            let kept = whole.into_arc();
            assert!(Arc::ptr_eq(&kept, &held), "the kept object is shared");
        }
        let api = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
        api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"labels": {"app": "red"}}}))).await?;
        api.delete("b", &DeleteParams::default()).await?;
        create_map(&client, &namespace, "c", "blue").await;
        until(|| blue.keys(&"blue".to_owned()) == [ObjectKey::new(&namespace, "c")]).await;
        until(|| maps.list(&Query::default()).unwrap().len() == 2).await;
        for view in [&all, &sorted, &found] {
            let mut names = names(view);
            names.sort_unstable();
            assert_eq!(names, ["a", "b"]);
            assert!(view.iter().all(|map| map.meta().labels().get("app") == Some("blue")), "the view is unchanged");
        }
        assert_eq!(names(&maps.view(&Query::default().sorted())?), ["a", "c"]);
        cache.stop().await;
        Ok(())
    }

    async fn a_view_before_the_first_sync_is_an_error(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("unsynced").await?;
        let cache = Cache::new(env.client()?, options(&[&namespace])).expect("a ready client");
        let maps = cache.informer::<ConfigMap>()?;
        let by_app = by_app(&maps);
        for rejected in [maps.view(&Query::default()), by_app.view(&"blue".to_owned())] {
            assert!(matches!(rejected, Err(CacheError::NotSynced { .. })), "{rejected:?}");
        }
        let cache = Running::new(cache);
        maps.await_synced().await?;
        assert!(by_app.view(&"blue".to_owned())?.is_empty());
        cache.stop().await;
        Ok(())
    }
}
