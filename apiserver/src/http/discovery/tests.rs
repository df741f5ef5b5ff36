use super::*;
use crate::builtin::resources;
use std::sync::Arc;

/// Returns a custom resource of a group and version, based on Deployments.
fn custom(group: &str, version: &str) -> Resource {
    let mut resource = resources()
        .into_iter()
        .find(|it| &*it.plural == "deployments")
        .unwrap();
    resource.group = Arc::from(group);
    resource.version = Arc::from(version);
    resource.strategy.custom = true;
    resource
}

#[test]
fn versions_rank_by_stability_then_newest_first() {
    let mut versions = [
        "foo1", "v1alpha1", "v1", "v10", "v2", "v1beta2", "v11beta1", "v1beta1", "bar", "v2alpha",
    ];
    versions.sort_by_key(|version| Reverse(priority(version)));
    assert_eq!(
        versions,
        [
            "v10", "v2", "v1", "v11beta1", "v1beta2", "v1beta1", "v1alpha1", "bar", "foo1",
            "v2alpha"
        ]
    );
}

#[test]
fn custom_groups_follow_the_built_in_ones_sorted_by_name() {
    let mut served = vec![
        custom("z.example.com", "v1"),
        custom("a.example.com", "v1beta1"),
    ];
    served.extend(resources());
    served.push(custom("a.example.com", "v1"));
    let list = group_list(&served);
    let names: Vec<_> = list["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!((names[0], names[1]), ("apps", "events.k8s.io"));
    assert_eq!(names[names.len() - 2..], ["a.example.com", "z.example.com"]);
    let group = group(&served, "a.example.com").unwrap();
    assert_eq!(
        group["preferredVersion"],
        json!({"groupVersion": "a.example.com/v1", "version": "v1"})
    );
    assert_eq!(group["versions"][1]["version"], "v1beta1");
    assert_eq!(
        (&group["kind"], &group["apiVersion"]),
        (&json!("APIGroup"), &json!("v1"))
    );
}

#[test]
fn the_storage_hash_identifies_the_storage_version() {
    let served = resources();
    let hash = |list: Option<Value>, name: &str| {
        let list = list.unwrap();
        let entries = list["resources"].as_array().unwrap();
        entries.iter().find(|it| it["name"] == name).unwrap()["storageVersionHash"].clone()
    };
    assert_eq!(
        hash(resource_list(&served, "events.k8s.io", "v1"), "events"),
        "r2yiGXH7wu8="
    );
    assert_eq!(
        hash(
            resource_list(&served, "autoscaling", "v1"),
            "horizontalpodautoscalers"
        ),
        "qwQve8ut294="
    );
    assert_eq!(
        hash(
            resource_list(&served, "coordination.k8s.io", "v1"),
            "leases"
        ),
        "gqkMMb/YqFM="
    );
}

#[test]
fn groups_and_versions_that_are_not_served_have_no_document() {
    let served = resources();
    assert_eq!(group(&served, "none.example.com"), None);
    assert_eq!(group(&served, ""), None);
    assert_eq!(resource_list(&served, "apps", "v1beta1"), None);
}

#[test]
fn subresources_are_entries_with_kinds_and_verbs_of_their_own() {
    let served = resources();
    let list = resource_list(&served, "apps", "v1").unwrap();
    assert_eq!(
        (&list["groupVersion"], &list["apiVersion"]),
        (&json!("apps/v1"), &json!("v1"))
    );
    let find = |list: &Value, name: &str| {
        list["resources"]
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["name"] == name)
            .cloned()
            .unwrap()
    };
    assert_eq!(
        find(&list, "deployments/scale"),
        json!({
            "name": "deployments/scale", "singularName": "", "namespaced": true,
            "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"],
        })
    );
    assert_eq!(find(&list, "deployments")["shortNames"], json!(["deploy"]));
    let core = resource_list(&served, "", "v1").unwrap();
    assert_eq!(core["groupVersion"], "v1");
    assert_eq!(
        find(&core, "namespaces/finalize")["verbs"],
        json!(["update"])
    );
    assert_eq!(find(&core, "namespaces/status")["kind"], "Namespace");
    assert!(
        !find(&core, "namespaces")["verbs"]
            .as_array()
            .unwrap()
            .contains(&json!("deletecollection"))
    );
}

#[test]
fn the_aggregated_documents_contain_all_resources() {
    let served = resources();
    let core = aggregated(&served, true);
    assert_eq!(api_versions(&served, "")["versions"], json!(["v1"]));
    assert_eq!(core["items"].as_array().unwrap().len(), 1);
    let named = aggregated(&served, false);
    let apps = &named["items"][0];
    assert_eq!(apps["metadata"]["name"], "apps");
    let resources = apps["versions"][0]["resources"].as_array().unwrap();
    let sets = resources
        .iter()
        .find(|it| it["resource"] == "statefulsets")
        .unwrap();
    assert_eq!(
        *sets,
        json!({
            "resource": "statefulsets", "singularResource": "statefulset", "scope": "Namespaced",
            "responseKind": {"group": "", "version": "", "kind": "StatefulSet"},
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "shortNames": ["sts"], "categories": ["all"],
            "subresources": [
                {"subresource": "scale", "verbs": ["get", "patch", "update"],
                 "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}},
                {"subresource": "status", "verbs": ["get", "patch", "update"],
                 "responseKind": {"group": "", "version": "", "kind": "StatefulSet"}},
            ],
        })
    );
}

#[test]
fn the_entity_tag_changes_only_with_the_served_resources() {
    let document = |served: &[Resource]| Document::new(&aggregated(served, false));
    let mut served = resources();
    let before = document(&served);
    assert_eq!(before, document(&resources()));
    assert!(
        before.is_known_by(&format!("\"other\", {}", before.etag))
            && !before.is_known_by("\"other\"")
    );
    served.push(custom("a.example.com", "v1"));
    assert!(!document(&served).is_known_by(&before.etag));
}

#[test]
fn clients_read_the_documents() {
    use k8s_openapi::apimachinery::pkg::{apis::meta::v1, version::Info};
    let served = resources();
    serde_json::from_value::<v1::APIGroupList>(group_list(&served)).unwrap();
    serde_json::from_value::<v1::APIVersions>(api_versions(&served, "127.0.0.1:1")).unwrap();
    serde_json::from_value::<v1::APIResourceList>(resource_list(&served, "", "v1").unwrap())
        .unwrap();
    assert_eq!(
        serde_json::from_value::<Info>(version())
            .unwrap()
            .git_version,
        "v1.37.1"
    );
}
