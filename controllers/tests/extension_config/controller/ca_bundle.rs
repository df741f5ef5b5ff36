//! Injection of the CA bundle.

use super::{
    fixture::{Fixture, INJECT, discovered, handlers},
    proxy::Proxy,
};
use crate::support::Extension;
use serde_json::json;
use steersman::testing::Env;

steersman::env_test! {
    async fn the_ca_of_an_existing_secret_is_written_to_the_spec(env: Env) -> anyhow::Result<()> {
        let (fixture, proxy) = (Fixture::new(&env).await?, Proxy::default());
        let extension = Extension::start().await?;
        let endpoint = extension.endpoint();
        fixture.write_secret("ca", &[("ca.crt", endpoint.ca_pem.as_bytes()), ("tls.key", b"secret")]).await?;
        let running = fixture.start_behind(&env, &proxy).await?;
        fixture.create_annotated("ca", &endpoint).await?;
        let config = fixture.until_reason("ca", "Discovered").await?;
        let ca_bundle = config.spec.client_config.ca_bundle.as_ref().map(|it| it.0.as_slice());
        assert_eq!(ca_bundle, Some(endpoint.ca_pem.as_bytes()));
        assert_eq!(config.metadata.generation, Some(2));
        running.until_registered(&fixture.handler("create", "ca"), true).await?;
        let bodies: Vec<_> = proxy.writes().iter().map(|call| call.body.to_string()).collect();
        assert!(!bodies.iter().any(|body| body.contains("tls.key")), "{bodies:?}");
        running.stop().await
    }

    async fn a_missing_secret_is_reported_and_found_when_it_is_created(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let extension = Extension::start().await?;
        let running = fixture.start(&env).await?;
        fixture.create_annotated("ca", &extension.endpoint()).await?;
        let config = fixture.until_reason("ca", "CASecretNotFound").await?;
        let message = format!("failed to reconcile caBundle: secret \"{}/ca\" not found", fixture.namespace);
        assert_eq!(discovered(&config), ("False".into(), message));
        running.until_more("error", 0).await?;
        assert!(!running.is_registered(&fixture.handler("create", "ca")));

        fixture.write_secret("ca", &[("ca.crt", extension.endpoint().ca_pem.as_bytes())]).await?;
        let config = fixture.until_reason("ca", "Discovered").await?;
        assert_eq!(discovered(&config), ("True".into(), String::new()));
        running.stop().await
    }

    async fn a_secret_without_the_key_is_reported(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let extension = Extension::start().await?;
        let running = fixture.start(&env).await?;
        fixture.write_secret("ca", &[("tls.crt", b"other")]).await?;
        fixture.create_annotated("ca", &extension.endpoint()).await?;
        let config = fixture.until_reason("ca", "CASecretInvalid").await?;
        let message = format!(
            "failed to reconcile caBundle: secret \"{}/ca\" does not contain a \"ca.crt\" entry",
            fixture.namespace
        );
        assert_eq!(discovered(&config), ("False".into(), message));
        running.until_more("error", 0).await?;
        running.stop().await
    }

    async fn a_malformed_annotation_is_reported(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let extension = Extension::start().await?;
        let running = fixture.start(&env).await?;
        for (name, text) in [("one", "ca"), ("two", "/ca"), ("three", "a/b/c"), ("four", "Bad Name/ca")] {
            let annotations = json!({INJECT: text});
            fixture.create_with(name, json!({"url": extension.endpoint().url}), annotations).await?;
            let config = fixture.until(name, |config| config.status.as_ref().is_some_and(|it| it.conditions.len() == 2)).await?;
            if name != "four" {
                let message = format!("failed to reconcile caBundle: secret name {text:?} must be in the form <namespace>/<name>");
                assert_eq!(discovered(&config), ("False".into(), message));
            }
        }
        running.stop().await
    }

    async fn a_ca_that_does_not_fit_is_reported_and_not_written(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let extension = Extension::start().await?;
        let running = fixture.start(&env).await?;
        fixture.write_secret("ca", &[("ca.crt", &vec![b'x'; 38_401])]).await?;
        fixture.create_annotated("ca", &extension.endpoint()).await?;
        let config = fixture.until_reason("ca", "CASecretInvalid").await?;
        let (_, message) = discovered(&config);
        assert!(message.ends_with("of 38401 bytes; use at most 38400 bytes"), "{message}");
        assert_eq!(config.spec.client_config.ca_bundle, None);
        running.stop().await
    }

    async fn a_rotated_ca_is_injected_without_a_retry(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let mut extension = Extension::start().await?;
        fixture.write_secret("ca", &[("ca.crt", extension.endpoint().ca_pem.as_bytes())]).await?;
        let running = fixture.start(&env).await?;
        fixture.create_annotated("ca", &extension.endpoint()).await?;
        fixture.until_reason("ca", "Discovered").await?;
        running.until_settled(&fixture, "ca", "create").await?;

        extension.restart().await?;
        let endpoint = extension.endpoint();
        fixture.write_secret("ca", &[("ca.crt", endpoint.ca_pem.as_bytes())]).await?;
        let is_rotated = |config: &steersman_controllers::extension_config::ExtensionConfig| {
            let ca_bundle = config.spec.client_config.ca_bundle.as_ref();
            ca_bundle.is_some_and(|it| it.0 == endpoint.ca_pem.as_bytes())
        };
        fixture.until("ca", is_rotated).await?;
        let config = fixture.until_reason("ca", "Discovered").await?;
        assert_eq!(discovered(&config).0, "True");
        assert_eq!(handlers(&config), [fixture.handler("create", "ca")]);
        assert_eq!(running.reconciles("error"), 0);
        running.stop().await
    }

    async fn a_secret_affects_no_object_that_is_not_watched(env: Env) -> anyhow::Result<()> {
        // The objects of the second fixture have another label.
        let [fixture, others] = [Fixture::new(&env).await?, Fixture::new(&env).await?];
        let running = fixture.start(&env).await?;
        let endpoint = Extension::start().await?.endpoint();
        let annotations = json!({INJECT: format!("{}/mine", fixture.namespace)});
        others.create_with("other", json!({"url": endpoint.url}), annotations).await?;
        fixture.create_annotated("mine", &endpoint).await?;
        fixture.until_reason("mine", "CASecretNotFound").await?;
        fixture.write_secret("mine", &[("tls.crt", b"other")]).await?;
        fixture.until_reason("mine", "CASecretInvalid").await?;
        running.stop().await?;
        assert_eq!(others.get("other").await?.status, None);
        Ok(())
    }

    async fn handlers_stay_registered_after_a_failed_injection(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let extension = Extension::start().await?;
        let running = fixture.start(&env).await?;
        fixture.create("ca", &extension.endpoint()).await?;
        let handler = fixture.handler("create", "ca");
        running.until_registered(&handler, true).await?;
        let annotations = json!({INJECT: format!("{}/missing", fixture.namespace)});
        fixture.patch("ca", json!({"metadata": {"annotations": annotations}})).await?;
        let config = fixture.until_reason("ca", "CASecretNotFound").await?;
        assert_eq!(handlers(&config), [handler.as_str()]);
        assert!(running.is_registered(&handler));
        running.stop().await
    }
}
