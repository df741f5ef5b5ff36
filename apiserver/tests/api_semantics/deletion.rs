//! Deletion: finalizers, preconditions, propagation policies, grace periods and collections.

use super::subresources::pod;
use crate::support::*;
use serde_json::{Value, json};
use std::time::Duration;
use steersman_apiserver::Options;

const A: &str = "/apis/example.com/v1/namespaces/default/widgets/a";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn finalized_widget(name: &str, finalizers: &[&str]) -> Value {
    let mut widget = widget(name);
    widget["metadata"]["finalizers"] = json!(finalizers);
    widget
}

#[tokio::test]
async fn deleting_an_object_with_finalizers_only_sets_its_deletion_timestamp() {
    let server = Server::with_widgets().await;
    let created = server
        .post(
            WIDGETS,
            finalized_widget("a", &["example.com/one", "example.com/two"]),
        )
        .await
        .expect(201);
    let mut watch = server
        .watch(&format!(
            "{WIDGETS}?watch=1&resourceVersion={}",
            created.rv()
        ))
        .await;
    let deleting = server.delete(A).await.expect(200);
    let meta = &deleting.json["metadata"];
    assert_eq!(deleting.json["kind"], "Widget");
    assert!(meta["deletionTimestamp"].is_string());
    assert_eq!(
        (&meta["deletionGracePeriodSeconds"], &meta["generation"]),
        (&json!(0), &json!(2))
    );
    assert!(deleting.rv() > created.rv());
    let (kind, event) = watch.next().await.expect("an event");
    assert_eq!((kind.as_str(), &event), ("MODIFIED", &deleting.json));

    let second = server.delete(A).await.expect(200);
    assert_eq!(second.json, deleting.json);

    let more = json!({"metadata": {"finalizers": ["example.com/one", "example.com/two", "example.com/three"]}});
    let failure = server.merge(A, more).await.expect(422);
    assert_eq!(
        failure.json["details"]["causes"][0]["reason"],
        "FieldValueForbidden"
    );
    let text = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found \
                new finalizers []string{\"example.com/three\"}";
    assert!(failure.message().ends_with(text), "{}", failure.text);

    let kept = server
        .merge(A, json!({"metadata": {"deletionTimestamp": null}}))
        .await
        .expect(200);
    assert_eq!(kept.json, deleting.json);

    let exists = server.post(WIDGETS, widget("a")).await.expect(409);
    assert_eq!(exists.reason(), "AlreadyExists");
    assert_eq!(
        exists.message(),
        "object is being deleted: widgets.example.com \"a\" already exists"
    );

    // The spec can still change. Its event is the next one, so the rejected requests caused none.
    let changed = server
        .merge(A, json!({"spec": {"color": "blue"}}))
        .await
        .expect(200);
    assert_eq!(changed.json["metadata"]["generation"], 3);
    let (kind, event) = watch.next().await.expect("an event");
    assert_eq!(
        (kind.as_str(), &event["spec"]["color"]),
        ("MODIFIED", &json!("blue"))
    );
}

#[tokio::test]
async fn removing_the_last_finalizer_deletes_the_object() {
    let server = Server::with_widgets().await;
    server
        .post(WIDGETS, finalized_widget("a", &["example.com/one"]))
        .await
        .expect(201);
    let deleting = server.delete(A).await.expect(200);
    let mut watch = server
        .watch(&format!(
            "{WIDGETS}?watch=1&resourceVersion={}",
            deleting.rv()
        ))
        .await;
    let released = server
        .merge(A, json!({"metadata": {"finalizers": null}}))
        .await
        .expect(200);
    assert_eq!(released.json["metadata"].get("finalizers"), None);
    assert_eq!(
        released.rv(),
        deleting.rv(),
        "the response has the resource version before the deletion"
    );
    let (kind, event) = watch.next().await.expect("an event");
    assert_eq!(kind, "DELETED");
    assert_eq!(event["metadata"]["finalizers"], json!(["example.com/one"]));
    assert!(rv(&event) > deleting.rv());
    server.get(A).await.expect(404);
    server.post(WIDGETS, widget("a")).await.expect(201);
    assert_eq!(watch.next_name().await, ("ADDED".into(), "a".into()));
}

#[tokio::test]
async fn a_put_without_the_last_finalizer_deletes_the_object() {
    let server = Server::with_widgets().await;
    server
        .post(WIDGETS, finalized_widget("a", &["example.com/one"]))
        .await
        .expect(201);
    let mut deleting = server.delete(A).await.expect(200).json;
    deleting["metadata"]["finalizers"] = json!([]);
    server.put(A, deleting).await.expect(200);
    server.get(A).await.expect(404);
}

#[tokio::test]
async fn preconditions_on_uid_and_resource_version_are_checked() {
    let server = Server::with_widgets().await;
    let created = server.post(WIDGETS, widget("a")).await.expect(201);
    let uid = created.json["metadata"]["uid"]
        .as_str()
        .expect("a uid")
        .to_owned();
    let failure = server
        .delete_with(A, json!({"preconditions": {"uid": "other"}}))
        .await
        .expect(409);
    assert_eq!(
        (failure.reason(), &failure.json["details"]["kind"]),
        ("Conflict", &json!("Widget"))
    );
    let text =
        format!("the UID in the precondition (other) does not match the UID in record ({uid})");
    assert!(failure.message().contains(&text), "{}", failure.text);
    let failure = server
        .delete_with(A, json!({"preconditions": {"resourceVersion": "1"}}))
        .await
        .expect(409);
    let text = format!(
        "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({})",
        created.rv()
    );
    assert!(failure.message().contains(&text), "{}", failure.text);
    server.get(A).await.expect(200);
    let matching =
        json!({"preconditions": {"uid": uid, "resourceVersion": created.rv().to_string()}});
    let deleted = server.delete_with(A, matching).await.expect(200);
    assert_eq!(
        (&deleted.json["kind"], &deleted.json["status"]),
        (&json!("Status"), &json!("Success"))
    );
    let details = json!({"name": "a", "group": "example.com", "kind": "widgets", "uid": uid});
    assert_eq!(deleted.json["details"], details);
}

#[tokio::test]
async fn a_propagation_policy_adds_the_finalizer_of_the_garbage_collector() {
    let server = Server::with_options(Options {
        controllers: false,
        ..Options::default()
    });
    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
        let path = format!("{CONFIG_MAPS}/a");
        let deleting = server
            .delete_with(&path, json!({"propagationPolicy": policy}))
            .await
            .expect(200);
        assert_eq!(deleting.json["metadata"]["finalizers"], json!([finalizer]));
        assert!(deleting.json["metadata"]["deletionTimestamp"].is_string());
        server.get(&path).await.expect(200);
        server
            .merge(&path, json!({"metadata": {"finalizers": []}}))
            .await
            .expect(200);
        server.get(&path).await.expect(404);
    }
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let path = format!("{CONFIG_MAPS}/a");
    let failure = server
        .delete_with(&path, json!({"propagationPolicy": "Sideways"}))
        .await
        .expect(422);
    assert_eq!(failure.cause_fields(), ["propagationPolicy"]);
    let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
    server.delete_with(&path, both).await.expect(422);
    server.get(&path).await.expect(200);
    server
        .delete_with(&path, json!({"propagationPolicy": "Background"}))
        .await
        .expect(200);
    server.get(&path).await.expect(404);
}

