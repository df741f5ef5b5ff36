//! Who says no in the server's place.

use super::support::{Running, live, map, of};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::{Status, response::reason};
use std::sync::{Arc, Mutex};
use steersman::{
    cache::Query,
    client::{Call, Client, Interceptor, Patch, Result, Verb},
    object::ObjectKey,
    testing::Env,
};

/// Notes every call, and fails the second write.
#[derive(Clone, Default)]
struct SecondWriteFails(Arc<Mutex<Vec<String>>>);

impl Interceptor for SecondWriteFails {
    async fn before(&self, call: &Call<'_>) -> Result<()> {
        let mut calls = self.0.lock().expect("nobody panics");
        calls.push(call.to_string());
        let writes = calls.iter().filter(|call| !call.starts_with("Get") && !call.starts_with("List")).count();
        if writes == 2 && !matches!(call.verb, Verb::Get | Verb::List) {
            return Err(Status::failure("not now", reason::CONFLICT).with_code(409).into());
        }
        Ok(())
    }
}

/// Writes through another client before each update.
struct SomebodyElse(Client);

impl Interceptor for SomebodyElse {
    async fn before(&self, call: &Call<'_>) -> Result<()> {
        if call.verb == Verb::Update {
            let label = Patch::Merge(serde_json::json!({"metadata": {"labels": {"by": "somebody"}}}));
            self.0.patch::<ConfigMap>(call.key, &label).await?;
        }
        Ok(())
    }
}

steersman::env_test! {
    async fn an_interceptor_sees_every_call_and_may_answer_it(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let cache = Running::new(&env, of(&[&namespace]))?;
        let _maps = cache.cache.informer::<ConfigMap>()?;
        cache.cache.await_synced().await?;
        let seen = SecondWriteFails::default();
        let client = client.intercepted(seen.clone()).with_cache(cache.cache.clone()).namespace(&namespace);
        let key = ObjectKey::cluster_scoped("colors");
        let made = client.create(&map("", "colors", "blue")).await?;
        let error = client.dry_run().update(&made).await.expect_err("it is the second");
        assert!(error.is_conflict() && error.to_string() == "not now", "{error}");
        client.status().patch::<ConfigMap>(&key, &Patch::Merge(serde_json::json!({}))).await.ok();
        client.get::<ConfigMap>(&key).await?;
        client.live().list(&Query::<ConfigMap>::default()).await?;
        assert!(client.delete::<ConfigMap>(&key).await?);
        client.delete_collection(&Query::<ConfigMap>::default()).await?;
        let expected = ["Create {}/colors", "Update {}/colors", "Patch {}/colors status", "Get {}/colors", "List {}/",
            "Delete {}/colors", "DeleteCollection {}/"].map(|call| call.replacen(' ', " ConfigMap ", 1).replace("{}", &namespace));
        assert_eq!(*seen.0.lock().expect("nobody panics"), expected);
        cache.stop().await
    }

    async fn an_interceptor_may_do_something_first(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let made = client.create(&map(&namespace, "colors", "blue")).await?;
        let error = client.intercepted(SomebodyElse(client.clone())).update(&made).await.expect_err("it is late");
        assert!(error.is_conflict(), "{error}");
        Ok(())
    }
}
