//! Discovery and validation of its response.

use super::{
    fixture::{config, config_of, discovery_error, handler, runtime},
    raw_server::{RawServer, Reply},
};
use crate::support::RequestGroup;
use anyhow::Result;
use serde_json::json;
use steersman_controllers::extension_config::{
    FailurePolicy,
    catalog::HOOKS_API_VERSION,
    client::{DiscoveryFailure, HttpError, ResponseError, SetupError, UrlError},
};
use tokio::task::JoinSet;

#[tokio::test]
async fn a_discovery_returns_the_handlers_under_registered_names() -> Result<()> {
    let mut other = handler("b");
    other["timeoutSeconds"] = json!(30);
    other["failurePolicy"] = json!("Ignore");
    let server = RawServer::start(Reply::handlers(json!([handler("z"), other]))).await?;
    let handlers = runtime()?.discover(&config("ext", &server)).await?;

    let names: Vec<_> = handlers.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["z.ext", "b.ext"], "in the order of the response");
    assert_eq!(handlers[0].timeout_seconds, Some(10));
    assert_eq!(handlers[0].failure_policy, Some(FailurePolicy::Fail));
    assert_eq!(handlers[1].timeout_seconds, Some(30));
    assert_eq!(handlers[1].failure_policy, Some(FailurePolicy::Ignore));

    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(
        requests[0].line,
        "POST /hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery?timeout=10s HTTP/1.1"
    );
    assert_eq!(requests[0].headers["host"], server.address.to_string());
    let body = json!({"kind": "DiscoveryRequest", "apiVersion": HOOKS_API_VERSION});
    assert_eq!(requests[0].body, body);
    Ok(())
}

#[tokio::test]
async fn a_response_with_another_status_is_an_error() -> Result<()> {
    let server = RawServer::start(Reply::Hang).await?;
    for (response, expected) in [
        (
            json!({"status": "Failure", "message": "no quota"}),
            "failed to discover extension \"ext\": got failure response with message: no quota",
        ),
        (
            json!({"status": "Maybe", "message": "hm"}),
            "failed to discover extension \"ext\": got unknown response status \"Maybe\" with \
             message: hm",
        ),
        (
            json!({}),
            "failed to discover extension \"ext\": got unknown response status \"\" with \
             message: ",
        ),
    ] {
        server.set_reply(Reply::json(&response));
        let error = discovery_error(&server).await?;
        assert_eq!(error.to_string(), expected);
        assert!(matches!(error.reason, DiscoveryFailure::Response(_)));
    }
    Ok(())
}

#[tokio::test]
async fn a_long_failure_message_is_cut() -> Result<()> {
    let response = json!({"status": "Failure", "message": "é".repeat(100_000)});
    let server = RawServer::start(Reply::json(&response)).await?;
    let error = discovery_error(&server).await?;
    let DiscoveryFailure::Response(ResponseError::Failure { message }) = error.reason else {
        panic!("{error}");
    };
    assert!(message.len() < 5_000 && message.ends_with("é..."));
    Ok(())
}

#[tokio::test]
async fn a_response_of_another_hook_is_an_error() -> Result<()> {
    let response = json!({"kind": "BeforeClusterCreateResponse", "status": "Success"});
    let server = RawServer::start(Reply::json(&response)).await?;
    let error = discovery_error(&server).await?;
    assert_eq!(
        error.to_string(),
        "failed to discover extension \"ext\": http call failed: failed to decode response: got a \
         response of kind \"BeforeClusterCreateResponse\" instead of DiscoveryResponse"
    );
    Ok(())
}

