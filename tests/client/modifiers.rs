//! What each modifier changes.

use super::{
    calls::Calls,
    support::{door, live, map},
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube_core::DynamicObject;
use serde_json::json;
use steersman::{
    cache::Query,
    client::{Client, Deleting, Error, Patch, Propagation, Validation},
    object::{KubeObject, ObjectKey},
    testing::{Env, TestServer},
};

fn maps(client: &Client) -> impl Future<Output = usize> {
    let client = client.clone();
    async move { client.list(&Query::<ConfigMap>::default().labels("app").expect("labels")).await.expect("a list").len() }
}

steersman::env_test! {
    async fn a_dry_run_is_checked_and_leaves_nothing(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let (client, key) = (client.namespace(&namespace), ObjectKey::new(&namespace, "colors"));
        let dry = client.dry_run();
        assert!(dry.create(&map("", "colors", "blue")).await?.metadata.uid.is_some());
        assert!(dry.create(&map("", "Colors", "blue")).await.expect_err("a bad name").is_invalid());
        assert_eq!(maps(&client).await, 0);
        let mut made = client.create(&map("", "colors", "blue")).await?;
        let patched: ConfigMap = dry.patch(&key, &Patch::Merge(json!({"data": {"door": "red"}}))).await?;
        assert_eq!(door(&patched), Some("red"));
        made.data = None;
        assert_eq!(door(&dry.update(&made).await?), None);
        assert!(dry.delete::<ConfigMap>(&key).await?);
        let there = client.get::<ConfigMap>(&key).await?.expect("it is still there");
        assert_eq!(door(&there), Some("blue"));
        Ok(())
    }

    async fn a_namespaced_client_fills_in_its_own_and_refuses_others(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let other = env.namespace("other").await?;
        client.create(&map(&other, "colors", "blue")).await?;
        let here = client.namespace(&other).namespace(&namespace); // the nearer one counts
        let made = here.create(&map("", "colors", "red")).await?;
        assert_eq!(made.metadata.namespace.as_deref(), Some(&*namespace));
        let mut green = map("", "colors", "green");
        green.metadata.resource_version = made.metadata.resource_version;
        assert_eq!(door(&here.update(&green).await?), Some("green"));
        let bare = ObjectKey::cluster_scoped("colors");
        let got = here.get::<ConfigMap>(&bare).await?.expect("it was made");
        assert_eq!(door(&got), Some("green"));
        assert_eq!(maps(&here).await, 1, "a list is of its own namespace");

        let elsewhere = ObjectKey::new(&other, "colors");
        let others = Query::<ConfigMap>::default().namespace(Some(&other));
        for refused in [
            here.get::<ConfigMap>(&elsewhere).await.map(drop),
            here.create(&map(&other, "more", "red")).await.map(drop),
            here.patch::<ConfigMap>(&elsewhere, &Patch::Merge(json!({}))).await.map(drop),
            here.delete::<ConfigMap>(&elsewhere).await.map(drop),
            here.list(&others).await.map(drop),
            here.delete_collection(&others).await,
        ] {
            assert!(matches!(refused, Err(Error::OtherNamespace { .. })), "{refused:?}");
        }
        let error = client.get::<ConfigMap>(&bare).await.expect_err("which one?");
        assert!(matches!(error, Error::NoNamespace { .. }), "{error}");

        let cluster_scoped = here.get::<Namespace>(&ObjectKey::cluster_scoped(&other)).await?;
        assert!(cluster_scoped.is_some(), "a kind without namespaces is as ever");
        assert!(here.list(&Query::<Namespace>::default()).await?.len() > 1);
        Ok(())
    }

    async fn a_namespace_that_is_no_part_of_a_path_is_refused_before_anything_is_sent(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let calls = Calls::default();
        let (client, bare) = (client.intercepted(calls.clone()), ObjectKey::cluster_scoped("colors"));
        for name in ["..", ".", "a/b", "%2e%2e"] {
            let nowhere = client.namespace(name);
            for refused in [
                nowhere.get::<ConfigMap>(&bare).await.map(drop),
                nowhere.create(&map("", "colors", "red")).await.map(drop),
                nowhere.patch::<ConfigMap>(&bare, &Patch::Merge(json!({}))).await.map(drop),
                nowhere.delete::<ConfigMap>(&bare).await.map(drop),
                nowhere.list(&Query::<ConfigMap>::default()).await.map(drop),
                nowhere.delete_collection(&Query::<ConfigMap>::default()).await,
                nowhere.create_or_patch(map("", "colors", "red"), |_| Ok(())).await.map(drop),
            ] {
                assert!(matches!(refused, Err(Error::BadName { .. })), "{name}: {refused:?}");
            }
            assert!(calls.take().is_empty(), "{name}");
            let cluster_scoped = nowhere.get::<Namespace>(&ObjectKey::cluster_scoped(&namespace)).await?;
            assert!(cluster_scoped.is_some(), "a kind without namespaces is as ever");
            calls.take();
        }
        Ok(())
    }

    async fn unknown_fields_are_refused_or_dropped_as_one_likes(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let client = client.namespace(&namespace);
        let odd = |name: &str| -> DynamicObject {
            let odd = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "colour": "blue"});
            serde_json::from_value(odd).expect("an object")
        };
        let strict = client.validation(Validation::Strict);
        let refused = strict.create(&odd("a")).await.expect_err("there is no such field");
        assert!(refused.to_string().contains("colour"), "{refused}");
        for lax in [client.clone(), client.validation(Validation::Warn), strict.validation(Validation::Ignore)] {
            let made = lax.dry_run().create(&odd("a")).await?;
            assert!(made.data.get("colour").is_none());
        }
        let made = client.create(&odd("a")).await?;
        assert!(strict.update(&DynamicObject { metadata: made.metadata.clone(), ..odd("a") }).await.is_err());
        assert_eq!(made.gvk().map(|gvk| gvk.kind).as_deref(), Some("ConfigMap"));
        Ok(())
    }

    async fn only_the_one_that_is_meant_is_deleted(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let key = ObjectKey::new(&namespace, "colors");
        let first = client.create(&map(&namespace, "colors", "blue")).await?;
        assert!(client.deleting(Deleting::only(&first)).delete::<ConfigMap>(&key).await?);
        let second = client.create(&map(&namespace, "colors", "red")).await?;
        let error = client.deleting(Deleting::only(&first)).delete::<ConfigMap>(&key).await.expect_err("another one");
        assert!(error.is_conflict(), "{error}");
        let unchanged = |map: &ConfigMap| {
            let resource_version = map.metadata.resource_version.clone();
            client.deleting(Deleting { resource_version, ..Deleting::default() })
        };
        assert!(unchanged(&first).delete::<ConfigMap>(&key).await.expect_err("it has changed").is_conflict());
        assert!(unchanged(&second).delete::<ConfigMap>(&key).await?);
        Ok(())
    }

    async fn whoever_has_the_name_of_what_was_never_read_is_not_deleted_for_it(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let (key, unread) = (ObjectKey::new(&namespace, "colors"), map(&namespace, "colors", "blue"));
        client.create(&unread).await?;
        let this_one = client.deleting(Deleting { propagation: Some(Propagation::Background), ..Deleting::only(&unread) });
        for refused in [
            this_one.delete::<ConfigMap>(&key).await.map(drop),
            this_one.delete_collection(&Query::<ConfigMap>::default().namespace(Some(&namespace))).await,
        ] {
            let error = refused.expect_err("which one?");
            assert!(matches!(error, Error::NoUid { .. }) && error.to_string().contains("as it was read"), "{error}");
        }
        assert!(client.get::<ConfigMap>(&key).await?.is_some());
        Ok(())
    }

    async fn fields_are_applied_by_their_owner(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let (client, wanted) = (client.namespace(&namespace), map("", "colors", "blue"));
        let error = client.apply(&wanted).await.expect_err("by whom?");
        assert!(matches!(error, Error::NoFieldOwner { .. }) && error.to_string().contains(".field_owner("), "{error}");
        let ours = client.field_owner("somebody").field_owner("ours"); // the nearer one counts
        assert!(matches!(ours.apply(&map("", "", "blue")).await, Err(Error::NoName { .. })));
        let dynamic: DynamicObject = serde_json::from_value(json!({"metadata": {"name": "colors"}}))?;
        assert!(matches!(ours.apply(&dynamic).await, Err(Error::NoKind(_))));
        if env.name() == "embedded" {
            return Ok(()); // it cannot apply yet
        }
        let applied = ours.apply(&wanted).await?;
        let managers = applied.metadata.managed_fields.iter().flatten().filter_map(|entry| entry.manager.as_deref());
        assert_eq!(managers.collect::<Vec<_>>(), ["ours"]);

        let theirs = client.field_owner("theirs");
        let conflict = theirs.apply(&map("", "colors", "red")).await.expect_err("it is ours");
        assert!(conflict.is_conflict() && conflict.to_string().contains("ours"), "{conflict}");
        assert_eq!(door(&theirs.force().apply(&map("", "colors", "red")).await?), Some("red"));
        let key = ObjectKey::new(&namespace, "colors");
        let patch = Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"roof": "grey"}}));
        let patched: ConfigMap = ours.patch(&key, &patch).await?;
        assert_eq!(patched.data.as_ref().and_then(|data| data.get("roof")).map(String::as_str), Some("grey"));
        Ok(())
    }
}
