//! Tests of subresources, of minimal patches, and of metadata-only objects.

use super::support::{Order, OrderStatus, config_map, live, order};
use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v1::Scale, core::v1::ConfigMap};
use kube::CustomResourceExt;
use serde_json::json;
use steersman::{
    cache::Query,
    client::{Client, Error, Patch},
    object::{Metadata, ObjectKey, StaticKind},
    testing::{Embedded, Env, TestServer},
};

/// 2^53 + 1, which is not representable as `f64`.
const LARGE: i64 = 9_007_199_254_740_993;

steersman::env_test! {
    async fn a_status_client_writes_only_the_status(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        env.install([Order::crd()]).await?;
        let key = ObjectKey::new(&namespace, "web");
        let made = client.create(&order(&namespace, "web", 1)).await?;
        let mut changed = made.clone();
        changed.spec.count = 2;
        changed.status = Some(OrderStatus { done: 1 });
        let changed = client.status().update(&changed).await?;
        assert_eq!((changed.spec.count, changed.status.as_ref().map(|status| status.done)), (1, Some(1)));
        let patch = Patch::Merge(json!({"spec": {"count": 3}, "status": {"done": 2}}));
        let changed: Order = client.subresource("status").patch(&key, &patch).await?;
        assert_eq!((changed.spec.count, changed.status.as_ref().map(|status| status.done)), (1, Some(2)));
        let read = client.status().get::<Order>(&key).await?.expect("exists");
        assert_eq!(read.status, changed.status);

        let mut wanted = changed.clone();
        wanted.spec.count = 4;
        wanted.status = Some(OrderStatus { done: 3 });
        let status = client.status().patch_from(&changed, &wanted).await?;
        assert_eq!((status.spec.count, status.status.as_ref().map(|status| status.done)), (1, Some(3)));
        let all = client.list(&Query::<Order>::default().namespace(Some(&namespace))).await?;
        assert_eq!(*all[0], status);

        for rejected in [
            client.status().create(&order(&namespace, "two", 1)).await.map(drop),
            client.status().delete::<Order>(&key).await.map(drop),
            client.status().list(&Query::<Order>::default()).await.map(drop),
        ] {
            assert!(matches!(rejected, Err(Error::Unsupported { .. })), "{rejected:?}");
        }
        let error = client.subresource("color").get::<ConfigMap>(&key).await.expect_err("no such subresource");
        assert!(matches!(error, Error::NoSuchKind(_)) && error.to_string().contains("ConfigMap/color"), "{error}");
        for name in ["", ".", "..", "status/x", "/", "%2e%2e"] {
            let part = client.subresource(name);
            for rejected in [
                part.get::<Order>(&key).await.map(drop),
                part.update(&wanted).await.map(drop),
                part.patch::<Order>(&key, &patch).await.map(drop),
                client.subresource_of::<Order>(&key, name).create::<Order>(&json!({})).await.map(drop),
            ] {
                assert!(matches!(rejected, Err(Error::BadSubresource { .. })), "{name:?}: {rejected:?}");
            }
        }
        assert!(client.status().get::<Order>(&ObjectKey::new(&namespace, "two")).await?.is_none());
        Ok(())
    }

    async fn a_subresource_of_another_kind_is_read_and_written(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let web: Deployment = serde_json::from_value(json!({"metadata": {"name": "web", "namespace": namespace}, "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web"}]}},
        }}))?;
        client.create(&web).await?;
        let key = ObjectKey::new(&namespace, "web");
        let scale = client.subresource_of::<Deployment>(&key, "scale");
        let mut wanted = scale.get::<Scale>().await?.expect("exists");
        wanted.spec.get_or_insert_default().replicas = Some(2);
        assert_eq!(scale.update(&wanted).await?.spec.and_then(|spec| spec.replicas), Some(2));
        let dynamic = client.dynamic(&Deployment::static_gvk());
        let patched: Scale = dynamic.subresource_of(&key, "scale").patch(&Patch::Merge(json!({"spec": {"replicas": 0}}))).await?;
        assert_eq!(patched.spec.and_then(|spec| spec.replicas).unwrap_or_default(), 0);
        let none = client.subresource_of::<Deployment>(&ObjectKey::new(&namespace, "none"), "scale");
        assert!(none.get::<Scale>().await?.is_none());
        Ok(())
    }

    async fn patch_from_sends_only_the_difference(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        env.install([Order::crd()]).await?;
        let base = client.create(&order(&namespace, "web", 1)).await?;
        let mut changed = base.clone();
        changed.spec.count = LARGE;
        changed.spec.note = None;
        changed.metadata.labels = Some([("app".into(), "web".into())].into());
        let now = client.patch_from(&base, &changed).await?;
        assert_eq!((now.spec.count, &now.spec.note), (LARGE, &None));
        assert_eq!(now.metadata.labels, changed.metadata.labels);
        assert_ne!(now.metadata.resource_version, base.metadata.resource_version);
        assert!(client.patch_from(&base, &changed).await.expect_err("a conflict").is_conflict());
        let same = client.patch_from(&now, &now).await?;
        assert_eq!(same, now);
        let unread = client.patch_from(&order(&namespace, "web", 1), &now).await;
        assert!(matches!(unread, Err(Error::NoResourceVersion { .. })), "{unread:?}");
        Ok(())
    }

    async fn metadata_can_be_read_and_patched_but_not_updated(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let key = ObjectKey::new(&namespace, "colors");
        client.create(&config_map(&namespace, "colors", "blue")).await?;
        let read = client.get::<Metadata<ConfigMap>>(&key).await?.expect("the object exists");
        assert_eq!(read.types.as_ref().map(|types| &*types.kind), Some("ConfigMap"));
        for rejected in [client.create(&*read).await, client.update(&*read).await] {
            let error = rejected.expect_err("a full write needs the whole object");
            assert!(error.to_string().contains("use a patch"), "{error}");
        }
        let mut changed = (*read).clone();
        changed.metadata.labels.get_or_insert_default().insert("tier".into(), "front".into());
        let patched = client.patch_from(&*read, &changed).await?;
        assert_eq!(patched.metadata.labels, changed.metadata.labels);
        let label = Patch::Merge(json!({"metadata": {"labels": {"tier": null}}}));
        let patched: Metadata<ConfigMap> = client.patch(&key, &label).await?;
        assert_eq!(patched.types.as_ref().map(|types| &*types.api_version), Some("v1"));
        let whole = client.get::<ConfigMap>(&key).await?.expect("exists");
        assert!(whole.data.is_some() && whole.metadata.labels.as_ref().is_some_and(|labels| !labels.contains_key("tier")));
        assert!(client.delete::<Metadata<ConfigMap>>(&key).await?);
        Ok(())
    }
}

#[tokio::test]
async fn patch_from_sends_nothing_without_a_difference() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let client = Client::new(server.client()?)?;
    let base = client
        .create(&config_map("default", "colors", "blue"))
        .await?;
    let mut changed = base.clone();
    changed.metadata.resource_version = None;
    changed.metadata.managed_fields = None;
    client.patch_from(&base, &changed).await?;
    changed.data = None;
    client.status().patch_from(&base, &changed).await?;
    assert_eq!(server.server().journal().count("PATCH *"), 0);
    Ok(())
}
