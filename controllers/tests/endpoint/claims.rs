//! Which Cluster a control plane writes to, and what happens where several claim each other.

use crate::{
    between::{Between, Twist},
    world::{World, reference, until},
};
use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;
use steersman::{
    client::Patch,
    prelude::*,
    testing::{Env, TestServer},
};
use steersman_controllers::endpoint::{CAPTControlPlane, Cluster, ENDPOINT_READY, Endpoint, Options};
use tokio::time::{Instant, sleep, timeout};

const ORIGINAL: &str = "original.example.com";

/// Limit of each step on a paused clock.
const LIMIT: Duration = Duration::from_mins(1);

/// Creates a Cluster with an endpoint that no control plane wrote.
async fn make_cluster(client: &Client, name: &str, reference: Value) -> Result<Cluster> {
    let spec = json!({"controlPlaneRef": reference, "controlPlaneEndpoint": {"host": ORIGINAL, "port": 443}});
    Ok(client.create::<Cluster>(&serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?).await?)
}

/// Creates a control plane that keeps the endpoint `<name>.example.com`, so that it needs no workspace.
async fn make_plane(client: &Client, name: &str, owner: Option<&Cluster>) -> Result<()> {
    let owner = owner.map(|cluster| {
        let (name, uid) = (&cluster.metadata.name, &cluster.metadata.uid);
        json!({"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "name": name, "uid": uid})
    });
    let endpoint = json!({"host": format!("{name}.example.com"), "port": 443});
    let labels = json!({"cluster.x-k8s.io/cluster-name": "shop"});
    let plane = json!({
        "metadata": {"name": name, "labels": labels, "ownerReferences": owner.into_iter().collect::<Vec<_>>()},
        "spec": {"version": "1.31", "workspaceTemplateRef": {"name": "eks"}, "controlPlaneEndpoint": endpoint},
    });
    client.create::<CAPTControlPlane>(&serde_json::from_value(plane)?).await?;
    Ok(())
}

/// A namespace with all kinds installed, and a client for it. The manager is not started yet.
async fn stage(env: &Env) -> Result<(String, Client)> {
    World::install(env).await?;
    let namespace = env.namespace("claims").await?;
    let client = Client::new(env.client()?)?.namespace(&namespace);
    Ok((namespace, client))
}

fn start(env: &Env, between: &Between, namespace: &str) -> Result<World> {
    let builder = Manager::builder(between.client(env.client()?));
    World::with(env.client()?, builder, &Options::default(), namespace)
}

impl World {
    async fn host(&self, cluster: &str) -> Result<Option<String>> {
        let cluster = self.client.get::<Cluster>(&self.key(cluster)).await?.context("missing Cluster")?;
        Ok(cluster.spec.control_plane_endpoint.as_ref().map(|Endpoint { host, .. }| host.clone()))
    }

    /// Reason and message of a control plane's condition.
    async fn report(&self, plane: &str) -> Result<(String, String)> {
        let plane = self.client.get::<CAPTControlPlane>(&self.key(plane)).await?.context("missing control plane")?;
        let mut conditions = plane.status.iter().flat_map(|status| &status.conditions);
        let condition = conditions.find(|condition| condition.type_ == ENDPOINT_READY);
        Ok(condition.map(|it| (it.reason.clone(), it.message.clone())).unwrap_or_default())
    }

    async fn until_report(&self, plane: &str, reason: &str) -> Result<String> {
        until(async || Ok(self.report(plane).await?.0 == reason)).await?;
        Ok(self.report(plane).await?.1)
    }

    async fn refer(&self, cluster: &str, reference: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"controlPlaneRef": reference}}));
        self.client.patch::<Cluster>(&self.key(cluster), &patch).await?;
        Ok(())
    }

    async fn until_gone(&self, plane: &str) -> Result<()> {
        until(async || Ok(self.client.get::<CAPTControlPlane>(&self.key(plane)).await?.is_none())).await
    }
}

fn patches(between: &Between) -> usize {
    between.asked().iter().filter(|asked| asked.method == Method::PATCH).count()
}

