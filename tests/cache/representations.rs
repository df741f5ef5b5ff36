//! Tests of representations: typed, dynamic and metadata-only.

use super::support::{create_map, running, until};
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
    async fn a_compact_informer_serves_every_representation(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("compact").await?);
        create_map(&client, &namespace, "a", "blue").await;
        let cache = running(client, &[&namespace]);
        let dynamic = cache.informer_of(Select::dynamic(config_map()))?;
        let typed = cache.informer::<ConfigMap>()?;
        let metadata = cache.informer::<Metadata<ConfigMap>>()?;
        cache.await_synced().await?;
        assert_eq!(cache.informers().len(), 1, "one informer serves all representations");
        let key = ObjectKey::new(&namespace, "a");
        assert_eq!(dynamic.get(&key)?.expect("exists").data["data"]["color"], "blue");
        assert_eq!(typed.get(&key)?.expect("exists").data.as_ref().expect("data")["color"], "blue");
        assert_eq!(metadata.get(&key)?.expect("exists").metadata.name.as_deref(), Some("a"));
        if let Env::Embedded(embedded) = &env {
            assert_eq!(embedded.server().journal().count("watch configmaps"), 1, "one watch");
        }
        cache.stop().await;
        Ok(())
    }

    async fn a_typed_informer_serves_its_type_and_metadata_and_rejects_dynamic_reads(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("typed").await?);
        create_map(&client, &namespace, "a", "blue").await;
        let cache = running(client, &[&namespace]);
        let typed = cache.informer::<ConfigMap>()?;
        let metadata = cache.informer::<Metadata<ConfigMap>>()?;
        let rejected = cache.informer_of(Select::dynamic(config_map())).expect_err("a typed store has no unknown fields");
        assert!(matches!(rejected, CacheError::RepresentationMismatch { .. }) && rejected.to_string().contains(".compact()"), "{rejected}");
        let managed = cache.informer_of(Select::<ConfigMap>::new().managed_fields());
        assert!(matches!(managed, Err(CacheError::ManagedFieldsDropped { .. })));
        cache.await_synced().await?;
        let key = ObjectKey::new(&namespace, "a");
        let labels = metadata.get(&key)?.expect("exists").metadata.labels.clone();
        assert_eq!(labels, typed.get(&key)?.expect("exists").metadata.labels);
        cache.stop().await;
        Ok(())
    }

    async fn a_metadata_informer_rejects_typed_reads(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("metadata").await?);
        create_map(&client, &namespace, "a", "blue").await;
        let cache = running(client, &[&namespace]);
        let metadata = cache.informer_of(Select::dynamic_metadata(config_map()).managed_fields())?;
        assert!(matches!(cache.informer::<ConfigMap>(), Err(CacheError::RepresentationMismatch { .. })));
        // A different scope of the same kind is another informer with its own representation.
        let blue = cache.informer_of(Select::<ConfigMap>::new().labels("app=blue").managed_fields())?;
        cache.await_synced().await?;
        let read = metadata.list(&Query::default().labels("app=blue")?)?.remove(0);
        assert_eq!(read.metadata.name.as_deref(), Some("a"));
        // The embedded server sets no managed fields.
        assert_eq!(read.metadata.managed_fields.is_some(), matches!(env, Env::Real(_)));
        let whole = blue.list(&Query::default())?.remove(0);
        assert_eq!(whole.metadata.managed_fields, read.metadata.managed_fields);
        cache.stop().await;
        Ok(())
    }

    async fn an_informer_of_a_cluster_scoped_kind_ignores_the_namespaces_of_the_cache(env: Env) -> anyhow::Result<()> {
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

    /// Also in a cache of some namespaces.
    ///
    /// The type knows whether the kind is namespaced; for a dynamic kind, discovery does.
    async fn typed_and_dynamic_informers_of_a_cluster_scoped_kind_share_a_watch(env: Env) -> anyhow::Result<()> {
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
            // Now discovery has confirmed the scope.
            let metadata = cache.informer_of(Select::dynamic_metadata(kind()).namespaces(Namespaces::All))?;
            assert_eq!((cache.informers().len(), &*cache.informers()[0].scope), (1, ""), "type first: {type_first}");
            assert_eq!(typed.get(&key)?.expect("exists").metadata.name.as_deref(), Some(&*namespace));
            assert!(dynamic.get(&key)?.is_some() && metadata.get(&key)?.is_some());
            assert!(typed.list(&Query::default().namespace(Some("elsewhere")))?.is_empty(), "a cluster-scoped kind has no namespaces");
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

    async fn an_informer_syncs_when_its_crd_is_installed(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("gizmos").await?;
        let cache = running(env.client()?, &[&namespace]);
        let gvk = GroupVersionKind::gvk("cache.example.com", "v1", "Gizmo");
        let gizmos = cache.informer_of(Select::dynamic(gvk.clone()))?;
        until(|| matches!(gizmos.state(), InformerState::KindNotFound { .. })).await;
        let error = gizmos.list(&Query::default()).expect_err("nothing is known");
        assert!(matches!(error, CacheError::KindNotFound { .. }), "{error}");
        env.install([json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "gizmos.cache.example.com"},
            "spec": {
                "group": "cache.example.com", "scope": "Namespaced", "names": {"plural": "gizmos", "kind": "Gizmo"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        })])
        .await?;
        gizmos.await_synced().await?;
        let api_resource = ApiResource::from_gvk_with_plural(&gvk, "gizmos");
        let api = Api::<DynamicObject>::namespaced_with(env.client()?, &namespace, &api_resource);
        api.create(&PostParams::default(), &DynamicObject::new("one", &api_resource)).await?;
        until(|| gizmos.list(&Query::default()).unwrap().len() == 1).await;
        cache.stop().await;
        Ok(())
    }
}
