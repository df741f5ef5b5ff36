//! TLS configurations of connections to extension servers.

use super::bundle::BundleVerifier;
use rustls::{
    CertificateError, ClientConfig, Error, RootCertStore, SignatureScheme,
    client::ResolvesClientCert,
    crypto::{CryptoProvider, ring::default_provider},
    sign::CertifiedKey,
};
use std::{io, sync::Arc};
use tokio::{sync::OnceCell, task::spawn_blocking};

/// Error of creating a TLS configuration from a `caBundle`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to create tls config: unable to load root certificates: {reason}")]
#[non_exhaustive]
pub struct TlsConfigError {
    /// Reason. It contains no part of the bundle.
    pub reason: &'static str,
}

/// Creates TLS configurations.
#[derive(Debug)]
pub(super) struct TlsConfigs {
    provider: Arc<CryptoProvider>,
    /// Root certificates of the system, read on first use.
    system_roots: OnceCell<Arc<RootCertStore>>,
}

impl Default for TlsConfigs {
    fn default() -> Self {
        Self {
            // Uses a provider of its own, since a library must not set the default of the process.
            provider: Arc::new(default_provider()),
            system_roots: OnceCell::new(),
        }
    }
}

impl TlsConfigs {
    /// Returns a configuration for TLS 1.2 and 1.3 that trusts the certificates in `ca_bundle`.
    ///
    /// If `ca_bundle` is empty, the configuration trusts the root certificates of the system.
    pub(super) async fn config(
        &self,
        ca_bundle: &[u8],
        client_certificate: Option<Arc<CertifiedKey>>,
    ) -> Result<Arc<ClientConfig>, TlsConfigError> {
        let builder = ClientConfig::builder_with_provider(self.provider.clone());
        let builder =
            builder
                .with_safe_default_protocol_versions()
                .map_err(|_| TlsConfigError {
                    reason: "the TLS provider has no supported protocol version",
                })?;
        let builder = if ca_bundle.is_empty() {
            let roots = self.system_roots.get_or_init(system_roots).await;
            builder.with_root_certificates(roots.clone())
        } else {
            let verifier = BundleVerifier::parse(ca_bundle, self.provider.clone())?;
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
        };
        let mut config = match client_certificate {
            Some(certificate) => {
                builder.with_client_cert_resolver(Arc::new(ClientCertificate(certificate)))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".into()];
        Ok(Arc::new(config))
    }
}

async fn system_roots() -> Arc<RootCertStore> {
    let read = || {
        let loaded = rustls_native_certs::load_native_certs();
        for error in &loaded.errors {
            tracing::warn!(%error, "cannot read root certificates of the system");
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(loaded.certs);
        Arc::new(roots)
    };
    // Fails only if the runtime shuts down. Then no issuer is trusted.
    let roots = spawn_blocking(read).await;
    roots.unwrap_or_else(|_| Arc::new(RootCertStore::empty()))
}

/// Client certificate of all connections with one configuration.
#[derive(Debug)]
struct ClientCertificate(Arc<CertifiedKey>);

impl ResolvesClientCert for ClientCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Describes why a handshake failed.
///
/// The text contains no times, so that repeated failures have equal texts.
pub(super) fn describe(error: &io::Error) -> Option<String> {
    use CertificateError as Certificate;
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    let Error::InvalidCertificate(certificate) = error else {
        return Some(format!("TLS handshake failed: {error}"));
    };
    let reason = match certificate {
        Certificate::Expired | Certificate::ExpiredContext { .. } => "it has expired".into(),
        Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
            "it is not valid yet".into()
        }
        // The signature is bad if a trusted CA has the same name as the CA that signed it.
        Certificate::UnknownIssuer | Certificate::BadSignature => {
            "it is signed by an unknown authority".into()
        }
        other => other.to_string(),
    };
    Some(format!("cannot verify the server's certificate: {reason}"))
}