steersman::env_test! {
    async fn a_plane_writes_only_to_a_cluster_that_refers_to_it(env: Env) -> Result<()> {
        let v1beta2 =
            json!({"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "CAPTControlPlane", "name": "shop"});
        for shape in [reference("shop"), v1beta2] {
            let (namespace, client) = stage(&env).await?;
            // Name, label and owner reference match. The reference does not.
            let cluster = make_cluster(&client, "shop", reference("other")).await?;
            make_plane(&client, "shop", Some(&cluster)).await?;
            let between = Between::seeing();
            let world = start(&env, &between, &namespace)?;
            let message = world.until_report("shop", "WaitingForCluster").await?;
            assert!(message.contains("names another control plane"), "{message}");
            assert_eq!(between.count(&Method::PATCH, "clusters/shop"), 0);
            assert_eq!(world.host("shop").await?.as_deref(), Some(ORIGINAL));

            let mut complete = json!({"apiVersion": null, "apiGroup": null});
            complete.as_object_mut().context("not an object")?.extend(shape.as_object().context("not an object")?.clone());
            world.refer("shop", complete).await?;
            world.until_report("shop", "EndpointKept").await?;
            assert_eq!(world.host("shop").await?.as_deref(), Some("shop.example.com"), "{shape}");
            world.stop().await?;
        }
        Ok(())
    }

    async fn a_plane_without_a_cluster_writes_to_none(env: Env) -> Result<()> {
        let (namespace, client) = stage(&env).await?;
        make_cluster(&client, "shop", Value::Null).await?;
        // Name and label match, and nothing else.
        make_plane(&client, "shop", None).await?;
        let between = Between::seeing();
        let world = start(&env, &between, &namespace)?;
        let message = world.until_report("shop", "WaitingForCluster").await?;
        assert!(message.contains("set spec.controlPlaneRef"), "{message}");
        world.client.delete::<CAPTControlPlane>(&world.key("shop")).await?;
        world.until_gone("shop").await?;
        assert_eq!(between.count(&Method::PATCH, "clusters/shop"), 0);
        assert_eq!(world.host("shop").await?.as_deref(), Some(ORIGINAL));
        world.stop().await
    }

    async fn an_owner_reference_is_enough_where_the_cluster_has_no_reference(env: Env) -> Result<()> {
        let (namespace, client) = stage(&env).await?;
        let cluster = make_cluster(&client, "owner", Value::Null).await?;
        make_plane(&client, "shop", Some(&cluster)).await?;
        let world = start(&env, &Between::seeing(), &namespace)?;
        world.until_report("shop", "EndpointKept").await?;
        assert_eq!(world.host("owner").await?.as_deref(), Some("shop.example.com"));
        world.client.delete::<CAPTControlPlane>(&world.key("shop")).await?;
        world.until_gone("shop").await?;
        assert_eq!(world.host("owner").await?, None, "removed with the control plane that wrote it");
        world.stop().await
    }

    async fn two_planes_of_one_cluster_report_a_conflict_and_write_nothing(env: Env) -> Result<()> {
        let (namespace, client) = stage(&env).await?;
        let cluster = make_cluster(&client, "shop", Value::Null).await?;
        for name in ["blue", "green"] {
            make_plane(&client, name, Some(&cluster)).await?;
        }
        let between = Between::seeing();
        let world = start(&env, &between, &namespace)?;
        for (name, rival) in [("blue", "green"), ("green", "blue")] {
            let message = world.until_report(name, "ClusterConflict").await?;
            assert!(message.contains(&format!("CAPTControlPlane {namespace}/{rival} also claims")), "{message}");
        }
        assert_eq!(patches(&between), 4, "a finalizer and a condition each: {:?}", between.asked());

        // A reference decides.
        world.refer("shop", reference("green")).await?;
        world.until_report("green", "EndpointKept").await?;
        assert_eq!(world.host("shop").await?.as_deref(), Some("green.example.com"));
        world.until_report("blue", "WaitingForCluster").await?;
        world.client.delete::<CAPTControlPlane>(&world.key("blue")).await?;
        world.until_gone("blue").await?;
        assert_eq!(world.host("shop").await?.as_deref(), Some("green.example.com"));
        world.stop().await
    }

    async fn the_deletion_of_planes_in_conflict_keeps_the_original_endpoint(env: Env) -> Result<()> {
        let (namespace, client) = stage(&env).await?;
        let cluster = make_cluster(&client, "shop", Value::Null).await?;
        for name in ["blue", "green"] {
            make_plane(&client, name, Some(&cluster)).await?;
        }
        let world = start(&env, &Between::seeing(), &namespace)?;
        for name in ["blue", "green"] {
            world.until_report(name, "ClusterConflict").await?;
        }
        world.stop().await?;
        for name in ["blue", "green"] {
            client.delete::<CAPTControlPlane>(&ObjectKey::new(&namespace, name)).await?;
        }
        let between = Between::seeing();
        let world = start(&env, &between, &namespace)?;
        for name in ["blue", "green"] {
            world.until_gone(name).await?;
        }
        assert_eq!(between.count(&Method::PATCH, "clusters/shop"), 0);
        assert_eq!(world.host("shop").await?.as_deref(), Some(ORIGINAL));
        world.stop().await
    }

    async fn two_clusters_that_refer_to_one_plane_are_not_written(env: Env) -> Result<()> {
        let (namespace, client) = stage(&env).await?;
        for name in ["east", "west"] {
            make_cluster(&client, name, reference("shop")).await?;
        }
        make_plane(&client, "shop", None).await?;
        let between = Between::seeing();
        let world = start(&env, &between, &namespace)?;
        let message = world.until_report("shop", "ClusterConflict").await?;
        assert!(message.contains("/east and Cluster ") && message.contains("/west both refer"), "{message}");
        assert_eq!(patches(&between), 2, "a finalizer and a condition: {:?}", between.asked());
        world.refer("west", Value::Null).await?;
        world.until_report("shop", "EndpointKept").await?;
        assert_eq!(world.host("east").await?.as_deref(), Some("shop.example.com"));
        assert_eq!(world.host("west").await?.as_deref(), Some(ORIGINAL));
        world.stop().await
    }

    async fn a_deleted_plane_keeps_the_endpoint_of_a_cluster_that_refers_to_another(env: Env) -> Result<()> {
        let (namespace, client) = stage(&env).await?;
        make_cluster(&client, "shop", reference("shop")).await?;
        make_plane(&client, "shop", None).await?;
        let world = start(&env, &Between::seeing(), &namespace)?;
        world.until_report("shop", "EndpointKept").await?;
        world.refer("shop", reference("other")).await?;
        world.until_report("shop", "WaitingForCluster").await?;
        world.client.delete::<CAPTControlPlane>(&world.key("shop")).await?;
        world.until_gone("shop").await?;
        assert_eq!(world.host("shop").await?.as_deref(), Some("shop.example.com"));
        world.stop().await
    }

    async fn a_write_that_conflicts_checks_the_reference_again(env: Env) -> Result<()> {
        const CLUSTER: &str = "clusters/shop";
        let (namespace, client) = stage(&env).await?;
        make_cluster(&client, "shop", reference("shop")).await?;
        make_plane(&client, "shop", None).await?;
        // Another client has changed the reference, and the cache does not show it yet.
        let between = Between::new(|asked| {
            if asked.is(&Method::PATCH, CLUSTER) {
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409,
                    "message": "object has changed",
                });
                return Twist::Instead(StatusCode::CONFLICT, status);
            }
            if asked.is(&Method::GET, CLUSTER) {
                return Twist::Changed(|answer| answer["spec"]["controlPlaneRef"]["name"] = "other".into());
            }
            Twist::Nothing
        });
        let world = start(&env, &between, &namespace)?;
        let message = world.until_report("shop", "WaitingForCluster").await?;
        assert!(message.ends_with("no longer refers to this control plane"), "{message}");
        let asked = between.asked();
        let methods: Vec<_> = asked.iter().filter(|asked| asked.path == CLUSTER).map(|asked| &asked.method).collect();
        assert!(methods.starts_with(&[&Method::PATCH, &Method::GET]), "{methods:?}");
        assert!(!methods.windows(2).any(|pair| pair == [&Method::PATCH, &Method::PATCH]), "{methods:?}");
        world.stop().await
    }
}

