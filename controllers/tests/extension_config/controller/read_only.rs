//! Read-only mode: a writer discovers the handlers, and a reader registers them.

use super::{
    fixture::{Fixture, Running},
    proxy::Proxy,
};
use crate::support::{Answer, Extension, FakeExtension};
use serde_json::json;
use steersman::testing::{Env, TestServer};
use steersman_controllers::extension_config::{Options, WarmupPolicy};

async fn start_reader(fixture: &Fixture, env: &Env, proxy: &Proxy) -> anyhow::Result<Running> {
    let options = Options {
        read_only: true,
        warmup: WarmupPolicy::Lenient,
        ..Options::default()
    };
    let running = fixture.start_with(proxy.client(env.client()?), options)?;
    running.until_ready().await?;
    Ok(running)
}

steersman::env_test! {
    async fn a_reader_registers_discovered_handlers_and_writes_nothing(env: Env) -> anyhow::Result<()> {
        let (fixture, proxy) = (Fixture::new(&env).await?, Proxy::default());
        let extension = Extension::start().await?;
        fixture.write_secret("ca", &[("ca.crt", extension.endpoint().ca_pem.as_bytes())]).await?;
        let (writer, reader) = (fixture.start(&env).await?, start_reader(&fixture, &env, &proxy).await?);
        fixture.create_annotated("ca", &extension.endpoint()).await?;
        let handler = fixture.handler("create", "ca");
        reader.until_registered(&handler, true).await?;
        fixture.delete("ca").await?;
        reader.until_registered(&handler, false).await?;
        writer.stop().await?;
        reader.stop().await?;
        let calls = proxy.calls();
        assert!(calls.iter().all(|call| call.method == http::Method::GET), "{calls:?}");
        assert!(!calls.iter().any(|call| call.path.contains("secrets")), "{calls:?}");
        Ok(())
    }

    async fn a_reader_calls_no_extension_and_rejects_undiscovered_handlers(env: Env) -> anyhow::Result<()> {
        let (fixture, proxy) = (Fixture::new(&env).await?, Proxy::default());
        let extension = FakeExtension::start(Answer::handlers(&[("one", "BeforeClusterCreate")])).await?;
        let reader = start_reader(&fixture, &env, &proxy).await?;
        fixture.create("mine", &extension.endpoint()).await?;
        reader.until_more("error", 0).await?;
        assert_eq!(extension.requests(), 0);
        assert_eq!(fixture.get("mine").await?.status, None);
        let handler = fixture.handler("one", "mine");
        assert!(!reader.is_registered(&handler));

        // The reader reconciles again after its error, and after the writer has updated the status.
        let writer = fixture.start(&env).await?;
        reader.until_registered(&handler, true).await?;
        writer.stop().await?;
        // A newer generation has not been discovered.
        let errors = reader.reconciles("error");
        fixture.patch("mine", json!({"spec": {"settings": {"a": "b"}}})).await?;
        reader.until_more("error", errors).await?;
        let registered = reader.runtime.registry().get(&handler)?;
        assert!(registered.settings.is_empty(), "the older registration stays");
        assert_eq!(proxy.writes().len(), 0);
        reader.stop().await
    }

    async fn a_reader_changes_nothing_while_the_writer_reports_a_pause(env: Env) -> anyhow::Result<()> {
        let (fixture, extension) = (Fixture::new(&env).await?, Extension::start().await?);
        let writer = fixture.start(&env).await?;
        let reader = start_reader(&fixture, &env, &Proxy::default()).await?;
        fixture.create("mine", &extension.endpoint()).await?;
        let handler = fixture.handler("create", "mine");
        reader.until_registered(&handler, true).await?;
        let pause = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
        fixture.patch("mine", pause).await?;
        fixture.until("mine", |it| steersman_controllers::cluster_api::conditions::is_true(it, "Paused")).await?;
        reader.manager.wait_queues_empty().await;
        let (errors, successes) = (reader.reconciles("error"), reader.reconciles("success"));
        fixture.patch("mine", json!({"spec": {"settings": {"a": "b"}}})).await?;
        reader.until_more("success", successes).await?;
        assert_eq!(reader.reconciles("error"), errors);
        assert!(reader.runtime.registry().get(&handler)?.settings.is_empty());
        writer.stop().await?;
        reader.stop().await
    }
}
