//! Tests of missing permissions.
//!
//! Reads fail immediately, only for this user, until access is granted.

use super::support::{cache, create_map, options, running, until};
use futures::FutureExt;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Secret},
    rbac::v1::{Role, RoleBinding},
};
use kube_client::{Api, Client, api::PostParams};
use serde_json::json;
use std::time::Duration;
use steersman::{
    cache::{Cache, CacheError, CacheOptions, InformerEvent, InformerState, Query, Select},
    client,
    object::ObjectKey,
    testing::{Env, TestServer},
};
use steersman_apiserver::{Fault, RuleHandle};
use tokio::time::sleep;

const USER: &str = "restricted";

/// Grants the user list and watch of `resources` in a namespace.
async fn allow(admin: &Client, namespace: &str, resources: &str) {
    let role = json!({
        "metadata": {"name": resources}, "rules": [{"apiGroups": [""], "resources": [resources], "verbs": ["list", "watch"]}],
    });
    let binding = json!({
        "metadata": {"name": resources}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": resources},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    });
    let role: Role = serde_json::from_value(role).expect("a role");
    let binding: RoleBinding = serde_json::from_value(binding).expect("a binding");
    let options = PostParams::default();
    Api::namespaced(admin.clone(), namespace)
        .create(&options, &role)
        .await
        .expect("the object is created");
    Api::namespaced(admin.clone(), namespace)
        .create(&options, &binding)
        .await
        .expect("the object is created");
}

/// Adds a fault that returns 403.
///
/// The embedded server has no authorization of its own.
fn forbid(env: &Env, resources: &str) -> Option<RuleHandle> {
    let Env::Embedded(embedded) = env else {
        return None;
    };
    Some(
        embedded
            .server()
            .faults()
            .add(Fault::on(&format!("watch {resources}")).status(403)),
    )
}

fn is_forbidden(words: &str, resources: &str, env: &Env) -> bool {
    match env {
        Env::Real(_) => {
            words.contains(&format!("{resources} is forbidden: User \"{USER}\" cannot"))
        }
        _ => words.contains("forbidden"),
    }
}

steersman::env_test! {
    async fn reads_of_a_forbidden_kind_fail_at_once_until_access_is_granted(env: Env) -> anyhow::Result<()> {
        let (admin, namespace) = (env.client()?, env.namespace("rights").await?);
        create_map(&admin, &namespace, "a", "blue").await;
        let rule = forbid(&env, "secrets");
        allow(&admin, &namespace, "configmaps").await;
        let cache = running(env.client_as(USER, &[])?, &[&namespace]);
        let maps = cache.informer::<ConfigMap>()?;
        let secrets = cache.informer::<Secret>()?;
        let mut events = secrets.events();

        maps.await_synced().await?;
        assert_eq!(maps.list(&Query::default().labels("app")?)?.len(), 1, "kinds sync independently");
        until(|| matches!(secrets.state(), InformerState::Degraded { .. })).await;
        let InformerState::Degraded { since, error } = secrets.state() else { panic!("{:?}", secrets.state()) };
        assert!(is_forbidden(&error, "secrets", &env), "{error}");
        assert!(since <= std::time::SystemTime::now());
        let read = secrets.get(&ObjectKey::new(&namespace, "a")).expect_err("nothing is known").to_string();
        assert!(read.starts_with("cannot read Secret while its informer is not synced: ") && is_forbidden(&read, "secrets", &env), "{read}");
        let client = client::Client::new(env.client_as(USER, &[])?)?.with_cache(Cache::clone(&cache));
        for read in [
            client.get::<Secret>(&ObjectKey::new(&namespace, "a")).await.map(drop),
            client.list(&Query::<Secret>::default().namespace(Some(&namespace))).await.map(drop),
        ] {
            let read = read.expect_err("nothing is known").to_string();
            assert!(is_forbidden(&read, "secrets", &env), "{read}");
        }
        let timeout_error = cache.await_synced_within(Duration::from_millis(100)).await.expect_err("forbidden");
        assert!(matches!(&timeout_error, CacheError::SyncTimeout { waiting, .. } if waiting.len() == 1), "{timeout_error}");
        assert!(timeout_error.to_string().contains("Secret (") && is_forbidden(&timeout_error.to_string(), "secrets", &env), "{timeout_error}");

        allow(&admin, &namespace, "secrets").await;
        if let Some(rule) = rule {
            rule.remove();
        }
        secrets.await_synced().await?;
        assert!(secrets.list(&Query::default())?.is_empty());
        assert!(matches!(events.next().await, Some(InformerEvent::Synced)), "handlers receive Synced");
        assert_eq!(secrets.state(), InformerState::Synced);
        cache.await_synced_within(Duration::from_mins(1)).await?;
        cache.stop().await;
        Ok(())
    }

    async fn a_lazy_read_of_a_forbidden_kind_fails_without_waiting(env: Env) -> anyhow::Result<()> {
        let (admin, namespace) = (env.client()?, env.namespace("lazy").await?);
        create_map(&admin, &namespace, "a", "blue").await;
        let rule = forbid(&env, "secrets");
        allow(&admin, &namespace, "configmaps").await;
        let cache = cache(&env.client_as(USER, &[])?, CacheOptions { allow_lazy: true, ..options(&[&namespace]) });
        let client = client::Client::new(env.client_as(USER, &[])?)?.with_cache(Cache::clone(&cache));
        let key = ObjectKey::new(&namespace, "a");
        let is_forbidden_read = |read: client::Error| {
            let is_not_synced = matches!(read, client::Error::Cache(CacheError::NotSynced { .. }));
            is_not_synced && is_forbidden(&read.to_string(), "secrets", &env)
        };
        assert!(is_forbidden_read(client.get::<Secret>(&key).await.expect_err("the read is forbidden")));
        // Later reads know the error and fail without waiting.
        for _ in 0..3 {
            let read = client.get::<Secret>(&key).now_or_never().expect("no wait");
            assert!(is_forbidden_read(read.expect_err("the read is forbidden")));
            let all = Query::<Secret>::default();
            let read = client.list(&all).now_or_never().expect("no wait");
            assert!(is_forbidden_read(read.expect_err("the read is forbidden")));
        }
        assert!(client.get::<ConfigMap>(&key).await?.is_some(), "kinds sync independently");

        allow(&admin, &namespace, "secrets").await;
        if let Some(rule) = rule {
            rule.remove();
        }
        while let Err(error) = client.get::<Secret>(&key).await {
            assert!(is_forbidden_read(error));
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(cache.informers().len(), 2, "each kind was declared once");
        cache.stop().await;
        Ok(())
    }

    async fn a_forbidden_namespace_is_named_in_the_error(env: Env) -> anyhow::Result<()> {
        let (admin, ours, theirs) = (env.client()?, env.namespace("ours").await?, env.namespace("theirs").await?);
        let rule = forbid(&env, &format!("configmaps {theirs}/*"));
        allow(&admin, &ours, "configmaps").await;
        let cache = running(env.client_as(USER, &[])?, &[&ours, &theirs]);
        let maps = cache.informer_of(Select::<ConfigMap>::new().labels("app"))?;
        until(|| matches!(maps.state(), InformerState::Degraded { .. })).await;
        let read = maps.list(&Query::default()).expect_err("one namespace is not synced").to_string();
        assert!(is_forbidden(&read, "configmaps", &env), "{read}");
        assert!(matches!(&env, Env::Embedded(_)) || read.contains(&theirs), "{read}");
        allow(&admin, &theirs, "configmaps").await;
        if let Some(rule) = rule {
            rule.remove();
        }
        maps.await_synced().await?;
        assert!(maps.list(&Query::default())?.is_empty());
        cache.stop().await;
        Ok(())
    }
}
