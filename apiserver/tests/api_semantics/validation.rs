//! Validation, pruning and defaulting of objects, and dry runs.

use crate::support::*;
use serde_json::{Value, json};

const A: &str = "/apis/example.com/v1/namespaces/default/widgets/a";

const STRICT_ERROR: &str =
    "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: ";

#[tokio::test]
async fn field_validation_controls_how_unknown_fields_are_reported() {
    let server = Server::with_widgets().await;
    let mut body = widget("a");
    body["spec"]["nope"] = json!(1);
    let strict = server
        .post(&format!("{WIDGETS}?fieldValidation=Strict"), body.clone())
        .await
        .expect(400);
    assert_eq!(
        strict.message(),
        STRICT_ERROR.to_owned() + "unknown field \"spec.nope\""
    );
    for (query, warnings) in [
        ("", &["299 - \"unknown field \\\"spec.nope\\\"\""][..]),
        (
            "?fieldValidation=Warn",
            &["299 - \"unknown field \\\"spec.nope\\\"\""],
        ),
        ("?fieldValidation=Ignore", &[]),
    ] {
        let created = server
            .post(&format!("{WIDGETS}{query}"), body.clone())
            .await
            .expect(201);
        assert_eq!(created.warnings(), warnings, "{query}");
        assert_eq!(created.json["spec"], json!({"color": "red", "replicas": 1}));
        server.delete(A).await.expect(200);
    }
    let failure = server
        .post(&format!("{WIDGETS}?fieldValidation=Maybe"), body)
        .await
        .expect(422);
    assert_eq!(failure.cause_fields(), ["fieldValidation"]);
}

#[tokio::test]
async fn a_duplicate_field_is_rejected_by_strict_validation() {
    let server = Server::with_widgets().await;
    let body = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},
                   "spec":{"color":"red","color":"blue"}}"#;
    let json = [("content-type", "application/json")];
    let strict = server
        .send(
            "POST",
            &format!("{WIDGETS}?fieldValidation=Strict"),
            &json,
            body,
        )
        .await
        .expect(400);
    assert_eq!(
        strict.message(),
        STRICT_ERROR.to_owned() + "duplicate field \"spec.color\""
    );
    let created = server.send("POST", WIDGETS, &json, body).await.expect(201);
    assert_eq!(
        created.warnings(),
        ["299 - \"duplicate field \\\"spec.color\\\"\""]
    );
    assert_eq!(created.json["spec"]["color"], "blue");
}

#[tokio::test]
async fn field_validation_applies_to_built_in_kinds_and_patches() {
    let server = Server::with_widgets().await;
    let mut body = config_map("a");
    body["nope"] = json!(1);
    let strict = server
        .post(
            &format!("{CONFIG_MAPS}?fieldValidation=Strict"),
            body.clone(),
        )
        .await
        .expect(400);
    assert!(
        strict
            .message()
            .contains("strict decoding error: unknown field \"nope\""),
        "{}",
        strict.text
    );
    let created = server.post(CONFIG_MAPS, body).await.expect(201);
    assert_eq!(created.warnings(), ["299 - \"unknown field \\\"nope\\\"\""]);
    assert_eq!(created.json.get("nope"), None);

    server.post(WIDGETS, widget("a")).await.expect(201);
    let patch = json!({"spec": {"nope": 1}});
    let strict = server
        .merge(&format!("{A}?fieldValidation=Strict"), patch.clone())
        .await
        .expect(422);
    assert_eq!(strict.cause_fields(), ["patch"]);
    assert!(
        strict.message().contains("unknown field \"spec.nope\""),
        "{}",
        strict.text
    );
    assert_eq!(server.merge(A, patch).await.expect(200).warnings().len(), 1);
}

#[tokio::test]
async fn duplicate_fields_of_a_merge_patch_are_reported() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let patch = r#"{"spec":{"color":"blue","color":"green"}}"#;
    let merge = [("content-type", MERGE)];
    let patched = server.send("PATCH", A, &merge, patch).await.expect(200);
    assert_eq!(
        patched.warnings(),
        ["299 - \"duplicate field \\\"spec.color\\\"\""]
    );
    assert_eq!(patched.json["spec"]["color"], "green");
    let strict = server
        .send(
            "PATCH",
            &format!("{A}?fieldValidation=Strict"),
            &merge,
            patch,
        )
        .await
        .expect(422);
    assert_eq!(strict.cause_fields(), ["patch"]);
    assert!(
        strict.message().contains("duplicate field \"spec.color\""),
        "{}",
        strict.text
    );
}

