//! Minimal HTTP client.

use anyhow::Context as _;
use std::net::SocketAddr;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Page {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> anyhow::Result<Page> {
    get_as(address, path, None).await
}

pub(crate) async fn get_as(
    address: SocketAddr,
    path: &str,
    token: Option<&str>,
) -> anyhow::Result<Page> {
    ask(TcpStream::connect(address).await?, path, token).await
}

pub(crate) async fn ask(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
    token: Option<&str>,
) -> anyhow::Result<Page> {
    let token = token
        .map(|token| format!("Authorization: Bearer {token}\r\n"))
        .unwrap_or_default();
    send(
        stream,
        &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}\r\n"),
    )
    .await
}

/// Sends the request unchanged, and reads until the server closes the connection.
pub(crate) async fn send(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
) -> anyhow::Result<Page> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8(answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .with_context(|| format!("no head in {answer:?}"))?;
    let code = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok(Page {
        code,
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    })
}
