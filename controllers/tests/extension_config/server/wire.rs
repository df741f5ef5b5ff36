//! Wire format: paths, requests and responses.

use super::{ANSWER, DISCOVERY, extension, message, serve};
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use steersman_controllers::extension_config::{
    FailurePolicy,
    catalog::{
        self, Catalog, Hook,
        hooks::{
            BeforeClusterCreate, BeforeClusterCreateRequest, BeforeClusterCreateResponse,
            ResponseStatus,
        },
    },
    server::Extension,
};

#[tokio::test]
async fn discovery_lists_the_registered_handlers_in_order() -> anyhow::Result<()> {
    let served = serve(
        extension()
            .on::<BeforeClusterCreate, _>("second-name", |_, _| async { message("") })
            .timeout_seconds(5)
            .failure_policy(FailurePolicy::Ignore)
            .on::<BeforeClusterCreate, _>("first-name", |_, _| async { message("") }),
    )
    .await?;
    let mut connection = served.connect().await?;
    let request = json!({"kind": "DiscoveryRequest"}).to_string();
    let hook = json!({
        "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1",
        "hook": "BeforeClusterCreate",
    });
    assert_eq!(
        connection.post(DISCOVERY, request).await?,
        json!({
            "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1",
            "kind": "DiscoveryResponse",
            "status": "Success",
            "handlers": [
                {
                    "name": "second-name",
                    "requestHook": hook,
                    "timeoutSeconds": 5,
                    "failurePolicy": "Ignore",
                },
                {"name": "first-name", "requestHook": hook},
            ],
        })
    );
    Ok(())
}

#[tokio::test]
async fn a_handler_receives_the_whole_request_and_its_response_is_sent() -> anyhow::Result<()> {
    let handler = |request: BeforeClusterCreateRequest, _| async move {
        BeforeClusterCreateResponse {
            message: format!("{} {}", request.settings["color"], request.cluster),
            retry_after_seconds: 7,
            ..Default::default()
        }
    };
    let served = serve(extension().on::<BeforeClusterCreate, _>("answer", handler)).await?;
    let request = json!({
        "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1",
        "kind": "BeforeClusterCreateRequest",
        "settings": {"color": "red"},
        "cluster": {"metadata": {"name": "east"}, "unknown": [1]},
        "added": "by a later version",
    });
    let path = format!("{ANSWER}?timeout=10s");
    assert_eq!(
        served
            .connect()
            .await?
            .post(&path, request.to_string())
            .await?,
        json!({
            "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1",
            "kind": "BeforeClusterCreateResponse",
            "status": "Success",
            "message": r#"red {"metadata":{"name":"east"},"unknown":[1]}"#,
            "retryAfterSeconds": 7,
        })
    );
    Ok(())
}

#[tokio::test]
async fn an_error_of_a_handler_becomes_the_message_of_a_failure() -> anyhow::Result<()> {
    let handler = |_, _| async { Err::<BeforeClusterCreateResponse, _>("quota exceeded") };
    let served = serve(extension().on::<BeforeClusterCreate, _>("answer", handler)).await?;
    let response = served.connect().await?.post(ANSWER, "{}").await?;
    assert_eq!(response["status"], "Failure");
    assert_eq!(response["message"], "quota exceeded");
    Ok(())
}

#[tokio::test]
async fn a_status_that_the_handler_sets_is_kept() -> anyhow::Result<()> {
    let handler = |_, _| async {
        BeforeClusterCreateResponse {
            status: ResponseStatus::Other("Later".into()),
            ..Default::default()
        }
    };
    let served = serve(extension().on::<BeforeClusterCreate, _>("answer", handler)).await?;
    let response = served.connect().await?.post(ANSWER, "{}").await?;
    assert_eq!(response["status"], "Later");
    Ok(())
}

#[tokio::test]
async fn malformed_bodies_are_failures_of_the_called_hook() -> anyhow::Result<()> {
    let served = serve(
        extension().on::<BeforeClusterCreate, _>("answer", |_, _| async { message("called") }),
    )
    .await?;
    let mut connection = served.connect().await?;
    for (path, kind) in [
        (ANSWER, "BeforeClusterCreateResponse"),
        (DISCOVERY, "DiscoveryResponse"),
    ] {
        for body in ["", "{", "[1]", "{} {}", r#"{"settings":3}"#] {
            if path == DISCOVERY && body.contains("settings") {
                continue;
            }
            let response = connection.post(path, body).await?;
            let text = response["message"].as_str().unwrap_or_default();
            assert!(
                text.starts_with("error unmarshalling request: "),
                "{path} {body}: {response}"
            );
            assert_eq!(response["status"], "Failure");
            assert_eq!(response["kind"], kind);
        }
    }
    Ok(())
}

#[tokio::test]
async fn only_posts_to_the_paths_of_handlers_are_answered() -> anyhow::Result<()> {
    let served = serve(
        extension().on::<BeforeClusterCreate, _>("answer", |_, _| async { message("called") }),
    )
    .await?;
    let mut connection = served.connect().await?;
    let (hook, _) = ANSWER.rsplit_once('/').unwrap_or_default();
    for path in [
        "/",
        hook,
        &format!("{hook}/other"),
        &format!("{ANSWER}/"),
        &ANSWER.replace("beforeclustercreate", "BeforeClusterCreate"),
        &ANSWER.replace("v1alpha1", "v1alpha2"),
    ] {
        let (status, _) = connection.send(Method::POST, path, "{}").await?;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
    }
    let (status, _) = connection.send(Method::GET, ANSWER, "").await?;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(connection.post(ANSWER, "{}").await?["message"], "called");
    Ok(())
}

/// A hook that is not one of Cluster API.
#[derive(Debug)]
struct Greet;

#[derive(Clone, Serialize, Deserialize)]
struct GreetRequest {
    name: String,
}

impl catalog::Request for GreetRequest {
    fn settings_mut(&mut self) -> Option<&mut BTreeMap<String, String>> {
        None
    }
}

impl Hook for Greet {
    const GROUP: &'static str = "hooks.example.com";
    const VERSION: &'static str = "v2";
    const NAME: &'static str = "Greet";
    type Request = GreetRequest;
    type Response = BeforeClusterCreateResponse;
}

#[tokio::test]
async fn hooks_of_other_groups_are_served() -> anyhow::Result<()> {
    let served = serve(
        Extension::new(Catalog::new().with::<Greet>())
            .on::<Greet, _>("politely", |request, cx| async move {
                message(format!("{}: {}", cx.handler, request.name))
            }),
    )
    .await?;
    let mut connection = served.connect().await?;
    let response = connection
        .post("/hooks.example.com/v2/greet/politely", r#"{"name":"Ada"}"#)
        .await?;
    assert_eq!(response["message"], "politely: Ada");
    assert_eq!(response["apiVersion"], "hooks.example.com/v2");
    assert_eq!(response["kind"], "GreetResponse");
    let discovered = connection.post(DISCOVERY, "{}").await?;
    assert_eq!(
        discovered["handlers"][0]["requestHook"],
        json!({"apiVersion": "hooks.example.com/v2", "hook": "Greet"})
    );
    Ok(())
}
