//! Behaviour specific to single built-in kinds.

use super::subresources::{deployment, pod};
use crate::support::*;
use serde_json::{Value, json};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const EVENTS_V1: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn lease(renewed: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": renewed},
    })
}

#[tokio::test]
async fn lease_times_have_microseconds_and_a_stale_renewal_conflicts() {
    let server = Server::start();
    for wrong in [
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:04:05.5Z",
        "2026-01-02T03:04:05.000000001Z",
        "soon",
    ] {
        let failure = server.post(LEASES, lease(wrong)).await.expect(400);
        assert_eq!(failure.reason(), "BadRequest", "{wrong}");
    }
    let created = server
        .post(LEASES, lease("2026-01-02T03:04:05.000006Z"))
        .await
        .expect(201);
    assert_eq!(
        created.json["spec"]["renewTime"],
        "2026-01-02T03:04:05.000006Z"
    );
    let path = &format!("{LEASES}/a");
    let mut renewal = created.json.clone();
    renewal["spec"]["renewTime"] = json!("2026-01-02T03:04:15.000000Z");
    let renewed = server.put(path, renewal.clone()).await.expect(200);
    assert_eq!(
        renewed.json["spec"]["renewTime"],
        "2026-01-02T03:04:15.000000Z"
    );
    renewal["spec"]["holderIdentity"] = json!("you");
    assert_eq!(
        server.put(path, renewal).await.expect(409).reason(),
        "Conflict"
    );
    assert_eq!(server.get(path).await.json, renewed.json);
    let zero = server
        .merge(path, json!({"spec": {"leaseDurationSeconds": 0}}))
        .await
        .expect(422);
    assert_eq!(zero.cause_fields(), ["spec.leaseDurationSeconds"]);
}

#[tokio::test]
async fn a_core_event_is_served_in_both_event_groups() {
    let server = Server::start();
    let created = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "Started", "message": "it runs", "type": "Normal", "reportingComponent": "me", "count": 2,
    });
    let created = server.post(EVENTS, created).await.expect(201);
    let path = format!("{EVENTS_V1}/e");
    let view = server.get(&path).await.expect(200).json;
    assert_eq!(
        (&view["apiVersion"], &view["note"]),
        (&json!("events.k8s.io/v1"), &json!("it runs"))
    );
    assert_eq!(view["regarding"]["name"], "p");
    assert_eq!(
        (&view["reportingController"], &view["deprecatedCount"]),
        (&json!("me"), &json!(2))
    );
    assert_eq!(
        (view.get("message"), view.get("involvedObject")),
        (None, None)
    );
    assert_eq!(
        (rv(&view), &view["metadata"]["uid"]),
        (created.rv(), &created.json["metadata"]["uid"])
    );

    for (path, own, other) in [
        (EVENTS, "involvedObject.name", "regarding.name"),
        (EVENTS_V1, "regarding.name", "involvedObject.name"),
    ] {
        assert_eq!(
            server
                .get(&format!("{path}?fieldSelector={own}%3Dp"))
                .await
                .expect(200)
                .names(),
            ["e"]
        );
        assert_eq!(
            server
                .get(&format!("{path}?fieldSelector={own}%3Dq"))
                .await
                .names(),
            Vec::<&str>::new()
        );
        let failure = server
            .get(&format!("{path}?fieldSelector={other}%3Dp"))
            .await
            .expect(400);
        assert_eq!(failure.reason(), "BadRequest");
        assert!(
            failure
                .message()
                .contains(&format!("field label not supported: {other}")),
            "{}",
            failure.text
        );
        assert_eq!(
            server
                .get(&format!("{path}?fieldSelector=type%3DNormal"))
                .await
                .expect(200)
                .names(),
            ["e"]
        );
    }
    let mut watch = server.watch(&format!("{EVENTS_V1}?watch=1")).await;
    assert_eq!(
        watch
            .next()
            .await
            .map(|(kind, event)| (kind, event["note"].clone())),
        Some(("ADDED".into(), json!("it runs")))
    );
    server.delete(&format!("{EVENTS}/e")).await.expect(200);
    server.get(&path).await.expect(404);
}

#[tokio::test]
async fn an_events_v1_event_is_served_as_a_core_event() {
    let server = Server::start();
    let created = json!({
        "metadata": {"name": "e"}, "eventTime": "2026-01-02T03:04:05.000006Z", "note": "it runs", "reason": "Started",
        "type": "Normal", "action": "Starting", "reportingController": "me", "reportingInstance": "me-0",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
    });
    server.post(EVENTS_V1, created).await.expect(201);
    let old = server.get(&format!("{EVENTS}/e")).await.expect(200).json;
    assert_eq!(
        (&old["message"], &old["involvedObject"]["name"]),
        (&json!("it runs"), &json!("p"))
    );
    assert_eq!(old["reportingComponent"], "me");
}

#[tokio::test]
async fn an_event_is_in_the_namespace_of_its_involved_object() {
    let server = Server::start();
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "other", "name": "p"}});
    let failure = server.post(EVENTS, event).await.expect(422);
    assert_eq!(failure.cause_fields(), ["involvedObject.namespace"]);
}