#[tokio::test]
async fn one_invalid_handler_makes_the_response_invalid() -> Result<()> {
    let mut late = handler("late");
    late["timeoutSeconds"] = json!(31);
    let mut unknown = handler("unknown");
    unknown["requestHook"]["hook"] = json!("BeforeLunch");
    let handlers = [
        handler("fine"),
        handler("twice"),
        handler("twice"),
        handler("Not_a_label"),
        late,
        unknown,
    ];
    let server = RawServer::start(Reply::handlers(json!(handlers))).await?;
    let error = discovery_error(&server).await?;
    let text = error.to_string();
    let start = "failed to discover extension \"ext\": failed to validate discovery response: [";
    assert!(text.starts_with(start), "{text}");
    for problem in [
        "duplicate name for handler twice found",
        "handler name Not_a_label is not valid: [a lowercase RFC 1123 label",
        "handler late timeoutSeconds 31 must be between 0 and 30",
        "handler unknown requestHook hooks.runtime.cluster.x-k8s.io/v1alpha1/BeforeLunch is not in \
         the Runtime SDK catalog",
    ] {
        assert!(text.contains(problem), "{problem} in {text}");
    }
    assert!(matches!(error.reason, DiscoveryFailure::Invalid(problems) if problems.len() == 4));
    Ok(())
}

#[tokio::test]
async fn timeouts_of_0_and_30_are_accepted() -> Result<()> {
    let with_timeout = |name, timeout| {
        let mut handler = handler(name);
        handler["timeoutSeconds"] = json!(timeout);
        handler
    };
    let handlers = json!([with_timeout("a", 0), with_timeout("b", 30)]);
    let server = RawServer::start(Reply::handlers(handlers)).await?;
    let handlers = runtime()?.discover(&config("ext", &server)).await?;
    assert_eq!(handlers[0].timeout_seconds, None, "the status omits 0");
    assert_eq!(handlers[1].timeout_seconds, Some(30));
    Ok(())
}

#[tokio::test]
async fn an_invalid_address_is_a_setup_error() -> Result<()> {
    let error = runtime()?.discover(&config_of("ext", "", "")).await;
    let error = error.expect_err("no address");
    assert_eq!(
        error.to_string(),
        "failed to discover extension \"ext\": failed to get http client: failed to compute URL: \
         at least one of service and url should be defined in config"
    );
    let reason = DiscoveryFailure::Setup(SetupError::Url(UrlError::Missing));
    assert_eq!(error.reason, reason);
    Ok(())
}

#[tokio::test]
async fn an_unreachable_extension_does_not_affect_others() -> Result<()> {
    let dead = RawServer::start(Reply::Hang).await?;
    let dead_config = config("dead", &dead);
    drop(dead);
    let hanging = RawServer::start(Reply::Hang).await?;
    let alive = RawServer::start(Reply::handlers(json!([handler("a")]))).await?;
    let runtime = runtime()?;

    let hanging_config = config("hanging", &hanging);
    let hangs = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.discover(&hanging_config).await }
    });
    hanging.until(|counts| counts.requests == 1).await?;
    let died = runtime.discover(&dead_config).await;
    let reason = died.expect_err("nothing listens").reason;
    let connection = matches!(reason, DiscoveryFailure::Http(HttpError::Connection { .. }));
    assert!(connection, "{reason}");
    let handlers = runtime.discover(&config("alive", &alive)).await?;
    assert_eq!(handlers.len(), 1);
    assert!(!hangs.is_finished());
    hangs.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_extensions_are_discovered_at_the_same_time() -> Result<()> {
    // No request is answered before the last one has arrived.
    let group = RequestGroup::new(100);
    let reply = Reply::With(group, Box::new(Reply::handlers(json!([handler("a")]))));
    let runtime = runtime()?;
    let mut servers = Vec::new();
    let mut discoveries = JoinSet::new();
    for index in 0..100 {
        let server = RawServer::start(reply.clone()).await?;
        let config = config(&format!("ext-{index}"), &server);
        servers.push(server);
        let runtime = runtime.clone();
        discoveries.spawn(async move { runtime.discover(&config).await });
    }
    for discovered in discoveries.join_all().await {
        assert_eq!(discovered?.len(), 1);
    }
    Ok(())
}
