//! The forms in which objects are kept, and what each of them serves.

use super::support::{make, running, until};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube_client::{
    Api,
    api::{ApiResource, DynamicObject, PostParams},
    core::GroupVersionKind,
};
use serde_json::json;
use steersman::{
    cache::{CacheError, InformerState, Namespaces, Query, Select},
    client::Client,
    object::{Metadata, ObjectKey},
    testing::{Env, TestServer},
};

fn config_map() -> GroupVersionKind {
    GroupVersionKind::gvk("", "v1", "ConfigMap")
}

steersman::env_test! {
    async fn a_compact_kind_serves_every_form(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("compact").await?);
        make(&client, &namespace, "a", "blue").await;
        let cache = running(client, &[&namespace]);
        let dynamic = cache.informer_of(Select::dynamic(config_map()))?;
        let typed = cache.informer::<ConfigMap>()?;
        let metadata = cache.informer::<Metadata<ConfigMap>>()?;
        cache.await_synced().await?;
        assert_eq!(cache.informers().len(), 1, "one informer for all of them");
        let key = ObjectKey::new(&namespace, "a");
        assert_eq!(dynamic.get(&key)?.expect("it is there").data["data"]["door"], "blue");
        assert_eq!(typed.get(&key)?.expect("it is there").data.as_ref().expect("data")["door"], "blue");
        assert_eq!(metadata.get(&key)?.expect("it is there").metadata.name.as_deref(), Some("a"));
        if let Env::Embedded(embedded) = &env {
            assert_eq!(embedded.server().journal().count("watch configmaps"), 1, "and one watch");
        }
        cache.stop().await;
        Ok(())
    }

    async fn a_typed_kind_serves_its_type_and_metadata_and_says_how_to_have_more(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("typed").await?);
        make(&client, &namespace, "a", "blue").await;
        let cache = running(client, &[&namespace]);
        let typed = cache.informer::<ConfigMap>()?;
        let metadata = cache.informer::<Metadata<ConfigMap>>()?;
        let refused = cache.informer_of(Select::dynamic(config_map())).expect_err("it has lost what the type does not know");
        assert!(matches!(refused, CacheError::Representation { .. }) && refused.to_string().contains(".compact()"), "{refused}");
        let managed = cache.informer_of(Select::<ConfigMap>::new().managed_fields());
        assert!(matches!(managed, Err(CacheError::ManagedFields { .. })));
        cache.await_synced().await?;
        let key = ObjectKey::new(&namespace, "a");
        let labels = metadata.get(&key)?.expect("it is there").metadata.labels.clone();
        assert_eq!(labels, typed.get(&key)?.expect("it is there").metadata.labels);
        cache.stop().await;
        Ok(())
    }

    async fn metadata_alone_is_kept_where_nothing_else_is_asked_for(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("metadata").await?);
        make(&client, &namespace, "a", "blue").await;
        let cache = running(client, &[&namespace]);
        let metadata = cache.informer_of(Select::dynamic_metadata(config_map()).managed_fields())?;
        assert!(matches!(cache.informer::<ConfigMap>(), Err(CacheError::Representation { .. })));
        // Another scope of the same kind is another informer, in a form of its own.
        let blue = cache.informer_of(Select::<ConfigMap>::new().labels("app=blue").managed_fields())?;
        cache.await_synced().await?;
        let read = metadata.list(&Query::default().labels("app=blue")?)?.remove(0);
        assert_eq!(read.metadata.name.as_deref(), Some("a"));
        // The embedded server has none.
        assert_eq!(read.metadata.managed_fields.is_some(), matches!(env, Env::Real(_)));
        let whole = blue.list(&Query::default())?.remove(0);
        assert_eq!(whole.metadata.managed_fields, read.metadata.managed_fields);
        cache.stop().await;
        Ok(())
    }

    async fn a_kind_without_namespaces_is_kept_whole(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("scope").await?;
        let cache = running(env.client()?, &[&namespace]);
        let namespaces = cache.informer::<Namespace>()?;
        let dynamic = cache.informer_of(Select::dynamic(GroupVersionKind::gvk("", "v1", "Namespace")).labels("!none"))?;
        cache.await_synced().await?;
        assert!(namespaces.get(&ObjectKey::cluster_scoped(&namespace))?.is_some());
        assert!(dynamic.get(&ObjectKey::cluster_scoped("default"))?.is_some());
        cache.stop().await;
        Ok(())
    }

    /// In a cache of some namespaces, too: whether the kind is one of those is known to its type, and else to the server.
    async fn a_kind_without_namespaces_is_one_watch_whether_its_type_or_its_name_comes_first(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("whole").await?;
        let key = ObjectKey::cluster_scoped(&namespace);
        let kind = || GroupVersionKind::gvk("", "v1", "Namespace");
        let watches = || match &env {
            Env::Embedded(embedded) => embedded.server().journal().count("watch namespaces"),
            _ => 0,
        };
        for type_first in [true, false] {
            let before = watches();
            let cache = running(env.client()?, &[&namespace]);
            let typed = || cache.informer_of(Select::<Namespace>::new().compact());
            let (typed, dynamic) = if type_first {
                let typed = typed()?;
                (typed, cache.informer_of(Select::dynamic(kind()))?)
            } else {
                let dynamic = cache.informer_of(Select::dynamic(kind()))?;
                (typed()?, dynamic)
            };
            cache.await_synced().await?;
            // Now the server has said it, too.
            let metadata = cache.informer_of(Select::dynamic_metadata(kind()).namespaces(Namespaces::All))?;
            assert_eq!((cache.informers().len(), &*cache.informers()[0].scope), (1, ""), "type first: {type_first}");
            assert_eq!(typed.get(&key)?.expect("it is there").metadata.name.as_deref(), Some(&*namespace));
            assert!(dynamic.get(&key)?.is_some() && metadata.get(&key)?.is_some());
            assert!(typed.list(&Query::default().namespace(Some("elsewhere")))?.is_empty(), "there is no such place");
            let client = Client::new(env.client()?)?.with_cache(cache.clone());
            assert!(client.get::<Namespace>(&key).await?.is_some());
            assert!(client.dynamic(&kind()).get(&key).await?.is_some());
            if let Env::Embedded(_) = &env {
                assert_eq!(watches() - before, 1, "type first: {type_first}");
            }
            drop(client);
            cache.stop().await;
        }
        Ok(())
    }

    async fn a_kind_that_comes_later_is_absent_until_then(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("later").await?;
        let cache = running(env.client()?, &[&namespace]);
        let gvk = GroupVersionKind::gvk("cache.example.com", "v1", "Later");
        let later = cache.informer_of(Select::dynamic(gvk.clone()))?;
        until(|| matches!(later.state(), InformerState::Absent { .. })).await;
        let error = later.list(&Query::default()).expect_err("nothing is known");
        assert!(matches!(error, CacheError::Absent { .. }), "{error}");
        env.install([json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "laters.cache.example.com"},
            "spec": {
                "group": "cache.example.com", "scope": "Namespaced", "names": {"plural": "laters", "kind": "Later"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        })])
        .await?;
        later.await_synced().await?;
        let api_resource = ApiResource::from_gvk_with_plural(&gvk, "laters");
        let api = Api::<DynamicObject>::namespaced_with(env.client()?, &namespace, &api_resource);
        api.create(&PostParams::default(), &DynamicObject::new("one", &api_resource)).await?;
        until(|| later.list(&Query::default()).unwrap().len() == 1).await;
        cache.stop().await;
        Ok(())
    }
}
