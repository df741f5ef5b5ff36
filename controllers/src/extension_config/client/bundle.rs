//! Verification of a server with the `caBundle` of an `ExtensionConfig`.

use super::tls::TlsConfigError;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use std::sync::Arc;

/// Verifies servers with the certificates of a bundle.
///
/// It differs from the verifier of rustls in one case: the bundle contains the server's own
/// certificate, and that certificate is marked as a CA. `openssl req -x509` creates such
/// certificates. Go accepts them, and rustls does not.
#[derive(Debug)]
pub(super) struct BundleVerifier {
    webpki: Arc<WebPkiServerVerifier>,
    bundle: Vec<CertificateDer<'static>>,
}

impl BundleVerifier {
    /// Parses certificates as PEM. Other PEM sections are ignored, as by Go.
    pub(super) fn parse(pem: &[u8], provider: Arc<CryptoProvider>) -> Result<Self, TlsConfigError> {
        let bundle: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let bundle = bundle.map_err(|_| TlsConfigError {
            reason: "caBundle is not valid PEM",
        })?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(bundle.iter().cloned());
        // Fails without any root certificate.
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let webpki = webpki.map_err(|_| TlsConfigError {
            reason: "caBundle contains no valid certificate; set PEM certificates of the CA",
        })?;
        Ok(Self { webpki, bundle })
    }
}

impl ServerCertVerifier for BundleVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.webpki
                .verify_server_cert(certificate, intermediates, server, ocsp, now);
        match verified {
            Err(error) if is_ca(&error) && self.bundle.contains(certificate) => {
                // The validity was checked before.
                verify_server_name(&ParsedCertificate::try_from(certificate)?, server)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Returns whether a certificate was rejected only because it is marked as a CA.
///
/// webpki checks this mark after the validity of the certificate.
fn is_ca(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(other)) = error else {
        return false;
    };
    other.0.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::ring::default_provider;
    use steersman_apiserver::Authority;

    fn parse(pem: &str) -> Result<BundleVerifier, TlsConfigError> {
        BundleVerifier::parse(pem.as_bytes(), Arc::new(default_provider()))
    }

    fn reason(pem: &str) -> &'static str {
        parse(pem).expect_err(pem).reason
    }

    #[test]
    fn a_bundle_needs_one_valid_certificate() {
        let ca = Authority::generate().expect("an authority").ca_pem();
        let invalid = "-----BEGIN CERTIFICATE-----\naHVudGVyMg==\n-----END CERTIFICATE-----\n";
        assert!(parse(&ca).is_ok());
        assert!(parse(&format!("# comment\n{invalid}{ca}")).is_ok());
        for pem in ["", "hunter2", invalid] {
            assert!(reason(pem).contains("no valid certificate"), "{pem}");
        }
        let truncated = "-----BEGIN CERTIFICATE-----\naHVu";
        assert_eq!(reason(truncated), "caBundle is not valid PEM");
    }
}
