//! Tests of queries: the objects that each restriction matches.

use super::support::{Running, create_map, options, running, until};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube_client::core::GroupVersionKind;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use steersman::{
    cache::{Cache, CacheError, Informer, Query, Select},
    client,
    object::{Metadata, ObjectKey},
    testing::{Env, TestServer},
};

fn names(maps: &[Arc<ConfigMap>]) -> Vec<String> {
    maps.iter()
        .map(|map| map.metadata.name.clone().unwrap_or_default())
        .collect()
}

fn by_color(maps: &Informer<ConfigMap>) -> steersman::cache::Index<ConfigMap, String> {
    maps.index(|map: &ConfigMap| {
        map.data
            .iter()
            .filter_map(|data| data.get("color").cloned())
            .collect()
    })
}

fn by_letter(maps: &Informer<ConfigMap>) -> steersman::cache::Index<ConfigMap, char> {
    maps.index(|map: &ConfigMap| {
        map.metadata
            .name
            .iter()
            .flat_map(|name| name.chars())
            .collect()
    })
}

steersman::env_test! {
    async fn several_indexes_return_their_intersection(env: Env) -> anyhow::Result<()> {
        let (client, one, two) = (env.client()?, env.namespace("and-one").await?, env.namespace("and-two").await?);
        for (namespace, name, app) in
            [(&one, "ab", "blue"), (&one, "bc", "blue"), (&one, "bd", "red"), (&two, "be", "blue"), (&two, "ce", "blue")]
        {
            create_map(&client, namespace, name, app).await;
        }
        let cache = running(client, &[&one, &two]);
        let maps = cache.informer_of(Select::<ConfigMap>::new().labels("app"))?;
        // An index can be added before the sync, and covers later objects.
        let (color, letter) = (by_color(&maps), by_letter(&maps));
        assert!(color.keys(&"blue".to_owned()).is_empty() || maps.resource_version().is_some());
        maps.await_synced().await?;
        let list = |query: &Query<ConfigMap>| maps.list(query).map(|found| {
            found.into_iter().map(|map| map.metadata.name.clone().unwrap_or_default()).collect::<BTreeSet<_>>()
        });
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let blue_b = Query::default().index(&color, "blue".to_owned()).index(&letter, 'b');
        assert_eq!(list(&blue_b)?, set(&["ab", "bc", "be"]));
        assert_eq!(list(&blue_b)?, set(&["ab", "bc", "be"]), "a query can be reused");
        assert_eq!(list(&blue_b.clone().namespace(Some(&one)))?, set(&["ab", "bc"]));
        assert_eq!(list(&blue_b.clone().index(&letter, 'c'))?, set(&["bc"]), "two values of one index are combined");
        assert_eq!(list(&blue_b.index(&color, "red".to_owned()))?, set(&[]));
        cache.stop().await;
        Ok(())
    }

    async fn a_cluster_scoped_object_is_found_by_index_and_field(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("cluster").await?;
        let cache = running(env.client()?, &[&namespace]);
        let namespaces = cache.informer::<Namespace>()?;
        let by_name = namespaces.index(|object: &Namespace| object.metadata.name.iter().cloned().collect());
        namespaces.await_synced().await?;
        until(|| by_name.keys(&namespace).len() == 1).await;
        assert_eq!(by_name.keys(&namespace), [ObjectKey::cluster_scoped(&namespace)]);
        assert_eq!(namespaces.list(&Query::default().namespace(Some("")).index(&by_name, namespace.clone()))?.len(), 1);
        assert!(namespaces.list(&Query::default().namespace(Some("default")).index(&by_name, namespace.clone()))?.is_empty());
        let named = Query::default().fields(&format!("metadata.name={namespace},metadata.namespace="))?;
        assert_eq!(namespaces.list(&named)?.len(), 1);
        cache.stop().await;
        Ok(())
    }

    /// An empty namespace is no restriction in client-go either.
    async fn an_empty_namespace_means_all_namespaces_in_cached_and_live_lists(env: Env) -> anyhow::Result<()> {
        let (client, one, two) = (env.client()?, env.namespace("empty-one").await?, env.namespace("empty-two").await?);
        create_map(&client, &one, "a", &one).await;
        create_map(&client, &two, "b", &one).await;
        let cache = running(client.clone(), &[&one, &two]);
        cache.informer::<ConfigMap>()?.await_synced().await?;
        let cached = client::Client::new(client)?.with_cache(Cache::clone(&cache));
        let query = Query::<ConfigMap>::default().namespace(Some("")).labels(format!("app={one}"))?.sorted();
        assert_eq!(names(&cached.live().list(&query).await?), ["a", "b"]);
        assert_eq!(names(&cached.list(&query).await?), ["a", "b"]);
        cache.stop().await;
        Ok(())
    }

    async fn a_limit_applies_after_the_selectors(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("limit").await?);
        for (name, app) in [("a", "red"), ("b", "red"), ("c", "blue"), ("d", "red"), ("e", "blue"), ("f", "blue")] {
            create_map(&client, &namespace, name, app).await;
        }
        let cache = running(client, &[&namespace]);
        let maps = cache.informer_of(Select::<ConfigMap>::new().labels("app"))?;
        maps.await_synced().await?;
        let blue = || Query::default().labels("app=blue");
        assert_eq!(names(&maps.list(&blue()?.sorted().limit(2))?), ["c", "e"]);
        assert_eq!(maps.list(&blue()?.limit(2))?.len(), 2, "an unsorted list has the same limit");
        assert_eq!(names(&maps.list(&Query::default().fields("data.color=blue")?.sorted().limit(1))?), ["c"]);
        assert_eq!(names(&maps.list(&blue()?.sorted().limit(9))?), ["c", "e", "f"], "fewer objects than the limit");
        assert!(maps.list(&blue()?.limit(0))?.is_empty());
        cache.stop().await;
        Ok(())
    }

    async fn field_selectors_work_in_every_representation_that_has_the_field(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("fields").await?);
        for (name, app) in [("a", "blue"), ("b", "red"), ("c", "blue")] {
            create_map(&client, &namespace, name, app).await;
        }
        let cache = running(client, &[&namespace]);
        let typed = cache.informer_of(Select::<ConfigMap>::new().labels("app"))?;
        let compact = cache.informer_of(Select::<ConfigMap>::new().labels("app,!none").compact())?;
        let gvk = GroupVersionKind::gvk("", "v1", "ConfigMap");
        let metadata = cache.informer_of(Select::dynamic_metadata(gvk).labels("app,!nothing"))?;
        cache.await_synced().await?;
        for maps in [&typed, &compact] {
            let list = |fields: &str| Ok::<_, CacheError>(names(&maps.list(&Query::default().fields(fields)?.sorted())?));
            assert_eq!(list("metadata.name=b")?, ["b"]);
            assert_eq!(list("metadata.name!=b,data.color=blue")?, ["a", "c"]);
            assert_eq!(list(&format!("metadata.namespace={namespace},data.color!=blue"))?, ["b"]);
            assert_eq!(list("data.shape=")?, ["a", "b", "c"], "a missing field is empty");
            assert!(list("metadata.namespace=elsewhere")?.is_empty());
        }
        let mine = format!("metadata.namespace={namespace},metadata.name!=b");
        assert_eq!(metadata.list(&Query::<Metadata>::default().fields(&mine)?)?.len(), 2);
        let rejected = metadata.list(&Query::default().fields("data.color=blue")?);
        let error = rejected.expect_err("the field is not cached");
        assert!(matches!(&error, CacheError::FieldNotCached { .. }) && error.to_string().contains("data.color"), "{error}");
        assert!(matches!(Query::<ConfigMap>::default().fields("a b"), Err(CacheError::InvalidFieldSelector { .. })));
        cache.stop().await;
        Ok(())
    }

    async fn a_get_fails_before_the_cache_runs_and_returns_none_after_the_sync(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("before").await?;
        let cache = Cache::new(env.client()?, options(&[&namespace])).expect("a ready client");
        let maps = cache.informer::<ConfigMap>()?;
        let key = ObjectKey::new(&namespace, "none");
        let error = maps.get(&key).expect_err("nothing is known");
        assert!(matches!(error, CacheError::NotSynced { .. }), "{error}");
        let waited = tokio::time::timeout(Duration::from_millis(50), maps.await_synced()).await;
        assert!(waited.is_err(), "await_synced waits without a timeout");
        let cache = Running::new(cache);
        maps.await_synced().await?;
        assert_eq!(maps.get(&key)?, None);
        cache.stop().await;
        Ok(())
    }
}
