//! One check of an endpoint: a TLS connection and an HTTP request.

use super::{super::address::Address, Health};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, header};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use std::{io, pin::pin, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    select,
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// Returns a TLS configuration that trusts only `authority`.
///
/// Returns `None` if `authority` is not valid base64 of PEM certificates.
pub(super) fn tls_config(authority: &[u8]) -> Option<Arc<ClientConfig>> {
    let encoded: Vec<u8> = authority
        .iter()
        .copied()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let pem = STANDARD.decode(encoded).ok()?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate.ok()?).ok()?;
    }
    if roots.is_empty() {
        return None;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions();
    let mut config = builder
        .ok()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".into()];
    Some(Arc::new(config))
}

/// Checks an endpoint. Any HTTP response is a success.
pub(super) async fn probe(
    address: &Address,
    tls: Arc<ClientConfig>,
    health: &Health,
) -> Result<(), String> {
    let connect = TcpStream::connect((address.host(), address.port()));
    with_time_limits(health, connect, async |stream| {
        send_request(stream, address, tls).await
    })
    .await
}

/// Applies the time limits of a check.
async fn with_time_limits<S>(
    health: &Health,
    connect: impl Future<Output = io::Result<S>>,
    send_request: impl AsyncFnOnce(S) -> Result<(), String>,
) -> Result<(), String> {
    let check = async {
        let connected = timeout(health.connect, connect).await;
        let connected =
            connected.map_err(|_| format!("no connection within {:?}", health.connect))?;
        send_request(connected.map_err(|error| format!("no connection: {error}"))?).await
    };
    timeout(health.total, check)
        .await
        .unwrap_or_else(|_| Err(format!("no response within {:?}", health.total)))
}

async fn send_request(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    address: &Address,
    tls: Arc<ClientConfig>,
) -> Result<(), String> {
    let host = address.host();
    let name = ServerName::try_from(host.strip_suffix('.').unwrap_or(host).to_owned());
    let name = name.map_err(|_| "the host is not valid in a certificate".to_owned())?;
    let stream = TlsConnector::from(tls)
        .connect(name, stream)
        .await
        .map_err(|error| format!("TLS handshake failed: {error}"))?;
    let no_answer = |error: hyper::Error| format!("HTTP request failed: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(no_answer)?;
    let request = Request::get("/readyz")
        .header(header::HOST, address.to_string())
        .body(Empty::<Bytes>::new());
    let request = request.map_err(|error| error.to_string())?;
    let mut response = pin!(sender.send_request(request));
    let response = select! {
        biased;
        response = &mut response => response,
        // The connection may end together with the response.
        _ = connection => response.await,
    };
    response.map(drop).map_err(no_answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::pending, time::Duration};
    use tokio::{io::duplex, time::Instant};

    #[test]
    fn an_authority_is_base64_of_pem() {
        for bytes in ["", "hunter2", "aHVudGVyMg==", "-----BEGIN CERTIFICATE-----"] {
            assert!(tls_config(bytes.as_bytes()).is_none(), "{bytes}");
        }
        let broken = STANDARD
            .encode("-----BEGIN CERTIFICATE-----\naHVudGVyMg==\n-----END CERTIFICATE-----\n");
        assert!(tls_config(broken.as_bytes()).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_times_out_after_three_seconds() {
        let begun = Instant::now();
        let connect = pending::<io::Result<()>>();
        let failed = with_time_limits(&Health::default(), connect, async |()| Ok(())).await;
        assert_eq!(failed, Err("no connection within 3s".into()));
        assert_eq!(begun.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_times_out_after_five_seconds() {
        let begun = Instant::now();
        let (ours, _theirs) = duplex(1 << 16);
        let tls = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let tls = tls.with_safe_default_protocol_versions().expect("versions");
        let tls = Arc::new(
            tls.with_root_certificates(RootCertStore::empty())
                .with_no_client_auth(),
        );
        let address = "silent.example.com".parse().expect("an address");
        let connect = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok(ours)
        };
        let failed = with_time_limits(&Health::default(), connect, async |stream| {
            send_request(stream, &address, tls).await
        })
        .await;
        assert_eq!(failed, Err("no response within 5s".into()));
        assert_eq!(begun.elapsed(), Duration::from_secs(5));
    }
}
