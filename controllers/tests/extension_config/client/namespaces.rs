//! Namespace selectors, with real Namespaces.

use super::{
    fixture::{config, with_handler},
    raw_server::{RawServer, Reply},
};
use anyhow::Result;
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::LabelSelector};
use serde_json::json;
use steersman::{
    client::{Client, Patch},
    object::ObjectKey,
    testing::{Env, TestServer},
};
use steersman_controllers::extension_config::{
    ExtensionConfig,
    catalog::{
        Catalog,
        hooks::{BeforeClusterCreate, BeforeClusterCreateRequest},
    },
    client::{CallError, CallFailure, CallOptions, NamespaceFailure, RuntimeClient},
};

/// Returns an `ExtensionConfig` with a handler for namespaces with the label `tier`.
fn selecting(name: &str, server: &RawServer, tier: Option<&str>) -> ExtensionConfig {
    let mut config = with_handler(config(name, server), "a", json!({}));
    config.spec.namespace_selector = tier.map(|tier| LabelSelector {
        match_labels: Some([("tier".into(), tier.into())].into()),
        match_expressions: None,
    });
    config
}

async fn call(runtime: &RuntimeClient, object: &ObjectKey, name: &str) -> Result<(), CallFailure> {
    let (request, options) = (
        BeforeClusterCreateRequest::default(),
        CallOptions::default(),
    );
    let called = runtime
        .call_extension::<BeforeClusterCreate>(object, name, &request, options)
        .await;
    match called {
        Ok(_) => Ok(()),
        Err(CallError::Handler { reason, .. }) => Err(reason),
        Err(other) => panic!("{other}"),
    }
}

steersman::env_test! {
    async fn a_handler_is_called_for_the_namespaces_that_it_selects(env: Env) -> Result<()> {
        let server = RawServer::start(Reply::success()).await?;
        let client = Client::new(env.client()?)?;
        let namespace = env.namespace("shop").await?;
        let labels = json!({"metadata": {"labels": {"tier": "gold"}}});
        let key = ObjectKey::cluster_scoped(&namespace);
        client.patch::<Namespace>(&key, &Patch::Merge(labels)).await?;

        let runtime = RuntimeClient::builder(client, Catalog::cluster_api()).build()?;
        runtime.warm_up(&[
            selecting("gold", &server, Some("gold")),
            selecting("silver", &server, Some("silver")),
            selecting("nothing", &server, None),
            with_handler(config("everything", &server), "a", json!({})),
        ])?;
        let cluster = ObjectKey::new(&namespace, "web");
        call(&runtime, &cluster, "a.gold").await?;
        call(&runtime, &cluster, "a.everything").await?;
        for name in ["a.silver", "a.nothing"] {
            let error = call(&runtime, &cluster, name).await.expect_err(name);
            assert_eq!(
                error.to_string(),
                format!("namespaceSelector did not match object {namespace}/web")
            );
        }
        let names = runtime.get_all_extensions::<BeforeClusterCreate>(&cluster).await?;
        assert_eq!(names, ["a.everything", "a.gold"]);
        Ok(())
    }

    async fn an_empty_selector_reads_no_namespace(env: Env) -> Result<()> {
        let server = RawServer::start(Reply::success()).await?;
        let client = Client::new(env.client()?)?;
        let runtime = RuntimeClient::builder(client, Catalog::cluster_api()).build()?;
        runtime.warm_up(&[
            selecting("gold", &server, Some("gold")),
            with_handler(config("everything", &server), "a", json!({})),
        ])?;
        let missing = ObjectKey::new("missing", "web");
        call(&runtime, &missing, "a.everything").await?;
        let error = call(&runtime, &missing, "a.gold").await.expect_err("no Namespace");
        assert_eq!(
            error.to_string(),
            "failed to match namespace: failed to get namespace missing: the Namespace does not \
             exist"
        );
        let global = ObjectKey::cluster_scoped("web");
        call(&runtime, &global, "a.everything").await?;
        let error = call(&runtime, &global, "a.gold").await.expect_err("no namespace");
        assert!(matches!(
            error,
            CallFailure::Namespace(error) if matches!(error.reason, NamespaceFailure::ClusterScoped)
        ));

        let error = runtime.get_all_extensions::<BeforeClusterCreate>(&missing).await;
        let text = error.expect_err("no Namespace").to_string();
        let expected = "failed to get extension handler \"a.gold\": failed to match namespace: \
                        failed to get namespace missing: ";
        assert!(text.contains(expected), "{text}");
        Ok(())
    }
}
