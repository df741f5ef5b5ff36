//! The garbage collector: what becomes of objects when their owners go.

use super::subresources::pod;
use crate::support::*;
use serde_json::{Value, json};

fn reference(owner: &Reply, block: bool) -> Value {
    let meta = &owner.json["metadata"];
    json!({
        "apiVersion": owner.json["apiVersion"], "kind": owner.json["kind"], "name": meta["name"], "uid": meta["uid"],
        "blockOwnerDeletion": block,
    })
}

impl Server {
    async fn owner(&self, name: &str) -> Reply {
        self.post(CONFIG_MAPS, config_map(name)).await.expect(201)
    }

    async fn dependent(&self, name: &str, owners: &[Value]) -> Reply {
        let mut body = config_map(name);
        body["metadata"]["ownerReferences"] = json!(owners);
        self.post(CONFIG_MAPS, body).await.expect(201)
    }

    /// The names of all config maps, once the collector has nothing to do.
    async fn left(&self) -> Vec<String> {
        self.server.wait_idle().await;
        self.get(CONFIG_MAPS).await.names().into_iter().map(str::to_owned).collect()
    }

    async fn config(&self, name: &str) -> Value {
        self.get(&format!("{CONFIG_MAPS}/{name}")).await.expect(200).json
    }

    async fn delete_config(&self, name: &str, policy: &str) -> Reply {
        self.delete_with(&format!("{CONFIG_MAPS}/{name}"), json!({"propagationPolicy": policy})).await.expect(200)
    }

    async fn free(&self, name: &str) {
        let path = format!("{CONFIG_MAPS}/{name}");
        self.merge(&path, json!({"metadata": {"finalizers": null}})).await.expect(200);
    }
}

/// Case 30.
#[tokio::test]
async fn dependents_go_after_their_owner_and_theirs_after_them() {
    let server = Server::start();
    let owner = server.owner("owner").await;
    let child = server.dependent("child", &[reference(&owner, true)]).await;
    server.dependent("grandchild", &[reference(&child, false)]).await;
    server.owner("other").await;
    assert_eq!(server.left().await, ["child", "grandchild", "other", "owner"]);
    server.delete(&format!("{CONFIG_MAPS}/owner")).await.expect(200);
    assert_eq!(server.left().await, ["other"]);
}

/// Case 30.
#[tokio::test]
async fn with_one_of_two_owners_left_a_dependent_stays_and_forgets_the_other() {
    let server = Server::start();
    let (one, two) = (server.owner("one").await, server.owner("two").await);
    server.dependent("child", &[reference(&one, false), reference(&two, false)]).await;
    server.delete(&format!("{CONFIG_MAPS}/one")).await.expect(200);
    assert_eq!(server.left().await, ["child", "two"]);
    assert_eq!(server.config("child").await["metadata"]["ownerReferences"], json!([reference(&two, false)]));
    server.delete(&format!("{CONFIG_MAPS}/two")).await.expect(200);
    assert_eq!(server.left().await, Vec::<String>::new());
}

/// Case 30.
#[tokio::test]
async fn an_owner_of_another_uid_or_of_none_counts_as_absent() {
    let server = Server::start();
    let owner = server.owner("owner").await;
    let mut wrong = reference(&owner, false);
    wrong["uid"] = json!("11111111-2222-4333-8444-555555555555");
    server.dependent("wrong", &[wrong.clone()]).await;
    let mut dangling = wrong.clone();
    dangling["name"] = json!("nobody");
    server.dependent("dangling", &[dangling]).await;
    server.dependent("both", &[wrong, reference(&owner, false)]).await;
    assert_eq!(server.left().await, ["both", "owner"]);
    assert_eq!(server.config("both").await["metadata"]["ownerReferences"], json!([reference(&owner, false)]));
}

