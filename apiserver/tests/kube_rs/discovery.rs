//! kube-rs's discovery, both ways, and objects whose type is only known from it.

use super::{Site, site, sites, start_with_sites};
use kube::{
    Api, Client, Discovery, ResourceExt,
    api::{DynamicObject, GroupVersionKind, ListParams, PostParams},
    discovery::{Scope, group, pinned_kind, verbs},
};
use std::collections::BTreeSet;

fn found(discovery: &Discovery) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for group in discovery.groups() {
        for version in group.versions() {
            for (resource, capabilities) in group.versioned_resources(version) {
                let scope = if capabilities.scope == Scope::Namespaced { "namespaced" } else { "cluster" };
                found.insert(format!("{}/{} {} {scope}", resource.api_version, resource.plural, resource.kind));
            }
        }
    }
    found
}

#[tokio::test(start_paused = true)]
async fn both_ways_find_the_same() {
    let (_server, client) = start_with_sites().await;
    let legacy = found(&Discovery::new(client.clone()).run().await.expect("discovery"));
    let aggregated = found(&Discovery::new(client).run_aggregated().await.expect("discovery"));
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
        assert!(legacy.contains(resource), "{resource} is not in {legacy:#?}");
    }
}

/// Everything that is said to be there can be listed.
#[tokio::test(start_paused = true)]
async fn what_is_found_is_served() {
    let (_server, client) = start_with_sites().await;
    let discovery = Discovery::new(client.clone()).run().await.expect("discovery");
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if capabilities.supports_operation(verbs::LIST) {
                let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
                api.list(&ListParams::default()).await.unwrap_or_else(|error| panic!("{resource:?}: {error}"));
            }
        }
    }
}

async fn dynamic(client: &Client) -> Api<DynamicObject> {
    let (resource, capabilities) =
        pinned_kind(client, &GroupVersionKind::gvk("steersman.dev", "v1", "Site")).await.expect("sites are served");
    assert_eq!(resource.plural, "sites");
    assert!(capabilities.subresources.iter().any(|(part, _)| part.plural == "status"), "{capabilities:?}");
    Api::default_namespaced_with(client.clone(), &resource)
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_type_that_was_found() {
    let (_server, client) = start_with_sites().await;
    sites(&client).create(&PostParams::default(), &site("a", "red")).await.expect("made");
    let object = dynamic(&client).await.get("a").await.expect("it is there");
    assert_eq!((object.name_any(), &object.data["spec"]["color"]), ("a".into(), &"red".into()));
    let site: Site = object.try_parse().expect("it is a site");
    assert_eq!(site.spec.color, "red");
    let group = group(&client, "steersman.dev").await.expect("the group is served");
    assert_eq!(group.preferred_version_or_latest(), "v1");
    let version = client.apiserver_version().await.expect("a version");
    assert!(version.major == "1" && version.minor.parse::<u32>().is_ok_and(|minor| minor >= 33), "{version:?}");
}
