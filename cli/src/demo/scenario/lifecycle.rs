//! Third part of the demonstration: a Cluster with the objects of a provider.
//!
//! The infrastructure becomes ready, the Cluster is paused and unpaused, and its objects are
//! deleted in order. The demonstration simulates the provider: it sets the status and removes
//! finalizers.

use super::{NAMESPACE, Scenario, object};
use crate::stdout::print_line;
use anyhow::{Context, Result, ensure};
use kube::core::{DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use std::sync::Arc;
use steersman::{client::Patch, conditions, object::StaticKind, prelude::*};
use steersman_controllers::cluster_api::{Cluster, Machine, labels, owners};

/// Name of the Cluster and of the objects that it refers to.
const NAME: &str = "farm";

/// Finalizer of the provider.
const FINALIZER: &str = "demo.steersman.dev/provider";

/// Version of the kinds of the provider, which implements the contract of the same name.
const VERSION: &str = "v1beta2";

/// Kind of an object of the provider.
#[derive(Clone, Copy)]
struct Kind {
    group: &'static str,
    name: &'static str,
    plural: &'static str,
}

const INFRASTRUCTURE: Kind = Kind {
    group: "infrastructure.cluster.x-k8s.io",
    name: "DemoCluster",
    plural: "democlusters",
};

const CONTROL_PLANE: Kind = Kind {
    group: "controlplane.cluster.x-k8s.io",
    name: "DemoControlPlane",
    plural: "democontrolplanes",
};

/// Returns the CRDs of the provider.
pub(in super::super) fn definitions() -> Vec<Value> {
    [INFRASTRUCTURE, CONTROL_PLANE].map(Kind::definition).into()
}

impl Kind {
    fn definition(self) -> Value {
        let Self {
            group,
            name,
            plural,
        } = self;
        let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let schema =
            json!({"type": "object", "properties": {"spec": anything, "status": anything}});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{group}"),
                "labels": {format!("cluster.x-k8s.io/{VERSION}"): VERSION},
            },
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {
                    "kind": name, "listKind": format!("{name}List"), "plural": plural,
                    "singular": name.to_lowercase(),
                },
                "versions": [{
                    "name": VERSION, "served": true, "storage": true,
                    "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema},
                }],
            },
        })
    }

    fn gvk(self) -> GroupVersionKind {
        GroupVersionKind::gvk(self.group, VERSION, self.name)
    }

    fn reference(self) -> Value {
        json!({"apiGroup": self.group, "kind": self.name, "name": NAME})
    }
}

impl Scenario {
    pub(super) async fn run_lifecycle(&self) -> Result<()> {
        print_line(
            "\n           A Cluster refers to the objects of a provider, which become ready",
        )?;
        self.provision().await?;
        print_line("\n           While the Cluster is paused, nothing is copied to it")?;
        self.pause().await?;
        print_line(
            "\n           The Cluster is deleted after its machines, its control plane and its infrastructure",
        )?;
        self.delete().await
    }

    async fn provision(&self) -> Result<()> {
        let spec = json!({
            "infrastructureRef": INFRASTRUCTURE.reference(),
            "controlPlaneRef": CONTROL_PLANE.reference(),
        });
        let cluster = json!({"metadata": {"namespace": NAMESPACE, "name": NAME}, "spec": spec});
        self.client.create(&object::<Cluster>(cluster)?).await?;
        self.print(&format!("created Cluster {NAMESPACE}/{NAME}"))?;
        self.until_reason("InfrastructureReady", "ObjectDoesNotExist")
            .await?;

        for kind in [INFRASTRUCTURE, CONTROL_PLANE] {
            self.create_object(kind).await?;
        }
        self.until_reason("InfrastructureReady", "NotReady").await?;

        let endpoint = json!({"host": "farm.example.com", "port": 6443});
        let client = self.client.dynamic(&INFRASTRUCTURE.gvk());
        let patch = Patch::Merge(json!({"spec": {"controlPlaneEndpoint": endpoint}}));
        client.patch(&key(), &patch).await?;
        let provisioned = json!({"provisioned": true});
        self.set_status(INFRASTRUCTURE, json!({"initialization": provisioned}))
            .await?;
        self.until_reason("InfrastructureReady", "Ready").await?;
        let initialized = json!({"controlPlaneInitialized": true});
        self.set_status(CONTROL_PLANE, json!({"initialization": initialized}))
            .await?;
        self.until_reason("ControlPlaneInitialized", "Initialized")
            .await?;
        let cluster = self.until_phase("Provisioned").await?;
        let endpoint = cluster.spec.control_plane_endpoint.as_ref();
        let endpoint = endpoint.context("a provisioned Cluster has an endpoint")?;
        self.print(&format!(
            "Cluster {NAMESPACE}/{NAME}: phase Provisioned, endpoint {endpoint}"
        ))
    }

