//! Calls of one handler.

use super::{
    fixture::{
        builder_with, call, cluster, config, config_of, handler, runtime, runtime_with,
        with_handler,
    },
    raw_server::{RawServer, Reply},
};
use anyhow::Result;
use serde_json::{Value, json};
use std::time::Duration;
use steersman_controllers::extension_config::{
    ExtensionConfig, RegistryError,
    catalog::{
        Catalog, HOOKS_API_VERSION, Hook,
        hooks::{
            BeforeClusterCreate, BeforeClusterCreateRequest, BeforeClusterCreateResponse,
            BeforeClusterDelete, BeforeClusterDeleteRequest, ResponseStatus,
        },
    },
    client::{CallError, CallFailure, CallOptions, HttpError},
};
use tokio::time::{Instant, pause, resume};

/// Hook `BeforeClusterCreate` in a later version.
#[derive(Debug)]
struct Later;

impl Hook for Later {
    const NAME: &'static str = "BeforeClusterCreate";
    const VERSION: &'static str = "v1";
    type Request = BeforeClusterCreateRequest;
    type Response = BeforeClusterCreateResponse;
}

fn failing(server: &RawServer) -> ExtensionConfig {
    with_handler(
        config("ext", server),
        "fail",
        json!({"failurePolicy": "Fail"}),
    )
}

/// Returns an `ExtensionConfig` with one handler per failure policy.
fn with_policies(server: &RawServer) -> ExtensionConfig {
    with_handler(
        failing(server),
        "ignore",
        json!({"failurePolicy": "Ignore"}),
    )
}

