//! Tests of the client's modifiers.

use super::{
    interceptors::Calls,
    support::{color, config_map, live},
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube_core::DynamicObject;
use serde_json::json;
use steersman::{
    cache::Query,
    client::{
        Client, DeleteParams, Error, Patch, Preconditions, PropagationPolicy, Validation,
        delete_only,
    },
    object::{KubeObject, ObjectKey},
    testing::{Env, TestServer},
};

fn maps(client: &Client) -> impl Future<Output = usize> {
    let client = client.clone();
    async move {
        client
            .list(&Query::<ConfigMap>::default().labels("app").expect("labels"))
            .await
            .expect("a list")
            .len()
    }
}

steersman::env_test! {
    async fn a_dry_run_is_validated_and_stores_nothing(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let (client, key) = (client.namespace(&namespace), ObjectKey::new(&namespace, "colors"));
        let dry = client.dry_run();
        assert!(dry.create(&config_map("", "colors", "blue")).await?.metadata.uid.is_some());
        assert!(dry.create(&config_map("", "Colors", "blue")).await.expect_err("a bad name").is_invalid());
        assert_eq!(maps(&client).await, 0);
        let mut made = client.create(&config_map("", "colors", "blue")).await?;
        let patched: ConfigMap = dry.patch(&key, &Patch::Merge(json!({"data": {"color": "red"}}))).await?;
        assert_eq!(color(&patched), Some("red"));
        made.data = None;
        assert_eq!(color(&dry.update(&made).await?), None);
        assert!(dry.delete::<ConfigMap>(&key).await?);
        let there = client.get::<ConfigMap>(&key).await?.expect("the object still exists");
        assert_eq!(color(&there), Some("blue"));
        Ok(())
    }

    async fn a_namespaced_client_sets_its_namespace_and_rejects_others(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let other = env.namespace("other").await?;
        client.create(&config_map(&other, "colors", "blue")).await?;
        let here = client.namespace(&other).namespace(&namespace); // the last one counts
        let made = here.create(&config_map("", "colors", "red")).await?;
        assert_eq!(made.metadata.namespace.as_deref(), Some(&*namespace));
        let mut green = config_map("", "colors", "green");
        green.metadata.resource_version = made.metadata.resource_version;
        assert_eq!(color(&here.update(&green).await?), Some("green"));
        let bare = ObjectKey::cluster_scoped("colors");
        let got = here.get::<ConfigMap>(&bare).await?.expect("the object exists");
        assert_eq!(color(&got), Some("green"));
        assert_eq!(maps(&here).await, 1, "a list uses the namespace of the client");

        let elsewhere = ObjectKey::new(&other, "colors");
        let others = Query::<ConfigMap>::default().namespace(Some(&other));
        for rejected in [
            here.get::<ConfigMap>(&elsewhere).await.map(drop),
            here.create(&config_map(&other, "more", "red")).await.map(drop),
            here.patch::<ConfigMap>(&elsewhere, &Patch::Merge(json!({}))).await.map(drop),
            here.delete::<ConfigMap>(&elsewhere).await.map(drop),
            here.list(&others).await.map(drop),
            here.delete_collection(&others).await,
        ] {
            assert!(matches!(rejected, Err(Error::OtherNamespace { .. })), "{rejected:?}");
        }
        let error = client.get::<ConfigMap>(&bare).await.expect_err("ambiguous");
        assert!(matches!(error, Error::NoNamespace { .. }), "{error}");

        let cluster_scoped = here.get::<Namespace>(&ObjectKey::cluster_scoped(&other)).await?;
        assert!(cluster_scoped.is_some(), "the namespace does not apply to a cluster-scoped kind");
        assert!(here.list(&Query::<Namespace>::default()).await?.len() > 1);
        Ok(())
    }

    async fn an_invalid_namespace_is_rejected_before_the_request(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let calls = Calls::default();
        let (client, bare) = (client.intercepted(calls.clone()), ObjectKey::cluster_scoped("colors"));
        for name in ["..", ".", "a/b", "%2e%2e"] {
            let nowhere = client.namespace(name);
            for rejected in [
                nowhere.get::<ConfigMap>(&bare).await.map(drop),
                nowhere.create(&config_map("", "colors", "red")).await.map(drop),
                nowhere.patch::<ConfigMap>(&bare, &Patch::Merge(json!({}))).await.map(drop),
                nowhere.delete::<ConfigMap>(&bare).await.map(drop),
                nowhere.list(&Query::<ConfigMap>::default()).await.map(drop),
                nowhere.delete_collection(&Query::<ConfigMap>::default()).await,
                nowhere.create_or_patch(config_map("", "colors", "red"), |_| Ok(())).await.map(drop),
            ] {
                assert!(matches!(rejected, Err(Error::BadName { .. })), "{name}: {rejected:?}");
            }
            assert!(calls.take().is_empty(), "{name}");
            let cluster_scoped = nowhere.get::<Namespace>(&ObjectKey::cluster_scoped(&namespace)).await?;
            assert!(cluster_scoped.is_some(), "the namespace does not apply to a cluster-scoped kind");
            calls.take();
        }
        Ok(())
    }

    async fn field_validation_rejects_or_drops_unknown_fields(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let client = client.namespace(&namespace);
        let odd = |name: &str| -> DynamicObject {
            let odd = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "color": "blue"});
            serde_json::from_value(odd).expect("an object")
        };
        let strict = client.validation(Validation::Strict);
        let rejected = strict.create(&odd("a")).await.expect_err("an unknown field");
        assert!(rejected.to_string().contains("color"), "{rejected}");
        for lax in [client.clone(), client.validation(Validation::Warn), strict.validation(Validation::Ignore)] {
            let made = lax.dry_run().create(&odd("a")).await?;
            assert!(made.data.get("color").is_none());
        }
        let made = client.create(&odd("a")).await?;
        assert!(strict.update(&DynamicObject { metadata: made.metadata.clone(), ..odd("a") }).await.is_err());
        assert_eq!(made.gvk().map(|gvk| gvk.kind).as_deref(), Some("ConfigMap"));
        Ok(())
    }

    async fn delete_respects_its_preconditions(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let key = ObjectKey::new(&namespace, "colors");
        let first = client.create(&config_map(&namespace, "colors", "blue")).await?;
        assert!(client.delete_params(delete_only(&first)).delete::<ConfigMap>(&key).await?);
        let second = client.create(&config_map(&namespace, "colors", "red")).await?;
        let error = client.delete_params(delete_only(&first)).delete::<ConfigMap>(&key).await.expect_err("another one");
        assert!(error.is_conflict(), "{error}");
        let unchanged = |map: &ConfigMap| {
            let resource_version = map.metadata.resource_version.clone();
            let conditions = Preconditions { resource_version, uid: None };
            client.delete_params(DeleteParams::default().preconditions(conditions))
        };
        assert!(unchanged(&first).delete::<ConfigMap>(&key).await.expect_err("a conflict").is_conflict());
        assert!(unchanged(&second).delete::<ConfigMap>(&key).await?);
        Ok(())
    }

    async fn delete_only_requires_an_object_with_a_uid(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let (key, unread) = (ObjectKey::new(&namespace, "colors"), config_map(&namespace, "colors", "blue"));
        client.create(&unread).await?;
        let this_one = client.delete_params(DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..delete_only(&unread) });
        for rejected in [
            this_one.delete::<ConfigMap>(&key).await.map(drop),
            this_one.delete_collection(&Query::<ConfigMap>::default().namespace(Some(&namespace))).await,
        ] {
            let error = rejected.expect_err("ambiguous");
            assert!(matches!(error, Error::NoUid { .. }) && error.to_string().contains("as it was read"), "{error}");
        }
        assert!(client.get::<ConfigMap>(&key).await?.is_some());
        Ok(())
    }

    async fn apply_requires_a_field_owner(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let (client, wanted) = (client.namespace(&namespace), config_map("", "colors", "blue"));
        let error = client.apply(&wanted).await.expect_err("no field owner");
        assert!(matches!(error, Error::NoFieldOwner { .. }) && error.to_string().contains(".field_owner("), "{error}");
        let ours = client.field_owner("overridden").field_owner("ours"); // the last one counts
        assert!(matches!(ours.apply(&config_map("", "", "blue")).await, Err(Error::NoName { .. })));
        let dynamic: DynamicObject = serde_json::from_value(json!({"metadata": {"name": "colors"}}))?;
        assert!(matches!(ours.apply(&dynamic).await, Err(Error::NoKind(_))));
        if env.name() == "embedded" {
            return Ok(()); // server-side apply is not supported yet
        }
        let applied = ours.apply(&wanted).await?;
        let managers = applied.metadata.managed_fields.iter().flatten().filter_map(|entry| entry.manager.as_deref());
        assert_eq!(managers.collect::<Vec<_>>(), ["ours"]);

        let theirs = client.field_owner("theirs");
        let conflict = theirs.apply(&config_map("", "colors", "red")).await.expect_err("a conflict");
        assert!(conflict.is_conflict() && conflict.to_string().contains("ours"), "{conflict}");
        assert_eq!(color(&theirs.force().apply(&config_map("", "colors", "red")).await?), Some("red"));
        let key = ObjectKey::new(&namespace, "colors");
        let patch = Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"roof": "grey"}}));
        let patched: ConfigMap = ours.patch(&key, &patch).await?;
        assert_eq!(patched.data.as_ref().and_then(|data| data.get("roof")).map(String::as_str), Some("grey"));
        Ok(())
    }
}
