//! Tests of an existing cluster.
//!
//! Another environment, used by its kubeconfig from another process.

use super::support::{exclusive_environment, helper, helper_output, is_helper};
use steersman::testing::{Env, Environment, Error, Options, TestServer, run_real};

#[tokio::test]
#[ignore = "a helper: started in a process of its own, whose variables name the cluster"]
async fn helper_uses_the_existing_cluster() {
    if !is_helper() {
        return;
    }
    let environment = Environment::start(Options::default()).await.unwrap();
    assert!(environment.is_existing() && environment.directory().is_none());
    assert!(matches!(
        environment.user("alice", &[]),
        Err(Error::Existing(_))
    ));
    let error = environment.restart_apiserver().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "an existing cluster cannot be restarted; unset USE_EXISTING_CLUSTER to start a server"
    );
    let namespace = Env::real()
        .await
        .unwrap()
        .namespace("existing")
        .await
        .unwrap();
    environment.stop().await.unwrap();
    environment
        .client()
        .unwrap()
        .apiserver_version()
        .await
        .expect("an existing cluster keeps running");
    println!("helper: {namespace}");
}

#[test]
#[ignore = "a helper: started in a process of its own, whose variables name the cluster"]
fn helper_runs_a_test_on_the_existing_cluster() {
    if is_helper() {
        run_real(async |env| println!("helper: {}", env.namespace("existing").await.unwrap()));
    }
}

#[tokio::test]
async fn a_test_on_an_existing_cluster_leaves_no_namespace_behind() {
    let Some(exclusive_environment) = exclusive_environment(Options {
        controller_manager: true,
        ..Options::default()
    })
    .await
    else {
        return;
    };
    let kubeconfig = exclusive_environment
        .environment
        .kubeconfig()
        .unwrap()
        .to_str()
        .unwrap();
    let variables = [("KUBECONFIG", kubeconfig), ("USE_EXISTING_CLUSTER", "true")];
    let output = helper_output(
        "existing::helper_runs_a_test_on_the_existing_cluster",
        &variables,
    );
    assert!(output.success, "{}", output.text);
    let namespace = output
        .text
        .lines()
        .find_map(|line| line.split_once("helper: "))
        .unwrap()
        .1
        .to_owned();
    let api: kube_client::Api<k8s_openapi::api::core::v1::Namespace> =
        kube_client::Api::all(exclusive_environment.environment.client().unwrap());
    // The deletion has begun. The cluster decides how long it takes.
    let left = api.get_opt(&namespace).await.unwrap();
    assert!(
        left.is_none_or(|left| left.metadata.deletion_timestamp.is_some()),
        "{namespace} is left"
    );
}

#[tokio::test]
async fn an_existing_cluster_is_used_and_not_changed() {
    let Some(exclusive_environment) = exclusive_environment(Options::default()).await else {
        return;
    };
    let kubeconfig = exclusive_environment
        .environment
        .kubeconfig()
        .unwrap()
        .to_str()
        .unwrap();
    let variables = [("KUBECONFIG", kubeconfig), ("USE_EXISTING_CLUSTER", "true")];
    let (mut child, namespace) = helper("existing::helper_uses_the_existing_cluster", &variables);
    assert!(child.wait().unwrap().success());
    let client = exclusive_environment.environment.client().unwrap();
    let api: kube_client::Api<k8s_openapi::api::core::v1::Namespace> =
        kube_client::Api::all(client);
    api.get(&namespace.unwrap()).await.unwrap();
}
