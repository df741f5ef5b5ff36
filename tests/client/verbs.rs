//! Each verb, live.

use super::support::{door, live, map};
use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::ClusterRole};
use serde_json::json;
use steersman::{
    client::{Error, IgnoreNotFound, Patch},
    object::ObjectKey,
    testing::{Env, TestServer},
};

steersman::env_test! {
    async fn an_object_is_made_read_replaced_patched_and_deleted(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let key = ObjectKey::new(&namespace, "colors");
        assert!(client.get::<ConfigMap>(&key).await?.is_none());
        let made = client.create(&map(&namespace, "colors", "blue")).await?;
        assert!(made.metadata.uid.is_some());
        assert!(client.create(&made).await.is_err(), "what has a resourceVersion is not new");
        let again = client.create(&map(&namespace, "colors", "blue")).await.expect_err("it is there");
        assert!(again.is_already_exists() && !again.is_conflict(), "{again}");
        assert_eq!(*client.get::<ConfigMap>(&key).await?.expect("it was made"), made);

        let mut red = made.clone();
        red.data.get_or_insert_default().insert("door".into(), "red".into());
        let red = client.update(&red).await?;
        assert_eq!(door(&red), Some("red"));
        let late = client.update(&made).await.expect_err("it has changed since");
        assert!(late.is_conflict() && !late.is_not_found(), "{late}");
        assert!(late.to_string().contains("the object has been modified"), "{late}");

        let patched: ConfigMap = client.patch(&key, &Patch::Merge(json!({"data": {"door": "green"}}))).await?;
        assert_eq!(door(&patched), Some("green"));
        let operations = json!([{"op": "test", "path": "/data/door", "value": "green"}, {"op": "remove", "path": "/data/door"}]);
        assert_eq!(door(&client.patch::<ConfigMap>(&key, &Patch::Json(operations)).await?), None);

        if env.name() == "real" {
            let strategic = Patch::Strategic(json!({"metadata": {"finalizers": null}, "data": {"door": "white"}}));
            assert_eq!(door(&client.patch::<ConfigMap>(&key, &strategic).await?), Some("white"));
        }

        assert!(client.delete::<ConfigMap>(&key).await?);
        assert!(!client.delete::<ConfigMap>(&key).await?, "there is nothing");
        assert!(client.patch::<ConfigMap>(&key, &Patch::Merge(json!({}))).await.ignore_not_found()?.is_none());
        Ok(())
    }

    async fn the_server_may_find_a_name(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let mut unnamed = map(&namespace, "colors", "blue");
        unnamed.metadata.generate_name = unnamed.metadata.name.take();
        let made = client.create(&unnamed).await?;
        assert!(made.metadata.name.as_ref().is_some_and(|name| name.len() > 6 && name.starts_with("colors")));
        assert!(client.update(&unnamed).await.is_err_and(|error| error.to_string().contains("has no name")));
        assert!(client.get::<ClusterRole>(&ObjectKey::cluster_scoped("a:b? c#ö")).await?.is_none(), "a strange name");
        for other in ["a/status", "..", "%2e%2e"] {
            let error = client.get::<ConfigMap>(&ObjectKey::new(&namespace, other)).await.expect_err("another path");
            assert!(matches!(error, Error::BadName { .. }), "{error}");
        }
        Ok(())
    }

    async fn an_object_that_the_server_refuses_is_told_in_its_words(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let error = client.create(&map(&namespace, "Not-A-Name", "blue")).await.expect_err("a bad name");
        assert!(error.is_invalid() && error.to_string().contains("Not-A-Name"), "{error}");
        assert_eq!(error.retry_after(), None);
        let nowhere = client.create(&map("client-nowhere", "colors", "blue")).await.expect_err("no namespace");
        assert!(nowhere.is_not_found(), "{nowhere}: the kind is there");
        Ok(())
    }
}
