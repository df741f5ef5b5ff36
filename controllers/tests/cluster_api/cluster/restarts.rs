//! Restarts: the end state is the same after which request the manager was dropped.
//!
//! The lifecycle first runs without a cut, which counts the requests. Then it runs again for each of
//! them: the server executes the request, its response is lost, and the manager is dropped and
//! started again.

use super::{
    fixture::{BARN, BARN_PLANE, Fixture, NAME, definitions},
    recording_proxy::Proxy,
};
use anyhow::{Context, ensure};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use std::future::pending;
use steersman::{
    prelude::*,
    testing::{Embedded, Env, TestServer, eventually, run_real},
};
use steersman_apiserver::{ApiServer, Options};
use steersman_controllers::cluster_api::{Cluster, Machine};
use tokio::select;

/// State after the creation, and the number of requests.
#[derive(Debug)]
struct End {
    state: Value,
    requests: usize,
}

/// Runs the lifecycle, and drops the manager after a number of requests.
async fn run_with_restart(env: &Env, answered: usize) -> anyhow::Result<End> {
    let fixture = Fixture::in_namespace(env).await?;
    let proxy = Proxy::cut_after(answered);
    let running = fixture.start(proxy.client(env.client()?))?;
    let task = running.task.abort_handle();
    let restarted = async {
        proxy.cut().await;
        task.abort();
        let running = fixture.start(env.client()?)?;
        let ended = pending::<anyhow::Result<Value>>().await;
        drop(running);
        ended
    };
    let state = select! {
        state = lifecycle(&fixture) => state,
        ended = restarted => ended,
    };
    let requests = proxy.len();
    task.abort();
    Ok(End {
        state: state.with_context(|| format!("cut after {answered} requests"))?,
        requests,
    })
}

/// Creates and deletes a Cluster. Returns the state in between.
pub(super) async fn lifecycle(fixture: &Fixture) -> anyhow::Result<Value> {
    let spec =
        json!({"infrastructureRef": BARN.reference(), "controlPlaneRef": BARN_PLANE.reference()});
    fixture.create_cluster(spec).await?;
    fixture.create(BARN, json!({"spec": {}})).await?;
    fixture
        .until_reason("InfrastructureReady", "NotReady")
        .await?;
    fixture.create(BARN_PLANE, json!({"spec": {}})).await?;
    let endpoint =
        json!({"spec": {"controlPlaneEndpoint": {"host": "one.example.com", "port": 6443}}});
    fixture.patch(BARN, endpoint).await?;
    let provisioned =
        json!({"initialization": {"provisioned": true}, "failureDomains": [{"name": "a"}]});
    fixture.set_status(BARN, provisioned).await?;
    let initialized = json!({"initialization": {"controlPlaneInitialized": true}});
    fixture.set_status(BARN_PLANE, initialized).await?;
    let cluster = fixture.until(is_complete).await?;
    let objects = [BARN, BARN_PLANE].map(async |kind| {
        eventually(async || Ok::<_, anyhow::Error>(fixture.object(kind).await?.filter(is_adopted)))
            .await
    });
    let [barn, plane] = objects;
    let state = json!({"cluster": state(&cluster), "objects": [metadata(&barn.await?), metadata(&plane.await?)]});

    let machine = json!({
        "metadata": {
            "name": "worker", "labels": {"cluster.x-k8s.io/cluster-name": NAME},
            "ownerReferences": [{
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": NAME,
                "uid": cluster.metadata.uid,
            }],
        },
        "spec": {
            "clusterName": NAME, "bootstrap": {"dataSecretName": "worker"},
            "infrastructureRef": BARN.reference(),
        },
    });
    fixture
        .client
        .create::<Machine>(&serde_json::from_value(machine)?)
        .await?;
    fixture.client.delete::<Cluster>(&fixture.key()).await?;
    fixture.until_gone().await?;
    for kind in [BARN, BARN_PLANE] {
        ensure!(fixture.object(kind).await?.is_none(), "{kind:?} is left");
    }
    let worker = ObjectKey::new(&fixture.namespace, "worker");
    ensure!(
        fixture.client.get::<Machine>(&worker).await?.is_none(),
        "the Machine is left"
    );
    Ok(state)
}

/// Returns whether the last reconcile of the Cluster has nothing left to write.
fn is_complete(cluster: &Cluster) -> bool {
    let generation = cluster.metadata.generation;
    cluster.status.as_ref().is_some_and(|status| {
        // `ControlPlaneInitialized` is not written any more once it is true.
        let mut updated = status
            .conditions
            .iter()
            .filter(|it| it.type_ != "ControlPlaneInitialized");
        status.is_infrastructure_provisioned()
            && status.is_control_plane_initialized()
            && status.observed_generation == generation
            && updated.all(|it| it.observed_generation == generation)
    })
}

fn is_adopted(object: &DynamicObject) -> bool {
    object.metadata.owner_references.is_some()
}

/// Returns the state of a Cluster without times.
fn state(cluster: &Cluster) -> Value {
    let mut state = json!({
        "spec": cluster.spec, "status": cluster.status, "finalizers": cluster.metadata.finalizers,
        "generation": cluster.metadata.generation,
    });
    for list in [
        "/status/conditions",
        "/status/deprecated/v1beta1/conditions",
    ] {
        let conditions = state.pointer_mut(list).and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten() {
            condition["lastTransitionTime"].take();
            if condition["type"] == "ControlPlaneInitialized" {
                // The generation at the time when it became true.
                condition["observedGeneration"].take();
            }
        }
    }
    state
}

fn metadata(object: &DynamicObject) -> Value {
    let owners = object.metadata.owner_references.iter().flatten();
    let owners: Vec<_> = owners
        .map(|owner| (&owner.api_version, &owner.name, owner.controller))
        .collect();
    json!({"labels": object.metadata.labels, "owners": owners})
}

#[tokio::test(start_paused = true)]
async fn the_end_state_does_not_depend_on_the_request_after_which_the_manager_is_dropped()
-> anyhow::Result<()> {
    let server = ApiServer::new(Options::default())?;
    Env::Embedded(Embedded::new(server.clone()))
        .install(definitions())
        .await?;
    let fork = || Env::Embedded(Embedded::new(server.fork()));
    let undisturbed = run_with_restart(&fork(), usize::MAX).await?;
    ensure!(undisturbed.requests > 20, "{}", undisturbed.requests);
    for answered in 0..undisturbed.requests {
        let end = run_with_restart(&fork(), answered).await?;
        assert_eq!(
            end.state, undisturbed.state,
            "cut after {answered} requests"
        );
    }
    Ok(())
}

async fn three_points(env: Env) -> anyhow::Result<()> {
    env.install(definitions()).await?;
    let undisturbed = run_with_restart(&env, usize::MAX).await?;
    for quarter in 1..=3 {
        let answered = undisturbed.requests * quarter / 4;
        let end = run_with_restart(&env, answered).await?;
        assert_eq!(
            end.state, undisturbed.state,
            "cut after {answered} requests"
        );
    }
    Ok(())
}

#[test]
fn the_end_state_on_the_real_server_is_the_same_after_three_restarts() {
    run_real(three_points);
}
