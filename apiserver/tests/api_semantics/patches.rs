//! JSON patches and merge patches.

use crate::support::*;
use serde_json::json;

const A: &str = "/apis/example.com/v1/namespaces/default/widgets/a";
const REJECTED: &str = "the server rejected our request due to an error in our request";

/// The first patch of kube-rs' `finalizer()`.
#[tokio::test]
async fn a_json_patch_test_for_null_matches_a_missing_field() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let patch = json!([
        {"op": "test", "path": "/metadata/finalizers", "value": null},
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/f"]},
    ]);
    let patched = server.json_patch(A, patch.clone()).await.expect(200);
    assert_eq!(
        patched.json["metadata"]["finalizers"],
        json!(["example.com/f"])
    );
    let failure = server.json_patch(A, patch).await.expect(422);
    assert_eq!((failure.reason(), failure.message()), ("Invalid", REJECTED));
    let patch = json!([
        {"op": "test", "path": "/metadata/finalizers/0", "value": "example.com/f"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]);
    let patched = server.json_patch(A, patch).await.expect(200);
    assert_eq!(patched.json["metadata"].get("finalizers"), None);
}

#[tokio::test]
async fn a_json_patch_can_replace_a_missing_field_and_use_negative_indices() {
    let server = Server::with_widgets().await;
    let mut created = widget("a");
    created["spec"]["tags"] = json!(["x", "y"]);
    server.post(WIDGETS, created).await.expect(201);
    let patch = json!([{"op": "replace", "path": "/spec/note", "value": "new"}]);
    assert_eq!(
        server.json_patch(A, patch).await.expect(200).json["spec"]["note"],
        "new"
    );
    let patch = json!([{"op": "replace", "path": "/spec/tags/-1", "value": "z"}]);
    assert_eq!(
        server.json_patch(A, patch).await.expect(200).json["spec"]["tags"],
        json!(["x", "z"])
    );
}

#[tokio::test]
async fn a_json_patch_that_cannot_be_applied_is_rejected() {
    let server = Server::with_widgets().await;
    let created = server.post(WIDGETS, widget("a")).await.expect(201);
    for patch in [
        json!([{"op": "test", "path": "/spec/color", "value": "blue"}]),
        json!([{"op": "remove", "path": "/spec/nothing"}]),
        json!([{"op": "replace", "path": "/spec/note", "value": "kept?"}, {"op": "remove", "path": "/spec/nothing"}]),
    ] {
        let failure = server.json_patch(A, patch).await.expect(422);
        assert_eq!((failure.reason(), failure.message()), ("Invalid", REJECTED));
    }
    for patch in [json!({"op": "test"}), json!("text")] {
        assert_eq!(
            server.json_patch(A, patch).await.expect(400).reason(),
            "BadRequest"
        );
    }
    assert_eq!(server.get(A).await.json, created.json);
}

#[tokio::test]
async fn a_json_patch_with_too_many_operations_is_rejected() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let patch = vec![json!({"op": "test", "path": "/data/k", "value": "v"}); 10_001];
    let failure = server
        .json_patch(&format!("{CONFIG_MAPS}/a"), json!(patch))
        .await
        .expect(413);
    assert_eq!(failure.reason(), "RequestEntityTooLarge");
}

#[tokio::test]
async fn a_merge_patch_sets_replaces_lists_and_removes_with_null() {
    let server = Server::with_widgets().await;
    let mut created = widget("a");
    created["spec"]["tags"] = json!(["x", "y"]);
    created["metadata"]["labels"] = json!({"a": "1", "b": "2"});
    server.post(WIDGETS, created).await.expect(201);
    let patch = json!({"metadata": {"labels": {"a": null, "c": "3"}}, "spec": {"tags": ["z"]}});
    let patched = server.merge(A, patch).await.expect(200);
    assert_eq!(
        patched.json["metadata"]["labels"],
        json!({"b": "2", "c": "3"})
    );
    assert_eq!(
        patched.json["spec"],
        json!({"color": "red", "replicas": 1, "tags": ["z"]})
    );
}

#[tokio::test]
async fn a_merge_patch_that_is_not_an_object_or_sets_wrong_types_is_rejected() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let map = &format!("{CONFIG_MAPS}/a");
    for path in [A, map] {
        assert_eq!(
            server.merge(path, json!(["no"])).await.expect(400).reason(),
            "BadRequest"
        );
    }
    let failure = server
        .merge(map, json!({"data": {"k": 1}}))
        .await
        .expect(422);
    assert_eq!(failure.cause_fields(), ["patch"]);
    assert!(
        failure
            .message()
            .starts_with(" \"\" is invalid: patch: Invalid value: \"{\\\""),
        "{}",
        failure.text
    );
    let failure = server
        .merge(A, json!({"spec": {"color": 1}}))
        .await
        .expect(422);
    assert_eq!(
        failure.json["details"]["causes"][0]["reason"],
        "FieldValueTypeInvalid"
    );
    assert_eq!(failure.cause_fields(), ["spec.color", "spec.color"]);
}

#[tokio::test]
async fn a_patch_needs_a_supported_content_type() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    for content_type in [
        "application/json",
        "application/strategic-merge-patch+json",
        "",
    ] {
        let failure = server
            .send("PATCH", A, &[("content-type", content_type)], "{}")
            .await
            .expect(415);
        assert_eq!(failure.reason(), "UnsupportedMediaType");
        assert!(
            failure.message().contains(MERGE) && failure.message().contains(JSON_PATCH),
            "{}",
            failure.text
        );
        assert!(!failure.message().contains("strategic"), "{}", failure.text);
    }
    let failure = server
        .merge(&format!("{A}?force=true"), json!({}))
        .await
        .expect(422);
    assert_eq!(failure.cause_fields(), ["force"]);
}

#[tokio::test]
async fn a_resource_version_in_a_merge_patch_is_a_precondition() {
    let server = Server::with_widgets().await;
    let created = server.post(WIDGETS, widget("a")).await.expect(201);
    let at = |version: &serde_json::Value| json!({"metadata": {"resourceVersion": version}, "spec": {"note": "x"}});
    server
        .merge(A, json!({"spec": {"color": "blue"}}))
        .await
        .expect(200);
    let failure = server
        .merge(A, at(&created.json["metadata"]["resourceVersion"]))
        .await
        .expect(409);
    assert_eq!(
        (failure.reason(), &failure.json["details"]["kind"]),
        ("Conflict", &json!("widgets"))
    );
    let now = server.get(A).await.json["metadata"]["resourceVersion"].clone();
    server.merge(A, at(&now)).await.expect(200);
}

#[tokio::test]
async fn patching_a_missing_object_is_not_found() {
    let server = Server::with_widgets().await;
    server.merge(A, json!({})).await.expect(404);
    server.json_patch(A, json!([])).await.expect(404);
}
