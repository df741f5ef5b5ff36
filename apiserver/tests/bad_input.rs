//! Invalid requests. The server rejects each with the status code of the real server and stores
//! nothing.
//!
//! The codes come from recordings of the real server. Codes without a recording are read from
//! Kubernetes' apimachinery; a comment marks them.

mod bodies;
mod large;
mod options;

use crate::support::*;
use bytes::Bytes;
use serde_json::{Value, json};

const JSON: &str = "application/json";

/// Sends each body and asserts the status code of the response.
async fn assert_rejects(
    server: &Server,
    method: &str,
    path: &str,
    content_type: &str,
    rows: &[(&str, u16)],
) {
    for (body, code) in rows {
        let reply = server
            .send(
                method,
                path,
                &[("content-type", content_type)],
                (*body).to_owned(),
            )
            .await;
        assert_eq!(reply.code, *code, "{method} {path} {body}: {}", reply.text);
        assert_status_body(&reply);
    }
}

/// Requests each path and asserts the status code of the response.
async fn assert_codes(server: &Server, method: &str, rows: &[(&str, u16)]) {
    for (path, code) in rows {
        let reply = server.send(method, path, &[], "").await;
        assert_eq!(reply.code, *code, "{method} {path}: {}", reply.text);
        assert_status_body(&reply);
    }
}

/// Asserts that the body of an error is a `Status` with the same code. Errors as plain text pass.
fn assert_status_body(reply: &Reply) {
    if reply.code < 400 || reply.headers["content-type"] != JSON {
        return;
    }
    assert_eq!(reply.json["kind"], "Status", "{}", reply.text);
    assert_eq!(reply.json["status"], "Failure");
    assert_eq!(reply.json["code"], reply.code);
}

#[tokio::test]
async fn a_path_segment_cannot_escape_its_collection() {
    let server = Server::with_widgets().await;
    let long = "a".repeat(254);
    for collection in [CONFIG_MAPS, WIDGETS] {
        // Invalid path segments. For the dots, plain and encoded, see IsValidPathSegmentName in
        // apimachinery.
        for name in ["..", ".", "%2e%2e", "%2e", "a%25b", "%ff", "%zz", "a%"] {
            assert_codes(&server, "GET", &[(&format!("{collection}/{name}"), 400)]).await;
            assert_codes(&server, "DELETE", &[(&format!("{collection}/{name}"), 400)]).await;
        }
        // Names in paths are not validated otherwise: these are valid segments of missing objects.
        for name in [
            "Capitals",
            "%00",
            "a%00b",
            "%20",
            "a b".replace(' ', "%20").as_str(),
            &long,
            "%E2%82%AC",
        ] {
            assert_codes(&server, "GET", &[(&format!("{collection}/{name}"), 404)]).await;
            assert_codes(&server, "DELETE", &[(&format!("{collection}/{name}"), 404)]).await;
        }
        // An encoded slash separates segments.
        assert_codes(
            &server,
            "GET",
            &[
                (&format!("{collection}/..%2F..%2Fsecrets"), 404),
                (&format!("{collection}/a%2Fb"), 404),
            ],
        )
        .await;
    }
}

#[tokio::test]
async fn an_object_with_an_invalid_name_is_rejected() {
    let server = Server::with_widgets().await;
    let long = "a".repeat(254);
    for name in [
        "..", ".", "a/b", "Capitals", "-a", "a-", "a b", "a\0", "a_b", "ä", &long, "a..b", "%2e",
    ] {
        let reply = server.post(CONFIG_MAPS, config_map(name)).await.expect(422);
        assert_eq!(reply.cause_fields()[0], "metadata.name");
        server.post(WIDGETS, widget(name)).await.expect(422);
        let mut generated = widget("");
        generated["metadata"] = json!({"generateName": format!("{name}/")});
        server.post(WIDGETS, generated).await.expect(422);
    }
    for empty in [
        json!({}),
        json!({"name": ""}),
        json!({"name": null}),
        json!(null),
    ] {
        let mut map = config_map("");
        map["metadata"] = empty;
        let reply = server.post(CONFIG_MAPS, map).await.expect(422);
        assert_eq!(reply.cause_fields(), ["metadata.name"]);
    }
    assert_eq!(
        server.get(CONFIG_MAPS).await.names().len() + server.get(WIDGETS).await.names().len(),
        0
    );
}

#[tokio::test]
async fn an_unknown_path_is_not_found() {
    let server = Server::with_widgets().await;
    for path in [
        "/api/v1/nope",
        "/api/v1/namespaces/default/nope",
        "/api/v1/namespaces/default/nope/a",
        "/api/v2/pods",
        "/apis/apps/v1/namespaces/default/nope/a",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/clusterroles",
    ] {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let reply = server.send(method, path, &[], "").await.expect(404);
            assert_eq!(
                reply.message(),
                "the server could not find the requested resource",
                "{method} {path}"
            );
            assert_eq!(reply.reason(), "NotFound");
        }
    }
    for path in [
        "/apis/example.com/v1/nope",
        "/apis/example.com/v2/widgets",
        "/apis/nope.com/v1/namespaces/default/widgets",
        "/apis/nope.com",
        "/apis/nope.com/v1",
        "/nope",
        // A namespaced kind is not served at the cluster scope.
        "/apis/example.com/v1/widgets/a",
    ] {
        let reply = server.get(path).await.expect(404);
        assert_eq!(
            (
                &*reply.text,
                reply.headers["content-type"].to_str().unwrap()
            ),
            PAGE_NOT_FOUND,
            "{path}"
        );
    }
    server
        .post("/apis/example.com/v1/widgets", widget("a"))
        .await
        .expect(404);
    for path in [
        format!("{CONFIG_MAPS}/a/status"),
        format!("{WIDGETS}/a/nope"),
        format!("{WIDGETS}/a/status/more"),
    ] {
        server.get(&path).await.expect(404);
    }
}

