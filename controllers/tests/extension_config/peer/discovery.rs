//! Discovery across implementations.

use super::{
    fixture::{Fixture, PAIRS},
    handler, success,
};
use serde_json::json;
use steersman_apiserver::Authority;

#[tokio::test(flavor = "multi_thread")]
async fn handlers_are_discovered_with_their_options_or_the_defaults() -> anyhow::Result<()> {
    let Some(mut both) = Fixture::new()? else {
        return Ok(());
    };
    let options = json!({"timeoutSeconds": 5, "failurePolicy": "Ignore"});
    let handlers = [
        handler("first", success(), options),
        handler("second", success(), json!({})),
        json!({"name": "third", "hook": "GeneratePatches", "response": success()}),
    ];
    let expected = |name: &str, hook: &str, seconds: i32, policy: &str| {
        json!({
            "name": format!("{name}.config"),
            "requestHook": {
                "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1",
                "hook": hook,
            },
            "timeoutSeconds": seconds,
            "failurePolicy": policy,
        })
    };
    let expected = vec![
        expected("first", "BeforeClusterCreate", 5, "Ignore"),
        expected("second", "BeforeClusterCreate", 10, "Fail"),
        expected("third", "GeneratePatches", 10, "Fail"),
    ];
    for (client, server) in PAIRS {
        let served = both.serve(server, &handlers).await?;
        let config = served.config("config", json!({}));
        let discovered = both.discover(client, &config).await?;
        assert_eq!(discovered, Ok(expected.clone()), "{client:?} {server:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_of_another_authority_is_not_discovered() -> anyhow::Result<()> {
    let Some(mut both) = Fixture::new()? else {
        return Ok(());
    };
    let other = Authority::generate()?.ca_pem();
    for (client, server) in PAIRS {
        let served = both.serve(server, &[]).await?;
        let config = served.config_with_ca("config", &other, json!({}));
        let error = both.discover(client, &config).await?.expect_err("rejected");
        assert_eq!(
            served.normalize(&error),
            "failed to discover extension \"config\": http call failed: Post \
             https://ADDRESS/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery?timeout=10s",
            "{client:?} {server:?}: {error}"
        );
        let trusted = served.config("config", json!({}));
        assert_eq!(both.discover(client, &trusted).await?, Ok(vec![]));
    }
    Ok(())
}
