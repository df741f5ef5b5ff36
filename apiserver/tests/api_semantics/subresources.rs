//! The status and scale subresources.

use crate::support::*;
use serde_json::{Value, json};

const A: &str = "/apis/example.com/v1/namespaces/default/widgets/a";

pub(super) fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "a", "image": "i"}]}},
    }})
}

pub(super) fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "containers": [{"name": "a", "image": "i"}],
    }})
}

/// Returns a patch of metadata, spec and status, to see which parts a status update accepts.
fn full_patch() -> Value {
    json!({
        "metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}, "finalizers": ["example.com/f"]},
        "spec": {"color": "blue", "replicas": 7, "priority": 7},
        "status": {"phase": "Running", "replicas": 2},
    })
}

#[tokio::test]
async fn a_status_update_of_a_custom_resource_changes_only_the_status() {
    let server = Server::with_widgets().await;
    let created = server.post(WIDGETS, widget("a")).await.expect(201);
    let updated = server
        .merge(&format!("{A}/status"), full_patch())
        .await
        .expect(200);
    assert_eq!(
        updated.json["status"],
        json!({"phase": "Running", "replicas": 2})
    );
    assert_eq!(updated.json["spec"], created.json["spec"]);
    for field in ["labels", "annotations", "finalizers"] {
        assert_eq!(updated.json["metadata"].get(field), None, "{field}");
    }
    assert_eq!(server.get(A).await.json, updated.json);
    assert_eq!(
        server.get(&format!("{A}/status")).await.expect(200).json,
        updated.json
    );
}

#[tokio::test]
async fn a_put_without_a_status_keeps_the_status() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let updated = server
        .merge(&format!("{A}/status"), json!({"status": {"phase": "Done"}}))
        .await
        .expect(200);
    let mut replacement = widget("a");
    replacement["metadata"]["resourceVersion"] =
        updated.json["metadata"]["resourceVersion"].clone();
    replacement["spec"]["color"] = json!("green");
    let put = server.put(A, replacement).await.expect(200);
    assert_eq!(
        (&put.json["spec"]["color"], &put.json["status"]["phase"]),
        (&json!("green"), &json!("Done"))
    );
}

#[tokio::test]
async fn a_status_update_of_a_deployment_changes_annotations_but_not_labels() {
    let server = Server::start();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let created = server.post(path, deployment("a")).await.expect(201);
    let mut full_patch = full_patch();
    full_patch["spec"] = json!({"replicas": 7});
    full_patch["status"] = json!({"replicas": 2});
    let updated = server
        .merge(&format!("{path}/a/status"), full_patch)
        .await
        .expect(200);
    assert_eq!(updated.json["metadata"]["annotations"]["a"], "1");
    assert_eq!(updated.json["metadata"].get("labels"), None);
    assert_eq!(updated.json["spec"], created.json["spec"]);
    assert_eq!(updated.json["status"]["replicas"], 2);
    assert_eq!(updated.json["metadata"]["generation"], 1);
}

#[tokio::test]
async fn a_status_update_of_a_pod_changes_labels_annotations_and_finalizers() {
    let server = Server::start();
    let path = "/api/v1/namespaces/default/pods";
    let created = server.post(path, pod("a")).await.expect(201);
    let mut full_patch = full_patch();
    full_patch["status"] = json!({"phase": "Running"});
    full_patch["spec"] = json!({"priority": 7});
    let updated = server
        .merge(&format!("{path}/a/status"), full_patch)
        .await
        .expect(200);
    let meta = &updated.json["metadata"];
    assert_eq!(meta["labels"]["l"], "1");
    assert_eq!(meta["annotations"]["a"], "1");
    assert_eq!(meta["finalizers"], json!(["example.com/f"]));
    assert_eq!(updated.json["status"]["phase"], "Running");
    assert_eq!(updated.json["spec"], created.json["spec"]);
}

#[tokio::test]
async fn a_status_update_checks_the_resource_version() {
    let server = Server::with_widgets().await;
    let created = server.post(WIDGETS, widget("a")).await.expect(201);
    let status = format!("{A}/status");
    let mut body = widget("a");
    body["status"] = json!({"phase": "One"});
    let failure = server.put(&status, body.clone()).await.expect(422);
    assert_eq!(failure.cause_fields(), ["metadata.resourceVersion"]);
    body["metadata"]["resourceVersion"] = created.json["metadata"]["resourceVersion"].clone();
    let first = server.put(&status, body.clone()).await.expect(200);
    assert_eq!(first.json["status"]["phase"], "One");
    body["status"]["phase"] = json!("Two");
    assert_eq!(
        server.put(&status, body).await.expect(409).reason(),
        "Conflict"
    );
    let stale = json!({"metadata": {"resourceVersion": "1"}, "status": {"phase": "Two"}});
    server.merge(&status, stale).await.expect(409);
}