/// Case 30.
#[tokio::test]
async fn in_the_foreground_the_owner_waits_for_what_blocks_it() {
    let server = Server::start();
    let owner = server.owner("owner").await;
    let mut held = config_map("held");
    held["metadata"]["ownerReferences"] = json!([reference(&owner, true)]);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(CONFIG_MAPS, held).await.expect(201);
    server.dependent("free", &[reference(&owner, true)]).await;
    let marked = server.delete_config("owner", "Foreground").await;
    assert_eq!(marked.json["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert_eq!(server.left().await, ["held", "owner"]);
    assert!(server.config("held").await["metadata"]["deletionTimestamp"].is_string());
    server.free("held").await;
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn in_the_foreground_the_owner_does_not_wait_for_what_does_not_block_it() {
    let server = Server::start();
    let owner = server.owner("owner").await;
    let mut held = config_map("held");
    held["metadata"]["ownerReferences"] = json!([reference(&owner, false)]);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(CONFIG_MAPS, held).await.expect(201);
    server.delete_config("owner", "Foreground").await;
    assert_eq!(server.left().await, ["held"]);
    assert!(server.config("held").await["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test]
async fn a_chain_deleted_in_the_foreground_goes_from_its_end() {
    let server = Server::start();
    let owner = server.owner("owner").await;
    let child = server.dependent("child", &[reference(&owner, true)]).await;
    let mut last = config_map("last");
    last["metadata"]["ownerReferences"] = json!([reference(&child, true)]);
    last["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(CONFIG_MAPS, last).await.expect(201);
    let from = server.server.revision();
    server.delete_config("owner", "Foreground").await;
    assert_eq!(server.left().await, ["child", "last", "owner"]);
    assert_eq!(server.config("child").await["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    server.free("last").await;
    assert_eq!(server.left().await, Vec::<String>::new());
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
    let mut order = Vec::new();
    while order.len() < 3 {
        let (kind, name) = watch.next_name().await;
        if kind == "DELETED" {
            order.push(name);
        }
    }
    assert_eq!(order, ["last", "child", "owner"]);
}

#[tokio::test]
async fn an_owner_that_waits_goes_when_the_dependent_lets_go_of_it() {
    let server = Server::start();
    let owner = server.owner("owner").await;
    let mut held = config_map("held");
    held["metadata"]["ownerReferences"] = json!([reference(&owner, true)]);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(CONFIG_MAPS, held).await.expect(201);
    server.delete_config("owner", "Foreground").await;
    assert_eq!(server.left().await, ["held", "owner"]);
    server.merge(&format!("{CONFIG_MAPS}/held"), json!({"metadata": {"ownerReferences": null}})).await.expect(200);
    assert_eq!(server.left().await, ["held"]);
}

#[tokio::test]
async fn an_owner_that_waits_goes_when_it_is_no_longer_blocked() {
    let server = Server::start();
    let owner = server.owner("owner").await;
    let mut held = config_map("held");
    held["metadata"]["ownerReferences"] = json!([reference(&owner, true)]);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(CONFIG_MAPS, held).await.expect(201);
    server.delete_config("owner", "Foreground").await;
    assert_eq!(server.left().await, ["held", "owner"]);
    let unblocked = json!({"metadata": {"ownerReferences": [reference(&owner, false)]}});
    server.merge(&format!("{CONFIG_MAPS}/held"), unblocked).await.expect(200);
    assert_eq!(server.left().await, ["held"]);
}

/// Case 30.
#[tokio::test]
async fn orphans_stay_and_forget_their_owner() {
    let server = Server::start();
    let owner = server.owner("owner").await;
    let other = server.owner("other").await;
    server.dependent("one", &[reference(&owner, true)]).await;
    server.dependent("two", &[reference(&owner, false), reference(&other, false)]).await;
    let marked = server.delete_config("owner", "Orphan").await;
    assert_eq!(marked.json["metadata"]["finalizers"], json!(["orphan"]));
    assert_eq!(server.left().await, ["one", "other", "two"]);
    assert_eq!(server.config("one").await["metadata"].get("ownerReferences"), None);
    assert_eq!(server.config("two").await["metadata"]["ownerReferences"], json!([reference(&other, false)]));
}

#[tokio::test]
async fn an_owner_without_a_namespace_owns_in_every_one() {
    let server = Server::start();
    let node = server.post("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await.expect(201);
    server.dependent("child", &[reference(&node, false)]).await;
    assert_eq!(server.left().await, ["child"]);
    server.delete("/api/v1/nodes/n").await.expect(200);
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn an_owner_in_another_namespace_is_none() {
    let server = Server::start();
    let owner = server.post("/api/v1/namespaces/kube-system/configmaps", config_map("owner")).await.expect(201);
    server.dependent("child", &[reference(&owner, false)]).await;
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn an_owner_of_a_kind_that_is_not_served_is_left_alone() {
    let server = Server::start();
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "a", "uid": "u"});
    server.dependent("child", &[owner]).await;
    assert_eq!(server.left().await, ["child"]);
}

#[tokio::test]
async fn a_namespaced_owner_of_what_has_no_namespace_is_left_alone() {
    let server = Server::start();
    let owner = server.owner("owner").await;
    let node = json!({"metadata": {"name": "n", "ownerReferences": [reference(&owner, false)]}});
    server.post("/api/v1/nodes", node).await.expect(201);
    server.server.wait_idle().await;
    server.get("/api/v1/nodes/n").await.expect(200);
}

#[tokio::test]
async fn what_a_custom_resource_owns_goes_with_its_definition() {
    let server = Server::with_widgets().await;
    let owner = server.post(WIDGETS, widget("a")).await.expect(201);
    server.dependent("child", &[reference(&owner, false)]).await;
    server.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com").await.expect(200);
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_pod_on_a_node_is_given_its_time_by_the_collector_too() {
    let server = Server::start();
    let owner = server.owner("owner").await;
    let mut placed = pod("a");
    placed["spec"]["nodeName"] = json!("n");
    placed["metadata"]["ownerReferences"] = json!([reference(&owner, false)]);
    server.post("/api/v1/namespaces/default/pods", placed).await.expect(201);
    server.delete(&format!("{CONFIG_MAPS}/owner")).await.expect(200);
    server.server.wait_idle().await;
    let pod = server.get("/api/v1/namespaces/default/pods/a").await.expect(200);
    assert_eq!(pod.json["metadata"]["deletionGracePeriodSeconds"], 30);
}
