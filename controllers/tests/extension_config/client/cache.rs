//! Cached responses.

use super::{
    fixture::{cluster, config, runtime_with, with_handler},
    raw_server::{RawServer, Reply},
};
use anyhow::Result;
use serde_json::json;
use std::time::Duration;
use steersman_controllers::extension_config::{
    ExtensionConfig,
    catalog::hooks::{
        BeforeClusterCreate, BeforeClusterCreateRequest, BeforeClusterCreateResponse,
    },
    client::{CallError, CallOptions, ResponseCache, RuntimeClient},
};
use tokio::time::{advance, pause, resume};

type Cache = ResponseCache<BeforeClusterCreate>;

fn ignoring(server: &RawServer) -> ExtensionConfig {
    let mut config = with_handler(
        config("ext", server),
        "a",
        json!({"failurePolicy": "Ignore"}),
    );
    config.spec.settings.insert("region".into(), "eu".into());
    config
}

async fn call(
    runtime: &RuntimeClient,
    cache: &Cache,
    size: &str,
) -> Result<BeforeClusterCreateResponse, CallError> {
    let mut request = BeforeClusterCreateRequest::default();
    request.settings.insert("size".into(), size.into());
    let options = CallOptions::cached(cache, |name, version, request| {
        format!("{name}-{version},{:?}", request.settings)
    });
    runtime
        .call_extension::<BeforeClusterCreate>(&cluster(), "a.ext", &request, options)
        .await
}

#[tokio::test]
async fn a_successful_response_is_cached_by_the_key_of_the_caller() -> Result<()> {
    let reply = Reply::json(&json!({"status": "Success", "message": "fine"}));
    let server = RawServer::start(reply).await?;
    let mut config = ignoring(&server);
    let (runtime, cache) = (runtime_with(&[config.clone()])?, Cache::default());
    for _ in 0..2 {
        assert_eq!(call(&runtime, &cache, "small").await?.message, "fine");
    }
    assert_eq!((server.counts().requests, cache.len()), (1, 1));
    call(&runtime, &cache, "large").await?;
    assert_eq!(server.counts().requests, 2, "another request");

    config.spec.settings.insert("region".into(), "us".into());
    runtime.register(&config)?;
    call(&runtime, &cache, "small").await?;
    assert_eq!(
        server.counts().requests,
        3,
        "other settings of the ExtensionConfig"
    );

    config.metadata.resource_version = Some("8".into());
    runtime.register(&config)?;
    call(&runtime, &cache, "small").await?;
    assert_eq!(server.counts().requests, 4, "another resource version");
    Ok(())
}

#[tokio::test]
async fn only_successful_responses_are_cached() -> Result<()> {
    let server = RawServer::start(Reply::status(500, "")).await?;
    let (runtime, cache) = (runtime_with(&[ignoring(&server)])?, Cache::default());
    call(&runtime, &cache, "small").await?;
    assert!(cache.is_empty(), "an ignored failure is not cached");
    server.set_reply(Reply::json(&json!({"status": "Failure"})));
    call(&runtime, &cache, "small").await.expect_err("fails");
    assert!(cache.is_empty());
    server.set_reply(Reply::success());
    call(&runtime, &cache, "small").await?;
    assert_eq!(cache.len(), 1);
    Ok(())
}

#[tokio::test]
async fn cached_responses_expire() -> Result<()> {
    let server = RawServer::start(Reply::success()).await?;
    let runtime = runtime_with(&[ignoring(&server)])?;
    let cache = Cache::new(Duration::from_mins(1), 10);
    call(&runtime, &cache, "small").await?;
    pause();
    advance(Duration::from_mins(1)).await;
    resume();
    call(&runtime, &cache, "small").await?;
    assert_eq!(server.counts().requests, 2);
    Ok(())
}

#[tokio::test]
async fn a_cache_is_bounded() -> Result<()> {
    let server = RawServer::start(Reply::success()).await?;
    let runtime = runtime_with(&[ignoring(&server)])?;
    let cache = Cache::new(Duration::from_mins(1), 2);
    for size in ["small", "medium", "large"] {
        call(&runtime, &cache, size).await?;
    }
    assert_eq!(cache.len(), 2);
    call(&runtime, &cache, "large").await?;
    assert_eq!(server.counts().requests, 3);
    Ok(())
}
