//! Deletion: at once, or held back by finalizers, grace, or what the request expects.

use super::subresources::pod;
use crate::support::*;
use serde_json::{Value, json};
use std::time::Duration;
use steersman_apiserver::Options;

const A: &str = "/apis/example.com/v1/namespaces/default/widgets/a";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn held(name: &str, finalizers: &[&str]) -> Value {
    let mut widget = widget(name);
    widget["metadata"]["finalizers"] = json!(finalizers);
    widget
}

/// Case 26.
#[tokio::test]
async fn an_object_with_finalizers_is_marked_and_stays() {
    let server = Server::with_widgets().await;
    let made = server.post(WIDGETS, held("a", &["example.com/one", "example.com/two"])).await.expect(201);
    let mut watch = server.watch(&format!("{WIDGETS}?watch=1&resourceVersion={}", made.rv())).await;
    let marked = server.delete(A).await.expect(200);
    let meta = &marked.json["metadata"];
    assert_eq!(marked.json["kind"], "Widget");
    assert!(meta["deletionTimestamp"].is_string());
    assert_eq!((&meta["deletionGracePeriodSeconds"], &meta["generation"]), (&json!(0), &json!(2)));
    assert!(marked.rv() > made.rv());
    let (kind, event) = watch.next().await.expect("an event");
    assert_eq!((kind.as_str(), &event), ("MODIFIED", &marked.json));

    let again = server.delete(A).await.expect(200);
    assert_eq!(again.json, marked.json);

    let more = json!({"metadata": {"finalizers": ["example.com/one", "example.com/two", "example.com/three"]}});
    let failure = server.merge(A, more).await.expect(422);
    assert_eq!(failure.json["details"]["causes"][0]["reason"], "FieldValueForbidden");
    let text = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found \
                new finalizers []string{\"example.com/three\"}";
    assert!(failure.message().ends_with(text), "{}", failure.text);

    let kept = server.merge(A, json!({"metadata": {"deletionTimestamp": null}})).await.expect(200);
    assert_eq!(kept.json, marked.json);

    let taken = server.post(WIDGETS, widget("a")).await.expect(409);
    assert_eq!(taken.reason(), "AlreadyExists");
    assert_eq!(taken.message(), "object is being deleted: widgets.example.com \"a\" already exists");

    // Its spec may still change, and that is the next event: none came for all that changed nothing.
    let changed = server.merge(A, json!({"spec": {"color": "blue"}})).await.expect(200);
    assert_eq!(changed.json["metadata"]["generation"], 3);
    let (kind, event) = watch.next().await.expect("an event");
    assert_eq!((kind.as_str(), &event["spec"]["color"]), ("MODIFIED", &json!("blue")));
}

/// Case 27.
#[tokio::test]
async fn with_its_last_finalizer_the_object_goes() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, held("a", &["example.com/one"])).await.expect(201);
    let marked = server.delete(A).await.expect(200);
    let mut watch = server.watch(&format!("{WIDGETS}?watch=1&resourceVersion={}", marked.rv())).await;
    let freed = server.merge(A, json!({"metadata": {"finalizers": null}})).await.expect(200);
    assert_eq!(freed.json["metadata"].get("finalizers"), None);
    assert_eq!(freed.rv(), marked.rv(), "the answer has the revision from before the deletion");
    let (kind, event) = watch.next().await.expect("an event");
    assert_eq!(kind, "DELETED");
    assert_eq!(event["metadata"]["finalizers"], json!(["example.com/one"]));
    assert!(rv(&event) > marked.rv());
    server.get(A).await.expect(404);
    server.post(WIDGETS, widget("a")).await.expect(201);
    assert_eq!(watch.next_name().await, ("ADDED".into(), "a".into()));
}

#[tokio::test]
async fn a_replacement_without_the_last_finalizer_deletes_too() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, held("a", &["example.com/one"])).await.expect(201);
    let mut marked = server.delete(A).await.expect(200).json;
    marked["metadata"]["finalizers"] = json!([]);
    server.put(A, marked).await.expect(200);
    server.get(A).await.expect(404);
}