#[tokio::test]
async fn a_status_update_validates_only_the_status() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let status = format!("{A}/status");
    let failure = server
        .merge(&status, json!({"status": {"replicas": "two"}}))
        .await
        .expect(422);
    // Rejected by the schema and by the scale subresource, which reads this field.
    assert_eq!(
        failure.cause_fields(),
        [".status.replicas", "status.replicas"]
    );
    let ignored = json!({"spec": {"color": "pink"}, "status": {"phase": "Done"}});
    let updated = server.merge(&status, ignored).await.expect(200);
    assert_eq!(
        (
            &updated.json["spec"]["color"],
            &updated.json["status"]["phase"]
        ),
        (&json!("red"), &json!("Done"))
    );
}

/// The object was stored under an older schema. A controller must still be able to report its
/// status.
#[tokio::test]
async fn a_status_update_succeeds_although_the_stored_spec_is_invalid() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let mut narrowed = widgets();
    for version in narrowed["spec"]["versions"]
        .as_array_mut()
        .expect("versions")
    {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"] =
            json!(["color", "note"]);
    }
    server.server.install(narrowed).await.expect("a CRD");
    server.server.wait_idle().await;
    server.post(WIDGETS, widget("b")).await.expect(422);
    server
        .merge(&format!("{A}/status"), json!({"status": {"phase": "Done"}}))
        .await
        .expect(200);
}

#[tokio::test]
async fn the_scale_subresource_can_be_read_put_and_patched() {
    let server = Server::with_widgets().await;
    let created = server.post(WIDGETS, widget("a")).await.expect(201);
    let status = json!({"status": {"replicas": 2, "selector": "app=a"}});
    let updated = server
        .merge(&format!("{A}/status"), status)
        .await
        .expect(200);
    let path = &format!("{A}/scale");
    let scale = server.get(path).await.expect(200);
    assert_eq!(
        (&scale.json["kind"], &scale.json["apiVersion"]),
        (&json!("Scale"), &json!("autoscaling/v1"))
    );
    assert_eq!(scale.json["spec"], json!({"replicas": 1}));
    assert_eq!(
        scale.json["status"],
        json!({"replicas": 2, "selector": "app=a"})
    );
    assert_eq!(
        (scale.rv(), &scale.json["metadata"]["uid"]),
        (updated.rv(), &created.json["metadata"]["uid"])
    );

    let mut wanted = scale.json.clone();
    wanted["spec"]["replicas"] = json!(5);
    let put = server.put(path, wanted.clone()).await.expect(200);
    assert_eq!(put.json["spec"]["replicas"], 5);
    let scaled = server.get(A).await;
    assert_eq!(
        (
            &scaled.json["spec"]["replicas"],
            &scaled.json["metadata"]["generation"]
        ),
        (&json!(5), &json!(2))
    );
    assert_eq!(scaled.rv(), put.rv());
    assert_eq!(scaled.json["status"], updated.json["status"]);

    wanted["spec"]["replicas"] = json!(6);
    server.put(path, wanted).await.expect(409);
    let failure = server
        .put(
            path,
            json!({"metadata": {"name": "a"}, "spec": {"replicas": 50}}),
        )
        .await
        .expect(422);
    assert_eq!(failure.cause_fields(), ["spec.replicas"]);
    server
        .put(
            path,
            json!({"metadata": {"name": "a"}, "spec": {"replicas": -1}}),
        )
        .await
        .expect(422);
    let patched = server
        .merge(path, json!({"spec": {"replicas": 7}}))
        .await
        .expect(200);
    assert_eq!(patched.json["spec"]["replicas"], 7);
    assert_eq!(server.get(A).await.json["metadata"]["generation"], 3);
}

#[tokio::test]
async fn scale_is_not_found_on_a_version_without_it() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let path = "/apis/example.com/v1beta1/namespaces/default/widgets/a/scale";
    server.get(path).await.expect(404);
    server
        .put(path, json!({"spec": {"replicas": 5}}))
        .await
        .expect(404);
    server
        .get("/api/v1/namespaces/default/configmaps/a/status")
        .await
        .expect(404);
}

#[tokio::test]
async fn a_deployment_has_a_scale_with_its_selector() {
    let server = Server::start();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    server.post(path, deployment("a")).await.expect(201);
    let scale = server.get(&format!("{path}/a/scale")).await.expect(200);
    assert_eq!(
        (
            &scale.json["spec"]["replicas"],
            &scale.json["status"]["selector"]
        ),
        (&json!(1), &json!("app=a"))
    );
    server
        .merge(&format!("{path}/a/scale"), json!({"spec": {"replicas": 4}}))
        .await
        .expect(200);
    let scaled = server.get(&format!("{path}/a")).await;
    assert_eq!(
        (
            &scaled.json["spec"]["replicas"],
            &scaled.json["metadata"]["generation"]
        ),
        (&json!(4), &json!(2))
    );
}