#[tokio::test]
async fn string_data_of_a_secret_becomes_data() {
    let server = Server::start();
    let secret = json!({"metadata": {"name": "a"}, "stringData": {"k": "v", "both": "text"}, "data": {"both": "b2xk"}});
    let created = server.post(SECRETS, secret).await.expect(201);
    assert_eq!(
        created.json["data"],
        json!({"k": "dg==", "both": "dGV4dA=="})
    );
    assert_eq!(
        (created.json.get("stringData"), &created.json["type"]),
        (None, &json!("Opaque"))
    );
    let patched = server
        .merge(&format!("{SECRETS}/a"), json!({"stringData": {"k": "w"}}))
        .await
        .expect(200);
    assert_eq!(patched.json["data"]["k"], "dw==");
    let failure = server
        .post(
            SECRETS,
            json!({"metadata": {"name": "b"}, "data": {"k": "not base64"}}),
        )
        .await
        .expect(400);
    assert!(
        failure
            .message()
            .contains("illegal base64 data at input byte 3"),
        "{}",
        failure.text
    );
}

#[tokio::test]
async fn data_is_limited_to_one_mebibyte() {
    let server = Server::start();
    let text = "x".repeat(1 << 20);
    let full = json!({"metadata": {"name": "full"}, "data": {"k": text}});
    server.post(CONFIG_MAPS, full).await.expect(201);
    let over = json!({"metadata": {"name": "over"}, "data": {"k": text, "l": "x"}});
    let failure = server.post(CONFIG_MAPS, over).await.expect(422);
    assert_eq!(
        failure.json["details"]["causes"][0]["reason"],
        "FieldValueTooLong"
    );
    let over = json!({"metadata": {"name": "over"}, "stringData": {"k": text, "l": "x"}});
    let failure = server.post(SECRETS, over).await.expect(422);
    assert_eq!(failure.cause_fields(), ["data"]);
}

#[tokio::test]
async fn a_built_in_object_with_a_wrong_field_type_is_rejected() {
    let server = Server::start();
    let failure = server
        .post(
            CONFIG_MAPS,
            json!({"metadata": {"name": "a"}, "data": {"k": 1}}),
        )
        .await
        .expect(400);
    assert_eq!(failure.reason(), "BadRequest");
    assert!(
        failure.message().starts_with(
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot"
        )
    );
    let failure = server
        .post(
            CONFIG_MAPS,
            json!({"metadata": {"name": "a", "labels": {"l": 1}}}),
        )
        .await
        .expect(400);
    assert!(
        failure
            .message()
            .contains("cannot be handled as a ConfigMap"),
        "{}",
        failure.text
    );
}

#[tokio::test]
async fn a_null_value_in_a_string_map_is_stored_as_an_empty_string() {
    let server = Server::start();
    let created = server
        .post(
            CONFIG_MAPS,
            json!({"metadata": {"name": "a"}, "data": {"k": null}}),
        )
        .await
        .expect(201);
    assert_eq!(created.json["data"], json!({"k": ""}));
}

#[tokio::test]
async fn adding_an_empty_list_or_map_is_not_a_change() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    server.post(deployments, deployment("a")).await.expect(201);
    for (path, patch) in [
        (CONFIG_MAPS, json!({"binaryData": {}})),
        (
            deployments,
            json!({"spec": {"template": {"spec": {"volumes": [], "nodeSelector": {}}}}}),
        ),
    ] {
        let path = &format!("{path}/a");
        let before = server.get(path).await.expect(200);
        assert_eq!(
            server.merge(path, patch).await.expect(200).json,
            before.json
        );
    }

    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let role = server
        .post(roles, json!({"metadata": {"name": "a"}, "rules": []}))
        .await
        .expect(201);
    assert_eq!(role.json.get("rules"), Some(&json!(null)));
}

#[tokio::test]
async fn immutable_fields_cannot_be_changed() {
    let server = Server::start();
    let immutable = json!({"metadata": {"name": "a"}, "immutable": true, "data": {"k": "v"}});
    server.post(CONFIG_MAPS, immutable).await.expect(201);
    let failure = server
        .merge(&format!("{CONFIG_MAPS}/a"), json!({"data": {"k": "w"}}))
        .await
        .expect(422);
    assert_eq!(
        (failure.cause_fields(), &failure.json["details"]["kind"]),
        (vec!["data"], &json!("ConfigMap"))
    );
    server
        .merge(
            &format!("{CONFIG_MAPS}/a"),
            json!({"metadata": {"labels": {"a": "b"}}}),
        )
        .await
        .expect(200);

    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    server.post(deployments, deployment("a")).await.expect(201);
    let other = json!({"spec": {"selector": {"matchLabels": {"app": "b"}}, "template": {"metadata": {"labels": {"app": "b"}}}}});
    let failure = server
        .merge(&format!("{deployments}/a"), other)
        .await
        .expect(422);
    assert_eq!(failure.cause_fields(), ["spec.selector"]);

    let pods = "/api/v1/namespaces/default/pods";
    server.post(pods, pod("a")).await.expect(201);
    let failure = server
        .merge(&format!("{pods}/a"), json!({"spec": {"hostname": "x"}}))
        .await
        .expect(422);
    assert_eq!(failure.cause_fields(), ["spec"]);
}

#[tokio::test]
async fn a_put_creates_a_lease_but_not_a_config_map() {
    let server = Server::start();
    let created = server
        .put(&format!("{LEASES}/a"), lease("2026-01-02T03:04:05.000006Z"))
        .await
        .expect(201);
    assert!(created.json["metadata"]["uid"].is_string());
    server
        .put(&format!("{CONFIG_MAPS}/a"), config_map("a"))
        .await
        .expect(404);
}
