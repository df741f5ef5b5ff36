//! Failing handlers, limits of size and time, and shutdown of the server.

use super::{
    ANSWER,
    client::{Connection, open_tls},
    extension, message, serve,
};
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::json;
use std::{future::pending, net::SocketAddr, sync::Arc, time::Duration};
use steersman::testing::eventually;
use steersman_controllers::extension_config::{
    catalog::hooks::{BeforeClusterCreate, BeforeClusterCreateRequest},
    server::Extension,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{Notify, mpsc},
    task::spawn,
    time::{advance, pause, resume, timeout},
};

const MAX_BODY: usize = 20 << 20;

/// Time limit of a wait that ends at once on an idle machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns an extension whose handler `answer` returns the length of the setting `a`.
fn measuring() -> Extension {
    extension().on::<BeforeClusterCreate, _>(
        "answer",
        |request: BeforeClusterCreateRequest, _| async move {
            message(request.settings.get("a").map_or(0, String::len).to_string())
        },
    )
}

/// Returns a request of this size.
fn request_of(size: usize) -> Bytes {
    let around = r#"{"settings":{"a":""}}"#.len();
    let content = "x".repeat(size - around);
    json!({"settings": {"a": content}}).to_string().into()
}

#[tokio::test]
async fn a_body_of_more_than_20_mib_is_a_failure() -> anyhow::Result<()> {
    let served = serve(measuring()).await?;
    let mut connection = served.connect().await?;
    let too_large = json!({
        "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1",
        "kind": "BeforeClusterCreateResponse",
        "status": "Failure",
        "message": "error reading request: http: request body too large",
        "retryAfterSeconds": 0,
    });
    let body = request_of(MAX_BODY + 1);
    assert_eq!(connection.post(ANSWER, body).await?, too_large);
    // The connection can be used again, since the body was read to its end.
    let accepted = connection.post(ANSWER, request_of(100)).await?;
    assert_eq!(accepted["message"], "79");
    Ok(())
}

#[tokio::test]
async fn a_panic_is_a_failure_and_the_connection_stays_open() -> anyhow::Result<()> {
    let served = serve(extension().on::<BeforeClusterCreate, _>(
        "answer",
        |request: BeforeClusterCreateRequest, _| {
            // Panics either before the future exists, or inside of it.
            assert!(!request.settings.contains_key("early"), "early secret");
            async move {
                assert!(!request.settings.contains_key("late"), "late secret");
                message("called")
            }
        },
    ))
    .await?;
    let mut connection = served.connect().await?;
    for when in ["early", "late"] {
        let request = json!({"settings": {when: ""}}).to_string();
        let response = connection.post(ANSWER, request).await?;
        assert_eq!(response["status"], "Failure");
        assert_eq!(
            response["message"],
            "handler \"answer\" panicked; see the log of the extension"
        );
    }
    assert_eq!(connection.post(ANSWER, "{}").await?["message"], "called");
    Ok(())
}

/// Reports when it is dropped.
struct ReportsDrop(mpsc::UnboundedSender<()>);

impl Drop for ReportsDrop {
    fn drop(&mut self) {
        // Fails if the test has ended.
        let _ = self.0.send(());
    }
}

#[tokio::test]
async fn a_client_that_closes_its_connection_cancels_the_handler() -> anyhow::Result<()> {
    let (dropped, mut drops) = mpsc::unbounded_channel();
    let started = Arc::new(Notify::new());
    let starts = started.clone();
    let served = serve(
        extension().on::<BeforeClusterCreate, _>("answer", move |_, _| {
            let (started, guard) = (started.clone(), ReportsDrop(dropped.clone()));
            async move {
                started.notify_one();
                pending::<()>().await;
                drop(guard);
                message("")
            }
        }),
    )
    .await?;
    let mut connection = served.connect().await?;
    {
        let call = connection.post(ANSWER, "{}");
        tokio::select! {
            _ = call => panic!("the handler does not respond"),
            () = starts.notified() => {}
        }
    }
    drop(connection);
    timeout(TIMEOUT, drops.recv())
        .await?
        .expect("the handler is dropped");
    Ok(())
}

/// Waits until the server accepts no connections.
async fn refused(address: SocketAddr, ca: &str) -> anyhow::Result<()> {
    eventually(async || {
        let refused = Connection::open(address, ca, None).await.is_err();
        anyhow::Ok(refused.then_some(()))
    })
    .await
}