/// Case 28.
#[tokio::test]
async fn a_deletion_may_expect_a_uid_and_a_revision() {
    let server = Server::with_widgets().await;
    let made = server.post(WIDGETS, widget("a")).await.expect(201);
    let uid = made.json["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let failure = server.delete_with(A, json!({"preconditions": {"uid": "other"}})).await.expect(409);
    assert_eq!((failure.reason(), &failure.json["details"]["kind"]), ("Conflict", &json!("Widget")));
    let text = format!("the UID in the precondition (other) does not match the UID in record ({uid})");
    assert!(failure.message().contains(&text), "{}", failure.text);
    let failure = server.delete_with(A, json!({"preconditions": {"resourceVersion": "1"}})).await.expect(409);
    let text = format!(
        "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({})",
        made.rv()
    );
    assert!(failure.message().contains(&text), "{}", failure.text);
    server.get(A).await.expect(200);
    let right = json!({"preconditions": {"uid": uid, "resourceVersion": made.rv().to_string()}});
    let gone = server.delete_with(A, right).await.expect(200);
    assert_eq!((&gone.json["kind"], &gone.json["status"]), (&json!("Status"), &json!("Success")));
    let details = json!({"name": "a", "group": "example.com", "kind": "widgets", "uid": uid});
    assert_eq!(gone.json["details"], details);
}

/// Case 29.
#[tokio::test]
async fn a_propagation_policy_leaves_its_finalizer_for_the_collector() {
    let server = Server::with(Options { controllers: false, ..Options::default() });
    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
        let path = format!("{CONFIG_MAPS}/a");
        let marked = server.delete_with(&path, json!({"propagationPolicy": policy})).await.expect(200);
        assert_eq!(marked.json["metadata"]["finalizers"], json!([finalizer]));
        assert!(marked.json["metadata"]["deletionTimestamp"].is_string());
        server.get(&path).await.expect(200);
        server.merge(&path, json!({"metadata": {"finalizers": []}})).await.expect(200);
        server.get(&path).await.expect(404);
    }
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let path = format!("{CONFIG_MAPS}/a");
    let failure = server.delete_with(&path, json!({"propagationPolicy": "Sideways"})).await.expect(422);
    assert_eq!(failure.cause_fields(), ["propagationPolicy"]);
    let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
    server.delete_with(&path, both).await.expect(422);
    server.get(&path).await.expect(200);
    server.delete_with(&path, json!({"propagationPolicy": "Background"})).await.expect(200);
    server.get(&path).await.expect(404);
}

