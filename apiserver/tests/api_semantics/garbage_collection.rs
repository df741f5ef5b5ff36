//! The garbage collector: background, foreground and orphan deletion of dependents.

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
    async fn create_owner(&self, name: &str) -> Reply {
        self.post(CONFIG_MAPS, config_map(name)).await.expect(201)
    }

    async fn create_dependent(&self, name: &str, owners: &[Value]) -> Reply {
        let mut body = config_map(name);
        body["metadata"]["ownerReferences"] = json!(owners);
        self.post(CONFIG_MAPS, body).await.expect(201)
    }

    /// Returns the names of all config maps after the collector is idle.
    async fn remaining(&self) -> Vec<String> {
        self.server.wait_idle().await;
        self.get(CONFIG_MAPS)
            .await
            .names()
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    async fn get_config_map(&self, name: &str) -> Value {
        self.get(&format!("{CONFIG_MAPS}/{name}"))
            .await
            .expect(200)
            .json
    }

    async fn delete_with_policy(&self, name: &str, policy: &str) -> Reply {
        self.delete_with(
            &format!("{CONFIG_MAPS}/{name}"),
            json!({"propagationPolicy": policy}),
        )
        .await
        .expect(200)
    }

    async fn remove_finalizers(&self, name: &str) {
        let path = format!("{CONFIG_MAPS}/{name}");
        self.merge(&path, json!({"metadata": {"finalizers": null}}))
            .await
            .expect(200);
    }
}

#[tokio::test]
async fn background_deletion_deletes_dependents_transitively() {
    let server = Server::start();
    let owner = server.create_owner("owner").await;
    let child = server
        .create_dependent("child", &[reference(&owner, true)])
        .await;
    server
        .create_dependent("grandchild", &[reference(&child, false)])
        .await;
    server.create_owner("other").await;
    assert_eq!(
        server.remaining().await,
        ["child", "grandchild", "other", "owner"]
    );
    server
        .delete(&format!("{CONFIG_MAPS}/owner"))
        .await
        .expect(200);
    assert_eq!(server.remaining().await, ["other"]);
}

#[tokio::test]
async fn a_dependent_stays_until_its_last_owner_is_deleted() {
    let server = Server::start();
    let one = server.create_owner("one").await;
    let two = server.create_owner("two").await;
    server
        .create_dependent("child", &[reference(&one, false), reference(&two, false)])
        .await;
    server
        .delete(&format!("{CONFIG_MAPS}/one"))
        .await
        .expect(200);
    assert_eq!(server.remaining().await, ["child", "two"]);
    assert_eq!(
        server.get_config_map("child").await["metadata"]["ownerReferences"],
        json!([reference(&two, false)])
    );
    server
        .delete(&format!("{CONFIG_MAPS}/two"))
        .await
        .expect(200);
    assert_eq!(server.remaining().await, Vec::<String>::new());
}

#[tokio::test]
async fn an_owner_reference_with_a_wrong_uid_or_name_is_dangling() {
    let server = Server::start();
    let owner = server.create_owner("owner").await;
    let mut wrong = reference(&owner, false);
    wrong["uid"] = json!("11111111-2222-4333-8444-555555555555");
    server.create_dependent("wrong", &[wrong.clone()]).await;
    let mut dangling = wrong.clone();
    dangling["name"] = json!("missing");
    server.create_dependent("dangling", &[dangling]).await;
    server
        .create_dependent("both", &[wrong, reference(&owner, false)])
        .await;
    assert_eq!(server.remaining().await, ["both", "owner"]);
    assert_eq!(
        server.get_config_map("both").await["metadata"]["ownerReferences"],
        json!([reference(&owner, false)])
    );
}

