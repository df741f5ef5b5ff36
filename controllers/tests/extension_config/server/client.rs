//! HTTPS client with one connection.

use anyhow::Context;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::Value;
use std::{net::SocketAddr, sync::Arc};
use steersman_apiserver::ClientCertificate;
use tokio::{
    net::TcpStream,
    task::{AbortHandle, spawn},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// A connection that is closed when it is dropped.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: AbortHandle,
}

impl Connection {
    pub(super) async fn open(
        address: SocketAddr,
        ca: &str,
        identity: Option<&ClientCertificate>,
    ) -> anyhow::Result<Self> {
        let stream = open_tls(address, ca, identity).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        let task = spawn(connection).abort_handle();
        Ok(Self { sender, task })
    }

    pub(super) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        self.sender.ready().await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .body(Full::new(body.into()))?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    /// Posts a body and returns the JSON of a response with the status code 200.
    pub(super) async fn post(
        &mut self,
        path: &str,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Value> {
        let (status, body) = self.send(Method::POST, path, body).await?;
        anyhow::ensure!(status == 200, "{status}: {}", body.escape_ascii());
        serde_json::from_slice(&body).context("the response is not JSON")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) async fn open_tls(
    address: SocketAddr,
    ca: &str,
    identity: Option<&ClientCertificate>,
) -> anyhow::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes())?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(identity) => config.with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(
                identity.certificate_pem.as_bytes(),
            )?],
            PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())?,
        )?,
    };
    let stream = TcpStream::connect(address).await?;
    let connector = TlsConnector::from(Arc::new(config));
    Ok(connector.connect("localhost".try_into()?, stream).await?)
}
