//! What a query finds, whatever it is narrowed by.

use super::support::{Running, make, options, running, until};
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
    maps.iter().map(|map| map.metadata.name.clone().unwrap_or_default()).collect()
}

fn by_door(maps: &Informer<ConfigMap>) -> steersman::cache::Index<ConfigMap, String> {
    maps.index(|map: &ConfigMap| map.data.iter().filter_map(|data| data.get("door").cloned()).collect())
}

fn by_letter(maps: &Informer<ConfigMap>) -> steersman::cache::Index<ConfigMap, char> {
    maps.index(|map: &ConfigMap| map.metadata.name.iter().flat_map(|name| name.chars()).collect())
}

steersman::env_test! {
    async fn several_indexes_find_what_is_in_all_of_them_in_one_namespace_or_in_all(env: Env) -> anyhow::Result<()> {
        let (client, one, two) = (env.client()?, env.namespace("and-one").await?, env.namespace("and-two").await?);
        for (namespace, name, app) in
            [(&one, "ab", "blue"), (&one, "bc", "blue"), (&one, "bd", "red"), (&two, "be", "blue"), (&two, "ce", "blue")]
        {
            make(&client, namespace, name, app).await;
        }
        let cache = running(client, &[&one, &two]);
        let maps = cache.informer_of(Select::<ConfigMap>::new().labels("app"))?;
        // An index needs no sync, and finds what comes.
        let (door, letter) = (by_door(&maps), by_letter(&maps));
        assert!(door.keys(&"blue".to_owned()).is_empty() || maps.resource_version().is_some());
        maps.await_synced().await?;
        let list = |query: &Query<ConfigMap>| maps.list(query).map(|found| {
            found.into_iter().map(|map| map.metadata.name.clone().unwrap_or_default()).collect::<BTreeSet<_>>()
        });
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let blue_b = Query::default().index(&door, "blue".to_owned()).index(&letter, 'b');
        assert_eq!(list(&blue_b)?, set(&["ab", "bc", "be"]));
        assert_eq!(list(&blue_b)?, set(&["ab", "bc", "be"]), "a query can be asked again");
        assert_eq!(list(&blue_b.clone().namespace(Some(&one)))?, set(&["ab", "bc"]));
        assert_eq!(list(&blue_b.clone().index(&letter, 'c'))?, set(&["bc"]), "the same index twice is both values");
        assert_eq!(list(&blue_b.index(&door, "red".to_owned()))?, set(&[]));
        cache.stop().await;
        Ok(())
    }

    async fn a_kind_without_namespaces_is_found_by_index_and_field(env: Env) -> anyhow::Result<()> {
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

    /// As client-go's `InNamespace("")`, which is no restriction.
    async fn the_empty_namespace_means_all_of_them_in_memory_and_live(env: Env) -> anyhow::Result<()> {
        let (client, one, two) = (env.client()?, env.namespace("empty-one").await?, env.namespace("empty-two").await?);
        make(&client, &one, "a", &one).await;
        make(&client, &two, "b", &one).await;
        let cache = running(client.clone(), &[&one, &two]);
        cache.informer::<ConfigMap>()?.await_synced().await?;
        let cached = client::Client::new(client)?.with_cache(Cache::clone(&cache));
        let query = Query::<ConfigMap>::default().namespace(Some("")).labels(&format!("app={one}"))?.sorted();
        assert_eq!(names(&cached.live().list(&query).await?), ["a", "b"]);
        assert_eq!(names(&cached.list(&query).await?), ["a", "b"]);
        cache.stop().await;
        Ok(())
    }

    async fn a_limit_counts_what_the_selectors_leave(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("limit").await?);
        for (name, app) in [("a", "red"), ("b", "red"), ("c", "blue"), ("d", "red"), ("e", "blue"), ("f", "blue")] {
            make(&client, &namespace, name, app).await;
        }
        let cache = running(client, &[&namespace]);
        let maps = cache.informer_of(Select::<ConfigMap>::new().labels("app"))?;
        maps.await_synced().await?;
        let blue = || Query::default().labels("app=blue");
        assert_eq!(names(&maps.list(&blue()?.sorted().limit(2))?), ["c", "e"]);
        assert_eq!(maps.list(&blue()?.limit(2))?.len(), 2, "in no order they are as many");
        assert_eq!(names(&maps.list(&Query::default().fields("data.door=blue")?.sorted().limit(1))?), ["c"]);
        assert_eq!(names(&maps.list(&blue()?.sorted().limit(9))?), ["c", "e", "f"], "fewer if there are not so many");
        assert!(maps.list(&blue()?.limit(0))?.is_empty());
        cache.stop().await;
        Ok(())
    }

    async fn fields_are_looked_at_in_every_form_that_has_them(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("fields").await?);
        for (name, app) in [("a", "blue"), ("b", "red"), ("c", "blue")] {
            make(&client, &namespace, name, app).await;
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
            assert_eq!(list("metadata.name!=b,data.door=blue")?, ["a", "c"]);
            assert_eq!(list(&format!("metadata.namespace={namespace},data.door!=blue"))?, ["b"]);
            assert_eq!(list("data.window=")?, ["a", "b", "c"], "what is not there is empty");
            assert!(list("metadata.namespace=elsewhere")?.is_empty());
        }
        let mine = format!("metadata.namespace={namespace},metadata.name!=b");
        assert_eq!(metadata.list(&Query::<Metadata>::default().fields(&mine)?)?.len(), 2);
        let refused = metadata.list(&Query::default().fields("data.door=blue")?);
        let error = refused.expect_err("it is not in memory");
        assert!(matches!(&error, CacheError::FieldOfMetadata { .. }) && error.to_string().contains("data.door"), "{error}");
        assert!(matches!(Query::<ConfigMap>::default().fields("a b"), Err(CacheError::FieldSelector { .. })));
        cache.stop().await;
        Ok(())
    }

    async fn a_read_before_the_cache_runs_fails_and_after_the_sync_what_is_not_there_is_none(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("before").await?;
        let cache = Cache::new(env.client()?, options(&[&namespace])).expect("a ready client");
        let maps = cache.informer::<ConfigMap>()?;
        let key = ObjectKey::new(&namespace, "none");
        let error = maps.get(&key).expect_err("nothing is known");
        assert!(matches!(error, CacheError::NotSynced { .. }), "{error}");
        let waited = tokio::time::timeout(Duration::from_millis(50), maps.await_synced()).await;
        assert!(waited.is_err(), "who waits, waits for as long as it wants to");
        let cache = Running::new(cache);
        maps.await_synced().await?;
        assert_eq!(maps.get(&key)?, None);
        cache.stop().await;
        Ok(())
    }
}