#[tokio::test]
async fn without_a_body_the_query_says_how_to_delete() {
    let server = Server::with(Options { controllers: false, ..Options::default() });
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let marked = server.delete(&format!("{CONFIG_MAPS}/a?propagationPolicy=Foreground")).await.expect(200);
    assert_eq!(marked.json["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    server.post(CONFIG_MAPS, config_map("b")).await.expect(201);
    server.delete(&format!("{CONFIG_MAPS}/b?dryRun=All")).await.expect(200);
    server.get(&format!("{CONFIG_MAPS}/b")).await.expect(200);
    server.delete(&format!("{CONFIG_MAPS}/b?dryRun=Some")).await.expect(422);
}

#[tokio::test]
async fn most_types_answer_a_deletion_with_a_status_and_some_with_the_object() {
    let server = Server::start();
    let account = "/api/v1/namespaces/default/serviceaccounts";
    for (path, body, shown) in [
        (CONFIG_MAPS, config_map("a"), "Status"),
        ("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "a"}}), "Status"),
        (PODS, pod("a"), "Pod"),
        (account, json!({"metadata": {"name": "a"}}), "ServiceAccount"),
    ] {
        let made = server.post(path, body).await.expect(201);
        let gone = server.delete(&format!("{path}/a")).await.expect(200);
        assert_eq!(gone.json["kind"], shown);
        let uid = if shown == "Status" { &gone.json["details"]["uid"] } else { &gone.json["metadata"]["uid"] };
        assert_eq!(*uid, made.json["metadata"]["uid"]);
        server.get(&format!("{path}/a")).await.expect(404);
    }
}

/// Case 31.
#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_is_given_time_to_end() {
    let started = "2026-01-02T03:04:05Z".parse().ok();
    let server = Server::with(Options { started, ..Options::default() });
    server.post(PODS, pod("unplaced")).await.expect(201);
    server.delete(&format!("{PODS}/unplaced")).await.expect(200);
    server.get(&format!("{PODS}/unplaced")).await.expect(404);

    let mut placed = pod("placed");
    placed["spec"]["nodeName"] = json!("n");
    let made = server.post(PODS, placed).await.expect(201);
    assert_eq!(made.json["metadata"]["generation"], 1);
    let path = &format!("{PODS}/placed");
    let marked = server.delete(path).await.expect(200);
    let meta = &marked.json["metadata"];
    assert_eq!(meta["deletionTimestamp"], "2026-01-02T03:04:35Z");
    assert_eq!((&meta["deletionGracePeriodSeconds"], &meta["generation"]), (&json!(30), &json!(2)));

    let longer = server.delete_with(path, json!({"gracePeriodSeconds": 60})).await.expect(200);
    assert_eq!(longer.json, marked.json);
    tokio::time::advance(Duration::from_secs(2)).await;
    let shorter = server.delete_with(path, json!({"gracePeriodSeconds": 5})).await.expect(200);
    let meta = &shorter.json["metadata"];
    // Counted from when the deletion began.
    assert_eq!(meta["deletionTimestamp"], "2026-01-02T03:04:10Z");
    assert_eq!((&meta["deletionGracePeriodSeconds"], &meta["generation"]), (&json!(5), &json!(2)));
    server.delete(path).await.expect(200);
    server.get(path).await.expect(200);
    server.delete(&format!("{path}?gracePeriodSeconds=0")).await.expect(200);
    server.get(path).await.expect(404);
}

#[tokio::test]
async fn a_pod_gets_the_time_that_its_spec_says_unless_it_has_ended() {
    let server = Server::start();
    for (name, phase, grace) in
        [("running", "Running", Some(7)), ("failed", "Failed", None), ("done", "Succeeded", None)]
    {
        let mut placed = pod(name);
        placed["spec"]["nodeName"] = json!("n");
        placed["spec"]["terminationGracePeriodSeconds"] = json!(7);
        server.post(PODS, placed).await.expect(201);
        let path = format!("{PODS}/{name}");
        server.merge(&format!("{path}/status"), json!({"status": {"phase": phase}})).await.expect(200);
        let gone = server.delete(&path).await.expect(200);
        match grace {
            Some(grace) => {
                assert_eq!(gone.json["metadata"]["deletionGracePeriodSeconds"], grace);
                server.get(&path).await.expect(200);
            }
            None => drop(server.get(&path).await.expect(404)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn more_time_than_there_is_can_still_be_shortened() {
    let started = "2026-01-02T03:04:05Z".parse().ok();
    let server = Server::with(Options { started, ..Options::default() });
    for (name, grace) in [("long", 99_999_999_999_999), ("longest", i64::MAX)] {
        let mut placed = pod(name);
        placed["spec"]["nodeName"] = json!("n");
        server.post(PODS, placed).await.expect(201);
        let path = format!("{PODS}/{name}");
        let marked = server.delete(&format!("{path}?gracePeriodSeconds={grace}")).await.expect(200);
        assert_eq!(marked.json["metadata"]["deletionTimestamp"], "9999-12-30T22:00:00Z");
        let shorter = server.delete(&format!("{path}?gracePeriodSeconds=3")).await.expect(200);
        assert_eq!(shorter.json["metadata"]["deletionTimestamp"], "2026-01-02T03:04:08Z");
    }
}

#[tokio::test]
async fn grace_means_nothing_to_other_types() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    server.delete_with(&format!("{CONFIG_MAPS}/a"), json!({"gracePeriodSeconds": 30})).await.expect(200);
    server.get(&format!("{CONFIG_MAPS}/a")).await.expect(404);
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector_one_event_for_each() {
    let server = Server::start();
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut body = config_map(name);
        body["metadata"]["labels"] = json!({"app": app});
        server.post(CONFIG_MAPS, body).await.expect(201);
    }
    let from = server.server.revision();
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
    let pretended = server.delete(&format!("{CONFIG_MAPS}?labelSelector=app%3Dx&dryRun=All")).await.expect(200);
    assert_eq!(pretended.names(), ["a", "c"]);
    assert_eq!(server.server.revision(), from);
    let gone = server.delete(&format!("{CONFIG_MAPS}?labelSelector=app%3Dx")).await.expect(200);
    assert_eq!((&gone.json["kind"], gone.names()), (&json!("ConfigMapList"), vec!["a", "c"]));
    assert_eq!(watch.next_name().await, ("DELETED".into(), "a".into()));
    assert_eq!(watch.next_name().await, ("DELETED".into(), "c".into()));
    assert_eq!(server.get(CONFIG_MAPS).await.names(), ["b"]);
    server.delete(&format!("{CONFIG_MAPS}?propagationPolicy=Sideways")).await.expect(422);
}

#[tokio::test]
async fn what_is_not_there_cannot_be_deleted() {
    let server = Server::with_widgets().await;
    let failure = server.delete(A).await.expect(404);
    assert_eq!(failure.message(), "widgets.example.com \"a\" not found");
    assert_eq!(failure.json["details"], json!({"name": "a", "group": "example.com", "kind": "widgets"}));
}
