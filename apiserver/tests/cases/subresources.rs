//! Status and scale: parts of an object with doors of their own.

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

/// A patch of everything that a status update may or may not take.
fn everything() -> Value {
    json!({
        "metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}, "finalizers": ["example.com/f"]},
        "spec": {"color": "blue", "replicas": 7, "priority": 7},
        "status": {"phase": "Running", "replicas": 2},
    })
}

/// Case 25.
#[tokio::test]
async fn a_custom_resource_s_status_update_takes_the_status_alone() {
    let server = Server::with_widgets().await;
    let made = server.post(WIDGETS, widget("a")).await.expect(201);
    let reported = server.merge(&format!("{A}/status"), everything()).await.expect(200);
    assert_eq!(reported.json["status"], json!({"phase": "Running", "replicas": 2}));
    assert_eq!(reported.json["spec"], made.json["spec"]);
    for field in ["labels", "annotations", "finalizers"] {
        assert_eq!(reported.json["metadata"].get(field), None, "{field}");
    }
    assert_eq!(server.get(A).await.json, reported.json);
    assert_eq!(server.get(&format!("{A}/status")).await.expect(200).json, reported.json);
}

/// Case 25.
#[tokio::test]
async fn a_replacement_without_a_status_keeps_the_status() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let reported = server.merge(&format!("{A}/status"), json!({"status": {"phase": "Done"}})).await.expect(200);
    let mut replacement = widget("a");
    replacement["metadata"]["resourceVersion"] = reported.json["metadata"]["resourceVersion"].clone();
    replacement["spec"]["color"] = json!("green");
    let put = server.put(A, replacement).await.expect(200);
    assert_eq!((&put.json["spec"]["color"], &put.json["status"]["phase"]), (&json!("green"), &json!("Done")));
}

/// Case 25.
#[tokio::test]
async fn a_deployment_s_status_update_takes_annotations_but_no_labels() {
    let server = Server::start();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let made = server.post(path, deployment("a")).await.expect(201);
    let mut everything = everything();
    everything["spec"] = json!({"replicas": 7});
    everything["status"] = json!({"replicas": 2});
    let reported = server.merge(&format!("{path}/a/status"), everything).await.expect(200);
    assert_eq!(reported.json["metadata"]["annotations"]["a"], "1");
    assert_eq!(reported.json["metadata"].get("labels"), None);
    assert_eq!(reported.json["spec"], made.json["spec"]);
    assert_eq!(reported.json["status"]["replicas"], 2);
    assert_eq!(reported.json["metadata"]["generation"], 1);
}

/// Case 25.
#[tokio::test]
async fn a_pod_s_status_update_takes_labels_annotations_and_finalizers() {
    let server = Server::start();
    let path = "/api/v1/namespaces/default/pods";
    let made = server.post(path, pod("a")).await.expect(201);
    let mut everything = everything();
    everything["status"] = json!({"phase": "Running"});
    everything["spec"] = json!({"priority": 7});
    let reported = server.merge(&format!("{path}/a/status"), everything).await.expect(200);
    let meta = &reported.json["metadata"];
    assert_eq!(meta["labels"]["l"], "1");
    assert_eq!(meta["annotations"]["a"], "1");
    assert_eq!(meta["finalizers"], json!(["example.com/f"]));
    assert_eq!(reported.json["status"]["phase"], "Running");
    assert_eq!(reported.json["spec"], made.json["spec"]);
}

#[tokio::test]
async fn a_status_update_expects_a_revision_as_every_other_does() {
    let server = Server::with_widgets().await;
    let made = server.post(WIDGETS, widget("a")).await.expect(201);
    let status = format!("{A}/status");
    let mut body = widget("a");
    body["status"] = json!({"phase": "One"});
    let failure = server.put(&status, body.clone()).await.expect(422);
    assert_eq!(failure.cause_fields(), ["metadata.resourceVersion"]);
    body["metadata"]["resourceVersion"] = made.json["metadata"]["resourceVersion"].clone();
    let first = server.put(&status, body.clone()).await.expect(200);
    assert_eq!(first.json["status"]["phase"], "One");
    body["status"]["phase"] = json!("Two");
    assert_eq!(server.put(&status, body).await.expect(409).reason(), "Conflict");
    let stale = json!({"metadata": {"resourceVersion": "1"}, "status": {"phase": "Two"}});
    server.merge(&status, stale).await.expect(409);
}

