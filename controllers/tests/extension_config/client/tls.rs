//! Verification of certificates, and client certificates.

use super::{
    certificates::{Ca, Signed, Validity, self_signed, server_config},
    fixture::{DISCOVERY, builder, cause, config, config_of, discovery_error, handler, runtime},
    raw_server::{RawServer, Reply},
};
use anyhow::Result;
use serde_json::json;
use std::{fs, path::Path, time::Duration};
use steersman::tls::TlsFiles;
use steersman_controllers::extension_config::client::{DiscoveryFailure, HttpError, SetupError};
use tokio::{
    io::AsyncWriteExt,
    net::TcpListener,
    time::{advance, pause, resume},
};

const NAMES: &[&str] = &["127.0.0.1"];

async fn error_of(ca: String, signed: &Signed) -> Result<String> {
    let reply = Reply::handlers(json!([]));
    let server = RawServer::with_certificate(ca, signed, reply).await?;
    let error = discovery_error(&server).await?;
    assert!(matches!(
        error.reason,
        DiscoveryFailure::Http(HttpError::Connection { .. })
    ));
    let again = discovery_error(&server).await?;
    assert_eq!(cause(&server, &again), cause(&server, &error));
    assert_eq!(server.counts().requests, 0, "nothing is sent to the server");
    Ok(cause(&server, &error))
}

#[tokio::test]
async fn a_certificate_of_another_ca_is_an_error() -> Result<()> {
    let signed = Ca::new()?.sign(NAMES, Validity::Now)?;
    assert_eq!(
        error_of(Ca::new()?.pem(), &signed).await?,
        "cannot verify the server's certificate: it is signed by an unknown authority"
    );
    Ok(())
}

#[tokio::test]
async fn an_expired_certificate_is_an_error() -> Result<()> {
    let ca = Ca::new()?;
    assert_eq!(
        error_of(ca.pem(), &ca.sign(NAMES, Validity::Past)?).await?,
        "cannot verify the server's certificate: it has expired"
    );
    assert_eq!(
        error_of(ca.pem(), &ca.sign(NAMES, Validity::Future)?).await?,
        "cannot verify the server's certificate: it is not valid yet"
    );
    Ok(())
}

#[tokio::test]
async fn a_certificate_for_another_name_is_an_error() -> Result<()> {
    let ca = Ca::new()?;
    let error = error_of(ca.pem(), &ca.sign(&["other.shop.svc"], Validity::Now)?).await?;
    let start =
        "cannot verify the server's certificate: certificate not valid for name \"127.0.0.1\"";
    assert!(error.starts_with(start), "{error}");
    Ok(())
}

#[tokio::test]
async fn without_a_ca_bundle_only_authorities_of_the_system_are_trusted() -> Result<()> {
    let server = RawServer::start(Reply::handlers(json!([]))).await?;
    let error = runtime()?
        .discover(&config_of("ext", &server.url(), ""))
        .await;
    assert_eq!(
        cause(&server, &error.expect_err("unknown")),
        "cannot verify the server's certificate: it is signed by an unknown authority"
    );
    Ok(())
}

