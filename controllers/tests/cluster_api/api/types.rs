//! The kinds, and what the CRDs of this package accept.

use crate::support::{client, cluster, dynamic, from, provider_crd};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use steersman::{
    client::Patch,
    prelude::*,
    testing::{Env, TestServer},
};
use steersman_controllers::cluster_api::{
    API_VERSION, ApiEndpoint, Cluster, ContractVersionedObjectReference, Machine,
    MachineDeployment, MachinePool, MachineSet, Topology, object_reference,
};

steersman::env_test! {
    async fn a_patch_of_a_light_type_keeps_unknown_fields(env: Env) -> anyhow::Result<()> {
        let client = client(&env).await?;
        let kind = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Cluster");
        let spec = json!({
            "clusterNetwork": {"services": {"cidrBlocks": ["10.0.0.0/16"]}},
            "topology": {"classRef": {"name": "c"}, "version": "v1.33.0", "workers": {"machinePools": []}},
        });
        let object = dynamic(API_VERSION, "Cluster", "shop", json!({"spec": spec}));
        let created = client.create::<DynamicObject>(&object).await?;
        let key = ObjectKey::of(&created);
        let status = json!({"status": {"workers": {"replicas": 3}, "phase": "Pending"}});
        client.status().dynamic(&kind).patch(&key, &Patch::Merge(status)).await?;

        let before = client.get::<Cluster>(&key).await?.expect("created above");
        let mut after = (*before).clone();
        after.spec.paused = Some(true);
        after.spec.topology.as_mut().expect("a topology").version = "v1.34.0".into();
        client.patch_from(&*before, &after).await?;

        let read = client.dynamic(&kind).get(&key).await?.expect("created above");
        assert_eq!(read.data["spec"]["paused"], json!(true));
        assert_eq!(read.data["spec"]["clusterNetwork"], spec["clusterNetwork"]);
        assert_eq!(read.data["spec"]["topology"], json!({
            "classRef": {"name": "c"}, "version": "v1.34.0", "workers": {"machinePools": []},
        }));
        assert_eq!(read.data["status"], json!({"workers": {"replicas": 3}, "phase": "Pending"}));
        Ok(())
    }

    async fn a_cluster_with_an_incomplete_reference_is_rejected(env: Env) -> anyhow::Result<()> {
        let client = client(&env).await?;
        let rejected = [
            json!({}),
            json!({"infrastructureRef": {"kind": "DockerCluster", "name": "shop"}}),
            json!({"controlPlaneRef": {"apiGroup": "", "kind": "Plane", "name": "shop"}}),
            json!({"controlPlaneEndpoint": {"host": "", "port": 0}}),
            json!({"topology": {"version": "v1.33.0"}}),
        ];
        for spec in rejected {
            let result = client.create(&cluster("shop", spec.clone())).await;
            let error = result.expect_err("an invalid spec");
            assert!(error.is_invalid(), "{spec}: {error}");
        }
        client.create(&cluster("shop", json!({"controlPlaneEndpoint": {"host": "example.com"}}))).await?;
        Ok(())
    }

    async fn the_status_of_a_cluster_has_the_rules_of_cluster_api(env: Env) -> anyhow::Result<()> {
        let client = client(&env).await?;
        let created = client.create(&cluster("shop", json!({"paused": false}))).await?;
        let key = ObjectKey::of(&created);
        let patch = async |status: &Value| {
            let patch = Patch::Merge(json!({"status": status}));
            client.status().patch::<Cluster>(&key, &patch).await
        };
        let time = "2026-01-01T00:00:00Z";
        let condition = |reason: &str| json!({
            "type": "InfrastructureReady", "status": "True", "reason": reason, "message": "",
            "lastTransitionTime": time, "observedGeneration": 1,
        });
        let deprecated = json!([
            {"type": "Ready", "status": "True", "lastTransitionTime": time},
            {"type": "InfrastructureReady", "status": "False", "severity": "Info", "reason": "Waiting",
             "message": "m", "lastTransitionTime": time},
        ]);
        let status = json!({
            "conditions": [condition("Ready")],
            "initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true},
            "failureDomains": [
                {"name": "a", "controlPlane": true, "attributes": {"zone": "1"}}, {"name": "b"},
            ],
            "phase": "Provisioned",
            "observedGeneration": 1,
            "deprecated": {"v1beta1": {
                "conditions": deprecated, "failureReason": "CreateError", "failureMessage": "m".repeat(10_240),
            }},
        });
        let written = patch(&status).await?;
        assert_eq!(serde_json::to_value(&written.status)?, status, "every field is known");
        let status = written.status.expect("a status");
        assert!(status.is_infrastructure_provisioned() && status.is_control_plane_initialized());

        let rejected = [
            json!({"phase": "Ready"}),
            json!({"observedGeneration": 0}),
            json!({"failureDomains": []}),
            json!({"failureDomains": [{"name": "a"}, {"name": "a"}]}),
            json!({"initialization": {"infrastructureProvisioned": null, "controlPlaneInitialized": null}}),
            json!({"conditions": [condition("")]}),
            json!({"conditions": [condition("two words")]}),
            json!({"deprecated": {"v1beta1": {"failureMessage": "m".repeat(10_241)}}}),
        ];
        for status in rejected {
            let error = patch(&status).await.expect_err("an invalid status");
            assert!(error.is_invalid(), "{status}: {error}");
        }
        Ok(())
    }

    async fn machines_are_read_as_far_as_they_are_known(env: Env) -> anyhow::Result<()> {
        let client = client(&env).await?;
        let spec = json!({
            "clusterName": "shop",
            "bootstrap": {"dataSecretName": "data"},
            "infrastructureRef": {"apiGroup": "example.com", "kind": "DockerMachine", "name": "a"},
            "minReadySeconds": 3,
        });
        for kind in ["Machine", "MachineSet", "MachineDeployment", "MachinePool"] {
            let object = dynamic(API_VERSION, kind, "a", json!({"spec": spec}));
            client.create::<DynamicObject>(&object).await?;
            let object = dynamic(API_VERSION, kind, "b", json!({"spec": {}}));
            let error = client.create::<DynamicObject>(&object).await.expect_err("no cluster name");
            assert!(error.is_invalid(), "{error}");
        }
        let key = ObjectKey::cluster_scoped("a");
        let machine = client.get::<Machine>(&key).await?.expect("created above");
        assert_eq!(machine.spec.bootstrap.data_secret_name.as_deref(), Some("data"));
        assert_eq!(machine.spec.infrastructure_ref.kind, "DockerMachine");
        let names = [
            machine.spec.cluster_name.clone(),
            client.get::<MachineSet>(&key).await?.expect("created above").spec.cluster_name.clone(),
            client.get::<MachineDeployment>(&key).await?.expect("created above").spec.cluster_name.clone(),
            client.get::<MachinePool>(&key).await?.expect("created above").spec.cluster_name.clone(),
        ];
        assert_eq!(names, ["shop"; 4]);
        Ok(())
    }

    async fn a_reference_to_an_object_of_a_provider_names_group_and_kind(env: Env) -> anyhow::Result<()> {
        let client = client(&env).await?;
        let group = "reference.cluster.x-k8s.io";
        let labels = [("cluster.x-k8s.io/v1beta1", "v1alpha1")];
        env.install([provider_crd(group, "DockerThing", "dockerthings", &["v1alpha1"], &labels)]).await?;
        let thing = dynamic(&format!("{group}/v1alpha1"), "DockerThing", "shop", json!({"spec": {}}));
        let thing = client.create(&thing).await?;
        let expected = json!({"apiGroup": group, "kind": "DockerThing", "name": "shop"});
        assert_eq!(ContractVersionedObjectReference::to(&thing), from(expected));
        let expected = json!({
            "apiVersion": format!("{group}/v1alpha1"),
            "kind": "DockerThing",
            "namespace": thing.metadata.namespace,
            "name": "shop",
        });
        assert_eq!(object_reference(&thing), from(expected));
        Ok(())
    }
}

