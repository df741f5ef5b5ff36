//! Servers that do not answer, or whose answer is not a valid response.

use super::{
    fixture::{DISCOVERY, cause, config, discovery_error, runtime},
    raw_server::{RawServer, Reply},
};
use anyhow::Result;
use serde_json::json;
use std::time::Duration;
use steersman_controllers::extension_config::client::{DiscoveryFailure, HttpError};
use tokio::time::{Instant, pause, resume};

/// Larger than the maximum size of a body.
const TOO_LARGE: usize = (20 << 20) + 1;

const PREFIX: &str = "failed to discover extension \"ext\": http call failed: ";

#[tokio::test]
async fn an_unreachable_extension_has_the_same_error_each_time() -> Result<()> {
    let server = RawServer::start(Reply::Hang).await?;
    let (url, address, config) = (server.url(), server.address, config("ext", &server));
    drop(server);
    let runtime = runtime()?;
    let error = loop {
        // The listener is closed by its task, soon after the server is dropped.
        let error = runtime
            .discover(&config)
            .await
            .expect_err("nothing listens");
        if error.to_string().contains("refused") {
            break error;
        }
    };
    assert_eq!(
        error.to_string(),
        format!(
            "{PREFIX}Post \"{url}{DISCOVERY}\": cannot connect to {address}: Connection refused \
             (os error 111)"
        )
    );
    assert_eq!(runtime.discover(&config).await, Err(error));
    Ok(())
}

#[tokio::test]
async fn a_request_without_a_response_fails_after_ten_seconds() -> Result<()> {
    let server = RawServer::start(Reply::Hang).await?;
    let (runtime, config) = (runtime()?, config("ext", &server));
    let discovery = tokio::spawn(async move { runtime.discover(&config).await });
    server.until(|counts| counts.requests == 1).await?;
    let begun = Instant::now();
    pause();
    let error = discovery.await?.expect_err("the server hangs");
    resume();
    assert!(begun.elapsed() <= Duration::from_secs(11));
    assert_eq!(cause(&server, &error), "no complete response within 10s");
    assert!(matches!(
        error.reason,
        DiscoveryFailure::Http(HttpError::Timeout { timeout, .. }) if timeout.as_secs() == 10
    ));
    server.until(|counts| counts.closed == 1).await
}

#[tokio::test]
async fn a_body_without_an_end_fails_after_ten_seconds() -> Result<()> {
    let reply = Reply::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".into());
    let server = RawServer::start(reply).await?;
    let (runtime, config) = (runtime()?, config("ext", &server));
    let discovery = tokio::spawn(async move { runtime.discover(&config).await });
    server.until(|counts| counts.requests == 1).await?;
    pause();
    let error = discovery.await?.expect_err("the body does not end");
    assert_eq!(cause(&server, &error), "no complete response within 10s");
    Ok(())
}

#[tokio::test]
async fn a_redirect_is_not_followed() -> Result<()> {
    let target = RawServer::start(Reply::handlers(json!([]))).await?;
    let location = format!("location: {}{DISCOVERY}\r\n", target.url());
    for status in [301, 302, 303, 307, 308] {
        let reply = Reply::with_headers(status, &location, "moved");
        let server = RawServer::start(reply).await?;
        let error = discovery_error(&server).await?;
        assert_eq!(
            error.to_string(),
            format!("{PREFIX}got response with status code {status} != 200: response : \"moved\"")
        );
        assert_eq!(server.counts().requests, 1);
    }
    assert_eq!(target.counts().connections, 0);
    Ok(())
}

#[tokio::test]
async fn only_the_status_200_is_a_response() -> Result<()> {
    let body = r#"{"status":"Success"}"#;
    for status in [201, 202, 404, 500] {
        let server = RawServer::start(Reply::status(status, body)).await?;
        let error = discovery_error(&server).await?;
        assert_eq!(
            error.to_string(),
            format!("{PREFIX}got response with status code {status} != 200: response : {body:?}")
        );
    }
    let no_content = Reply::Bytes(b"HTTP/1.1 204 No Content\r\n\r\n".into());
    let server = RawServer::start(no_content).await?;
    let error = discovery_error(&server).await?;
    assert!(
        error
            .to_string()
            .ends_with("status code 204 != 200: response : \"\"")
    );
    Ok(())
}

