//! Namespaces: creation, content and deletion.

use crate::support::*;
use serde_json::{Value, json};
use steersman_apiserver::Options;

const NAMESPACES: &str = "/api/v1/namespaces";

impl Server {
    async fn create_namespace(&self, name: &str) -> Reply {
        self.post(NAMESPACES, json!({"metadata": {"name": name}}))
            .await
            .expect(201)
    }
}

fn finalized_config_map(name: &str) -> Value {
    let mut finalized_config_map = config_map(name);
    finalized_config_map["metadata"]["finalizers"] = json!(["example.com/hold"]);
    finalized_config_map
}

#[tokio::test]
async fn a_new_server_has_four_namespaces() {
    let server = Server::start();
    let names = ["default", "kube-node-lease", "kube-public", "kube-system"];
    assert_eq!(server.get(NAMESPACES).await.names(), names);
}

#[tokio::test]
async fn a_namespace_has_a_label_a_finalizer_and_a_phase() {
    let server = Server::start();
    for namespace in [
        server.create_namespace("x").await,
        server.get("/api/v1/namespaces/default").await.expect(200),
    ] {
        let name = &namespace.json["metadata"]["name"];
        assert_eq!(
            namespace.json["metadata"]["labels"]["kubernetes.io/metadata.name"],
            *name
        );
        assert_eq!(
            namespace.json["spec"],
            json!({"finalizers": ["kubernetes"]})
        );
        assert_eq!(namespace.json["status"]["phase"], "Active");
    }
    server
        .post(NAMESPACES, json!({"metadata": {"name": "a.b"}}))
        .await
        .expect(422);
}

#[tokio::test]
async fn a_missing_namespace_rejects_creates_and_lists_nothing() {
    let server = Server::with_widgets().await;
    for (path, body) in [
        ("/api/v1/namespaces/nosuch/configmaps", config_map("a")),
        (
            "/apis/example.com/v1/namespaces/nosuch/widgets",
            widget("a"),
        ),
    ] {
        let failure = server.post(path, body).await.expect(404);
        assert_eq!(
            (failure.reason(), failure.message()),
            ("NotFound", "namespaces \"nosuch\" not found")
        );
        assert_eq!(server.get(path).await.expect(200).json["items"], json!([]));
    }
}

#[tokio::test]
async fn an_object_with_a_finalizer_blocks_the_deletion_of_its_namespace() {
    let server = Server::start();
    server.create_namespace("x").await;
    let maps = "/api/v1/namespaces/x/configmaps";
    server.post(maps, config_map("free")).await.expect(201);
    server
        .post(maps, finalized_config_map("finalized"))
        .await
        .expect(201);
    let from = server.server.revision();
    let deleted = server.delete("/api/v1/namespaces/x").await.expect(200);
    assert_eq!(
        (&deleted.json["kind"], &deleted.json["status"]["phase"]),
        (&json!("Namespace"), &json!("Terminating"))
    );
    server.server.wait_idle().await;
    let waiting = server.get("/api/v1/namespaces/x").await.expect(200);
    assert_eq!(waiting.json["status"]["phase"], "Terminating");
    assert!(waiting.json["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(server.get(maps).await.names(), ["finalized"]);

    let failure = server.post(maps, config_map("new")).await.expect(403);
    assert_eq!(failure.reason(), "Forbidden");
    assert_eq!(
        failure.json["details"]["causes"][0]["reason"],
        "NamespaceTerminating"
    );
    let text = "unable to create new content in namespace x because it is being terminated";
    assert!(failure.message().ends_with(text), "{}", failure.text);

    // Existing objects can still be updated.
    server
        .merge(&format!("{maps}/finalized"), json!({"data": {"k": "w"}}))
        .await
        .expect(200);
    server
        .merge(
            &format!("{maps}/finalized"),
            json!({"metadata": {"finalizers": []}}),
        )
        .await
        .expect(200);
    server.server.wait_idle().await;
    server.get("/api/v1/namespaces/x").await.expect(404);

    let mut watch = server
        .watch(&format!("{NAMESPACES}?watch=1&resourceVersion={from}"))
        .await;
    let last = loop {
        let (kind, object) = watch.next().await.expect("an event");
        if kind == "DELETED" {
            break object;
        }
    };
    assert_eq!(last["status"]["phase"], "Terminating");
    server.create_namespace("x").await;
}

#[tokio::test]
async fn deleting_a_namespace_deletes_its_objects() {
    let server = Server::with_widgets().await;
    server.create_namespace("x").await;
    server
        .post("/api/v1/namespaces/x/configmaps", config_map("a"))
        .await
        .expect(201);
    server
        .post("/apis/example.com/v1/namespaces/x/widgets", widget("a"))
        .await
        .expect(201);
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "x"}});
    server
        .post("/api/v1/namespaces/x/events", event)
        .await
        .expect(201);
    server
        .post(CONFIG_MAPS, config_map("outside"))
        .await
        .expect(201);
    server.delete("/api/v1/namespaces/x").await.expect(200);
    server.server.wait_idle().await;
    server.get("/api/v1/namespaces/x").await.expect(404);
    assert_eq!(server.get("/api/v1/configmaps").await.names(), ["outside"]);
    assert_eq!(
        server.get("/apis/example.com/v1/widgets").await.names(),
        Vec::<&str>::new()
    );
    assert_eq!(
        server.get("/api/v1/events").await.names(),
        Vec::<&str>::new()
    );
}

#[tokio::test]
async fn system_namespaces_cannot_be_deleted() {
    let server = Server::start();
    for name in ["default", "kube-system", "kube-public"] {
        let failure = server
            .delete(&format!("{NAMESPACES}/{name}"))
            .await
            .expect(403);
        assert_eq!(
            failure.message(),
            format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted")
        );
    }
    server
        .delete("/api/v1/namespaces/kube-node-lease")
        .await
        .expect(200);
    server.server.wait_idle().await;
    server
        .get("/api/v1/namespaces/kube-node-lease")
        .await
        .expect(404);
}

#[tokio::test]
async fn without_controllers_the_finalize_subresource_deletes_a_namespace() {
    let server = Server::with_options(Options {
        controllers: false,
        ..Options::default()
    });
    server.create_namespace("x").await;
    let mut namespace = server.delete("/api/v1/namespaces/x").await.expect(200).json;
    let second = server.delete("/api/v1/namespaces/x").await.expect(200);
    assert_eq!(second.json, namespace);
    server
        .put("/api/v1/namespaces/x", namespace.clone())
        .await
        .expect(200);
    namespace["spec"]["finalizers"] = json!([]);
    // The namespace itself does not accept a change of `spec.finalizers`.
    let kept = server
        .put("/api/v1/namespaces/x", namespace.clone())
        .await
        .expect(200);
    assert_eq!(kept.json["spec"]["finalizers"], json!(["kubernetes"]));
    server
        .put("/api/v1/namespaces/x/finalize", namespace)
        .await
        .expect(200);
    server.get("/api/v1/namespaces/x").await.expect(404);
}

#[tokio::test]
async fn a_body_with_another_namespace_than_the_path_is_rejected() {
    let server = Server::start();
    let mut body = config_map("a");
    body["metadata"]["namespace"] = json!("kube-system");
    let failure = server.post(CONFIG_MAPS, body).await.expect(400);
    assert_eq!(
        failure.message(),
        "the namespace of the provided object does not match the namespace sent on the request"
    );
}
