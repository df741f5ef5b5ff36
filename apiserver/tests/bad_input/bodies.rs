//! Bodies that are not valid objects, or objects of another kind than the path.

use super::*;

/// Invalid JSON.
const INVALID_JSON: [&str; 11] = [
    "",
    "{",
    "}",
    "nul",
    "{\"a\":}",
    "{}{}",
    "[1",
    "\"",
    "{'a':1}",
    "\u{feff}{}",
    "{\"a\":01}",
];

#[tokio::test]
async fn a_body_that_is_not_json_is_a_bad_request() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let rows = INVALID_JSON.map(|body| (body, 400));
    for collection in [CONFIG_MAPS, WIDGETS] {
        assert_rejects(&server, "POST", collection, JSON, &rows).await;
        assert_rejects(&server, "PUT", &format!("{collection}/a"), JSON, &rows).await;
        assert_rejects(&server, "PATCH", &format!("{collection}/a"), MERGE, &rows).await;
        assert_rejects(
            &server,
            "PATCH",
            &format!("{collection}/a"),
            JSON_PATCH,
            &rows,
        )
        .await;
    }
    assert_rejects(&server, "PUT", &format!("{WIDGETS}/a/scale"), JSON, &rows).await;
    // Valid JSON, but not objects.
    for body in ["[]", "\"x\"", "1", "true"] {
        assert_rejects(&server, "POST", CONFIG_MAPS, JSON, &[(body, 400)]).await;
        assert_rejects(&server, "POST", WIDGETS, JSON, &[(body, 400)]).await;
        assert_rejects(
            &server,
            "PATCH",
            &format!("{WIDGETS}/a"),
            MERGE,
            &[(body, 400)],
        )
        .await;
        assert_rejects(
            &server,
            "PUT",
            &format!("{WIDGETS}/a/scale"),
            JSON,
            &[(body, 400)],
        )
        .await;
    }
    for body in ["{}", "\"x\"", "1", "[1]", "[\"x\"]"] {
        assert_rejects(
            &server,
            "PATCH",
            &format!("{WIDGETS}/a"),
            JSON_PATCH,
            &[(body, 400)],
        )
        .await;
    }
    let yaml = "a: [\n- b: }";
    assert_rejects(
        &server,
        "POST",
        CONFIG_MAPS,
        "application/yaml",
        &[(yaml, 400), ("- a\n- b", 400), ("\t", 400)],
    )
    .await;
}

#[tokio::test]
async fn metadata_of_the_wrong_types_is_a_bad_request() {
    let server = Server::with_widgets().await;
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
    let mut odd_owner = owner.clone();
    odd_owner["controller"] = "yes".into();
    for metadata in [
        json!([]),
        json!("x"),
        json!(1),
        json!({"name": 1}),
        json!({"name": ["a"]}),
        json!({"name": "a", "labels": []}),
        json!({"name": "a", "labels": {"a": 1}}),
        json!({"name": "a", "labels": {"a": {}}}),
        json!({"name": "a", "annotations": {"a": true}}),
        json!({"name": "a", "finalizers": "a/b"}),
        json!({"name": "a", "finalizers": [1]}),
        json!({"name": "a", "ownerReferences": {}}),
        json!({"name": "a", "ownerReferences": ["x"]}),
        json!({"name": "a", "ownerReferences": [odd_owner]}),
        json!({"name": "a", "creationTimestamp": "yesterday"}),
        json!({"name": "a", "deletionTimestamp": 1}),
        json!({"name": "a", "generation": "1"}),
        json!({"name": "a", "uid": 1}),
        json!({"name": "a", "resourceVersion": 1}),
        json!({"name": "a", "namespace": 1}),
        json!({"name": "a", "managedFields": "x"}),
    ] {
        for (collection, mut object) in [(CONFIG_MAPS, config_map("a")), (WIDGETS, widget("a"))] {
            object["metadata"] = metadata.clone();
            let reply = server.post(collection, object).await;
            assert_eq!(
                (reply.code, reply.reason()),
                (400, "BadRequest"),
                "{metadata}: {}",
                reply.text
            );
        }
    }
}