/// The clock is paused: five minutes are more than any requeue takes.
#[tokio::test(start_paused = true)]
async fn a_conflict_causes_no_further_writes_and_ends_as_soon_as_one_plane_is_deleted() -> Result<()> {
    let env = Env::embedded()?;
    let (namespace, client) = stage(&env).await?;
    let cluster = make_cluster(&client, "shop", Value::Null).await?;
    for name in ["blue", "green"] {
        make_plane(&client, name, Some(&cluster)).await?;
    }
    let between = Between::seeing();
    let world = start(&env, &between, &namespace)?;
    for name in ["blue", "green"] {
        timeout(LIMIT, world.until_report(name, "ClusterConflict")).await??;
    }
    let written = patches(&between);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(patches(&between), written);

    let begun = Instant::now();
    world.client.delete::<CAPTControlPlane>(&world.key("green")).await?;
    let recovered = async || {
        let host = world.host("shop").await?;
        Ok(host.as_deref() == Some("blue.example.com") && world.report("blue").await?.0 == "EndpointKept")
    };
    timeout(LIMIT, until(recovered)).await??;
    // The first requeue would be after five seconds.
    ensure!(begun.elapsed() < Duration::from_secs(1), "recovered after {:?}", begun.elapsed());
    world.stop().await
}
