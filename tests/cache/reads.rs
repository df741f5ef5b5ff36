//! Tests of reads: they follow the state of the server.

use super::support::{create_map, namespace_list, running, until};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use std::sync::Arc;
use steersman::{
    cache::{CacheError, InformerEvent, InformerReport, InformerState, Query, Select},
    event::Event,
    object::ObjectKey,
    testing::{Env, TestServer},
};

fn names(maps: &[Arc<ConfigMap>]) -> Vec<String> {
    maps.iter()
        .map(|map| map.metadata.name.clone().unwrap_or_default())
        .collect()
}

steersman::env_test! {
    async fn an_informer_lists_existing_objects_and_follows_changes(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("follow").await?);
        let made = create_map(&client, &namespace, "first", "blue").await;
        let cache = running(client.clone(), &[&namespace]);
        let maps = cache.informer::<ConfigMap>()?;
        maps.await_synced().await?;
        let key = |name: &str| ObjectKey::new(&namespace, name);
        let read = maps.get(&key("first"))?.expect("the object existed before");
        assert_eq!((&read.data, &read.metadata.uid), (&made.data, &made.metadata.uid));
        assert!(read.metadata.managed_fields.is_none(), "managed fields are opt-in");
        assert!(Arc::ptr_eq(&read, &maps.get(&key("first"))?.expect("still there")), "shared");
        assert_eq!(maps.get(&key("second"))?, None);

        let second = create_map(&client, &namespace, "second", "red").await;
        until(|| maps.get(&key("second")).unwrap().is_some()).await;
        let written: u64 = second.metadata.resource_version.expect("a version").parse()?;
        assert!(maps.resource_version() >= Some(written));
        let api = Api::<ConfigMap>::namespaced(client, &namespace);
        api.patch("first", &PatchParams::default(), &Patch::Merge(json!({"data": {"color": "green"}}))).await?;
        until(|| maps.get(&key("first")).unwrap().unwrap().data.as_ref().unwrap()["color"] == "green").await;
        assert_eq!(read.data.as_ref().expect("data")["color"], "blue", "an object that was read does not change");
        api.delete("second", &DeleteParams::default()).await?;
        until(|| maps.get(&key("second")).unwrap().is_none()).await;

        let reports = cache.informers();
        let InformerReport { gvk, state, stats, largest, .. } = &reports[0];
        assert_eq!((reports.len(), &*gvk.kind, state), (1, "ConfigMap", &InformerState::Synced));
        assert_eq!(largest.len(), stats.objects);
        assert_eq!((stats.objects, stats.relists), (maps.list(&Query::default())?.len(), 0));
        assert!(stats.approximate_bytes > 0 && stats.events >= 4, "{stats:?}");
        cache.stop().await;
        Ok(())
    }

    async fn a_query_filters_by_namespace_labels_and_index(env: Env) -> anyhow::Result<()> {
        let (client, one, two) = (env.client()?, env.namespace("one").await?, env.namespace("two").await?);
        let cache = running(client.clone(), &[&one, &two]);
        let maps = cache.informer_of(Select::<ConfigMap>::new().labels("app"))?;
        for (namespace, name, app) in [(&one, "a", "blue"), (&one, "b", "red"), (&two, "c", "blue"), (&two, "d", "red")] {
            create_map(&client, namespace, name, app).await;
        }
        maps.await_synced().await?;
        let by_color = maps.index(|map: &ConfigMap| map.data.iter().filter_map(|data| data.get("color").cloned()).collect());
        until(|| maps.list(&Query::default()).unwrap().len() == 4).await;

        let sorted = || Query::default().sorted();
        let list = |query: Query<ConfigMap>| names(&maps.list(&query).expect("a list"));
        assert_eq!(list(sorted().namespace(Some(&one))), ["a", "b"]);
        assert_eq!(list(sorted().labels("app in (blue)")?), ["a", "c"]);
        assert_eq!(list(sorted().index(&by_color, "red".to_owned())), ["b", "d"]);
        let all_three = sorted().namespace(Some(&two)).labels("app!=blue")?.index(&by_color, "red".to_owned());
        assert_eq!(list(all_three), ["d"]);
        let nowhere = maps.list(&sorted().namespace(Some("nowhere")));
        assert!(matches!(nowhere, Err(CacheError::NamespaceNotCached { .. })), "{nowhere:?}");
        let first = maps.list(&sorted().limit(1))?;
        let least = if one < two { "a" } else { "c" };
        assert_eq!(names(&first), [least], "the first in sorted order");
        assert_eq!(list(Query::default().limit(3)).len(), 3);
        assert_eq!(by_color.keys(&"blue".to_owned()).len(), 2);
        let mut found = by_color.get(&"blue".to_owned())?;
        found.sort_by_key(|map| ObjectKey::of(&**map));
        assert_eq!(names(&found).len(), 2);

        let elsewhere = cache.informer_of(Select::<ConfigMap>::new().namespaces(namespace_list(&[&one])))?;
        elsewhere.await_synced().await?;
        let other = elsewhere.list(&Query::default().index(&by_color, "red".to_owned()));
        assert!(matches!(other, Err(CacheError::IndexMismatch { .. })), "{other:?}");
        cache.stop().await;
        Ok(())
    }

    /// The server applies the selectors, so other objects are not even sent.
    async fn an_object_that_leaves_the_selector_is_removed(env: Env) -> anyhow::Result<()> {
        let (client, ours, theirs) = (env.client()?, env.namespace("ours").await?, env.namespace("theirs").await?);
        for (namespace, name, app) in [(&ours, "a", "blue"), (&ours, "b", "red"), (&theirs, "a", "blue")] {
            create_map(&client, namespace, name, app).await;
        }
        let cache = running(client.clone(), &[&ours]);
        let select = || Select::<ConfigMap>::new();
        let blue = cache.informer_of(select().labels("app=blue"))?;
        let named = cache.informer_of(select().fields("metadata.name=b").page_size(1))?;
        cache.await_synced().await?;
        assert_eq!(names(&blue.list(&Query::default())?), ["a"]);
        assert_eq!(names(&named.list(&Query::default())?), ["b"]);
        // An object that no longer matches is removed.
        let api = Api::<ConfigMap>::namespaced(client, &ours);
        api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"labels": {"app": "red"}}}))).await?;
        until(|| blue.list(&Query::default()).unwrap().is_empty()).await;
        cache.stop().await;
        Ok(())
    }

    /// controller-runtime, too, returns an error and not an empty result.
    async fn a_read_of_a_namespace_outside_the_scope_is_an_error(env: Env) -> anyhow::Result<()> {
        let (client, stored_objects, other) = (env.client()?, env.namespace("kept").await?, env.namespace("other").await?);
        create_map(&client, &other, "a", "blue").await;
        let cache = running(client, &[&stored_objects]);
        for select in [Select::<ConfigMap>::new().labels("app"), Select::new().labels("app").compact().fields("metadata.name=a")] {
            let maps = cache.informer_of(select)?;
            let not_kept = |read: Result<usize, CacheError>| {
                assert!(matches!(&read, Err(CacheError::NamespaceNotCached { namespace, .. }) if *namespace == other), "{read:?}");
            };
            let of = |namespace: &str| Query::default().namespace(Some(namespace));
            not_kept(maps.get(&ObjectKey::new(&other, "a")).map(|_| 0));
            maps.await_synced().await?;
            not_kept(maps.get(&ObjectKey::new(&other, "a")).map(|_| 0));
            not_kept(maps.list(&of(&other)).map(|all| all.len()));
            not_kept(maps.view(&of(&other)).map(|all| all.len()));
            assert!(maps.get(&ObjectKey::new(&stored_objects, "a"))?.is_none() && maps.list(&of(&stored_objects))?.is_empty());
            assert!(maps.list(&Query::default())?.is_empty());
        }
        cache.stop().await;
        Ok(())
    }

    async fn a_read_before_the_first_sync_returns_the_error_of_the_server(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("forbidden").await?;
        let rule = match &env {
            // The embedded server has no authorization.
            Env::Embedded(embedded) => {
                let fault = "watch configmaps -> 403".parse().expect("a rule");
                Some(embedded.server().faults().add(fault))
            }
            _ => None,
        };
        let cache = running(env.client_as("nobody", &[])?, &[&namespace]);
        let maps = cache.informer::<ConfigMap>()?;
        until(|| matches!(maps.state(), InformerState::Degraded { .. })).await;
        let error = maps.get(&ObjectKey::new(&namespace, "a")).expect_err("nothing is known").to_string();
        assert!(error.starts_with("cannot read ConfigMap while its informer is not synced: ") && error.to_lowercase().contains("forbidden"), "{error}");
        assert!(maps.list(&Query::default()).is_err() && maps.resource_version().is_none());
        if let Some(rule) = rule {
            rule.remove();
            maps.await_synced().await?;
            assert!(maps.list(&Query::default())?.is_empty());
        }
        cache.stop().await;
        Ok(())
    }

    async fn events_start_with_existing_objects_followed_by_synced(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("events").await?);
        create_map(&client, &namespace, "before", "blue").await;
        let cache = running(client.clone(), &[&namespace]);
        let maps = cache.informer_of(Select::<ConfigMap>::new().labels("app"))?;
        let mut early = maps.events();
        maps.await_synced().await?;
        let mut late = maps.events();
        for events in [&mut early, &mut late] {
            let first = events.next().await;
            assert!(
                matches!(&first, Some(InformerEvent::Event(Event::Create { object, initial: true })) if object.name() == "before"),
                "{first:?}"
            );
            assert!(matches!(events.next().await, Some(InformerEvent::Synced)));
        }
        create_map(&client, &namespace, "after", "red").await;
        Api::<ConfigMap>::namespaced(client, &namespace).delete("before", &DeleteParams::default()).await?;
        for events in [&mut early, &mut late] {
            let Some(InformerEvent::Event(created)) = events.next().await else { panic!("an event") };
            assert!(matches!(created, Event::Create { initial: false, .. }), "{created:?}");
            assert_eq!(created.object().decode()?.data.as_ref().expect("data")["color"], "red");
            let deleted = events.next().await;
            assert!(matches!(deleted, Some(InformerEvent::Event(Event::Delete { state_unknown: false, .. }))), "{deleted:?}");
        }
        cache.stop().await;
        assert!(early.next().await.is_none(), "events end with the cache");
        Ok(())
    }
}
