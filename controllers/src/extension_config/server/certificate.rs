//! TLS configuration of the server: its certificate, and the CA of its clients.

use super::error::ServeError;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ResolvesServerCert, WebPkiClientVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
};
use std::{fmt, future::pending, sync::Arc};
use steersman::tls::{CertificateWatcher, TlsFiles};

/// Certificate chain and key of a server.
#[derive(Clone)]
pub struct ServingCertificate(Source);

#[derive(Clone)]
enum Source {
    Files(TlsFiles),
    Pem { chain: Vec<u8>, key: Vec<u8> },
}

impl ServingCertificate {
    /// Reads the certificate from files, and reloads it when they change.
    pub fn files(files: TlsFiles) -> Self {
        Self(Source::Files(files))
    }

    /// Uses a certificate, followed by the intermediate certificates, and its key, both as PEM.
    pub fn pem(chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let (chain, key) = (chain.into(), key.into());
        Self(Source::Pem { chain, key })
    }

    pub(super) fn load(self) -> Result<LoadedCertificate, ServeError> {
        Ok(match self.0 {
            Source::Files(files) => LoadedCertificate::Watched(CertificateWatcher::new(files)?),
            Source::Pem { chain, key } => LoadedCertificate::Fixed(parse(&chain, &key)?),
        })
    }
}

impl From<TlsFiles> for ServingCertificate {
    fn from(files: TlsFiles) -> Self {
        Self::files(files)
    }
}

/// Prints neither the key nor the certificate.
impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Files(files) => files.fmt(f),
            Source::Pem { .. } => f.write_str("Pem"),
        }
    }
}

/// Validated certificate of the server.
pub(super) enum LoadedCertificate {
    Watched(Arc<CertificateWatcher>),
    Fixed(Arc<SingleCertAndKey>),
}

impl LoadedCertificate {
    /// Returns a configuration for TLS 1.2 and 1.3, and HTTP/1.1.
    pub(super) fn server_config(
        &self,
        client_ca: Option<&[u8]>,
    ) -> Result<Arc<ServerConfig>, ServeError> {
        // Uses a provider of its own, since a library must not set the default of the process.
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| ServeError::Certificate(error.to_string()))?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let roots = Arc::new(roots(pem)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = verifier
                    .build()
                    .map_err(|error| ServeError::ClientCa(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let resolver: Arc<dyn ResolvesServerCert> = match self {
            Self::Watched(watcher) => watcher.clone(),
            Self::Fixed(fixed) => fixed.clone(),
        };
        let mut config = builder.with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".into()];
        Ok(Arc::new(config))
    }

    /// Reloads the certificate when its files change, until the future is dropped.
    pub(super) async fn reload(self) {
        match self {
            Self::Watched(watcher) => watcher.run().await,
            Self::Fixed(_) => pending().await,
        }
    }
}

fn parse(chain: &[u8], key: &[u8]) -> Result<Arc<SingleCertAndKey>, ServeError> {
    let invalid = |reason: &str| ServeError::Certificate(reason.into());
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.map_err(|_| invalid("the chain is not valid PEM"))?;
    if chain.is_empty() {
        return Err(invalid("the chain contains no certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| invalid("the key contains no private key"))?;
    let pair = CertifiedKey::from_der(chain, key, &default_provider())
        .map_err(|error| invalid(&format!("the key does not match the certificate: {error}")))?;
    Ok(Arc::new(SingleCertAndKey::from(pair)))
}

fn roots(pem: &[u8]) -> Result<RootCertStore, ServeError> {
    let invalid = |_| ServeError::ClientCa("it is not valid PEM".into());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let added = roots.add(certificate.map_err(invalid)?);
        added.map_err(|error| ServeError::ClientCa(error.to_string()))?;
    }
    // The verifier rejects an empty store.
    Ok(roots)
}
