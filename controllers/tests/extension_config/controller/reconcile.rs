//! Reconciliation without failures.

use super::fixture::{Fixture, INJECT, discovered, handlers};
use super::proxy::Proxy;
use crate::support::{Answer, Extension, FakeExtension};
use serde_json::json;
use std::time::Duration;
use steersman::{
    testing::{Env, TestServer, eventually},
    workqueue::EntryState,
};
use steersman_controllers::{
    cluster_api::conditions,
    extension_config::{FailurePolicy, Options},
};

steersman::env_test! {
    async fn a_reconcile_before_the_warmup_is_requeued_without_reads_and_writes(env: Env) -> anyhow::Result<()> {
        let (fixture, proxy) = (Fixture::new(&env).await?, Proxy::default());
        let answer = Answer::handlers(&[]).hanging();
        let slow = FakeExtension::start(answer).await?;
        fixture.create("slow", &slow.endpoint()).await?;
        let running = fixture.start_with(proxy.client(env.client()?), Options::default())?;
        running.until_more("requeue_after", 0).await?;
        assert!(!running.runtime.registry().is_ready());
        assert!(proxy.writes().is_empty(), "{:?}", proxy.writes());
        let object = format!("/{}", fixture.name("slow"));
        let reads = proxy.calls().iter().filter(|call| call.path.ends_with(&object)).count();
        assert_eq!(reads, 0);
        assert_eq!(fixture.get("slow").await?.status, None);
        let ready_in = eventually(async || {
            let queue = running.manager.queue("extension-config", 10, None).expect("a queue");
            let entry = queue.entries.first().map(|entry| entry.state);
            let ready_in = entry.and_then(|state| match state {
                EntryState::Delayed { ready_in } => Some(ready_in),
                _ => None,
            });
            anyhow::Ok(ready_in)
        })
        .await?;
        assert!(ready_in > Duration::from_secs(5) && ready_in <= Duration::from_secs(10), "{ready_in:?}");
        running.stop().await
    }

    async fn a_new_object_is_validated_discovered_and_registered(env: Env) -> anyhow::Result<()> {
        let (fixture, extension) = (Fixture::new(&env).await?, Extension::start().await?);
        let running = fixture.start(&env).await?;
        fixture.create("mine", &extension.endpoint()).await?;
        let config = fixture.until_reason("mine", "Discovered").await?;
        assert_eq!(discovered(&config), ("True".into(), String::new()));
        let paused = conditions::find(&config, "Paused").expect("the condition Paused");
        assert_eq!((&*paused.status, &*paused.reason), ("False", "NotPaused"));
        let handler = fixture.handler("create", "mine");
        let status = config.status.as_ref().expect("a status");
        let found = &status.handlers[0];
        assert_eq!((&found.name, &*found.request_hook.hook), (&handler, "BeforeClusterCreate"));
        assert_eq!(found.request_hook.api_version, "hooks.runtime.cluster.x-k8s.io/v1alpha1");
        assert_eq!((found.timeout_seconds, found.failure_policy), (Some(10), Some(FailurePolicy::Fail)));
        running.until_registered(&handler, true).await?;
        let registered = running.runtime.registry().get(&handler)?;
        assert_eq!(registered.extension_config_name, fixture.name("mine"));
        running.stop().await
    }

    async fn the_registration_follows_the_status_of_the_object(env: Env) -> anyhow::Result<()> {
        let (fixture, extension) = (Fixture::new(&env).await?, Extension::start().await?);
        let running = fixture.start(&env).await?;
        fixture.create("mine", &extension.endpoint()).await?;
        let config = fixture.until_reason("mine", "Discovered").await?;
        let handler = fixture.handler("create", "mine");
        eventually(async || {
            let registered = running.runtime.registry().get(&handler).ok();
            let version = registered.map(|it| it.extension_config_resource_version.clone());
            anyhow::Ok((version == config.metadata.resource_version).then_some(()))
        })
        .await?;
        running.stop().await
    }

    async fn handlers_that_an_extension_no_longer_has_are_removed(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let both = [("one", "BeforeClusterCreate"), ("two", "BeforeClusterDelete")];
        let extension = FakeExtension::start(Answer::handlers(&both)).await?;
        let running = fixture.start(&env).await?;
        fixture.create("mine", &extension.endpoint()).await?;
        let [one, two] = ["one", "two"].map(|it| fixture.handler(it, "mine"));
        running.until_registered(&two, true).await?;
        assert_eq!(handlers(&fixture.get("mine").await?), [one.as_str(), two.as_str()]);
        extension.set_answer(Answer::handlers(&both[..1]));
        fixture.touch("mine", "1").await?;
        running.until_registered(&two, false).await?;
        assert!(running.is_registered(&one));
        assert_eq!(handlers(&fixture.get("mine").await?), [one.as_str()]);
        extension.set_answer(Answer::handlers(&[]));
        fixture.touch("mine", "2").await?;
        running.until_registered(&one, false).await?;
        let config = fixture.until_reason("mine", "Discovered").await?;
        assert_eq!(handlers(&config), [""; 0]);
        running.stop().await
    }

    async fn a_paused_object_is_not_discovered_and_keeps_its_handlers(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let extension = FakeExtension::start(Answer::handlers(&[("one", "BeforeClusterCreate")])).await?;
        let running = fixture.start(&env).await?;
        fixture.create("mine", &extension.endpoint()).await?;
        let handler = fixture.handler("one", "mine");
        running.until_registered(&handler, true).await?;
        let pause = |value: Option<&str>| json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
        fixture.patch("mine", pause(Some(""))).await?;
        let is_paused = |paused: &str| {
            let paused = paused.to_owned();
            move |config: &_| conditions::find(config, "Paused").is_some_and(|it| it.status == paused)
        };
        fixture.until("mine", is_paused("True")).await?;
        running.manager.wait_queues_empty().await;
        let before = extension.requests();
        extension.set_answer(Answer::handlers(&[("two", "BeforeClusterCreate")]));
        let successes = running.reconciles("success");
        fixture.touch("mine", "1").await?;
        running.until_more("success", successes).await?;
        running.manager.wait_queues_empty().await;
        assert_eq!(extension.requests(), before);
        assert!(running.is_registered(&handler));

        fixture.patch("mine", pause(None)).await?;
        fixture.until("mine", is_paused("False")).await?;
        running.until_registered(&fixture.handler("two", "mine"), true).await?;
        assert!(!running.is_registered(&handler));
        running.stop().await
    }

    async fn an_annotated_object_is_discovered_after_its_secret_is_created(env: Env) -> anyhow::Result<()> {
        let (fixture, extension) = (Fixture::new(&env).await?, Extension::start().await?);
        let running = fixture.start(&env).await?;
        let endpoint = extension.endpoint();
        let annotation = json!({INJECT: format!("{}/late", fixture.namespace)});
        fixture.create_with("late", json!({"url": endpoint.url}), annotation).await?;
        fixture.until_reason("late", "CASecretNotFound").await?;
        fixture.write_secret("late", &[("ca.crt", endpoint.ca_pem.as_bytes())]).await?;
        fixture.until_reason("late", "Discovered").await?;
        running.until_registered(&fixture.handler("create", "late"), true).await?;
        running.stop().await
    }
}