#[tokio::test]
async fn null_and_unknown_metadata_fields_are_dropped() {
    let server = Server::with_widgets().await;
    for (collection, mut object) in [(CONFIG_MAPS, config_map("a")), (WIDGETS, widget("a"))] {
        // Go decodes null as the zero value: no map, no list, the empty string.
        object["metadata"] = json!({
            "name": "a", "labels": null, "annotations": {"a": null}, "finalizers": null, "ownerReferences": null,
            "creationTimestamp": null, "generateName": null, "selfLink": "/x", "nope": {"deep": 1},
        });
        let created = server.post(collection, object).await.expect(201);
        assert_eq!(
            created.warnings(),
            [r#"299 - "unknown field \"metadata.nope\"""#]
        );
        let metadata = created.json["metadata"].as_object().unwrap();
        for dropped in [
            "labels",
            "finalizers",
            "ownerReferences",
            "generateName",
            "selfLink",
            "nope",
        ] {
            assert!(
                !metadata.contains_key(dropped),
                "{dropped}: {}",
                created.text
            );
        }
        assert_eq!(created.json["metadata"]["annotations"], json!({"a": ""}));
    }
}

#[tokio::test]
async fn fields_of_the_wrong_types_are_rejected() {
    let server = Server::with_widgets().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = |spec| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec});
    // Built-in kinds fail to decode.
    for data in [
        json!([]),
        json!("x"),
        json!({"k": 1}),
        json!({"k": {}}),
        json!({"k": [1]}),
    ] {
        let mut map = config_map("a");
        map["data"] = data.clone();
        assert_eq!(server.post(CONFIG_MAPS, map).await.code, 400, "{data}");
    }
    for spec in [
        json!([]),
        json!("x"),
        json!({"replicas": "1"}),
        json!({"replicas": 1.5}),
        json!({"replicas": 4_294_967_296_u64}),
        json!({"selector": []}),
        json!({"template": "x"}),
        json!({"template": {"metadata": []}}),
        json!({"template": {"spec": {"containers": {}}}}),
        json!({"template": {"spec": {"containers": ["x"]}}}),
        json!({"template": {"spec": {"containers": [{"ports": [{"containerPort": "80"}]}]}}}),
        json!({"paused": "yes"}),
    ] {
        assert_eq!(
            server
                .post(deployments, deployment(spec.clone()))
                .await
                .code,
            400,
            "{spec}"
        );
    }
    // Custom resources fail validation.
    for spec in [
        json!([]),
        json!("x"),
        json!(1),
        json!({"color": 1}),
        json!({"color": "red", "replicas": "1"}),
        json!({"color": "red", "replicas": 1.5}),
        json!({"color": "red", "replicas": 1e20}),
        json!({"color": "red", "tags": {}}),
        json!({"color": "red", "tags": [1]}),
        json!({"color": "red", "tags": ["a", "a"]}),
        json!({"color": "red", "ports": ["x"]}),
        json!({"color": "red", "ports": [{"name": "a"}, {"name": "a"}]}),
        json!({"color": "red", "ports": [null]}),
        json!({"color": "red", "size": {}}),
        json!({"color": "red", "free": []}),
        json!({}),
    ] {
        let mut object = widget("a");
        object["spec"] = spec.clone();
        let reply = server.post(WIDGETS, object).await;
        assert_eq!(
            (reply.code, reply.reason()),
            (422, "Invalid"),
            "{spec}: {}",
            reply.text
        );
    }
    server.post(WIDGETS, widget("a")).await.expect(201);
    server
        .merge(
            &format!("{WIDGETS}/a/status"),
            json!({"status": {"replicas": "x"}}),
        )
        .await
        .expect(422);
    server
        .merge(&format!("{WIDGETS}/a/status"), json!({"status": []}))
        .await
        .expect(422);
}

#[tokio::test]
async fn numbers_and_depth_have_bounds() {
    let server = Server::with_widgets().await;
    let with = |free: &str| {
        format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"name":"a"}},"spec":{{"color":"red","free":{free}}}}}"#
        )
    };
    let deep =
        |open: &str, close: &str, depth| format!("{}1{}", open.repeat(depth), close.repeat(depth));
    for free in [
        r#"{"a":1e999}"#.to_owned(),
        deep("[", "]", 100_000),
        deep(r#"{"a":"#, "}", 20_000),
    ] {
        assert_rejects(&server, "POST", WIDGETS, JSON, &[(&with(&free), 400)]).await;
        assert_rejects(
            &server,
            "PATCH",
            &format!("{WIDGETS}/a"),
            MERGE,
            &[(&with(&free), 400)],
        )
        .await;
    }
    let numbers = r#"{"a":9223372036854775807,"b":-9223372036854775808,"c":1e300,"d":0.1}"#;
    let created = server
        .send("POST", WIDGETS, &[], with(numbers))
        .await
        .expect(201);
    assert_eq!(
        created.json["spec"]["free"],
        serde_json::from_str::<serde_json::Value>(numbers).unwrap()
    );
}

#[tokio::test]
async fn the_last_duplicate_field_wins_with_a_warning() {
    let server = Server::with_widgets().await;
    let twice = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"color":"red","color":"blue"}}"#;
    let created = server.send("POST", WIDGETS, &[], twice).await.expect(201);
    assert_eq!(created.json["spec"]["color"], "blue");
    assert_eq!(
        created.warnings(),
        [r#"299 - "duplicate field \"spec.color\"""#]
    );
    let strict = server
        .send(
            "POST",
            &format!("{WIDGETS}?fieldValidation=Strict"),
            &[],
            twice,
        )
        .await
        .expect(400);
    assert!(strict.message().contains("duplicate field \"spec.color\""));
}

