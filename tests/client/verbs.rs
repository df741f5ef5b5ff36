//! Tests of each verb on the live API.

use super::support::{color, config_map, live};
use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::ClusterRole};
use serde_json::json;
use steersman::{
    client::{Error, IgnoreNotFound, Patch},
    object::ObjectKey,
    testing::{Env, TestServer},
};

steersman::env_test! {
    async fn an_object_can_be_created_read_updated_patched_and_deleted(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let key = ObjectKey::new(&namespace, "colors");
        assert!(client.get::<ConfigMap>(&key).await?.is_none());
        let created = client.create(&config_map(&namespace, "colors", "blue")).await?;
        assert!(created.metadata.uid.is_some());
        assert!(client.create(&created).await.is_err(), "create rejects a resourceVersion");
        let error = client.create(&config_map(&namespace, "colors", "blue")).await.expect_err("the object exists already");
        assert!(error.is_already_exists() && !error.is_conflict(), "{error}");
        assert_eq!(*client.get::<ConfigMap>(&key).await?.expect("the object exists"), created);

        let mut red = created.clone();
        red.data.get_or_insert_default().insert("color".into(), "red".into());
        let red = client.update(&red).await?;
        assert_eq!(color(&red), Some("red"));
        let conflict = client.update(&created).await.expect_err("a conflict");
        assert!(conflict.is_conflict() && !conflict.is_not_found(), "{conflict}");
        assert!(conflict.to_string().contains("the object has been modified"), "{conflict}");

        let patched: ConfigMap = client.patch(&key, &Patch::Merge(json!({"data": {"color": "green"}}))).await?;
        assert_eq!(color(&patched), Some("green"));
        let operations = json!([{"op": "test", "path": "/data/color", "value": "green"}, {"op": "remove", "path": "/data/color"}]);
        assert_eq!(color(&client.patch::<ConfigMap>(&key, &Patch::Json::<()>(serde_json::from_value(operations)?)).await?), None);

        if env.name() == "real" {
            let strategic = Patch::Strategic(json!({"metadata": {"finalizers": null}, "data": {"color": "white"}}));
            assert_eq!(color(&client.patch::<ConfigMap>(&key, &strategic).await?), Some("white"));
        }

        assert!(client.delete::<ConfigMap>(&key).await?);
        assert!(!client.delete::<ConfigMap>(&key).await?, "already deleted");
        assert!(client.patch::<ConfigMap>(&key, &Patch::Merge(json!({}))).await.ignore_not_found()?.is_none());
        Ok(())
    }

    async fn patch_from_without_the_lock_merges_into_concurrent_changes(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let base = client.create(&config_map(&namespace, "colors", "blue")).await?;
        let other = Patch::Merge(json!({"data": {"shape": "round"}}));
        client.patch::<ConfigMap>(&ObjectKey::of(&base), &other).await?;

        let mut red = base.clone();
        red.data.get_or_insert_default().insert("color".into(), "red".into());
        let error = client.patch_from(&base, &red).await.expect_err("a conflict");
        assert!(error.is_conflict(), "{error}");
        let patched = client.optimistic_lock(false).patch_from(&base, &red).await?;
        assert_eq!(json!(patched.data), json!({"color": "red", "shape": "round"}));
        Ok(())
    }

    async fn the_server_can_generate_a_name(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let mut unnamed = config_map(&namespace, "colors", "blue");
        unnamed.metadata.generate_name = unnamed.metadata.name.take();
        let created = client.create(&unnamed).await?;
        assert!(created.metadata.name.as_ref().is_some_and(|name| name.len() > 6 && name.starts_with("colors")));
        assert!(client.update(&unnamed).await.is_err_and(|error| error.to_string().contains("has no name")));
        assert!(client.get::<ClusterRole>(&ObjectKey::cluster_scoped("a:b? c#ö")).await?.is_none(), "an unusual valid name");
        for other in ["a/status", "..", "%2e%2e"] {
            let error = client.get::<ConfigMap>(&ObjectKey::new(&namespace, other)).await.expect_err("another path");
            assert!(matches!(error, Error::BadName { .. }), "{error}");
        }
        Ok(())
    }

    async fn a_rejected_object_returns_the_error_of_the_server(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let error = client.create(&config_map(&namespace, "Not-A-Name", "blue")).await.expect_err("a bad name");
        assert!(error.is_invalid() && error.to_string().contains("Not-A-Name"), "{error}");
        assert_eq!(error.retry_after(), None);
        let nowhere = client.create(&config_map("client-nowhere", "colors", "blue")).await.expect_err("no namespace");
        assert!(nowhere.is_not_found(), "{nowhere}: the kind is there");
        Ok(())
    }
}