#[tokio::test]
async fn foreground_deletion_waits_for_blocking_dependents() {
    let server = Server::start();
    let owner = server.create_owner("owner").await;
    let mut finalized = config_map("finalized");
    finalized["metadata"]["ownerReferences"] = json!([reference(&owner, true)]);
    finalized["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(CONFIG_MAPS, finalized).await.expect(201);
    server
        .create_dependent("plain", &[reference(&owner, true)])
        .await;
    let deleting = server.delete_with_policy("owner", "Foreground").await;
    assert_eq!(
        deleting.json["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    assert_eq!(server.remaining().await, ["finalized", "owner"]);
    assert!(server.get_config_map("finalized").await["metadata"]["deletionTimestamp"].is_string());
    server.remove_finalizers("finalized").await;
    assert_eq!(server.remaining().await, Vec::<String>::new());
}

#[tokio::test]
async fn foreground_deletion_does_not_wait_for_non_blocking_dependents() {
    let server = Server::start();
    let owner = server.create_owner("owner").await;
    let mut finalized = config_map("finalized");
    finalized["metadata"]["ownerReferences"] = json!([reference(&owner, false)]);
    finalized["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(CONFIG_MAPS, finalized).await.expect(201);
    server.delete_with_policy("owner", "Foreground").await;
    assert_eq!(server.remaining().await, ["finalized"]);
    assert!(server.get_config_map("finalized").await["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test]
async fn foreground_deletion_of_a_chain_starts_at_its_end() {
    let server = Server::start();
    let owner = server.create_owner("owner").await;
    let child = server
        .create_dependent("child", &[reference(&owner, true)])
        .await;
    let mut last = config_map("last");
    last["metadata"]["ownerReferences"] = json!([reference(&child, true)]);
    last["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(CONFIG_MAPS, last).await.expect(201);
    let from = server.server.revision();
    server.delete_with_policy("owner", "Foreground").await;
    assert_eq!(server.remaining().await, ["child", "last", "owner"]);
    assert_eq!(
        server.get_config_map("child").await["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    server.remove_finalizers("last").await;
    assert_eq!(server.remaining().await, Vec::<String>::new());
    let mut watch = server
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}"))
        .await;
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
async fn foreground_deletion_completes_when_the_dependent_removes_its_owner_reference() {
    let server = Server::start();
    let owner = server.create_owner("owner").await;
    let mut finalized = config_map("finalized");
    finalized["metadata"]["ownerReferences"] = json!([reference(&owner, true)]);
    finalized["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(CONFIG_MAPS, finalized).await.expect(201);
    server.delete_with_policy("owner", "Foreground").await;
    assert_eq!(server.remaining().await, ["finalized", "owner"]);
    server
        .merge(
            &format!("{CONFIG_MAPS}/finalized"),
            json!({"metadata": {"ownerReferences": null}}),
        )
        .await
        .expect(200);
    assert_eq!(server.remaining().await, ["finalized"]);
}

#[tokio::test]
async fn foreground_deletion_completes_when_the_dependent_stops_blocking() {
    let server = Server::start();
    let owner = server.create_owner("owner").await;
    let mut finalized = config_map("finalized");
    finalized["metadata"]["ownerReferences"] = json!([reference(&owner, true)]);
    finalized["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(CONFIG_MAPS, finalized).await.expect(201);
    server.delete_with_policy("owner", "Foreground").await;
    assert_eq!(server.remaining().await, ["finalized", "owner"]);
    let unblocked = json!({"metadata": {"ownerReferences": [reference(&owner, false)]}});
    server
        .merge(&format!("{CONFIG_MAPS}/finalized"), unblocked)
        .await
        .expect(200);
    assert_eq!(server.remaining().await, ["finalized"]);
}

#[tokio::test]
async fn orphan_deletion_keeps_dependents_without_the_owner_reference() {
    let server = Server::start();
    let owner = server.create_owner("owner").await;
    let other = server.create_owner("other").await;
    server
        .create_dependent("one", &[reference(&owner, true)])
        .await;
    server
        .create_dependent("two", &[reference(&owner, false), reference(&other, false)])
        .await;
    let deleting = server.delete_with_policy("owner", "Orphan").await;
    assert_eq!(deleting.json["metadata"]["finalizers"], json!(["orphan"]));
    assert_eq!(server.remaining().await, ["one", "other", "two"]);
    assert_eq!(
        server.get_config_map("one").await["metadata"].get("ownerReferences"),
        None
    );
    assert_eq!(
        server.get_config_map("two").await["metadata"]["ownerReferences"],
        json!([reference(&other, false)])
    );
}

#[tokio::test]
async fn a_cluster_scoped_owner_can_own_namespaced_objects() {
    let server = Server::start();
    let node = server
        .post("/api/v1/nodes", json!({"metadata": {"name": "n"}}))
        .await
        .expect(201);
    server
        .create_dependent("child", &[reference(&node, false)])
        .await;
    assert_eq!(server.remaining().await, ["child"]);
    server.delete("/api/v1/nodes/n").await.expect(200);
    assert_eq!(server.remaining().await, Vec::<String>::new());
}

#[tokio::test]
async fn an_owner_in_another_namespace_is_dangling() {
    let server = Server::start();
    let owner = server
        .post(
            "/api/v1/namespaces/kube-system/configmaps",
            config_map("owner"),
        )
        .await
        .expect(201);
    server
        .create_dependent("child", &[reference(&owner, false)])
        .await;
    assert_eq!(server.remaining().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_dependent_of_an_unserved_kind_is_kept() {
    let server = Server::start();
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "a", "uid": "u"});
    server.create_dependent("child", &[owner]).await;
    assert_eq!(server.remaining().await, ["child"]);
}

#[tokio::test]
async fn a_cluster_scoped_dependent_of_a_namespaced_owner_is_kept() {
    let server = Server::start();
    let owner = server.create_owner("owner").await;
    let node = json!({"metadata": {"name": "n", "ownerReferences": [reference(&owner, false)]}});
    server.post("/api/v1/nodes", node).await.expect(201);
    server.server.wait_idle().await;
    server.get("/api/v1/nodes/n").await.expect(200);
}

#[tokio::test]
async fn deleting_a_crd_deletes_the_dependents_of_its_objects() {
    let server = Server::with_widgets().await;
    let owner = server.post(WIDGETS, widget("a")).await.expect(201);
    server
        .create_dependent("child", &[reference(&owner, false)])
        .await;
    server
        .delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com")
        .await
        .expect(200);
    assert_eq!(server.remaining().await, Vec::<String>::new());
}

#[tokio::test]
async fn the_collector_respects_the_grace_period_of_a_scheduled_pod() {
    let server = Server::start();
    let owner = server.create_owner("owner").await;
    let mut scheduled = pod("a");
    scheduled["spec"]["nodeName"] = json!("n");
    scheduled["metadata"]["ownerReferences"] = json!([reference(&owner, false)]);
    server
        .post("/api/v1/namespaces/default/pods", scheduled)
        .await
        .expect(201);
    server
        .delete(&format!("{CONFIG_MAPS}/owner"))
        .await
        .expect(200);
    server.server.wait_idle().await;
    let pod = server
        .get("/api/v1/namespaces/default/pods/a")
        .await
        .expect(200);
    assert_eq!(pod.json["metadata"]["deletionGracePeriodSeconds"], 30);
}
