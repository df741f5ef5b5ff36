//! Namespaces: what may be made in them, and how they go.

use crate::support::*;
use serde_json::{Value, json};
use steersman_apiserver::Options;

const NAMESPACES: &str = "/api/v1/namespaces";

impl Server {
    async fn namespace(&self, name: &str) -> Reply {
        self.post(NAMESPACES, json!({"metadata": {"name": name}})).await.expect(201)
    }
}

fn held(name: &str) -> Value {
    let mut held = config_map(name);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    held
}

#[tokio::test]
async fn four_namespaces_are_there_from_the_start() {
    let server = Server::start();
    let names = ["default", "kube-node-lease", "kube-public", "kube-system"];
    assert_eq!(server.get(NAMESPACES).await.names(), names);
}

#[tokio::test]
async fn a_namespace_has_a_label_a_finalizer_and_a_phase() {
    let server = Server::start();
    for namespace in [server.namespace("x").await, server.get("/api/v1/namespaces/default").await.expect(200)] {
        let name = &namespace.json["metadata"]["name"];
        assert_eq!(namespace.json["metadata"]["labels"]["kubernetes.io/metadata.name"], *name);
        assert_eq!(namespace.json["spec"], json!({"finalizers": ["kubernetes"]}));
        assert_eq!(namespace.json["status"]["phase"], "Active");
    }
    server.post(NAMESPACES, json!({"metadata": {"name": "a.b"}})).await.expect(422);
}

/// Case 32.
#[tokio::test]
async fn a_namespace_that_is_not_there_takes_nothing_and_shows_nothing() {
    let server = Server::with_widgets().await;
    for (path, body) in [
        ("/api/v1/namespaces/nosuch/configmaps", config_map("a")),
        ("/apis/example.com/v1/namespaces/nosuch/widgets", widget("a")),
    ] {
        let failure = server.post(path, body).await.expect(404);
        assert_eq!((failure.reason(), failure.message()), ("NotFound", "namespaces \"nosuch\" not found"));
        assert_eq!(server.get(path).await.expect(200).json["items"], json!([]));
    }
}

/// Case 32.
#[tokio::test]
async fn a_namespace_with_something_that_is_held_waits_for_it() {
    let server = Server::start();
    server.namespace("x").await;
    let maps = "/api/v1/namespaces/x/configmaps";
    server.post(maps, config_map("free")).await.expect(201);
    server.post(maps, held("held")).await.expect(201);
    let from = server.server.revision();
    let deleted = server.delete("/api/v1/namespaces/x").await.expect(200);
    assert_eq!((&deleted.json["kind"], &deleted.json["status"]["phase"]), (&json!("Namespace"), &json!("Terminating")));
    server.server.wait_idle().await;
    let waiting = server.get("/api/v1/namespaces/x").await.expect(200);
    assert_eq!(waiting.json["status"]["phase"], "Terminating");
    assert!(waiting.json["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(server.get(maps).await.names(), ["held"]);

    let failure = server.post(maps, config_map("new")).await.expect(403);
    assert_eq!(failure.reason(), "Forbidden");
    assert_eq!(failure.json["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let text = "unable to create new content in namespace x because it is being terminated";
    assert!(failure.message().ends_with(text), "{}", failure.text);

    // What is there may still change.
    server.merge(&format!("{maps}/held"), json!({"data": {"k": "w"}})).await.expect(200);
    server.merge(&format!("{maps}/held"), json!({"metadata": {"finalizers": []}})).await.expect(200);
    server.server.wait_idle().await;
    server.get("/api/v1/namespaces/x").await.expect(404);

    let mut watch = server.watch(&format!("{NAMESPACES}?watch=1&resourceVersion={from}")).await;
    let last = loop {
        let (kind, object) = watch.next().await.expect("an event");
        if kind == "DELETED" {
            break object;
        }
    };
    assert_eq!(last["status"]["phase"], "Terminating");
    server.namespace("x").await;
}

#[tokio::test]
async fn everything_in_a_namespace_goes_with_it() {
    let server = Server::with_widgets().await;
    server.namespace("x").await;
    server.post("/api/v1/namespaces/x/configmaps", config_map("a")).await.expect(201);
    server.post("/apis/example.com/v1/namespaces/x/widgets", widget("a")).await.expect(201);
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "x"}});
    server.post("/api/v1/namespaces/x/events", event).await.expect(201);
    server.post(CONFIG_MAPS, config_map("outside")).await.expect(201);
    server.delete("/api/v1/namespaces/x").await.expect(200);
    server.server.wait_idle().await;
    server.get("/api/v1/namespaces/x").await.expect(404);
    assert_eq!(server.get("/api/v1/configmaps").await.names(), ["outside"]);
    assert_eq!(server.get("/apis/example.com/v1/widgets").await.names(), Vec::<&str>::new());
    assert_eq!(server.get("/api/v1/events").await.names(), Vec::<&str>::new());
}

/// Case 32.
#[tokio::test]
async fn some_namespaces_stay() {
    let server = Server::start();
    for name in ["default", "kube-system", "kube-public"] {
        let failure = server.delete(&format!("{NAMESPACES}/{name}")).await.expect(403);
        assert_eq!(failure.message(), format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted"));
    }
    server.delete("/api/v1/namespaces/kube-node-lease").await.expect(200);
    server.server.wait_idle().await;
    server.get("/api/v1/namespaces/kube-node-lease").await.expect(404);
}

#[tokio::test]
async fn without_controllers_a_namespace_goes_when_it_is_finalized() {
    let server = Server::with(Options { controllers: false, ..Options::default() });
    server.namespace("x").await;
    let mut namespace = server.delete("/api/v1/namespaces/x").await.expect(200).json;
    let again = server.delete("/api/v1/namespaces/x").await.expect(200);
    assert_eq!(again.json, namespace);
    server.put("/api/v1/namespaces/x", namespace.clone()).await.expect(200);
    namespace["spec"]["finalizers"] = json!([]);
    // Not by the door that everybody uses.
    let kept = server.put("/api/v1/namespaces/x", namespace.clone()).await.expect(200);
    assert_eq!(kept.json["spec"]["finalizers"], json!(["kubernetes"]));
    server.put("/api/v1/namespaces/x/finalize", namespace).await.expect(200);
    server.get("/api/v1/namespaces/x").await.expect(404);
}

#[tokio::test]
async fn the_namespace_of_the_body_is_that_of_the_path() {
    let server = Server::start();
    let mut body = config_map("a");
    body["metadata"]["namespace"] = json!("kube-system");
    let failure = server.post(CONFIG_MAPS, body).await.expect(400);
    assert_eq!(
        failure.message(),
        "the namespace of the provided object does not match the namespace sent on the request"
    );
}