fn failure(error: CallError) -> CallFailure {
    match error {
        CallError::Handler { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_call_has_the_request_and_merged_settings() -> Result<()> {
    let reply = Reply::json(&json!({"status": "Success", "retryAfterSeconds": 30}));
    let server = RawServer::start(reply).await?;
    let mut config = with_handler(
        config("ext", &server),
        "check",
        json!({"timeoutSeconds": 5}),
    );
    for (key, value) in [("region", "eu"), ("size", "small")] {
        config.spec.settings.insert(key.into(), value.into());
    }
    let runtime = runtime_with(&[config])?;
    let mut request = BeforeClusterCreateRequest {
        cluster: json!({"metadata": {"name": "web"}, "unknown": null}),
        ..BeforeClusterCreateRequest::default()
    };
    request.settings.insert("size".into(), "large".into());
    let response = runtime
        .call_extension::<BeforeClusterCreate>(
            &cluster(),
            "check.ext",
            &request,
            CallOptions::default(),
        )
        .await?;
    assert_eq!(response.status, ResponseStatus::Success);
    assert_eq!(response.retry_after_seconds, 30);
    assert_eq!(request.settings.len(), 1, "the request is not changed");

    let requests = server.requests();
    assert_eq!(
        requests[0].line,
        "POST /hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclustercreate/check?timeout=5s \
         HTTP/1.1"
    );
    let expected = json!({
        "kind": "BeforeClusterCreateRequest",
        "apiVersion": HOOKS_API_VERSION,
        "settings": {"region": "eu", "size": "large"},
        "cluster": {"metadata": {"name": "web"}, "unknown": null},
    });
    assert_eq!(requests[0].body, expected);
    Ok(())
}

#[tokio::test]
async fn a_call_has_the_time_limit_of_its_handler() -> Result<()> {
    let server = RawServer::start(Reply::Hang).await?;
    for (fields, expected) in [
        (json!({"timeoutSeconds": 30}), "30s"),
        (json!({}), "10s"),
        (json!({"timeoutSeconds": 1}), "1s"),
    ] {
        let config = with_handler(config("ext", &server), "check", fields);
        let runtime = runtime_with(&[config])?;
        let before = server.counts().requests;
        let calling = tokio::spawn(async move { call(&runtime, "check.ext").await });
        server.until(|counts| counts.requests > before).await?;
        let begun = Instant::now();
        pause();
        let error = calling.await?.expect_err("the server hangs");
        resume();
        let timeout: u64 = expected.trim_end_matches('s').parse()?;
        assert!(begun.elapsed() <= Duration::from_secs(timeout + 1));
        assert!(matches!(
            error.http_error(),
            Some(HttpError::Timeout { timeout: limit, .. }) if limit.as_secs() == timeout
        ));
        let line = server.requests()[before].line.clone();
        assert!(line.contains(&format!("?timeout={expected} ")), "{line}");
    }
    Ok(())
}

#[tokio::test]
async fn a_failed_http_step_is_ignored_with_the_policy_ignore() -> Result<()> {
    let server = RawServer::start(Reply::Hang).await?;
    let runtime = runtime_with(&[with_policies(&server)])?;
    let replies = [
        Reply::BytesAndClose(Vec::new()),
        Reply::status(500, r#"{"status":"Failure"}"#),
        Reply::status(302, ""),
        Reply::status(200, ""),
        Reply::status(200, "{"),
        Reply::json(&json!({"kind": "DiscoveryResponse", "status": "Failure"})),
        Reply::Endless { status: 200 },
        Reply::Endless { status: 500 },
    ];
    for (index, reply) in replies.into_iter().enumerate() {
        server.set_reply(reply);
        let error = call(&runtime, "fail.ext").await.expect_err("fails");
        assert!(error.http_error().is_some(), "{index}: {error}");
        let start = "failed to call extension handler \"fail.ext\": http call failed: ";
        assert!(error.to_string().starts_with(start), "{index}: {error}");

        let response = call(&runtime, "ignore.ext").await?;
        let ignored = BeforeClusterCreateResponse {
            status: ResponseStatus::Success,
            ..BeforeClusterCreateResponse::default()
        };
        assert_eq!(response, ignored, "{index}");
    }
    Ok(())
}

#[tokio::test]
async fn an_unreachable_extension_is_ignored_with_the_policy_ignore() -> Result<()> {
    let server = RawServer::start(Reply::Hang).await?;
    let config = with_policies(&server);
    drop(server);
    let runtime = runtime_with(&[config])?;
    let error = call(&runtime, "fail.ext").await.expect_err("dead");
    assert!(matches!(
        error.http_error(),
        Some(HttpError::Connection { .. })
    ));
    call(&runtime, "ignore.ext").await?;
    Ok(())
}

#[tokio::test]
async fn a_response_with_the_status_failure_is_never_ignored() -> Result<()> {
    let server = RawServer::start(Reply::Hang).await?;
    let runtime = runtime_with(&[with_policies(&server)])?;
    let text =
        |name: &str, rest: &str| format!("failed to call extension handler \"{name}\": {rest}");
    for (response, rest) in [
        (
            json!({"status": "Failure", "message": "no quota"}),
            "got failure response with message: no quota",
        ),
        (
            json!({"status": "success"}),
            "got unknown response status \"success\" with message: ",
        ),
        (
            json!({"message": "?"}),
            "got unknown response status \"\" with message: ?",
        ),
    ] {
        server.set_reply(Reply::json(&response));
        for name in ["fail.ext", "ignore.ext"] {
            let error = call(&runtime, name).await.expect_err(rest);
            assert_eq!(error.to_string(), text(name, rest));
            assert!(error.http_error().is_none());
            assert!(error.response_error().is_some());
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_setup_error_is_never_ignored() -> Result<()> {
    let ignore = json!({"failurePolicy": "Ignore"});
    let invalid_ca = config_of("ca", "https://127.0.0.1:1", "hunter2");
    let invalid_url = config_of("url", "http://127.0.0.1:1", "");
    let runtime = runtime_with(&[
        with_handler(invalid_ca, "a", ignore.clone()),
        with_handler(invalid_url, "a", ignore),
    ])?;
    for (name, rest) in [
        (
            "a.ca",
            "failed to get http client: failed to create tls config: unable to load root \
             certificates: ",
        ),
        (
            "a.url",
            "failed to get http client: failed to compute URL: expected https scheme, got http",
        ),
    ] {
        let error = call(&runtime, name).await.expect_err(name);
        let start = format!("failed to call extension handler \"{name}\": {rest}");
        assert!(error.to_string().starts_with(&start), "{error}");
        assert!(matches!(failure(error), CallFailure::Setup(_)));
    }
    Ok(())
}

#[tokio::test]
async fn a_request_that_is_too_large_is_not_sent() -> Result<()> {
    let server = RawServer::start(Reply::success()).await?;
    let runtime = runtime_with(&[with_policies(&server)])?;
    let request = BeforeClusterCreateRequest {
        cluster: Value::String("x".repeat(20 << 20)),
        ..BeforeClusterCreateRequest::default()
    };
    let options = CallOptions::default();
    let error = runtime
        .call_extension::<BeforeClusterCreate>(&cluster(), "ignore.ext", &request, options)
        .await
        .expect_err("too large");
    assert!(matches!(failure(error), CallFailure::Setup(_)));
    assert_eq!(server.counts().requests, 0);
    Ok(())
}

#[tokio::test]
async fn a_handler_is_called_only_for_its_hook() -> Result<()> {
    let server = RawServer::start(Reply::success()).await?;
    let config = failing(&server);
    let runtime = runtime()?;
    let error = call(&runtime, "fail.ext").await.expect_err("not ready");
    assert_eq!(
        error.to_string(),
        "failed to call extension handler \"fail.ext\": failed to get extension handler \
         \"fail.ext\" from registry: invalid operation: Get cannot be called on a registry not yet \
         ready"
    );
    runtime.warm_up(&[config])?;
    let error = call(&runtime, "other.ext").await.expect_err("unknown");
    let reason = failure(error);
    assert!(matches!(
        reason,
        CallFailure::Registry(RegistryError::NotRegistered { .. })
    ));

    let error = runtime
        .call_extension::<BeforeClusterDelete>(
            &cluster(),
            "fail.ext",
            &BeforeClusterDeleteRequest::default(),
            CallOptions::default(),
        )
        .await
        .expect_err("another hook");
    assert_eq!(
        error.to_string(),
        "failed to call extension handler \"fail.ext\": handler does not match GroupHook \
         \"BeforeClusterDelete.hooks.runtime.cluster.x-k8s.io\""
    );
    assert_eq!(server.counts().connections, 0);
    Ok(())
}

#[tokio::test]
async fn a_handler_is_called_only_in_its_version() -> Result<()> {
    let server = RawServer::start(Reply::success()).await?;
    let unknown = runtime_with(&[failing(&server)])?;
    let (request, name) = (BeforeClusterCreateRequest::default(), "fail.ext");
    let error = unknown
        .call_extension::<Later>(&cluster(), name, &request, CallOptions::default())
        .await
        .expect_err("not in the catalog");
    assert!(matches!(failure(error), CallFailure::UnknownHook(_)));

    let known = builder_with(Catalog::cluster_api().with::<Later>())?.build()?;
    known.warm_up(&[failing(&server)])?;
    let error = known
        .call_extension::<Later>(&cluster(), name, &request, CallOptions::default())
        .await
        .expect_err("another version");
    assert!(matches!(failure(error), CallFailure::OtherVersion(_)));
    assert_eq!(server.counts().connections, 0);
    Ok(())
}

#[tokio::test]
async fn a_registered_handler_is_called_until_it_is_unregistered() -> Result<()> {
    let server = RawServer::start(Reply::handlers(json!([handler("check")]))).await?;
    let runtime = runtime_with(&[])?;
    let mut config = config("ext", &server);
    config.status.get_or_insert_default().handlers = runtime.discover(&config).await?;
    runtime.register(&config)?;
    call(&runtime, "check.ext").await?;
    runtime.unregister("ext")?;
    call(&runtime, "check.ext").await.expect_err("unregistered");
    Ok(())
}

#[tokio::test]
async fn registering_before_the_warm_up_is_an_error() -> Result<()> {
    let runtime = runtime()?;
    let error = runtime.register(&config_of("ext", "https://host", ""));
    assert_eq!(
        error.expect_err("not ready").to_string(),
        "failed to register ExtensionConfig \"ext\": failed to add ExtensionConfig \"ext\" to \
         registry: invalid operation: Add cannot be called on a registry which has not been \
         warmed up"
    );
    let error = runtime
        .unregister("ext")
        .expect_err("not ready")
        .to_string();
    assert!(error.starts_with("failed to unregister ExtensionConfig \"ext\": failed to remove"));
    Ok(())
}
