//! Creates certificates for tests: valid, expired, or for other names.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use std::sync::Arc;

/// Certificate authority of a test.
pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

/// Certificate and key as PEM.
pub(crate) struct Signed {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Validity period of a certificate.
#[derive(Clone, Copy)]
pub(crate) enum Validity {
    Now,
    Past,
    Future,
}

impl Ca {
    pub(crate) fn new() -> Result<Self> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "test CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(
            params,
            KeyPair::generate()?,
        )?))
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Signs a certificate for servers with these names, and for clients.
    pub(crate) fn sign(&self, names: &[&str], validity: Validity) -> Result<Signed> {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names)?;
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let years = match validity {
            Validity::Now => (2000, 4000),
            Validity::Past => (2000, 2001),
            Validity::Future => (3999, 4000),
        };
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
        let key = KeyPair::generate()?;
        Ok(Signed {
            certificate: params.signed_by(&key, &self.0)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// Returns a certificate that is signed with its own key, as `cert-manager` does without a CA.
pub(crate) fn self_signed(name: &str, is_ca: bool) -> Result<Signed> {
    let mut params = CertificateParams::new([name.to_owned()])?;
    if is_ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    } else {
        params.is_ca = IsCa::ExplicitNoCa;
    }
    let key = KeyPair::generate()?;
    Ok(Signed {
        certificate: params.self_signed(&key)?.pem(),
        key: key.serialize_pem(),
    })
}

/// Returns the configuration of a server. With `client_ca`, it requires client certificates.
pub(crate) fn server_config(signed: &Signed, client_ca: Option<&Ca>) -> Result<Arc<ServerConfig>> {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            roots.add(ca.0.der().clone())?;
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build()?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let certificate = CertificateDer::from_pem_slice(signed.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(signed.key.as_bytes())?;
    let mut config = builder.with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"http/1.1".into()];
    Ok(Arc::new(config))
}