#[tokio::test]
async fn a_status_has_to_fit_its_schema_and_only_the_status_does() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let status = format!("{A}/status");
    let failure = server.merge(&status, json!({"status": {"replicas": "two"}})).await.expect(422);
    // By the schema, and because the scale is made of it.
    assert_eq!(failure.cause_fields(), [".status.replicas", "status.replicas"]);
    let ignored = json!({"spec": {"color": "pink"}, "status": {"phase": "Done"}});
    let reported = server.merge(&status, ignored).await.expect(200);
    assert_eq!((&reported.json["spec"]["color"], &reported.json["status"]["phase"]), (&json!("red"), &json!("Done")));
}

/// What was stored under an older schema does not keep a controller from reporting.
#[tokio::test]
async fn a_spec_that_became_invalid_does_not_stand_in_the_way_of_a_status() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let mut narrowed = widgets();
    for version in narrowed["spec"]["versions"].as_array_mut().expect("versions") {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"] = json!(["color", "note"]);
    }
    server.server.install(narrowed).await.expect("a definition");
    server.server.wait_idle().await;
    server.post(WIDGETS, widget("b")).await.expect(422);
    server.merge(&format!("{A}/status"), json!({"status": {"phase": "Done"}})).await.expect(200);
}

/// Case 44.
#[tokio::test]
async fn a_scale_is_read_and_written() {
    let server = Server::with_widgets().await;
    let made = server.post(WIDGETS, widget("a")).await.expect(201);
    let status = json!({"status": {"replicas": 2, "selector": "app=a"}});
    let reported = server.merge(&format!("{A}/status"), status).await.expect(200);
    let path = &format!("{A}/scale");
    let scale = server.get(path).await.expect(200);
    assert_eq!((&scale.json["kind"], &scale.json["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(scale.json["spec"], json!({"replicas": 1}));
    assert_eq!(scale.json["status"], json!({"replicas": 2, "selector": "app=a"}));
    assert_eq!((scale.rv(), &scale.json["metadata"]["uid"]), (reported.rv(), &made.json["metadata"]["uid"]));

    let mut wanted = scale.json.clone();
    wanted["spec"]["replicas"] = json!(5);
    let put = server.put(path, wanted.clone()).await.expect(200);
    assert_eq!(put.json["spec"]["replicas"], 5);
    let scaled = server.get(A).await;
    assert_eq!((&scaled.json["spec"]["replicas"], &scaled.json["metadata"]["generation"]), (&json!(5), &json!(2)));
    assert_eq!(scaled.rv(), put.rv());
    assert_eq!(scaled.json["status"], reported.json["status"]);

    wanted["spec"]["replicas"] = json!(6);
    server.put(path, wanted).await.expect(409);
    let failure = server.put(path, json!({"metadata": {"name": "a"}, "spec": {"replicas": 50}})).await.expect(422);
    assert_eq!(failure.cause_fields(), ["spec.replicas"]);
    server.put(path, json!({"metadata": {"name": "a"}, "spec": {"replicas": -1}})).await.expect(422);
    let patched = server.merge(path, json!({"spec": {"replicas": 7}})).await.expect(200);
    assert_eq!(patched.json["spec"]["replicas"], 7);
    assert_eq!(server.get(A).await.json["metadata"]["generation"], 3);
}

/// Case 44.
#[tokio::test]
async fn a_version_without_scale_has_none() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let path = "/apis/example.com/v1beta1/namespaces/default/widgets/a/scale";
    server.get(path).await.expect(404);
    server.put(path, json!({"spec": {"replicas": 5}})).await.expect(404);
    server.get("/api/v1/namespaces/default/configmaps/a/status").await.expect(404);
}

#[tokio::test]
async fn a_deployment_scales_by_its_own_selector() {
    let server = Server::start();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    server.post(path, deployment("a")).await.expect(201);
    let scale = server.get(&format!("{path}/a/scale")).await.expect(200);
    assert_eq!((&scale.json["spec"]["replicas"], &scale.json["status"]["selector"]), (&json!(1), &json!("app=a")));
    server.merge(&format!("{path}/a/scale"), json!({"spec": {"replicas": 4}})).await.expect(200);
    let scaled = server.get(&format!("{path}/a")).await;
    assert_eq!((&scaled.json["spec"]["replicas"], &scaled.json["metadata"]["generation"]), (&json!(4), &json!(2)));
}
