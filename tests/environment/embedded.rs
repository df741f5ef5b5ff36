//! Tests of the embedded server, and of tests that return an error.

use super::support::client_of;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{
    Api,
    api::{ListParams, WatchEvent, WatchParams},
};
use std::panic::catch_unwind;
use steersman::testing::{Env, TestServer, run_embedded};

#[tokio::test]
async fn a_restart_of_the_embedded_server_closes_watches_and_compacts_its_history() {
    let env = Env::embedded().unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(env.client().unwrap());
    let revision = api
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let mut watch = api
        .watch(&WatchParams::default(), &revision)
        .await
        .unwrap()
        .boxed();
    env.namespace("later").await.unwrap();
    env.restart().await.unwrap();
    let error = watch.next().await.unwrap().unwrap_err();
    assert!(format!("{error:?}").contains("Restarted"), "{error:?}");
    let mut watch = api
        .watch(&WatchParams::default(), "1")
        .await
        .unwrap()
        .boxed();
    let event = watch.next().await.unwrap().unwrap();
    assert!(
        matches!(&event, WatchEvent::Error(status) if status.code == 410),
        "{event:?}"
    );
}

#[tokio::test]
async fn a_restart_keeps_the_socket_of_the_embedded_server() {
    let env = Env::embedded().unwrap();
    let before = std::fs::read_to_string(env.kubeconfig().await.unwrap()).unwrap();
    env.restart().await.unwrap();
    assert_eq!(
        std::fs::read_to_string(env.kubeconfig().await.unwrap()).unwrap(),
        before
    );
    let client = client_of(&before).await;
    client.apiserver_version().await.unwrap();
}

#[test]
fn an_error_that_a_test_returns_fails_it() {
    let failure =
        catch_unwind(|| run_embedded(async |_| anyhow::bail!("the color is green"))).unwrap_err();
    let message = failure.downcast::<String>().unwrap();
    assert!(
        message.contains("the test failed: the color is green"),
        "{message}"
    );
}
