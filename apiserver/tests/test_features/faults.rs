//! Injected faults: errors, delays, closed connections and broken watches.

use super::*;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use std::time::Duration;
use steersman_apiserver::{Closed, Fault, RuleHandle};
use tokio::time::Instant;
use tower_service::Service as _;

fn add_rule(server: &Server, text: &str) -> RuleHandle {
    server.server.faults().add(text.parse().expect("a rule"))
}

#[tokio::test]
async fn a_rule_matches_its_verb_and_subresource_a_limited_number_of_times() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let conflict = add_rule(&server, "PATCH widgets/status -> 409 twice");
    let path = format!("{WIDGETS}/a/status");
    let patch = json!({"status": {"phase": "Ready"}});
    for _ in 0..2 {
        let reply = server.merge(&path, patch.clone()).await.expect(409);
        assert_eq!(reply.reason(), "Conflict");
        assert!(
            reply
                .message()
                .starts_with("Operation cannot be fulfilled on widgets.example.com \"a\": ")
        );
        assert!(
            reply
                .message()
                .ends_with("please apply your changes to the latest version and try again")
        );
        server
            .merge(
                &format!("{WIDGETS}/a"),
                json!({"metadata": {"labels": {"a": "b"}}}),
            )
            .await
            .expect(200);
        server.get(&path).await.expect(200);
    }
    assert_eq!(
        server.get(&path).await.json["status"],
        Value::Null,
        "an injected failure writes nothing"
    );
    server.merge(&path, patch).await.expect(200);
    assert_eq!(conflict.hits(), 2);
}

#[tokio::test]
async fn rules_apply_in_order_and_can_skip_and_be_removed() {
    let server = Server::start();
    add_rule(&server, "list configmaps -> 500 skip 1 once");
    let expired = server
        .server
        .faults()
        .add(Fault::on("list configmaps").status(410));
    for code in [410, 500, 410] {
        server.get(CONFIG_MAPS).await.expect(code);
    }
    expired.remove();
    server.get(CONFIG_MAPS).await.expect(200);
    add_rule(&server, "* * -> 503");
    server.get("/version").await.expect(503);
    server.server.faults().clear();
    server.get("/version").await.expect(200);
    assert_eq!(expired.hits(), 2);
}

#[tokio::test]
async fn an_injected_429_has_retry_after() {
    let server = Server::start();
    add_rule(&server, "list configmaps -> 429 retry-after 3 once");
    let reply = server.get(CONFIG_MAPS).await.expect(429);
    assert_eq!(
        (
            reply.headers["retry-after"].to_str().unwrap(),
            reply.reason()
        ),
        ("3", "TooManyRequests")
    );
    assert_eq!(reply.json["details"]["retryAfterSeconds"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_delay_uses_the_clock_of_the_runtime() {
    let server = Server::start();
    add_rule(&server, "GET configmaps -> delay 15s once");
    add_rule(&server, "POST configmaps -> delay 10s 409 once");
    let start = Instant::now();
    server.get(CONFIG_MAPS).await.expect(200);
    // Timers have a resolution of one millisecond.
    assert_eq!(start.elapsed().as_secs(), 15);
    server.post(CONFIG_MAPS, config_map("a")).await.expect(409);
    assert_eq!(start.elapsed().as_secs(), 25);
    server.get(&format!("{CONFIG_MAPS}/a")).await.expect(404);
    assert!(start.elapsed() < Duration::from_secs(26));
}

#[tokio::test]
async fn an_injected_close_is_an_error_of_the_call() {
    let server = Server::start();
    add_rule(&server, "* configmaps -> close twice");
    let request = Request::post(CONFIG_MAPS)
        .body(Full::<Bytes>::from(config_map("a").to_string()))
        .unwrap();
    assert_eq!(
        server.server.service().call(request).await.unwrap_err(),
        Closed
    );
    let maps: Api<ConfigMap> =
        Api::default_namespaced(Client::new(server.server.service(), "default"));
    let error = maps.get("a").await.unwrap_err();
    assert!(
        matches!(&error, kube::Error::Service(source) if source.is::<Closed>()),
        "{error:?}"
    );
    assert!(
        maps.get_opt("a").await.unwrap().is_none(),
        "a closed request writes nothing"
    );
    assert_eq!(server.server.journal().entries()[0].code, 0);
}

#[tokio::test]
async fn a_dropped_watch_can_be_resumed() {
    let server = Server::with_widgets().await;
    add_rule(&server, "watch widgets -> drop after 2 once");
    let path = format!(
        "{WIDGETS}?watch=1&resourceVersion={}",
        server.server.revision()
    );
    let mut body = server
        .raw("GET", &path, &[], Bytes::new())
        .await
        .into_body();
    for name in ["a", "b", "c"] {
        server.post(WIDGETS, widget(name)).await.expect(201);
    }
    let mut seen = Vec::new();
    let error = loop {
        match body
            .frame()
            .await
            .expect("a dropped watch ends with an error")
        {
            Ok(frame) => seen.extend_from_slice(frame.data_ref().unwrap()),
            Err(error) => break error,
        }
    };
    assert!(error.is::<Closed>(), "{error}");
    let lines: Vec<Value> = seen
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    let last = rv(&lines[1]["object"]);
    let mut next = server
        .watch(&format!("{WIDGETS}?watch=1&resourceVersion={last}"))
        .await;
    assert_eq!(next.next_name().await, ("ADDED".into(), "c".into()));
}
