//! Invalid query parameters and delete options.

use super::*;

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[tokio::test]
async fn an_invalid_selector_is_a_bad_request() {
    let server = Server::with_widgets().await;
    let long = format!("a={}", "b".repeat(64));
    for collection in [CONFIG_MAPS, WIDGETS] {
        for labels in [
            "a in",
            "a in (",
            "a,",
            ",",
            "=",
            "=b",
            "a=(b)",
            "!",
            "!a=b",
            "a b",
            "-a=b",
            "a notin b",
            "a in (b",
            "a=-b",
            &long,
            "a/b/c",
            "a===",
        ] {
            let query = format!("{collection}?labelSelector={}", encoded(labels));
            for path in [query.clone(), format!("{query}&watch=1")] {
                let reply = server.get(&path).await;
                assert_eq!(
                    (reply.code, reply.reason()),
                    (400, "BadRequest"),
                    "{labels}"
                );
            }
            let reply = server.delete(&query).await;
            assert_eq!(reply.code, 400, "{labels}");
        }
        for fields in [
            "metadata.name",
            "spec.nope=1",
            "metadata.labels=a",
            "=",
            "metadata.name=a\\x",
            "metadata.name>a",
        ] {
            let query = format!("{collection}?fieldSelector={}", encoded(fields));
            for path in [query.clone(), format!("{query}&watch=1")] {
                let reply = server.get(&path).await;
                assert_eq!(
                    (reply.code, reply.reason()),
                    (400, "BadRequest"),
                    "{fields}"
                );
            }
            server.delete(&query).await.expect(400);
        }
    }
}

#[tokio::test]
async fn an_invalid_list_option_is_rejected() {
    let server = Server::with_widgets().await;
    for collection in [CONFIG_MAPS, WIDGETS] {
        for (query, code) in [
            ("limit=abc", 400),
            ("limit=1.5", 400),
            ("limit=99999999999999999999", 400),
            ("timeoutSeconds=x", 400),
            ("watch=1&timeoutSeconds=x", 400),
            ("continue=garbage", 400),
            ("continue=%7B%7D", 400),
            ("continue=e30", 400),
            ("continue=bnVsbA", 400),
            // {"v":"meta.k8s.io/v1","rv":1,"start":"../../secrets/"}
            (
                "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8uLi9zZWNyZXRzLyJ9",
                400,
            ),
            ("continue=x&resourceVersion=3", 400),
            ("resourceVersion=abc", 400),
            ("resourceVersion=-1", 400),
            ("resourceVersion=99999999999999999999", 400),
            // The real server answers a watch with an unparsable resource version with 500.
            ("watch=1&resourceVersion=abc", 500),
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersionMatch=Nope&resourceVersion=1", 422),
            ("sendInitialEvents=true", 422),
            ("watch=1&sendInitialEvents=true", 422),
            // apimachinery ignores negative limits and unknown parameters.
            ("limit=-1", 200),
            ("nope=1&limit=", 400),
            ("nope=%zz", 200),
        ] {
            assert_codes(&server, "GET", &[(&format!("{collection}?{query}"), code)]).await;
        }
    }
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    assert_codes(
        &server,
        "GET",
        &[(&format!("{CONFIG_MAPS}/a?resourceVersion=abc"), 500)],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_future_resource_version_times_out() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    for path in [
        format!("{WIDGETS}?resourceVersion=9999"),
        format!("{WIDGETS}/a?resourceVersion=9999"),
    ] {
        let reply = server.get(&path).await.expect(504);
        assert_eq!(
            reply.json["details"]["causes"][0]["reason"],
            "ResourceVersionTooLarge"
        );
        assert_eq!(reply.json["details"]["retryAfterSeconds"], 1);
    }
}

#[tokio::test]
async fn invalid_write_options_are_rejected_before_the_write() {
    let server = Server::with_widgets().await;
    let long = format!("fieldManager={}", "m".repeat(129));
    for query in [
        "dryRun=Some",
        "dryRun=",
        "fieldValidation=Nope",
        "fieldManager=%07",
        &long,
    ] {
        server
            .post(&format!("{WIDGETS}?{query}"), widget("a"))
            .await
            .expect(422);
        server
            .post(&format!("{CONFIG_MAPS}?{query}"), config_map("a"))
            .await
            .expect(422);
    }
    server
        .merge(&format!("{WIDGETS}/a?force=true"), json!({}))
        .await
        .expect(422);
    server.get(&format!("{WIDGETS}/a")).await.expect(404);
}

#[tokio::test]
async fn invalid_delete_options_delete_nothing() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let rows = [
        ("{", 400),
        ("[]", 400),
        ("\"x\"", 400),
        // Fields of the wrong type fail to decode, as in apimachinery.
        (r#"{"gracePeriodSeconds":"x"}"#, 400),
        (r#"{"gracePeriodSeconds":1.5}"#, 400),
        (r#"{"propagationPolicy":5}"#, 400),
        (r#"{"orphanDependents":"yes"}"#, 400),
        (r#"{"dryRun":"All"}"#, 400),
        (r#"{"dryRun":[1]}"#, 400),
        (r#"{"preconditions":"x"}"#, 400),
        (r#"{"preconditions":{"uid":5}}"#, 400),
        (r#"{"preconditions":{"resourceVersion":5}}"#, 400),
        (
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}"#,
            400,
        ),
        (r#"{"propagationPolicy":"Sideways"}"#, 422),
        (
            r#"{"propagationPolicy":"Orphan","orphanDependents":true}"#,
            422,
        ),
        (r#"{"dryRun":["Some"]}"#, 422),
        (r#"{"preconditions":{"uid":"x"}}"#, 409),
        (r#"{"preconditions":{"resourceVersion":"1"}}"#, 409),
    ];
    for collection in [WIDGETS, CONFIG_MAPS] {
        assert_rejects(&server, "DELETE", &format!("{collection}/a"), JSON, &rows).await;
        assert_rejects(&server, "DELETE", collection, JSON, &rows).await;
        assert_codes(
            &server,
            "DELETE",
            &[(&format!("{collection}/a?gracePeriodSeconds=x"), 400)],
        )
        .await;
        for query in ["propagationPolicy=Sideways", "dryRun=Some"] {
            assert_codes(
                &server,
                "DELETE",
                &[(&format!("{collection}/a?{query}"), 422)],
            )
            .await;
        }
        server.get(&format!("{collection}/a")).await.expect(200);
        // Unknown fields and nulls are accepted.
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "nope": 1, "propagationPolicy": null, "preconditions": {}});
        server
            .delete_with(&format!("{collection}/a"), options)
            .await
            .expect(200);
    }
}
