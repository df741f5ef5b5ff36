//! Tests of the selection of the Cluster to write to, and of conflicting claims.

use crate::{
    fixture::{Fixture, plane, reference, until},
    recording_proxy::{RecordingProxy, Treatment},
};
use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};
use steersman::{
    client::Patch,
    prelude::*,
    testing::{Env, TestServer},
};
use steersman_controllers::{
    cluster_api::Cluster,
    endpoint::{CAPTControlPlane, ENDPOINT_READY, FINALIZER, Options},
};
use tokio::time::{Instant, sleep, timeout};

const ORIGINAL: &str = "original.example.com";

/// Limit of each step on a paused clock.
const LIMIT: Duration = Duration::from_mins(1);

/// Creates a Cluster with the endpoint [`ORIGINAL`], which no control plane wrote.
async fn make_cluster(client: &Client, name: &str, reference: Value) -> Result<Cluster> {
    // `paused` remains if the endpoint is removed. The API server rejects an empty spec.
    let spec = json!({
        "controlPlaneRef": reference,
        "controlPlaneEndpoint": {"host": ORIGINAL, "port": 443},
        "paused": false,
    });
    Ok(client
        .create::<Cluster>(&serde_json::from_value(
            json!({"metadata": {"name": name}, "spec": spec}),
        )?)
        .await?)
}

/// Creates a control plane that keeps the endpoint `<name>.example.com`.
///
/// It needs no workspace.
async fn make_plane(client: &Client, name: &str, owner: Option<&Cluster>) -> Result<()> {
    make_plane_with(client, name, owner, &format!("{name}.example.com")).await
}

async fn make_plane_with(
    client: &Client,
    name: &str,
    owner: Option<&Cluster>,
    host: &str,
) -> Result<()> {
    let owner = owner.map(|cluster| {
        let (name, uid) = (&cluster.metadata.name, &cluster.metadata.uid);
        json!({"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "name": name, "uid": uid})
    });
    let endpoint = json!({"host": host, "port": 443});
    let labels = json!({"cluster.x-k8s.io/cluster-name": "shop"});
    let plane = json!({
        "metadata": {"name": name, "labels": labels, "ownerReferences": owner.into_iter().collect::<Vec<_>>()},
        "spec": {"version": "1.31", "workspaceTemplateRef": {"name": "eks"}, "controlPlaneEndpoint": endpoint},
    });
    client
        .create::<CAPTControlPlane>(&serde_json::from_value(plane)?)
        .await?;
    Ok(())
}

/// Creates a namespace with all CRDs installed, and a client.
///
/// The manager is not started yet.
async fn set_up(env: &Env) -> Result<(String, Client)> {
    Fixture::install(env).await?;
    let namespace = env.namespace("claims").await?;
    let client = Client::new(env.client()?)?.namespace(&namespace);
    Ok((namespace, client))
}

fn start(env: &Env, proxy: &RecordingProxy, namespace: &str) -> Result<Fixture> {
    let builder = Manager::builder(proxy.client(env.client()?));
    Fixture::with(env.client()?, builder, &Options::default(), namespace)
}

impl Fixture {
    async fn host(&self, cluster: &str) -> Result<Option<String>> {
        let cluster = self
            .client
            .get::<Cluster>(&self.key(cluster))
            .await?
            .context("missing Cluster")?;
        Ok(cluster
            .spec
            .control_plane_endpoint
            .as_ref()
            .and_then(|endpoint| endpoint.host.clone()))
    }

    /// Returns reason and message of a control plane's condition.
    async fn report(&self, plane: &str) -> Result<(String, String)> {
        let plane = self
            .client
            .get::<CAPTControlPlane>(&self.key(plane))
            .await?
            .context("missing control plane")?;
        let mut conditions = plane.status.iter().flat_map(|status| &status.conditions);
        let condition = conditions.find(|condition| condition.type_ == ENDPOINT_READY);
        Ok(condition
            .map(|it| (it.reason.clone(), it.message.clone()))
            .unwrap_or_default())
    }

    async fn until_report(&self, plane: &str, reason: &str) -> Result<String> {
        until(async || Ok(self.report(plane).await?.0 == reason)).await?;
        Ok(self.report(plane).await?.1)
    }

    async fn set_reference(&self, cluster: &str, reference: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"controlPlaneRef": reference}}));
        self.client
            .patch::<Cluster>(&self.key(cluster), &patch)
            .await?;
        Ok(())
    }

    async fn until_gone(&self, plane: &str) -> Result<()> {
        until(async || {
            Ok(self
                .client
                .get::<CAPTControlPlane>(&self.key(plane))
                .await?
                .is_none())
        })
        .await
    }
}