#[test]
fn a_reference_is_defined_if_any_field_is_set() {
    let reference = |content| from::<ContractVersionedObjectReference>(content);
    assert!(!reference(json!({})).is_defined());
    assert!(!reference(json!({"apiGroup": "", "kind": "", "name": ""})).is_defined());
    for field in ["apiGroup", "kind", "name"] {
        assert!(reference(json!({field: "a"})).is_defined(), "{field}");
    }
}

#[test]
fn an_endpoint_is_valid_if_host_and_port_are_set() {
    let endpoint = |content| from::<ApiEndpoint>(content);
    let cases = [
        (json!({}), false, true),
        (json!({"host": "", "port": 0}), false, true),
        (json!({"host": "example.com"}), false, false),
        (json!({"host": "example.com", "port": 0}), false, false),
        (json!({"port": 443}), false, false),
        (json!({"host": "example.com", "port": 443}), true, false),
    ];
    for (content, is_valid, is_empty) in cases {
        let endpoint = endpoint(content.clone());
        assert_eq!(
            (endpoint.is_valid(), endpoint.is_empty()),
            (is_valid, is_empty),
            "{content}"
        );
    }
}

#[test]
fn a_topology_is_defined_if_any_field_is_set() {
    assert!(!from::<Topology>(json!({})).is_defined());
    assert!(from::<Topology>(json!({"version": "v1.33.0"})).is_defined());
    assert!(from::<Topology>(json!({"workers": {}})).is_defined());
}