    async fn pause(&self) -> Result<()> {
        let pause = async |paused| {
            let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
            self.client.patch::<Cluster>(&key(), &patch).await?;
            self.print(&format!(
                "set spec.paused={paused} of Cluster {NAMESPACE}/{NAME}"
            ))
        };
        let print_domains = |cluster: &Cluster| {
            let count = failure_domains(cluster);
            self.print(&format!(
                "Cluster {NAMESPACE}/{NAME}: {count} failure domains"
            ))
        };
        pause(true).await?;
        self.until_reason("Paused", "Paused").await?;
        let domains = json!([{"name": "east"}, {"name": "west"}]);
        self.set_status(INFRASTRUCTURE, json!({"failureDomains": domains}))
            .await?;
        let cluster = self.client.live().get::<Cluster>(&key()).await?;
        print_domains(&*cluster.context("the Cluster exists")?)?;
        pause(false).await?;
        self.until_reason("Paused", "NotPaused").await?;
        let cluster = self
            .until(&self.clusters, NAME, |it| failure_domains(it) == 2)
            .await?;
        print_domains(&cluster)
    }

    async fn delete(&self) -> Result<()> {
        let cluster = self.until_phase("Provisioned").await?;
        self.create_machine(&cluster).await?;
        self.client.delete::<Cluster>(&key()).await?;
        self.print(&format!("deleted Cluster {NAMESPACE}/{NAME}"))?;

        self.until_reason("Deleting", "WaitingForWorkersDeletion")
            .await?;
        self.finish(&Machine::static_gvk(), CONTROL_PLANE).await?;
        self.until_reason("Deleting", "WaitingForControlPlaneDeletion")
            .await?;
        self.finish(&CONTROL_PLANE.gvk(), INFRASTRUCTURE).await?;
        self.until_reason("Deleting", "WaitingForInfrastructureDeletion")
            .await?;
        let client = self.client.dynamic(&INFRASTRUCTURE.gvk());
        client.patch(&key(), &without_finalizers()).await?;
        self.until_state(&self.clusters, NAME, |it| it.is_none())
            .await?;
        self.print(&format!("Cluster {NAMESPACE}/{NAME}: gone"))
    }

    /// Creates an object of the provider, with its finalizer.
    async fn create_object(&self, kind: Kind) -> Result<()> {
        let created = json!({
            "apiVersion": kind.gvk().api_version(), "kind": kind.name,
            "metadata": {"namespace": NAMESPACE, "name": NAME, "finalizers": [FINALIZER]},
            "spec": {},
        });
        self.client
            .create(&object::<DynamicObject>(created)?)
            .await?;
        self.print(&format!("created {} {NAMESPACE}/{NAME}", kind.name))
    }

    async fn set_status(&self, kind: Kind, status: Value) -> Result<()> {
        let client = self.client.status();
        let patch = Patch::Merge(json!({"status": &status}));
        client.dynamic(&kind.gvk()).patch(&key(), &patch).await?;
        self.print(&format!(
            "set status of {} {NAMESPACE}/{NAME} to {status}",
            kind.name
        ))
    }

    /// Creates a Machine of the Cluster, with the finalizer of the provider.
    async fn create_machine(&self, cluster: &Cluster) -> Result<()> {
        let machine = json!({
            "metadata": {
                "namespace": NAMESPACE, "name": NAME, "finalizers": [FINALIZER],
                "labels": {labels::CLUSTER_NAME: NAME},
                "ownerReferences": [owners::reference(cluster)],
            },
            "spec": {"clusterName": NAME},
        });
        self.client.create(&object::<Machine>(machine)?).await?;
        // The controller finds Machines in the cache.
        self.until(&self.machines, NAME, |_| true).await?;
        self.print(&format!("created Machine {NAMESPACE}/{NAME}"))
    }

    /// Removes the finalizer of an object. Fails if the deletion of `next` has already started.
    async fn finish(&self, kind: &GroupVersionKind, next: Kind) -> Result<()> {
        let live = self.client.live();
        let next = live.dynamic(&next.gvk()).get(&key()).await?;
        let next = next.context("the next object exists")?;
        ensure!(
            next.metadata.deletion_timestamp.is_none(),
            "the objects of a Cluster are deleted in order"
        );
        let client = self.client.dynamic(kind);
        client.patch(&key(), &without_finalizers()).await?;
        self.print(&format!("{} {NAMESPACE}/{NAME}: gone", kind.kind))
    }

    /// Waits until a condition of the Cluster has a reason, and prints the condition.
    async fn until_reason(&self, type_: &str, reason: &str) -> Result<()> {
        let cluster = self.until(&self.clusters, NAME, |cluster| {
            condition(cluster, type_).is_some_and(|(_, it)| it == reason)
        });
        let cluster = cluster.await?;
        let (status, reason) = condition(&cluster, type_).unwrap_or_default();
        self.print(&format!(
            "Cluster {NAMESPACE}/{NAME}: condition {type_}={status}, {reason}"
        ))
    }

    async fn until_phase(&self, phase: &str) -> Result<Arc<Cluster>> {
        let has_phase = |cluster: &Cluster| {
            let status = cluster.status.as_ref();
            status.and_then(|it| it.phase.as_deref()) == Some(phase)
        };
        self.until(&self.clusters, NAME, has_phase).await
    }
}

fn key() -> ObjectKey {
    ObjectKey::new(NAMESPACE, NAME)
}

fn without_finalizers() -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"finalizers": null}}))
}

fn failure_domains(cluster: &Cluster) -> usize {
    let status = cluster.status.as_ref();
    status.map_or(0, |status| status.failure_domains.len())
}

/// Returns status and reason of a condition.
fn condition(cluster: &Cluster, type_: &str) -> Option<(String, String)> {
    let condition = conditions::find(&cluster.status.as_ref()?.conditions, type_)?;
    Some((condition.status.clone(), condition.reason.clone()))
}