#[tokio::test]
async fn all_violations_are_reported_together() {
    let server = Server::with_widgets().await;
    let mut bad = widget("a");
    bad["spec"] =
        json!({"color": "pink", "replicas": 50, "tags": ["x", "x"], "ports": [{"port": 1}]});
    let failure = server.post(WIDGETS, bad).await.expect(422);
    assert_eq!(failure.reason(), "Invalid");
    let details = &failure.json["details"];
    assert_eq!(
        (&details["name"], &details["group"], &details["kind"]),
        (&json!("a"), &json!("example.com"), &json!("Widget"))
    );
    let causes = details["causes"].as_array().expect("causes").iter();
    let mut causes: Vec<_> = causes
        .map(|cause| {
            (
                cause["field"].as_str().unwrap_or_default(),
                cause["reason"].as_str().unwrap_or_default(),
            )
        })
        .collect();
    causes.sort_unstable();
    assert_eq!(
        causes,
        [
            ("spec.color", "FieldValueNotSupported"),
            ("spec.ports[0].name", "FieldValueRequired"),
            ("spec.replicas", "FieldValueInvalid"),
            ("spec.tags[1]", "FieldValueDuplicate"),
        ]
    );
    assert!(
        failure
            .message()
            .starts_with("Widget.example.com \"a\" is invalid: ["),
        "{}",
        failure.text
    );
}

#[tokio::test]
async fn each_violation_has_its_reason() {
    let server = Server::with_widgets().await;
    for (spec, field, reason) in [
        (json!({}), "spec.color", "FieldValueRequired"),
        (
            json!({"color": "red", "replicas": "1"}),
            "spec.replicas",
            "FieldValueTypeInvalid",
        ),
        (
            json!({"color": "red", "note": "x".repeat(21)}),
            "spec.note",
            "FieldValueTooLong",
        ),
        (
            json!({"color": "red", "replicas": -1}),
            "spec.replicas",
            "FieldValueInvalid",
        ),
        (
            json!({"color": "red", "ports": [{"name": "a"}, {"name": "a"}]}),
            "spec.ports[1]",
            "FieldValueDuplicate",
        ),
    ] {
        let mut bad = widget("a");
        bad["spec"] = spec;
        let failure = server.post(WIDGETS, bad).await.expect(422);
        let cause = &failure.json["details"]["causes"][0];
        assert_eq!(
            (&cause["field"], &cause["reason"]),
            (&json!(field), &json!(reason)),
            "{}",
            failure.text
        );
    }
}

#[tokio::test]
async fn defaults_nulls_and_int_or_string_follow_the_schema() {
    let server = Server::with_widgets().await;
    let mut created = widget("a");
    created["spec"] = json!({
        "color": "red", "replicas": null, "note": null, "size": "50%",
        "free": {"any": {"thing": [1, null]}}, "ports": [{"name": "http"}, {"name": "dns", "protocol": "UDP"}],
    });
    let spec = server.post(WIDGETS, created).await.expect(201).json["spec"].clone();
    assert_eq!(
        spec,
        json!({
            "color": "red", "replicas": 1, "note": null, "size": "50%", "free": {"any": {"thing": [1, null]}},
            "ports": [{"name": "http", "protocol": "TCP"}, {"name": "dns", "protocol": "UDP"}],
        })
    );
    let sized = server
        .merge(A, json!({"spec": {"size": 5}}))
        .await
        .expect(200);
    assert_eq!(sized.json["spec"]["size"], 5);
    server
        .merge(A, json!({"spec": {"size": 5.5}}))
        .await
        .expect(422);
}

#[tokio::test]
async fn an_update_can_keep_values_that_became_invalid() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let mut narrowed = widgets();
    for version in narrowed["spec"]["versions"]
        .as_array_mut()
        .expect("versions")
    {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["color"]["enum"] =
            json!(["blue"]);
    }
    server.server.install(narrowed).await.expect("a CRD");
    server.server.wait_idle().await;
    server.post(WIDGETS, widget("b")).await.expect(422);
    server
        .merge(A, json!({"spec": {"replicas": 2}}))
        .await
        .expect(200);
    server
        .merge(A, json!({"spec": {"color": "green"}}))
        .await
        .expect(422);
}

