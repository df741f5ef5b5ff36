//! Tests of `steersman run --controllers cluster`.

use super::process::{Process, command, run_to_exit, text};
use anyhow::{Context, Result};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use std::path::PathBuf;
use steersman::{
    client::Patch,
    prelude::*,
    testing::{Env, TestServer, eventually},
};
use steersman_controllers::cluster_api::{Cluster, ClusterStatus, Machine, owners};
use tempfile::TempDir;

const GROUP: &str = "infrastructure.cluster.x-k8s.io";
const KIND: &str = "HutCluster";

/// Installs the CRDs that the program prints, and an infrastructure.
async fn install(env: &Env) -> Result<()> {
    let flags = ["crds", "--controllers", "cluster", "--with-dependencies"];
    let printed = run_to_exit(&flags).await?.stdout;
    env.install(serde_saphyr::from_multiple::<Value>(&printed)?)
        .await?;
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": anything, "status": anything}});
    let names = json!({
        "kind": KIND, "listKind": "HutClusterList", "plural": "hutclusters", "singular": "hutcluster",
    });
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("hutclusters.{GROUP}"), "labels": {"cluster.x-k8s.io/v1beta2": "v1"},
        },
        "spec": {
            "group": GROUP, "scope": "Namespaced", "names": names,
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    Ok(env.install([crd]).await?)
}

/// Returns the kubeconfig of a user.
///
/// On the real server, the user has only the roles that the program prints for the controller and
/// the namespace.
pub(crate) async fn kubeconfig(
    env: &Env,
    controller: &str,
    namespace: &str,
    directory: &TempDir,
) -> Result<PathBuf> {
    let Env::Real(real) = env else {
        return Ok(env.kubeconfig().await?);
    };
    let path = directory.path().join("kubeconfig");
    let user = real.environment().user(namespace, &[])?;
    user.write_kubeconfig(&path)?;
    let account = format!("{namespace}/steersman");
    let flags = ["--namespaces", namespace, "--service-account", &account];
    let flags = [&["rbac", "--controllers", controller][..], &flags].concat();
    let printed = run_to_exit(&flags).await?.stdout;
    let client = Client::new(env.client()?)?;
    for mut object in serde_saphyr::from_multiple::<Value>(&printed)? {
        // Other tests create cluster-scoped objects of the same name.
        for pointer in ["/metadata/name", "/roleRef/name"] {
            if let Some(name) = object.pointer_mut(pointer) {
                *name = format!("{namespace}-{}", name.as_str().context("a name")?).into();
            }
        }
        if object["subjects"].is_array() {
            object["subjects"] = json!([{
                "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": namespace,
            }]);
        }
        let object: DynamicObject = serde_json::from_value(object)?;
        client.create(&object).await?;
    }
    Ok(path)
}

steersman::env_test! {
    async fn run_reconciles_and_deletes_a_cluster_with_the_printed_roles(env: Env) -> Result<()> {
        install(&env).await?;
        let (namespace, directory) = (env.namespace("hut").await?, tempfile::tempdir()?);
        let path = kubeconfig(&env, "cluster", &namespace, &directory).await?;
        let flags = ["--kubeconfig", text(&path), "--controllers", "cluster", "--namespaces", &namespace];
        // The authorizer of the real server learns of roles by a watch.
        let doctor = eventually(async || {
            let doctor = run_to_exit(&[&["doctor"][..], &flags].concat()).await?;
            anyhow::Ok((doctor.code == Some(0)).then_some(doctor))
        })
        .await?;
        assert!(doctor.stdout.contains("ok       CRD: Cluster of cluster.x-k8s.io/v1beta2"), "{}", doctor.stdout);
        assert!(!doctor.stdout.contains("CAPTControlPlane"), "{}", doctor.stdout);

        let mut run = Process::start(command(&[&["run", "--admin", "127.0.0.1:0"][..], &flags].concat()))?;
        run.wait_for_log("starting workers").await?;
        let (client, key) = (Client::new(env.client()?)?.namespace(&namespace), ObjectKey::new(&namespace, "shop"));
        let reference = json!({"apiGroup": GROUP, "kind": KIND, "name": "shop"});
        let cluster = json!({"metadata": {"name": "shop"}, "spec": {"infrastructureRef": reference}});
        client.create::<Cluster>(&serde_json::from_value(cluster)?).await?;
        let hut = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": KIND, "metadata": {"name": "shop"},
            "spec": {"controlPlaneEndpoint": {"host": "one.example.com", "port": 6443}},
        });
        let hut = client.create::<DynamicObject>(&serde_json::from_value(hut)?).await?;
        let kind = GroupVersionKind::gvk(GROUP, "v1", KIND);
        let status = Patch::Merge(json!({"status": {"initialization": {"provisioned": true}}}));
        client.status().dynamic(&kind).patch(&ObjectKey::of(&hut), &status).await?;
        let cluster = eventually(async || {
            let cluster = client.get::<Cluster>(&key).await?.context("a Cluster")?;
            let is_provisioned = cluster.status.as_ref().is_some_and(ClusterStatus::is_infrastructure_provisioned);
            anyhow::Ok(is_provisioned.then_some(cluster))
        })
        .await?;

        let machine = json!({
            "metadata": {
                "name": "worker", "labels": {"cluster.x-k8s.io/cluster-name": "shop"},
                "ownerReferences": [owners::reference(&*cluster)],
            },
            "spec": {"clusterName": "shop"},
        });
        client.create::<Machine>(&serde_json::from_value(machine)?).await?;
        client.delete::<Cluster>(&key).await?;
        eventually(async || anyhow::Ok(client.get::<Cluster>(&key).await?.is_none().then_some(()))).await?;
        assert!(client.dynamic(&kind).get(&key).await?.is_none());
        let stopped = run.stop_with("TERM").await?;
        assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
        assert!(!stopped.stderr.contains("forbidden") && !stopped.stderr.contains("permission"), "{}", stopped.stderr);
        Ok(())
    }
}

#[tokio::test]
async fn cluster_without_its_crd_names_the_command_that_installs_it() -> Result<()> {
    let env = Env::embedded()?;
    let kubeconfig = env.kubeconfig().await?;
    let flags = [
        "--kubeconfig",
        text(&kubeconfig),
        "--controllers",
        "cluster",
    ];
    let run = run_to_exit(&[&["run"][..], &flags].concat()).await?;
    assert_eq!(run.code, Some(4), "{}", run.stderr);
    let install = "install it with `steersman crds --controllers cluster --with-dependencies | \
                   kubectl apply -f -`";
    let missing = "the cluster does not serve Cluster of cluster.x-k8s.io/v1beta2";
    let last = run.stderr.lines().last().unwrap_or_default();
    assert!(last.contains(missing) && last.ends_with(install), "{last}");

    let doctor = run_to_exit(&[&["doctor"][..], &flags].concat()).await?;
    assert_eq!(doctor.code, Some(4), "{}", doctor.stdout);
    for line in [
        "missing  CRD: Cluster of cluster.x-k8s.io/v1beta2 is not served; install it with",
        "note     CRD: MachinePool of cluster.x-k8s.io/v1beta2 is not served, cluster waits for it",
    ] {
        assert!(doctor.stdout.contains(line), "{line} in {}", doctor.stdout);
    }
    Ok(())
}
