//! One question: is anybody there who is who they should be?

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

/// What trusts this authority and nobody else; `None` if it is none.
pub(super) fn trusting(authority: &[u8]) -> Option<Arc<ClientConfig>> {
    let encoded: Vec<u8> = authority.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pem = STANDARD.decode(encoded).ok()?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate.ok()?).ok()?;
    }
    if roots.is_empty() {
        return None;
    }
    let builder =
        ClientConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions();
    let mut config = builder.ok()?.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".into()];
    Some(Arc::new(config))
}

/// Whether there is an answer, whichever; or why there is none.
pub(super) async fn probe(address: &Address, trusted: Arc<ClientConfig>, health: &Health) -> Result<(), String> {
    let connect = TcpStream::connect((address.host(), address.port()));
    within(health, connect, async |stream| ask(stream, address, trusted).await).await
}

/// In time.
async fn within<S>(
    health: &Health,
    connect: impl Future<Output = io::Result<S>>,
    ask: impl AsyncFnOnce(S) -> Result<(), String>,
) -> Result<(), String> {
    let asked = async {
        let connected = timeout(health.connect, connect).await;
        let connected = connected.map_err(|_| format!("no connection within {:?}", health.connect))?;
        ask(connected.map_err(|error| format!("no connection: {error}"))?).await
    };
    timeout(health.total, asked).await.unwrap_or_else(|_| Err(format!("no answer within {:?}", health.total)))
}

async fn ask(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    address: &Address,
    trusted: Arc<ClientConfig>,
) -> Result<(), String> {
    let host = address.host();
    let name = ServerName::try_from(host.strip_suffix('.').unwrap_or(host).to_owned());
    let name = name.map_err(|_| "its host cannot stand in a certificate".to_owned())?;
    let stream = TlsConnector::from(trusted).connect(name, stream).await.map_err(|error| format!("no TLS: {error}"))?;
    let no_answer = |error: hyper::Error| format!("no HTTP: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(no_answer)?;
    let request = Request::get("/readyz").header(header::HOST, address.to_string()).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| error.to_string())?;
    let mut answer = pin!(sender.send_request(request));
    let answered = select! {
        biased;
        answered = &mut answer => answered,
        // It may have ended with the answer.
        _ = connection => answer.await,
    };
    answered.map(drop).map_err(no_answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::pending, time::Duration};
    use tokio::{io::duplex, time::Instant};

    #[test]
    fn an_authority_is_pem_encoded_once_more_and_nothing_else() {
        for bytes in ["", "hunter2", "aHVudGVyMg==", "-----BEGIN CERTIFICATE-----"] {
            assert!(trusting(bytes.as_bytes()).is_none(), "{bytes}");
        }
        let broken = STANDARD.encode("-----BEGIN CERTIFICATE-----\naHVudGVyMg==\n-----END CERTIFICATE-----\n");
        assert!(trusting(broken.as_bytes()).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_has_three_seconds() {
        let begun = Instant::now();
        let connect = pending::<io::Result<()>>();
        let failed = within(&Health::default(), connect, async |()| Ok(())).await;
        assert_eq!(failed, Err("no connection within 3s".into()));
        assert_eq!(begun.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_has_five_seconds_in_all() {
        let begun = Instant::now();
        let (ours, _theirs) = duplex(1 << 16);
        let trusted = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let trusted = trusted.with_safe_default_protocol_versions().expect("versions");
        let trusted = Arc::new(trusted.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
        let address = "silent.example.com".parse().expect("an address");
        let connect = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok(ours)
        };
        let failed = within(&Health::default(), connect, async |stream| ask(stream, &address, trusted).await).await;
        assert_eq!(failed, Err("no answer within 5s".into()));
        assert_eq!(begun.elapsed(), Duration::from_secs(5));
    }
}