fn patches(proxy: &RecordingProxy) -> usize {
    proxy
        .requests()
        .iter()
        .filter(|request| request.method == Method::PATCH)
        .count()
}

/// Returns the patched paths without duplicates.
///
/// A status may be written several times.
fn patched(proxy: &RecordingProxy) -> Vec<String> {
    let requests = proxy.requests().into_iter();
    let patches = requests.filter(|request| request.method == Method::PATCH);
    let paths: BTreeSet<_> = patches.map(|request| request.path).collect();
    paths.into_iter().collect()
}

steersman::env_test! {
    async fn a_plane_writes_only_to_a_cluster_that_refers_to_it(env: Env) -> Result<()> {
        let (namespace, client) = set_up(&env).await?;
        // Name, label and owner reference match. The reference does not.
        let cluster = make_cluster(&client, "shop", reference("other")).await?;
        make_plane(&client, "shop", Some(&cluster)).await?;
        let proxy = RecordingProxy::recording();
        let fixture = start(&env, &proxy, &namespace)?;
        let message = fixture.until_report("shop", "WaitingForCluster").await?;
        assert!(message.contains("names another control plane"), "{message}");
        assert_eq!(proxy.count(&Method::PATCH, "clusters/shop"), 0);
        assert_eq!(fixture.host("shop").await?.as_deref(), Some(ORIGINAL));

        fixture.set_reference("shop", reference("shop")).await?;
        fixture.until_report("shop", "EndpointKept").await?;
        assert_eq!(fixture.host("shop").await?.as_deref(), Some("shop.example.com"));
        fixture.stop().await
    }

    async fn a_plane_without_a_cluster_writes_to_no_cluster(env: Env) -> Result<()> {
        let (namespace, client) = set_up(&env).await?;
        make_cluster(&client, "shop", Value::Null).await?;
        // Name and label match, and nothing else.
        make_plane(&client, "shop", None).await?;
        let proxy = RecordingProxy::recording();
        let fixture = start(&env, &proxy, &namespace)?;
        let message = fixture.until_report("shop", "WaitingForCluster").await?;
        assert!(message.contains("set spec.controlPlaneRef"), "{message}");
        assert_eq!(patched(&proxy), ["captcontrolplanes/shop/status"]);
        fixture.client.delete::<CAPTControlPlane>(&fixture.key("shop")).await?;
        fixture.until_gone("shop").await?;
        assert_eq!(fixture.host("shop").await?.as_deref(), Some(ORIGINAL));
        fixture.stop().await
    }

    async fn a_plane_without_a_cluster_gets_a_condition_and_nothing_else(env: Env) -> Result<()> {
        let (namespace, client) = set_up(&env).await?;
        let proxy = RecordingProxy::recording();
        let fixture = start(&env, &proxy, &namespace)?;
        fixture.make_apply().await?;
        fixture.make_workspace(Some(json!({"cluster_endpoint": "new.example.com"}))).await?;
        client.create(&plane()).await?;
        fixture.until_report("plane", "WaitingForCluster").await?;
        assert_eq!(patched(&proxy), ["captcontrolplanes/plane/status"]);
        let plane = fixture.plane().await?;
        assert_eq!((plane.metadata.finalizers, plane.spec.control_plane_endpoint), (None, None));

        make_cluster(&client, "plane", reference("plane")).await?;
        fixture.until_propagated("new.example.com:443").await?;
        assert_eq!(fixture.plane().await?.metadata.finalizers, Some(vec![FINALIZER.into()]));
        fixture.stop().await
    }

    async fn a_plane_does_not_clear_an_equal_endpoint_that_it_did_not_write(env: Env) -> Result<()> {
        let (namespace, client) = set_up(&env).await?;
        make_cluster(&client, "shop", reference("shop")).await?;
        make_plane_with(&client, "shop", None, ORIGINAL).await?;
        let proxy = RecordingProxy::recording();
        let fixture = start(&env, &proxy, &namespace)?;
        fixture.until_report("shop", "EndpointKept").await?;
        assert_eq!(patched(&proxy), ["captcontrolplanes/shop/status"]);
        fixture.client.delete::<CAPTControlPlane>(&fixture.key("shop")).await?;
        fixture.until_gone("shop").await?;
        assert_eq!(fixture.host("shop").await?.as_deref(), Some(ORIGINAL));
        fixture.stop().await
    }

    async fn an_owner_reference_is_enough_where_the_cluster_has_no_reference(env: Env) -> Result<()> {
        let (namespace, client) = set_up(&env).await?;
        let cluster = make_cluster(&client, "owner", Value::Null).await?;
        make_plane(&client, "shop", Some(&cluster)).await?;
        let fixture = start(&env, &RecordingProxy::recording(), &namespace)?;
        fixture.until_report("shop", "EndpointKept").await?;
        assert_eq!(fixture.host("owner").await?.as_deref(), Some("shop.example.com"));
        fixture.client.delete::<CAPTControlPlane>(&fixture.key("shop")).await?;
        fixture.until_gone("shop").await?;
        assert_eq!(fixture.host("owner").await?, None, "removed with the control plane that wrote it");
        fixture.stop().await
    }

    async fn two_planes_of_one_cluster_report_a_conflict_and_write_nothing(env: Env) -> Result<()> {
        let (namespace, client) = set_up(&env).await?;
        let cluster = make_cluster(&client, "shop", Value::Null).await?;
        for name in ["blue", "green"] {
            make_plane(&client, name, Some(&cluster)).await?;
        }
        let proxy = RecordingProxy::recording();
        let fixture = start(&env, &proxy, &namespace)?;
        for (name, rival) in [("blue", "green"), ("green", "blue")] {
            let message = fixture.until_report(name, "ClusterConflict").await?;
            assert!(message.contains(&format!("CAPTControlPlane {namespace}/{rival} also claims")), "{message}");
        }
        assert_eq!(patched(&proxy), ["captcontrolplanes/blue/status", "captcontrolplanes/green/status"]);

        // A reference decides the conflict.
        fixture.set_reference("shop", reference("green")).await?;
        fixture.until_report("green", "EndpointKept").await?;
        assert_eq!(fixture.host("shop").await?.as_deref(), Some("green.example.com"));
        fixture.until_report("blue", "WaitingForCluster").await?;
        fixture.client.delete::<CAPTControlPlane>(&fixture.key("blue")).await?;
        fixture.until_gone("blue").await?;
        assert_eq!(fixture.host("shop").await?.as_deref(), Some("green.example.com"));
        fixture.stop().await
    }

    async fn the_deletion_of_planes_in_conflict_keeps_the_original_endpoint(env: Env) -> Result<()> {
        let (namespace, client) = set_up(&env).await?;
        let cluster = make_cluster(&client, "shop", Value::Null).await?;
        // Equal to that of the Cluster, which neither of them wrote.
        for name in ["blue", "green"] {
            make_plane_with(&client, name, Some(&cluster), ORIGINAL).await?;
        }
        let fixture = start(&env, &RecordingProxy::recording(), &namespace)?;
        for name in ["blue", "green"] {
            fixture.until_report(name, "ClusterConflict").await?;
        }
        fixture.stop().await?;
        for name in ["blue", "green"] {
            client.delete::<CAPTControlPlane>(&ObjectKey::new(&namespace, name)).await?;
        }
        let proxy = RecordingProxy::recording();
        let fixture = start(&env, &proxy, &namespace)?;
        for name in ["blue", "green"] {
            fixture.until_gone(name).await?;
        }
        assert_eq!(proxy.count(&Method::PATCH, "clusters/shop"), 0);
        assert_eq!(fixture.host("shop").await?.as_deref(), Some(ORIGINAL));
        fixture.stop().await
    }

    async fn a_deleted_plane_removes_its_endpoint_while_the_cache_shows_a_deleted_rival(env: Env) -> Result<()> {
        for is_gone in [true, false] {
            let (namespace, client) = set_up(&env).await?;
            let cluster = make_cluster(&client, "shop", Value::Null).await?;
            make_plane(&client, "blue", Some(&cluster)).await?;
            // The deletion is on the API server, and not in the cache.
            let proxy = RecordingProxy::new(move |request| {
                if request.is(&Method::PATCH, "captcontrolplanes/green") {
                    // Without its finalizer, green does not take over the Cluster.
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500});
                    return Treatment::Respond(StatusCode::INTERNAL_SERVER_ERROR, status);
                }
                if !request.is(&Method::GET, "captcontrolplanes/green") {
                    return Treatment::Pass;
                }
                if is_gone {
                    let status = json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
                        "message": "not found",
                    });
                    return Treatment::Respond(StatusCode::NOT_FOUND, status);
                }
                Treatment::ChangeResponse(|answer| answer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into())
            });
            let fixture = start(&env, &proxy, &namespace)?;
            fixture.until_report("blue", "EndpointKept").await?;
            make_plane(&client, "green", Some(&cluster)).await?;
            for name in ["blue", "green"] {
                fixture.until_report(name, "ClusterConflict").await?;
            }
            fixture.client.delete::<CAPTControlPlane>(&fixture.key("blue")).await?;
            fixture.until_gone("blue").await?;
            let requests = proxy.requests();
            let mut patches = requests.iter().filter(|request| request.is(&Method::PATCH, "clusters/shop"));
            let is_cleared = patches.any(|patch| patch.body["spec"]["controlPlaneEndpoint"] == Value::Null);
            assert!(is_cleared, "{requests:?}");
            fixture.stop().await?;
        }
        Ok(())
    }

    async fn two_clusters_that_refer_to_one_plane_are_not_written(env: Env) -> Result<()> {
        let (namespace, client) = set_up(&env).await?;
        for name in ["east", "west"] {
            make_cluster(&client, name, reference("shop")).await?;
        }
        make_plane(&client, "shop", None).await?;
        let proxy = RecordingProxy::recording();
        let fixture = start(&env, &proxy, &namespace)?;
        let message = fixture.until_report("shop", "ClusterConflict").await?;
        assert!(message.contains("/east and Cluster ") && message.contains("/west both refer"), "{message}");
        assert_eq!(patched(&proxy), ["captcontrolplanes/shop/status"]);
        fixture.set_reference("west", Value::Null).await?;
        fixture.until_report("shop", "EndpointKept").await?;
        assert_eq!(fixture.host("east").await?.as_deref(), Some("shop.example.com"));
        assert_eq!(fixture.host("west").await?.as_deref(), Some(ORIGINAL));

        // The deletion of the control plane does not write to them either.
        let equal = json!({"controlPlaneRef": reference("shop"), "controlPlaneEndpoint": {"host": "shop.example.com"}});
        fixture.client.patch::<Cluster>(&fixture.key("west"), &Patch::Merge(json!({"spec": equal}))).await?;
        fixture.until_report("shop", "ClusterConflict").await?;
        fixture.client.delete::<CAPTControlPlane>(&fixture.key("shop")).await?;
        fixture.until_gone("shop").await?;
        for name in ["east", "west"] {
            assert_eq!(fixture.host(name).await?.as_deref(), Some("shop.example.com"), "{name}");
        }
        fixture.stop().await
    }

    async fn a_deleted_plane_keeps_the_endpoint_of_a_cluster_that_refers_to_another(env: Env) -> Result<()> {
        let (namespace, client) = set_up(&env).await?;
        make_cluster(&client, "shop", reference("shop")).await?;
        make_plane(&client, "shop", None).await?;
        let fixture = start(&env, &RecordingProxy::recording(), &namespace)?;
        fixture.until_report("shop", "EndpointKept").await?;
        fixture.set_reference("shop", reference("other")).await?;
        fixture.until_report("shop", "WaitingForCluster").await?;
        fixture.client.delete::<CAPTControlPlane>(&fixture.key("shop")).await?;
        fixture.until_gone("shop").await?;
        assert_eq!(fixture.host("shop").await?.as_deref(), Some("shop.example.com"));
        fixture.stop().await
    }

    async fn a_write_that_conflicts_checks_the_reference_again(env: Env) -> Result<()> {
        const CLUSTER: &str = "clusters/shop";
        let (namespace, client) = set_up(&env).await?;
        make_cluster(&client, "shop", reference("shop")).await?;
        make_plane(&client, "shop", None).await?;
        // Another client has changed the reference, and the cache does not show it yet.
        let proxy = RecordingProxy::new(|request| {
            if request.is(&Method::PATCH, CLUSTER) {
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409,
                    "message": "object has changed",
                });
                return Treatment::Respond(StatusCode::CONFLICT, status);
            }
            if request.is(&Method::GET, CLUSTER) {
                return Treatment::ChangeResponse(|answer| answer["spec"]["controlPlaneRef"]["name"] = "other".into());
            }
            Treatment::Pass
        });
        let fixture = start(&env, &proxy, &namespace)?;
        let message = fixture.until_report("shop", "WaitingForCluster").await?;
        assert!(message.ends_with("no longer refers to this control plane"), "{message}");
        let requests = proxy.requests();
        let methods: Vec<_> = requests.iter().filter(|request| request.path == CLUSTER).map(|request| &request.method).collect();
        assert!(methods.starts_with(&[&Method::PATCH, &Method::GET]), "{methods:?}");
        assert!(!methods.windows(2).any(|pair| pair == [&Method::PATCH, &Method::PATCH]), "{methods:?}");
        fixture.stop().await
    }
}