const PAGE_NOT_FOUND: (&str, &str) = ("404 page not found\n", "text/plain; charset=utf-8");

#[tokio::test]
async fn an_unsupported_method_is_not_allowed() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let widget = format!("{WIDGETS}/a");
    let status = format!("{widget}/status");
    for (path, methods) in [
        (
            CONFIG_MAPS,
            &["PUT", "PATCH", "OPTIONS", "TRACE", "FOO"][..],
        ),
        (WIDGETS, &["OPTIONS", "FOO"]),
        (&widget, &["OPTIONS", "FOO"]),
        (&status, &["POST", "DELETE", "FOO"]),
        ("/api/v1/configmaps", &["POST", "PUT", "DELETE"]),
        ("/api/v1/namespaces", &["DELETE"]),
        ("/api", &["POST", "DELETE"]),
        ("/apis/apps/v1", &["PUT"]),
        ("/version", &["POST"]),
    ] {
        for method in methods {
            let reply = server
                .send(method, path, &[("content-type", JSON)], "{}")
                .await;
            assert_eq!(
                (reply.code, reply.reason()),
                (405, "MethodNotAllowed"),
                "{method} {path}: {}",
                reply.text
            );
            assert_status_body(&reply);
        }
    }
}

#[tokio::test]
async fn a_body_with_an_unsupported_content_type_is_rejected() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let a_widget = format!("{WIDGETS}/a");
    let a_map = format!("{CONFIG_MAPS}/a");
    for (method, path, content_type) in [
        ("POST", WIDGETS, "text/plain"),
        ("POST", CONFIG_MAPS, "application/xml"),
        ("POST", CONFIG_MAPS, "application/json-patch+json"),
        ("PUT", &a_widget, "application/octet-stream"),
        ("PATCH", &a_widget, JSON),
        ("PATCH", &a_widget, ""),
        ("PATCH", &a_widget, "application/strategic-merge-patch+json"),
        ("PATCH", &a_map, "text/plain"),
        ("DELETE", &a_map, "text/plain"),
    ] {
        let reply = server
            .send(method, path, &[("content-type", content_type)], "{}")
            .await;
        assert_eq!(
            (reply.code, reply.reason()),
            (415, "UnsupportedMediaType"),
            "{method} {path} {content_type}"
        );
        let router = method == "PATCH" && path == a_map;
        let text = if router {
            "415: Unsupported Media Type"
        } else {
            "accepted media types include: "
        };
        assert!(reply.message().contains(text), "{}", reply.text);
    }
    let charset = [("content-type", "application/json; charset=utf-8")];
    server
        .send("POST", CONFIG_MAPS, &charset, config_map("b").to_string())
        .await
        .expect(201);
}

#[tokio::test]
async fn an_unsupported_accept_header_rejects_the_request_before_any_write() {
    let server = Server::with_widgets().await;
    for accept in [
        "text/html",
        "application/vnd.kubernetes.protobuf",
        "application/json;as=Nope;g=meta.k8s.io;v=v1",
    ] {
        let headers = [("accept", accept), ("content-type", JSON)];
        for (method, path, body) in [
            ("GET", WIDGETS, String::new()),
            ("POST", WIDGETS, widget("a").to_string()),
            ("DELETE", CONFIG_MAPS, String::new()),
        ] {
            let reply = server.send(method, path, &headers, body).await;
            assert_eq!(
                (reply.code, reply.reason()),
                (406, "NotAcceptable"),
                "{method} {path} {accept}"
            );
        }
    }
    let yaml = [("accept", "application/yaml")];
    server
        .send("GET", &format!("{WIDGETS}?watch=1"), &yaml, "")
        .await
        .expect(406);
    server.get(&format!("{WIDGETS}/a")).await.expect(404);
}

#[tokio::test]
async fn a_body_is_limited_to_three_mebibytes() {
    let server = Server::with_widgets().await;
    for (method, path) in [
        ("POST", CONFIG_MAPS),
        ("PUT", "/api/v1/namespaces/default/configmaps/a"),
        ("DELETE", CONFIG_MAPS),
    ] {
        let body = Bytes::from(vec![b' '; 3 * 1024 * 1024 + 1]);
        let reply = server
            .send(method, path, &[("content-type", JSON)], body)
            .await
            .expect(413);
        assert_eq!(
            (reply.message(), reply.reason()),
            (
                "Request entity too large: limit is 3145728",
                "RequestEntityTooLarge"
            )
        );
    }
    // A body of exactly the limit is read and then rejected as invalid JSON.
    server
        .send(
            "POST",
            CONFIG_MAPS,
            &[("content-type", JSON)],
            vec![b' '; 3 * 1024 * 1024],
        )
        .await
        .expect(400);
    let mut big = config_map("big");
    big["data"]["k"] = "x".repeat(1024 * 1024 + 1).into();
    server.post(CONFIG_MAPS, big).await.expect(422);
}