#[tokio::test]
async fn a_self_signed_certificate_is_trusted_if_the_bundle_contains_it() -> Result<()> {
    for is_ca in [false, true] {
        let signed = self_signed("127.0.0.1", is_ca)?;
        let reply = Reply::handlers(json!([handler("a")]));
        let ca = signed.certificate.clone();
        let server = RawServer::with_certificate(ca, &signed, reply).await?;
        let handlers = runtime()?.discover(&config("ext", &server)).await?;
        assert_eq!(handlers.len(), 1);

        let other = self_signed("localhost", is_ca)?;
        let error = error_of(other.certificate.clone(), &other).await?;
        assert!(
            error.contains("not valid for name \"127.0.0.1\""),
            "{error}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_bundle_without_certificates_is_a_setup_error() -> Result<()> {
    let config = config_of("ext", "https://127.0.0.1:1", "hunter2");
    let error = runtime()?.discover(&config).await.expect_err("no CA");
    assert_eq!(
        error.to_string(),
        "failed to discover extension \"ext\": failed to get http client: failed to create tls \
         config: unable to load root certificates: caBundle contains no valid certificate; set \
         PEM certificates of the CA"
    );
    assert!(matches!(
        error.reason,
        DiscoveryFailure::Setup(SetupError::Tls(_))
    ));
    Ok(())
}

#[tokio::test]
async fn a_server_without_tls_is_an_error() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("https://{}", listener.local_addr()?);
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
            let _ = stream.write_all(answer).await;
            // Kept open until the client closes it.
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
    });
    let config = config_of("ext", &url, &Ca::new()?.pem());
    let error = runtime()?.discover(&config).await.expect_err("no TLS");
    let start = format!("http call failed: Post \"{url}{DISCOVERY}\": TLS handshake failed: ");
    assert!(error.reason.to_string().starts_with(&start), "{error}");
    serving.abort();
    Ok(())
}

#[tokio::test]
async fn a_ca_is_not_used_for_another_extension_at_the_same_host() -> Result<()> {
    let server = RawServer::start(Reply::handlers(json!([]))).await?;
    let runtime = runtime()?;
    runtime.discover(&config("ext", &server)).await?;
    let other = config_of("other", &server.url(), &Ca::new()?.pem());
    let error = runtime.discover(&other).await.expect_err("another CA");
    assert!(error.to_string().contains("unknown authority"), "{error}");
    assert_eq!(server.counts().requests, 1);
    Ok(())
}

fn write(directory: &Path, signed: &Signed) -> Result<()> {
    fs::write(directory.join("tls.crt"), &signed.certificate)?;
    fs::write(directory.join("tls.key"), &signed.key)?;
    Ok(())
}

#[tokio::test]
async fn a_rotated_client_certificate_opens_new_connections() -> Result<()> {
    let (ca, clients) = (Ca::new()?, Ca::new()?);
    let server_tls = server_config(&ca.sign(NAMES, Validity::Now)?, Some(&clients))?;
    let reply = Reply::handlers(json!([]));
    let server = RawServer::with_config(ca.pem(), server_tls, reply).await?;
    let config = config("ext", &server);
    let anonymous = runtime()?
        .discover(&config)
        .await
        .expect_err("no certificate");
    assert!(matches!(
        anonymous.reason,
        DiscoveryFailure::Http(HttpError::Connection { .. })
    ));

    let directory = tempfile::tempdir()?;
    write(directory.path(), &clients.sign(&["one"], Validity::Now)?)?;
    let files = TlsFiles::in_directory(&directory);
    let runtime = builder()?.client_certificate(files).build()?;
    let watcher = runtime.client_certificate().expect("a watcher").clone();
    let watching = tokio::spawn(watcher.clone().run());
    runtime.discover(&config).await?;
    runtime.discover(&config).await?;

    let before = watcher.current();
    write(directory.path(), &clients.sign(&["two"], Validity::Now)?)?;
    pause();
    while watcher.current().cert == before.cert {
        advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
    resume();
    runtime.discover(&config).await?;

    let requests = server.requests();
    let connections: Vec<_> = requests.iter().map(|it| it.connection).collect();
    assert_eq!(connections[0], connections[1], "the connection is reused");
    assert_ne!(
        connections[1], connections[2],
        "a new one after the rotation"
    );
    assert!(requests[0].client.is_some());
    assert_ne!(requests[1].client, requests[2].client);
    assert_eq!(requests[2].client.as_ref(), watcher.current().cert.first());
    server.until(|counts| counts.closed == 2).await?;
    watching.abort();
    Ok(())
}

#[tokio::test]
async fn missing_client_certificate_files_are_an_error() -> Result<()> {
    let files = TlsFiles::in_directory("/none");
    let error = builder()?.client_certificate(files).build();
    let error = error.expect_err("no files").to_string();
    assert!(error.starts_with("cannot use /none/tls.crt: "), "{error}");
    Ok(())
}
