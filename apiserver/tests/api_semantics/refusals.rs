//! Requests for what the server does not support. They are refused and have no effect.

use crate::support::*;
use serde_json::json;

#[tokio::test]
async fn impersonation_is_forbidden_and_has_no_effect() {
    let server = Server::start();
    for (header, value, resource) in [
        ("impersonate-user", "alice", "users"),
        ("impersonate-group", "developers", "groups"),
        ("impersonate-uid", "1", "uids"),
        ("impersonate-extra-scopes", "view", "userextras"),
    ] {
        let headers = [("content-type", "application/json"), (header, value)];
        let body = config_map("a").to_string();
        let refused = server
            .send("POST", CONFIG_MAPS, &headers, body)
            .await
            .expect(403);
        assert_eq!(refused.reason(), "Forbidden");
        let begin = format!(
            "{resource} \"{value}\" is forbidden: User \"system:admin\" cannot impersonate resource"
        );
        assert!(
            refused.message().starts_with(&begin),
            "{}",
            refused.message()
        );
        assert!(
            refused
                .message()
                .ends_with("remove the Impersonate-* headers")
        );
    }
    assert_eq!(server.get(CONFIG_MAPS).await.expect(200).names(), [""; 0]);
}

#[tokio::test]
async fn impersonation_is_forbidden_for_documents_too() {
    let server = Server::start();
    let headers = [("impersonate-user", "alice")];
    for path in ["/version", "/apis", "/healthz"] {
        server.send("GET", path, &headers, "").await.expect(403);
    }
}

#[tokio::test]
async fn a_refused_protobuf_body_is_not_told_that_protobuf_is_accepted() {
    let server = Server::with_widgets().await;
    let headers = [("content-type", "application/vnd.kubernetes.protobuf")];
    for path in [CONFIG_MAPS, WIDGETS] {
        let refused = server
            .send("POST", path, &headers, "k8s\0")
            .await
            .expect(415);
        assert_eq!(refused.reason(), "UnsupportedMediaType");
        assert!(
            refused
                .message()
                .ends_with("accepted media types include: application/json, application/yaml"),
            "{}",
            refused.message()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_time_limit_ends_a_request_that_waits() {
    let server = Server::start();
    let path = format!("{CONFIG_MAPS}?resourceVersion=99999999&timeout=100ms");
    let started = tokio::time::Instant::now();
    let reply = server.get(&path).await.expect(504);
    assert_eq!(started.elapsed().as_millis(), 100);
    assert_eq!(
        reply.message(),
        "Timeout: request did not complete within the allotted timeout"
    );
}

#[tokio::test]
async fn a_write_with_a_resource_version_leaves_nothing_behind() {
    let server = Server::start();
    let mut object = config_map("a");
    object["metadata"]["resourceVersion"] = json!("5");
    server.post(CONFIG_MAPS, object.clone()).await.expect(500);
    let dry_run = server
        .post(&format!("{CONFIG_MAPS}?dryRun=All"), object.clone())
        .await
        .expect(201);
    assert_eq!(dry_run.json["metadata"]["resourceVersion"], "5");
    object["metadata"]["resourceVersion"] = json!("0");
    let created = server.post(CONFIG_MAPS, object).await.expect(201);
    assert_eq!(created.rv(), server.server.revision());
}
