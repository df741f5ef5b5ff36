//! kube-rs discovery, legacy and aggregated, and dynamic objects of discovered kinds.

use super::{Site, site, sites, start_with_sites};
use kube::{
    Api, Client, Discovery, ResourceExt,
    api::{DynamicObject, GroupVersionKind, ListParams, PostParams},
    discovery::{Scope, group, pinned_kind, verbs},
};
use std::collections::BTreeSet;

fn resources(discovery: &Discovery) -> BTreeSet<String> {
    let mut resources = BTreeSet::new();
    for group in discovery.groups() {
        for version in group.versions() {
            for (resource, capabilities) in group.versioned_resources(version) {
                let scope = if capabilities.scope == Scope::Namespaced {
                    "namespaced"
                } else {
                    "cluster"
                };
                resources.insert(format!(
                    "{}/{} {} {scope}",
                    resource.api_version, resource.plural, resource.kind
                ));
            }
        }
    }
    resources
}

#[tokio::test(start_paused = true)]
async fn legacy_and_aggregated_discovery_find_the_same_resources() {
    let (_server, client) = start_with_sites().await;
    let legacy = resources(
        &Discovery::new(client.clone())
            .run()
            .await
            .expect("discovery"),
    );
    let aggregated = resources(
        &Discovery::new(client)
            .run_aggregated()
            .await
            .expect("discovery"),
    );
    assert_eq!(legacy, aggregated);
    for resource in [
        "v1/configmaps ConfigMap namespaced",
        "v1/namespaces Namespace cluster",
        "apps/v1/deployments Deployment namespaced",
        "events.k8s.io/v1/events Event namespaced",
        "coordination.k8s.io/v1/leases Lease namespaced",
        "apiextensions.k8s.io/v1/customresourcedefinitions CustomResourceDefinition cluster",
        "steersman.dev/v1/sites Site namespaced",
    ] {
        assert!(
            legacy.contains(resource),
            "{resource} is not in {legacy:#?}"
        );
    }
}

/// Lists every discovered resource that has the verb `list`.
#[tokio::test(start_paused = true)]
async fn every_discovered_resource_is_served() {
    let (_server, client) = start_with_sites().await;
    let discovery = Discovery::new(client.clone())
        .run()
        .await
        .expect("discovery");
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if capabilities.supports_operation(verbs::LIST) {
                let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
                api.list(&ListParams::default())
                    .await
                    .unwrap_or_else(|error| panic!("{resource:?}: {error}"));
            }
        }
    }
}

async fn dynamic(client: &Client) -> Api<DynamicObject> {
    let (resource, capabilities) = pinned_kind(
        client,
        &GroupVersionKind::gvk("steersman.dev", "v1", "Site"),
    )
    .await
    .expect("the kind");
    assert_eq!(resource.plural, "sites");
    assert!(
        capabilities
            .subresources
            .iter()
            .any(|(part, _)| part.plural == "status"),
        "{capabilities:?}"
    );
    Api::default_namespaced_with(client.clone(), &resource)
}

#[tokio::test(start_paused = true)]
async fn dynamic_objects_of_a_discovered_kind_can_be_read() {
    let (_server, client) = start_with_sites().await;
    sites(&client)
        .create(&PostParams::default(), &site("a", "red"))
        .await
        .expect("created");
    let object = dynamic(&client).await.get("a").await.expect("the object");
    assert_eq!(
        (object.name_any(), &object.data["spec"]["color"]),
        ("a".into(), &"red".into())
    );
    let site: Site = object.try_parse().expect("a site");
    assert_eq!(site.spec.color, "red");
    let group = group(&client, "steersman.dev").await.expect("the group");
    assert_eq!(group.preferred_version_or_latest(), "v1");
    let version = client.apiserver_version().await.expect("a version");
    assert!(
        version.major == "1" && version.minor.parse::<u32>().is_ok_and(|minor| minor >= 33),
        "{version:?}"
    );
}