#[tokio::test]
async fn delete_options_can_be_query_parameters() {
    let server = Server::with_options(Options {
        controllers: false,
        ..Options::default()
    });
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let deleting = server
        .delete(&format!("{CONFIG_MAPS}/a?propagationPolicy=Foreground"))
        .await
        .expect(200);
    assert_eq!(
        deleting.json["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    server.post(CONFIG_MAPS, config_map("b")).await.expect(201);
    server
        .delete(&format!("{CONFIG_MAPS}/b?dryRun=All"))
        .await
        .expect(200);
    server.get(&format!("{CONFIG_MAPS}/b")).await.expect(200);
    server
        .delete(&format!("{CONFIG_MAPS}/b?dryRun=Some"))
        .await
        .expect(422);
}

#[tokio::test]
async fn a_deletion_returns_a_status_or_the_object_depending_on_the_kind() {
    let server = Server::start();
    let account = "/api/v1/namespaces/default/serviceaccounts";
    for (path, body, shown) in [
        (CONFIG_MAPS, config_map("a"), "Status"),
        (
            "/api/v1/namespaces/default/secrets",
            json!({"metadata": {"name": "a"}}),
            "Status",
        ),
        (PODS, pod("a"), "Pod"),
        (
            account,
            json!({"metadata": {"name": "a"}}),
            "ServiceAccount",
        ),
    ] {
        let created = server.post(path, body).await.expect(201);
        let deleted = server.delete(&format!("{path}/a")).await.expect(200);
        assert_eq!(deleted.json["kind"], shown);
        let uid = if shown == "Status" {
            &deleted.json["details"]["uid"]
        } else {
            &deleted.json["metadata"]["uid"]
        };
        assert_eq!(*uid, created.json["metadata"]["uid"]);
        server.get(&format!("{path}/a")).await.expect(404);
    }
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_pod_is_deleted_after_its_grace_period() {
    let started = "2026-01-02T03:04:05Z".parse().ok();
    let server = Server::with_options(Options {
        start_time: started,
        ..Options::default()
    });
    server.post(PODS, pod("unscheduled")).await.expect(201);
    server
        .delete(&format!("{PODS}/unscheduled"))
        .await
        .expect(200);
    server.get(&format!("{PODS}/unscheduled")).await.expect(404);

    let mut scheduled = pod("scheduled");
    scheduled["spec"]["nodeName"] = json!("n");
    let created = server.post(PODS, scheduled).await.expect(201);
    assert_eq!(created.json["metadata"]["generation"], 1);
    let path = &format!("{PODS}/scheduled");
    let deleting = server.delete(path).await.expect(200);
    let meta = &deleting.json["metadata"];
    assert_eq!(meta["deletionTimestamp"], "2026-01-02T03:04:35Z");
    assert_eq!(
        (&meta["deletionGracePeriodSeconds"], &meta["generation"]),
        (&json!(30), &json!(2))
    );

    let longer = server
        .delete_with(path, json!({"gracePeriodSeconds": 60}))
        .await
        .expect(200);
    assert_eq!(longer.json, deleting.json);
    tokio::time::advance(Duration::from_secs(2)).await;
    let shorter = server
        .delete_with(path, json!({"gracePeriodSeconds": 5}))
        .await
        .expect(200);
    let meta = &shorter.json["metadata"];
    // Counted from the first deletion request.
    assert_eq!(meta["deletionTimestamp"], "2026-01-02T03:04:10Z");
    assert_eq!(
        (&meta["deletionGracePeriodSeconds"], &meta["generation"]),
        (&json!(5), &json!(2))
    );
    server.delete(path).await.expect(200);
    server.get(path).await.expect(200);
    server
        .delete(&format!("{path}?gracePeriodSeconds=0"))
        .await
        .expect(200);
    server.get(path).await.expect(404);
}

#[tokio::test]
async fn a_running_pod_has_the_grace_period_of_its_spec_and_a_finished_pod_none() {
    let server = Server::start();
    for (name, phase, grace) in [
        ("running", "Running", Some(7)),
        ("failed", "Failed", None),
        ("done", "Succeeded", None),
    ] {
        let mut scheduled = pod(name);
        scheduled["spec"]["nodeName"] = json!("n");
        scheduled["spec"]["terminationGracePeriodSeconds"] = json!(7);
        server.post(PODS, scheduled).await.expect(201);
        let path = format!("{PODS}/{name}");
        server
            .merge(
                &format!("{path}/status"),
                json!({"status": {"phase": phase}}),
            )
            .await
            .expect(200);
        let deleted = server.delete(&path).await.expect(200);
        match grace {
            Some(grace) => {
                assert_eq!(
                    deleted.json["metadata"]["deletionGracePeriodSeconds"],
                    grace
                );
                server.get(&path).await.expect(200);
            }
            None => drop(server.get(&path).await.expect(404)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_huge_grace_period_is_capped_and_can_be_shortened() {
    let started = "2026-01-02T03:04:05Z".parse().ok();
    let server = Server::with_options(Options {
        start_time: started,
        ..Options::default()
    });
    for (name, grace) in [("long", 99_999_999_999_999), ("longest", i64::MAX)] {
        let mut scheduled = pod(name);
        scheduled["spec"]["nodeName"] = json!("n");
        server.post(PODS, scheduled).await.expect(201);
        let path = format!("{PODS}/{name}");
        let deleting = server
            .delete(&format!("{path}?gracePeriodSeconds={grace}"))
            .await
            .expect(200);
        assert_eq!(
            deleting.json["metadata"]["deletionTimestamp"],
            "9999-12-30T22:00:00Z"
        );
        let shorter = server
            .delete(&format!("{path}?gracePeriodSeconds=3"))
            .await
            .expect(200);
        assert_eq!(
            shorter.json["metadata"]["deletionTimestamp"],
            "2026-01-02T03:04:08Z"
        );
    }
}

#[tokio::test]
async fn kinds_other_than_pods_ignore_the_grace_period() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    server
        .delete_with(
            &format!("{CONFIG_MAPS}/a"),
            json!({"gracePeriodSeconds": 30}),
        )
        .await
        .expect(200);
    server.get(&format!("{CONFIG_MAPS}/a")).await.expect(404);
}

#[tokio::test]
async fn delete_collection_deletes_the_selected_objects_with_one_event_each() {
    let server = Server::start();
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut body = config_map(name);
        body["metadata"]["labels"] = json!({"app": app});
        server.post(CONFIG_MAPS, body).await.expect(201);
    }
    let from = server.server.revision();
    let mut watch = server
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}"))
        .await;
    let dry_run = server
        .delete(&format!("{CONFIG_MAPS}?labelSelector=app%3Dx&dryRun=All"))
        .await
        .expect(200);
    assert_eq!(dry_run.names(), ["a", "c"]);
    assert_eq!(server.server.revision(), from);
    let deleted = server
        .delete(&format!("{CONFIG_MAPS}?labelSelector=app%3Dx"))
        .await
        .expect(200);
    assert_eq!(
        (&deleted.json["kind"], deleted.names()),
        (&json!("ConfigMapList"), vec!["a", "c"])
    );
    assert_eq!(watch.next_name().await, ("DELETED".into(), "a".into()));
    assert_eq!(watch.next_name().await, ("DELETED".into(), "c".into()));
    assert_eq!(server.get(CONFIG_MAPS).await.names(), ["b"]);
    server
        .delete(&format!("{CONFIG_MAPS}?propagationPolicy=Sideways"))
        .await
        .expect(422);
}

#[tokio::test]
async fn deleting_a_missing_object_is_not_found() {
    let server = Server::with_widgets().await;
    let failure = server.delete(A).await.expect(404);
    assert_eq!(failure.message(), "widgets.example.com \"a\" not found");
    assert_eq!(
        failure.json["details"],
        json!({"name": "a", "group": "example.com", "kind": "widgets"})
    );
}