#[tokio::test]
async fn a_dry_run_create_returns_the_object_and_stores_nothing() {
    let server = Server::with_widgets().await;
    let from = server.server.revision();
    let mut watch = server
        .watch(&format!("{WIDGETS}?watch=1&resourceVersion={from}"))
        .await;
    let mut body = widget("");
    body["metadata"] = json!({"generateName": "x-"});
    let created = server
        .post(&format!("{WIDGETS}?dryRun=All"), body)
        .await
        .expect(201);
    let meta = &created.json["metadata"];
    assert!(meta["uid"].is_string() && meta["creationTimestamp"].is_string());
    assert_eq!(
        (
            meta.get("resourceVersion"),
            &created.json["spec"]["replicas"]
        ),
        (None, &json!(1))
    );
    let name = meta["name"].as_str().expect("a name");
    server.get(&format!("{WIDGETS}/{name}")).await.expect(404);
    assert_eq!(server.server.revision(), from);
    // The first event is that of the actual create.
    server.post(WIDGETS, widget("a")).await.expect(201);
    assert_eq!(watch.next_name().await, ("ADDED".into(), "a".into()));
}

#[tokio::test]
async fn a_dry_run_update_validates_and_stores_nothing() {
    let server = Server::with_widgets().await;
    let created = server.post(WIDGETS, widget("a")).await.expect(201);
    let dry_run = &format!("{A}?dryRun=All");
    let patched = server
        .merge(dry_run, json!({"spec": {"color": "blue"}}))
        .await
        .expect(200);
    assert_eq!(
        (
            &patched.json["spec"]["color"],
            &patched.json["metadata"]["generation"]
        ),
        (&json!("blue"), &json!(2))
    );
    server
        .merge(dry_run, json!({"spec": {"color": "pink"}}))
        .await
        .expect(422);
    server
        .post(&format!("{WIDGETS}?dryRun=All"), widget("a"))
        .await
        .expect(409);
    server.delete(dry_run).await.expect(200);
    assert_eq!(server.get(A).await.json, created.json);
    let failure = server
        .post(&format!("{WIDGETS}?dryRun=Some"), widget("b"))
        .await
        .expect(422);
    assert_eq!(failure.cause_fields(), ["dryRun"]);
}

#[tokio::test]
async fn a_body_of_another_kind_or_content_type_is_rejected() {
    let server = Server::with_widgets().await;
    let mut body = widget("a");
    body["kind"] = json!("Gadget");
    assert_eq!(
        server.post(WIDGETS, body).await.expect(422).cause_fields(),
        ["kind"]
    );
    let mut body = widget("a");
    body["apiVersion"] = json!("example.com/v1beta1");
    server.post(WIDGETS, body).await.expect(400);
    let mut body = widget("a");
    body["kind"] = Value::Null;
    server.post(WIDGETS, body).await.expect(400);
    for body in ["", "{", "[]", "\"text\""] {
        let failure = server
            .send(
                "POST",
                WIDGETS,
                &[("content-type", "application/json")],
                body,
            )
            .await
            .expect(400);
        assert_eq!(failure.reason(), "BadRequest", "{body}");
    }
    let failure = server
        .send("POST", WIDGETS, &[("content-type", "text/plain")], "{}")
        .await
        .expect(415);
    assert_eq!(failure.reason(), "UnsupportedMediaType");
}

#[tokio::test]
async fn a_body_can_be_yaml_and_is_limited_in_size() {
    let server = Server::with_widgets().await;
    let yaml =
        "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {color: red}\n";
    let created = server
        .send(
            "POST",
            WIDGETS,
            &[("content-type", "application/yaml")],
            yaml,
        )
        .await
        .expect(201);
    assert_eq!(created.json["spec"], json!({"color": "red", "replicas": 1}));
    let huge = " ".repeat((3 << 20) + 1);
    let failure = server
        .send(
            "POST",
            WIDGETS,
            &[("content-type", "application/json")],
            huge,
        )
        .await
        .expect(413);
    assert_eq!(
        failure.message(),
        "Request entity too large: limit is 3145728"
    );
}
