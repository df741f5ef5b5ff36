//! Calls of all handlers of a hook.

use super::{
    fixture::{call_all, cluster, config, runtime, runtime_with, with_handler},
    raw_server::{RawServer, Reply},
};
use anyhow::Result;
use serde_json::json;
use steersman_controllers::extension_config::{
    catalog::hooks::{AfterClusterUpgrade, BeforeClusterCreate, ResponseStatus},
    client::CallError,
};

fn handlers_called(server: &RawServer) -> Vec<String> {
    let requests = server.requests();
    let name = |line: &str| line.split(['/', '?']).nth(4).unwrap_or_default().to_owned();
    requests.iter().map(|request| name(&request.line)).collect()
}

/// Makes the server reply to a handler with the body that `replies` has for its name.
fn reply_by_handler(server: &RawServer, replies: &'static [(&str, &str)]) {
    server.set_reply_fn(|request| {
        let reply = replies.iter().find(|(name, _)| {
            let segment = format!("/{name}?");
            request.line.contains(&segment)
        });
        Reply::status(200, reply.map_or("", |(_, body)| body))
    });
}

#[tokio::test]
async fn all_handlers_are_called_in_the_order_of_their_names() -> Result<()> {
    let server = RawServer::start(Reply::Hang).await?;
    reply_by_handler(
        &server,
        &[
            (
                "a",
                r#"{"status":"Success","message":"first","retryAfterSeconds":0}"#,
            ),
            (
                "b",
                r#"{"status":"Success","message":"","retryAfterSeconds":30}"#,
            ),
            (
                "c",
                r#"{"status":"Success","message":"last","retryAfterSeconds":20}"#,
            ),
        ],
    );
    let one = with_handler(config("one", &server), "c", json!({}));
    let other = with_handler(config("two", &server), "b", json!({}));
    let runtime = runtime_with(&[with_handler(one, "a", json!({})), other])?;

    let cluster = cluster();
    let names = runtime.get_all_extensions::<BeforeClusterCreate>(&cluster);
    assert_eq!(names.await?, ["a.one", "b.two", "c.one"]);
    let response = call_all(&runtime).await?;
    assert_eq!(response.status, ResponseStatus::Success);
    assert_eq!(response.message, "first, last");
    assert_eq!(response.retry_after_seconds, 20);
    assert_eq!(handlers_called(&server), ["a", "b", "c"]);
    assert_eq!(server.counts().connections, 1);
    Ok(())
}

#[tokio::test]
async fn the_first_error_stops_the_calls() -> Result<()> {
    let server = RawServer::start(Reply::Hang).await?;
    reply_by_handler(
        &server,
        &[
            ("a", r#"{"status":"Success"}"#),
            ("b", r#"{"status":"Failure","message":"no quota"}"#),
            ("c", r#"{"status":"Success"}"#),
        ],
    );
    let mut ext = config("ext", &server);
    for name in ["a", "b", "c"] {
        ext = with_handler(ext, name, json!({"failurePolicy": "Ignore"}));
    }
    let error = call_all(&runtime_with(&[ext])?).await.expect_err("b fails");
    assert_eq!(
        error.to_string(),
        "failed to call extension handlers for hook \
         \"BeforeClusterCreate.hooks.runtime.cluster.x-k8s.io\": failed to call extension handler \
         \"b.ext\": got failure response with message: no quota"
    );
    assert!(error.response_error().is_some());
    assert_eq!(handlers_called(&server), ["a", "b"]);
    Ok(())
}

#[tokio::test]
async fn an_ignored_failure_does_not_stop_the_calls() -> Result<()> {
    let server = RawServer::start(Reply::Hang).await?;
    reply_by_handler(
        &server,
        &[("a", ""), ("b", r#"{"status":"Success","message":"fine"}"#)],
    );
    let ext = with_handler(
        config("ext", &server),
        "a",
        json!({"failurePolicy": "Ignore"}),
    );
    let runtime = runtime_with(&[with_handler(ext, "b", json!({}))])?;
    assert_eq!(call_all(&runtime).await?.message, "fine");
    assert_eq!(handlers_called(&server), ["a", "b"]);
    Ok(())
}

#[tokio::test]
async fn a_hook_without_handlers_succeeds() -> Result<()> {
    let response = call_all(&runtime_with(&[])?).await?;
    assert_eq!(response.status, ResponseStatus::Success);
    assert_eq!(
        (response.message.as_str(), response.retry_after_seconds),
        ("", 0)
    );
    Ok(())
}

#[tokio::test]
async fn handlers_of_other_hooks_are_not_called() -> Result<()> {
    let server = RawServer::start(Reply::success()).await?;
    let runtime = runtime_with(&[with_handler(config("ext", &server), "a", json!({}))])?;
    let cluster = cluster();
    let names = runtime.get_all_extensions::<AfterClusterUpgrade>(&cluster);
    assert_eq!(names.await?, [] as [&str; 0]);
    Ok(())
}

#[tokio::test]
async fn a_registry_that_is_not_ready_is_an_error() -> Result<()> {
    let error = call_all(&runtime()?).await.expect_err("not ready");
    let hook = "\"BeforeClusterCreate.hooks.runtime.cluster.x-k8s.io\"";
    assert_eq!(
        error.to_string(),
        format!(
            "failed to call extension handlers for hook {hook}: failed to get extension handlers \
             for hook {hook}: failed to list extension handlers for GroupHook {hook}: invalid \
             operation: List cannot be called on a registry which has not been warmed up"
        )
    );
    let CallError::Handlers { error, .. } = error else {
        panic!("{error}");
    };
    assert!(matches!(*error, CallError::List { .. }));
    Ok(())
}