#[tokio::test]
async fn invalid_utf8_is_replaced_in_strings_and_rejected_elsewhere() {
    let server = Server::with_widgets().await;
    // Go's JSON decoder replaces invalid bytes with U+FFFD.
    let body = b"{\"metadata\":{\"name\":\"a\"},\"data\":{\"k\":\"x\xff\"}}".to_vec();
    let created = server
        .send("POST", CONFIG_MAPS, &[], body)
        .await
        .expect(201);
    assert_eq!(created.json["data"]["k"], "x\u{fffd}");
    let body = b"{\"metadata\":{\"name\":\"b\"},\xff\"data\":{}}".to_vec();
    server
        .send("POST", CONFIG_MAPS, &[], body)
        .await
        .expect(400);
    server
        .send(
            "POST",
            CONFIG_MAPS,
            &[],
            b"{\"metadata\":{\"name\":\"\xc3\x28\"}}".to_vec(),
        )
        .await
        .expect(422);
}

#[tokio::test]
async fn an_object_of_another_kind_name_or_namespace_is_a_bad_request() {
    let server = Server::with_widgets().await;
    let created = server.post(WIDGETS, widget("a")).await.expect(201).json;
    let map = server
        .post(CONFIG_MAPS, config_map("a"))
        .await
        .expect(201)
        .json;
    for (field, value) in [
        ("apiVersion", json!("v2")),
        ("apiVersion", json!("example.com/v2")),
        ("apiVersion", json!("a/b/c")),
        ("kind", json!("Secret")),
        ("kind", json!("configmap")),
        ("kind", json!(5)),
        ("apiVersion", json!({})),
    ] {
        for (collection, object) in [(CONFIG_MAPS, &map), (WIDGETS, &created)] {
            let mut object = object.clone();
            object[field] = value.clone();
            // A custom resource of another kind is decoded and fails validation.
            let code = if collection == WIDGETS && field == "kind" && value.is_string() {
                422
            } else {
                400
            };
            server
                .put(&format!("{collection}/a"), object.clone())
                .await
                .expect(code);
            object["metadata"] = json!({"name": "b"});
            server.post(collection, object).await.expect(code);
        }
    }
    for (collection, object) in [(CONFIG_MAPS, &map), (WIDGETS, &created)] {
        for (field, value) in [("name", "b"), ("namespace", "other")] {
            let mut other = object.clone();
            other["metadata"][field] = value.into();
            server
                .put(&format!("{collection}/a"), other)
                .await
                .expect(400);
            server
                .merge(
                    &format!("{collection}/a"),
                    json!({"metadata": {field: value}}),
                )
                .await
                .expect(400);
        }
        let mut stale = object.clone();
        stale["metadata"]["resourceVersion"] = "abc".into();
        server
            .put(&format!("{collection}/a"), stale.clone())
            .await
            .expect(500);
        let with_version = server.post(collection, object.clone()).await.expect(500);
        assert_eq!(
            with_version.message(),
            "resourceVersion should not be set on objects to be created"
        );
    }
    // Built-in objects may omit apiVersion and kind. Custom resources may not.
    server
        .post(CONFIG_MAPS, json!({"metadata": {"name": "c"}}))
        .await
        .expect(201);
    server
        .post(
            WIDGETS,
            json!({"metadata": {"name": "c"}, "spec": {"color": "red"}}),
        )
        .await
        .expect(400);
    assert_eq!(server.get(&format!("{WIDGETS}/a")).await.json, created);
    assert_eq!(server.get(&format!("{CONFIG_MAPS}/a")).await.json, map);
}

#[tokio::test]
async fn a_quantity_of_extreme_size_is_rounded_lowered_or_rejected() {
    let server = Server::with_widgets().await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let quota = |name: &str, amount: Value| json!({"metadata": {"name": name}, "spec": {"hard": {"requests.memory": amount}}});
    let digits = "9".repeat(40);
    for (name, amount, stored) in [
        ("small", "2e-100".to_owned(), "1e-3"),
        ("large", format!("{digits}Ki"), "9223372036854775807"),
    ] {
        let created = server
            .post(quotas, quota(name, json!(amount)))
            .await
            .expect(201);
        assert_eq!(created.json["spec"]["hard"]["requests.memory"], stored);
    }
    for amount in [
        json!("1e100"),
        json!("-1e100"),
        json!(1e100),
        json!(digits),
        json!(format!("{digits}E")),
    ] {
        let reply = server
            .post(quotas, quota("rejected", amount))
            .await
            .expect(400);
        assert!(
            reply
                .message()
                .ends_with("quantity is too large; use an amount below 1e29"),
            "{}",
            reply.message()
        );
    }
}
