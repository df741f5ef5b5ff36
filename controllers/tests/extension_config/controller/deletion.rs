//! Deletion of `ExtensionConfig`s.

use super::fixture::Fixture;
use crate::support::Extension;
use serde_json::json;
use steersman::testing::Env;

steersman::env_test! {
    async fn a_deleted_object_is_unregistered(env: Env) -> anyhow::Result<()> {
        let (fixture, extension) = (Fixture::new(&env).await?, Extension::start().await?);
        let running = fixture.start(&env).await?;
        for name in ["mine", "other"] {
            fixture.create(name, &extension.endpoint()).await?;
            running.until_registered(&fixture.handler("create", name), true).await?;
        }
        fixture.delete("mine").await?;
        running.until_registered(&fixture.handler("create", "mine"), false).await?;
        assert!(running.is_registered(&fixture.handler("create", "other")));
        running.stop().await
    }

    async fn an_object_that_is_being_deleted_is_unregistered_also_while_it_is_paused(env: Env) -> anyhow::Result<()> {
        let (fixture, extension) = (Fixture::new(&env).await?, Extension::start().await?);
        let running = fixture.start(&env).await?;
        fixture.create("mine", &extension.endpoint()).await?;
        let handler = fixture.handler("create", "mine");
        running.until_registered(&handler, true).await?;
        let metadata = json!({
            "finalizers": ["example.com/keep"], "annotations": {"cluster.x-k8s.io/paused": "true"},
        });
        fixture.patch("mine", json!({"metadata": metadata})).await?;
        fixture.until("mine", |config| steersman_controllers::cluster_api::conditions::is_true(config, "Paused")).await?;
        assert!(running.is_registered(&handler));
        fixture.delete("mine").await?;
        running.until_registered(&handler, false).await?;
        assert!(fixture.get("mine").await?.metadata.deletion_timestamp.is_some());
        fixture.patch("mine", json!({"metadata": {"finalizers": null}})).await?;
        running.stop().await
    }
}