/// The clock is paused: five minutes are more than any requeue takes.
#[tokio::test(start_paused = true)]
async fn a_conflict_causes_no_further_writes_and_ends_as_soon_as_one_plane_is_deleted() -> Result<()>
{
    let env = Env::embedded()?;
    let (namespace, client) = set_up(&env).await?;
    let cluster = make_cluster(&client, "shop", Value::Null).await?;
    for name in ["blue", "green"] {
        make_plane(&client, name, Some(&cluster)).await?;
    }
    let proxy = RecordingProxy::recording();
    let fixture = start(&env, &proxy, &namespace)?;
    for name in ["blue", "green"] {
        timeout(LIMIT, fixture.until_report(name, "ClusterConflict")).await??;
    }
    let written = patches(&proxy);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(patches(&proxy), written);

    let started = Instant::now();
    fixture
        .client
        .delete::<CAPTControlPlane>(&fixture.key("green"))
        .await?;
    let recovered = async || {
        let host = fixture.host("shop").await?;
        Ok(host.as_deref() == Some("blue.example.com")
            && fixture.report("blue").await?.0 == "EndpointKept")
    };
    timeout(LIMIT, until(recovered)).await??;
    // The first requeue would be after five seconds.
    ensure!(
        started.elapsed() < Duration::from_secs(1),
        "recovered after {:?}",
        started.elapsed()
    );
    fixture.stop().await
}
