//! Certificates of the server and of its clients.

use super::{ANSWER, client::Connection, extension, message, serve};
use std::{fs, time::Duration};
use steersman::{testing::eventually, tls::TlsFiles};
use steersman_apiserver::Authority;
use steersman_controllers::extension_config::{
    catalog::hooks::BeforeClusterCreate,
    server::{Extension, ServeError, ServingCertificate},
};
use tokio::time::{advance, pause, resume};

fn answering() -> Extension {
    extension().on::<BeforeClusterCreate, _>("answer", |_, _| async { message("called") })
}

#[tokio::test]
async fn a_replaced_certificate_is_served_without_a_restart() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let files = TlsFiles::in_directory(directory.path());
    let write = |authority: &Authority| -> anyhow::Result<()> {
        let signed = authority.server_certificate()?;
        fs::write(&files.certificate, signed.certificate_pem)?;
        Ok(fs::write(&files.key, signed.key_pem)?)
    };
    let (old, new) = (Authority::generate()?, Authority::generate()?);
    write(&old)?;
    let running = answering()
        .tls(files.clone())
        .serve("127.0.0.1:0".parse()?)
        .await?;
    let address = running.local_addr();
    let mut open = Connection::open(address, &old.ca_pem(), None).await?;
    assert_eq!(open.post(ANSWER, "{}").await?["message"], "called");

    write(&new)?;
    pause();
    advance(Duration::from_secs(11)).await;
    resume();
    eventually(async || {
        let renewed = Connection::open(address, &new.ca_pem(), None).await;
        anyhow::Ok(renewed.ok().map(drop))
    })
    .await?;
    let rejected = Connection::open(address, &old.ca_pem(), None).await;
    assert!(rejected.is_err(), "the old certificate is still served");
    // Open connections continue.
    assert_eq!(open.post(ANSWER, "{}").await?["message"], "called");
    Ok(())
}

#[tokio::test]
async fn clients_of_another_authority_are_rejected() -> anyhow::Result<()> {
    let (own, other) = (Authority::generate()?, Authority::generate()?);
    let served = serve(answering().client_ca(own.ca_pem())).await?;
    let address = served.running.local_addr();
    let accepted = own.client_certificate("manager", &[])?;
    let mut connection = Connection::open(address, &served.ca, Some(&accepted)).await?;
    assert_eq!(connection.post(ANSWER, "{}").await?["message"], "called");

    let foreign = other.client_certificate("manager", &[])?;
    for identity in [None, Some(&foreign)] {
        // With TLS 1.3, the first read of the client fails, not its handshake.
        let answered = async {
            let mut connection = Connection::open(address, &served.ca, identity).await?;
            connection.post(ANSWER, "{}").await
        };
        assert!(answered.await.is_err());
    }
    Ok(())
}

#[tokio::test]
async fn an_invalid_client_ca_is_an_error() -> anyhow::Result<()> {
    for pem in ["", "no PEM", "-----BEGIN CERTIFICATE-----\n!\n-----END"] {
        let authority = Authority::generate()?;
        let signed = authority.server_certificate()?;
        let extension = answering()
            .tls(ServingCertificate::pem(
                signed.certificate_pem,
                signed.key_pem,
            ))
            .client_ca(pem);
        let started = extension.serve("127.0.0.1:0".parse()?).await;
        assert!(matches!(started, Err(ServeError::ClientCa(_))), "{pem}");
    }
    Ok(())
}

#[test]
fn debug_output_contains_no_key() -> anyhow::Result<()> {
    let signed = Authority::generate()?.server_certificate()?;
    let certificate = ServingCertificate::pem(signed.certificate_pem, signed.key_pem.clone());
    assert!(!format!("{certificate:?}").contains("KEY"));
    Ok(())
}