#[tokio::test]
async fn the_body_of_an_error_response_is_quoted_and_cut() -> Result<()> {
    let mut body = b"\xff\n\"".to_vec();
    body.resize(100_000, b'a');
    let server = RawServer::start(Reply::status(500, body)).await?;
    let error = discovery_error(&server).await?;
    let expected = format!("response : \"\\xff\\n\\\"{}...\"", "a".repeat(509));
    assert!(error.to_string().ends_with(&expected), "{error}");
    Ok(())
}

#[tokio::test]
async fn an_oversized_response_is_an_error() -> Result<()> {
    let server = RawServer::start(Reply::Hang).await?;
    let decode =
        format!("{PREFIX}failed to decode response: response body is larger than 20971520 bytes");
    let status =
        format!("{PREFIX}got response with status code 500 != 200: failed to read response body");
    for (code, expected) in [(200, decode), (500, status)] {
        let announced = format!("HTTP/1.1 {code} Status\r\ncontent-length: {TOO_LARGE}\r\n\r\n");
        for reply in [
            Reply::Bytes(announced.into()),
            Reply::Endless { status: code },
        ] {
            server.set_reply(reply);
            let error = discovery_error(&server).await?;
            assert_eq!(error.to_string(), expected);
        }
    }
    server.until(|counts| counts.closed == 4).await
}

#[tokio::test]
async fn a_malformed_body_is_an_error() -> Result<()> {
    let server = RawServer::start(Reply::Hang).await?;
    for body in ["", " ", "{", "[]", "<html>", r#"{"status":1}"#] {
        server.set_reply(Reply::status(200, body));
        let error = discovery_error(&server).await?;
        let text = error.to_string();
        let expected = format!("{PREFIX}failed to decode response: ");
        assert!(text.starts_with(&expected), "{body}: {text}");
        let decode = matches!(
            error.reason,
            DiscoveryFailure::Http(HttpError::Decode { .. })
        );
        assert!(decode, "{body}: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn a_response_that_is_not_http_is_an_error() -> Result<()> {
    let server = RawServer::start(Reply::BytesAndClose(b"SSH-2.0-OpenSSH\r\n".into())).await?;
    let error = discovery_error(&server).await?;
    assert!(matches!(
        error.reason,
        DiscoveryFailure::Http(HttpError::Connection { .. })
    ));
    assert_eq!(
        discovery_error(&server).await?,
        error,
        "the text is the same"
    );
    Ok(())
}

#[tokio::test]
async fn headers_are_bounded() -> Result<()> {
    let header = format!("x-large: {}\r\n", "a".repeat(1 << 20));
    let server = RawServer::start(Reply::with_headers(200, &header, "{}")).await?;
    let error = discovery_error(&server).await?;
    assert!(matches!(
        error.reason,
        DiscoveryFailure::Http(HttpError::Connection { .. })
    ));
    Ok(())
}

#[tokio::test]
async fn a_connection_that_is_closed_early_is_an_error() -> Result<()> {
    let closed = "the server closed the connection before the response was complete";
    let server = RawServer::start(Reply::BytesAndClose(Vec::new())).await?;
    assert_eq!(cause(&server, &discovery_error(&server).await?), closed);
    assert_eq!(
        server.counts().requests,
        1,
        "a new connection is not retried"
    );

    server.set_reply(Reply::BytesAndClose(b"HTTP/1.1 200".into()));
    assert_eq!(cause(&server, &discovery_error(&server).await?), closed);

    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}";
    server.set_reply(Reply::BytesAndClose(head.into()));
    assert_eq!(
        discovery_error(&server).await?.to_string(),
        format!("{PREFIX}failed to decode response: {closed}")
    );
    Ok(())
}