#[tokio::test]
async fn stopping_waits_for_running_calls_and_accepts_no_others() -> anyhow::Result<()> {
    let (started, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (starts, releases) = (started.clone(), release.clone());
    let served = serve(
        extension().on::<BeforeClusterCreate, _>("answer", move |_, _| {
            let (started, release) = (started.clone(), release.clone());
            async move {
                started.notify_one();
                release.notified().await;
                message("completed")
            }
        }),
    )
    .await?;
    let (address, ca) = (served.running.local_addr(), served.ca.clone());
    let mut connection = served.connect().await?;
    let mut idle = served.connect().await?;
    let call = spawn(async move { connection.post(ANSWER, "{}").await });
    starts.notified().await;
    let stopping = spawn(served.running.stop());
    refused(address, &ca).await?;
    assert!(idle.post(ANSWER, "{}").await.is_err(), "idle: closed");
    assert!(!stopping.is_finished(), "a call is running");
    releases.notify_one();
    assert_eq!(call.await??["message"], "completed");
    timeout(TIMEOUT, stopping).await??;
    Ok(())
}

#[tokio::test]
async fn a_dropped_server_closes_its_port() -> anyhow::Result<()> {
    let served = serve(measuring()).await?;
    let (address, ca) = (served.running.local_addr(), served.ca.clone());
    drop(served);
    refused(address, &ca).await?;
    Ok(())
}

#[tokio::test]
async fn connections_above_the_limit_wait_for_another_to_close() -> anyhow::Result<()> {
    let served = serve(measuring().max_connections(1)).await?;
    let mut first = served.connect().await?;
    assert_eq!(first.post(ANSWER, "{}").await?["message"], "0");
    let mut second = Box::pin(served.connect());
    let early = timeout(Duration::from_millis(200), &mut second).await;
    assert!(early.is_err(), "accepted beside the first");
    drop(first);
    let mut second = timeout(TIMEOUT, second).await??;
    assert_eq!(second.post(ANSWER, "{}").await?["message"], "0");
    Ok(())
}

#[tokio::test]
async fn a_head_that_is_not_complete_in_time_closes_the_connection() -> anyhow::Result<()> {
    let served = serve(measuring()).await?;
    let mut stream = open_tls(served.running.local_addr(), &served.ca, None).await?;
    stream
        .write_all(format!("POST {ANSWER} HTTP/1.1\r\nhost:").as_bytes())
        .await?;
    stream.flush().await?;
    // The answer on a second connection shows that the server has read the first part.
    served.connect().await?.post(ANSWER, "{}").await?;
    pause();
    advance(Duration::from_secs(31)).await;
    resume();
    let mut rest = Vec::new();
    let read = timeout(TIMEOUT, stream.read_to_end(&mut rest));
    // hyper sends 408, or closes the connection at once.
    drop(read.await?);
    let text = String::from_utf8_lossy(&rest);
    assert!(
        text.is_empty() || text.starts_with("HTTP/1.1 408"),
        "{text}"
    );
    Ok(())
}

#[tokio::test]
async fn a_body_that_is_not_complete_in_time_is_a_failure() -> anyhow::Result<()> {
    let served = serve(measuring()).await?;
    let mut stream = open_tls(served.running.local_addr(), &served.ca, None).await?;
    let head = format!("POST {ANSWER} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{{");
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    served.connect().await?.post(ANSWER, "{}").await?;
    pause();
    advance(Duration::from_secs(31)).await;
    resume();
    let mut rest = Vec::new();
    let read = timeout(TIMEOUT, stream.read_to_end(&mut rest));
    drop(read.await?);
    let text = String::from_utf8_lossy(&rest);
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    assert!(
        text.contains("error reading request: body not complete after 30s"),
        "{text}"
    );
    Ok(())
}

#[tokio::test]
async fn a_connection_serves_several_calls() -> anyhow::Result<()> {
    let served = serve(measuring()).await?;
    let mut connection = served.connect().await?;
    for size in [100, 1000] {
        let response = connection.post(ANSWER, request_of(size)).await?;
        let expected = (size - r#"{"settings":{"a":""}}"#.len()).to_string();
        assert_eq!(response["message"], expected);
    }
    let (status, _) = connection.send(Method::POST, "/none", "{}").await?;
    assert_eq!(status, StatusCode::NOT_FOUND);
    Ok(())
}
