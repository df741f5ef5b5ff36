//! HTTP/1.1 client on one TCP connection, without reconnects.

use crate::support::Reply;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::{convert::Infallible, net::SocketAddr};
use tokio::net::TcpStream;

pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

type Body = BoxBody<Bytes, Infallible>;

/// Plain HTTP connection. It closes when the server or this value closes it.
pub(crate) struct Connection {
    requests: SendRequest<Body>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address)
            .await
            .expect("a listening server");
        stream.set_nodelay(true).expect("a socket");
        let (requests, connection) = handshake(TokioIo::new(stream)).await.expect("a connection");
        tokio::spawn(connection);
        Self { requests }
    }

    /// Sends a request. Fails if the connection closes before the whole response has arrived.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> hyper::Result<Reply> {
        self.send_body(method, path, headers, Full::new(body.into()).boxed())
            .await
    }

    pub(crate) async fn send_body(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> hyper::Result<Reply> {
        let mut request = Request::builder().method(method).uri(path);
        if headers.iter().all(|(name, _)| *name != "host") {
            request = request.header("host", "localhost");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body).expect("a well-formed request");
        self.requests.ready().await?;
        let (parts, body) = self.requests.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Reply {
            code: parts.status.as_u16(),
            headers: parts.headers,
            text: String::from_utf8_lossy(&body).into_owned(),
            json: serde_json::from_slice(&body).unwrap_or_default(),
        })
    }

    pub(crate) async fn get(&mut self, path: &str) -> hyper::Result<Reply> {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn post(&mut self, path: &str, object: &Value) -> hyper::Result<Reply> {
        self.send("POST", path, &[JSON], object.to_string()).await
    }
}
