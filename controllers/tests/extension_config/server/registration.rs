//! Handlers and options that the server rejects.

use super::{certificate, extension, message, serve};
use std::net::TcpListener;
use steersman_apiserver::Authority;
use steersman_controllers::extension_config::{
    FailurePolicy,
    catalog::{
        Catalog, Hook,
        hooks::{BeforeClusterCreate, Discovery, DiscoveryResponse},
    },
    server::{Extension, RegistrationError, ServeError, ServingCertificate},
};

fn with_handlers(names: &[&str]) -> Extension {
    names.iter().fold(extension(), |extension, name| {
        extension.on::<BeforeClusterCreate, _>(*name, |_, _| async { message("") })
    })
}

/// Returns the error of a registration.
async fn error_of(extension: Extension) -> RegistrationError {
    match serve(extension).await {
        Ok(_) => panic!("the extension was started"),
        Err(error) => match error.downcast::<ServeError>() {
            Ok(ServeError::Registration(error)) => error,
            other => panic!("not an error of a registration: {other:?}"),
        },
    }
}

#[tokio::test]
async fn handler_names_must_be_unique_dns_labels() {
    let too_long = "a".repeat(64);
    for name in ["", "Upper", "under_score", "a.b", "-a", "a-", &too_long] {
        let error = error_of(with_handlers(&[name])).await;
        assert_eq!(error, RegistrationError::InvalidName(name.to_owned()));
    }
    assert_eq!(
        error_of(with_handlers(&["a", "b", "a"])).await,
        RegistrationError::DuplicateName("a".into())
    );
    let longest = "a".repeat(63);
    assert!(serve(with_handlers(&["0", "a-b", &longest])).await.is_ok());
}

#[tokio::test]
async fn hooks_must_be_in_the_catalog_and_not_discovery() {
    let unknown = Extension::new(Catalog::new())
        .on::<BeforeClusterCreate, _>("handler", |_, _| async { message("") });
    let hook = BeforeClusterCreate::group_version_hook();
    let handler = "handler".to_owned();
    assert_eq!(
        error_of(unknown).await,
        RegistrationError::UnknownHook { handler, hook }
    );
    let reserved = Extension::new(Catalog::new().with::<Discovery>())
        .on::<Discovery, _>("handler", |_, _| async { DiscoveryResponse::default() });
    assert_eq!(
        error_of(reserved).await,
        RegistrationError::ReservedHook("handler".into())
    );
}

#[tokio::test]
async fn time_limits_must_be_accepted_by_clients() {
    for seconds in [-1, 31] {
        let handler = "a".to_owned();
        assert_eq!(
            error_of(with_handlers(&["a"]).timeout_seconds(seconds)).await,
            RegistrationError::InvalidTimeout { handler, seconds }
        );
    }
    for seconds in [0, 30] {
        let accepted = with_handlers(&["a"]).timeout_seconds(seconds);
        assert!(serve(accepted).await.is_ok(), "{seconds}");
    }
}

#[tokio::test]
async fn an_option_without_a_handler_is_an_error() {
    for extension in [
        extension().timeout_seconds(1),
        extension().failure_policy(FailurePolicy::Fail),
    ] {
        assert_eq!(error_of(extension).await, RegistrationError::NoHandler);
    }
}

#[tokio::test]
async fn the_first_of_several_errors_is_returned() {
    assert_eq!(
        error_of(with_handlers(&["a", "a", "B"]).timeout_seconds(31)).await,
        RegistrationError::DuplicateName("a".into())
    );
}

#[tokio::test]
async fn a_server_needs_a_certificate_with_its_key_and_a_free_port() -> anyhow::Result<()> {
    let address = "127.0.0.1:0".parse()?;
    let missing = with_handlers(&["a"]).serve(address).await;
    assert!(matches!(missing, Err(ServeError::NoCertificate)));

    let authority = Authority::generate()?;
    let (first, second) = (
        authority.server_certificate()?,
        authority.server_certificate()?,
    );
    for (chain, key, reason) in [
        ("", &*first.key_pem, "contains no certificate"),
        (&*first.certificate_pem, "", "contains no private key"),
        (&*first.certificate_pem, &*second.key_pem, "does not match"),
    ] {
        let extension = extension().tls(ServingCertificate::pem(chain, key));
        let error = extension.serve(address).await.expect_err("rejected");
        assert!(error.to_string().contains(reason), "{error}");
        assert!(!error.to_string().contains("BEGIN"), "{error}");
    }

    let taken = TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?;
    let extension = extension().tls(certificate(&authority)?);
    let error = extension
        .serve(address)
        .await
        .expect_err("the port is used");
    let expected = format!("cannot listen on {address}: ");
    assert!(error.to_string().starts_with(&expected), "{error}");
    Ok(())
}
