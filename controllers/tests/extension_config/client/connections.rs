//! Pooled connections.

use super::{
    certificates::{Ca, Validity},
    fixture::{cause, config, handler, runtime},
    raw_server::{RawServer, Reply},
};
use anyhow::Result;
use serde_json::json;
use std::time::Duration;
use tokio::time::{advance, pause, resume};

fn connections(server: &RawServer) -> Vec<usize> {
    let requests = server.requests();
    requests.iter().map(|request| request.connection).collect()
}

/// Advances the clock and resumes it. While paused, timers would expire before any I/O.
async fn skip(time: Duration) {
    pause();
    advance(time).await;
    resume();
}

#[tokio::test]
async fn a_connection_is_reused() -> Result<()> {
    let server = RawServer::start(Reply::handlers(json!([handler("a")]))).await?;
    let (runtime, config) = (runtime()?, config("ext", &server));
    for _ in 0..3 {
        runtime.clone().discover(&config).await?;
    }
    server.set_reply(Reply::status(500, "broken"));
    runtime.discover(&config).await.expect_err("broken");
    server.set_reply(Reply::status(200, "malformed"));
    runtime.discover(&config).await.expect_err("malformed");
    assert_eq!(connections(&server), [1; 5]);
    Ok(())
}

#[tokio::test]
async fn concurrent_calls_keep_one_connection() -> Result<()> {
    let server = RawServer::start(Reply::Hang).await?;
    let delay = Duration::from_millis(100);
    server.set_reply(Reply::After(delay, Box::new(Reply::handlers(json!([])))));
    let (runtime, config) = (runtime()?, config("ext", &server));
    let (one, other) = tokio::join!(runtime.discover(&config), runtime.discover(&config));
    one?;
    other?;
    server.until(|counts| counts.closed == 1).await?;
    runtime.discover(&config).await?;
    assert_eq!(server.counts().connections, 2);
    Ok(())
}

#[tokio::test]
async fn a_pooled_connection_that_the_server_closed_is_replaced() -> Result<()> {
    let server = RawServer::start(Reply::handlers(json!([]))).await?;
    let (runtime, config) = (runtime()?, config("ext", &server));
    runtime.discover(&config).await?;
    // Closes the pooled connection after it has read the request.
    server.set_reply_fn(|request| match request.connection {
        1 => Reply::BytesAndClose(Vec::new()),
        _ => Reply::handlers(json!([])),
    });
    runtime.discover(&config).await?;
    assert_eq!(connections(&server), [1, 1, 2]);
    Ok(())
}

#[tokio::test]
async fn a_request_is_sent_at_most_twice() -> Result<()> {
    let server = RawServer::start(Reply::handlers(json!([]))).await?;
    let (runtime, config) = (runtime()?, config("ext", &server));
    runtime.discover(&config).await?;
    server.set_reply(Reply::BytesAndClose(Vec::new()));
    let error = runtime.discover(&config).await.expect_err("closed");
    let closed = "the server closed the connection before the response was complete";
    assert_eq!(cause(&server, &error), closed);
    assert_eq!(connections(&server), [1, 1, 2]);
    Ok(())
}

#[tokio::test]
async fn a_request_is_not_repeated_after_the_first_byte_of_a_response() -> Result<()> {
    let server = RawServer::start(Reply::handlers(json!([]))).await?;
    let (runtime, config) = (runtime()?, config("ext", &server));
    runtime.discover(&config).await?;
    server.set_reply(Reply::BytesAndClose(b"H".into()));
    runtime.discover(&config).await.expect_err("closed");
    assert_eq!(connections(&server), [1, 1]);
    Ok(())
}

#[tokio::test]
async fn a_connection_that_the_server_does_not_keep_is_not_reused() -> Result<()> {
    let body = r#"{"status":"Success"}"#;
    let reply = Reply::with_headers(200, "connection: close\r\n", body);
    let server = RawServer::start(reply).await?;
    let (runtime, config) = (runtime()?, config("ext", &server));
    runtime.discover(&config).await?;
    server.until(|counts| counts.closed == 1).await?;
    runtime.discover(&config).await?;
    assert_eq!(connections(&server), [1, 2]);
    Ok(())
}

#[tokio::test]
async fn an_idle_connection_is_closed() -> Result<()> {
    let server = RawServer::start(Reply::handlers(json!([]))).await?;
    let (runtime, config) = (runtime()?, config("ext", &server));
    runtime.discover(&config).await?;
    skip(Duration::from_secs(89)).await;
    runtime.discover(&config).await?;
    skip(Duration::from_secs(89)).await;
    assert_eq!(server.counts().closed, 0);
    skip(Duration::from_secs(2)).await;
    server.until(|counts| counts.closed == 1).await?;
    runtime.discover(&config).await?;
    assert_eq!(connections(&server), [1, 1, 2]);
    Ok(())
}

#[tokio::test]
async fn a_cancelled_call_closes_its_connection() -> Result<()> {
    let server = RawServer::start(Reply::handlers(json!([]))).await?;
    let (runtime, config) = (runtime()?, config("ext", &server));
    runtime.discover(&config).await?;
    // The cancelled call waits for a response on the pooled connection.
    server.set_reply(Reply::Hang);
    tokio::select! {
        _ = runtime.discover(&config) => panic!("the server hangs"),
        result = server.until(|counts| counts.requests == 2) => result?,
    }
    server.until(|counts| counts.closed == 1).await?;
    server.set_reply(Reply::handlers(json!([])));
    runtime.discover(&config).await?;
    assert_eq!(connections(&server), [1, 1, 2]);
    Ok(())
}

#[tokio::test]
async fn dropping_the_client_closes_its_connections() -> Result<()> {
    let server = RawServer::start(Reply::handlers(json!([]))).await?;
    let runtime = runtime()?;
    runtime.discover(&config("ext", &server)).await?;
    drop(runtime);
    server.until(|counts| counts.closed == 1).await
}

#[tokio::test]
async fn each_ca_has_its_own_connection() -> Result<()> {
    let (ca, other) = (Ca::new()?, Ca::new()?);
    let signed = ca.sign(&["127.0.0.1"], Validity::Now)?;
    let reply = Reply::handlers(json!([]));
    let server = RawServer::with_certificate(ca.pem(), &signed, reply).await?;
    let runtime = runtime()?;
    let mut both = config("both", &server);
    if let Some(bundle) = &mut both.spec.client_config.ca_bundle {
        bundle.0.extend(other.pem().into_bytes());
    }
    runtime.discover(&config("ext", &server)).await?;
    runtime.discover(&both).await?;
    runtime.discover(&config("same", &server)).await?;
    assert_eq!(connections(&server), [1, 2, 1]);
    Ok(())
}
