//! A certificate authority in memory that signs certificates of servers and clients.

use crate::{auth::Identity, client_certificate};
use base64::{Engine, engine::general_purpose::STANDARD};
use parking_lot::RwLock;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};
use std::{collections::HashMap, error::Error, fmt, net::IpAddr, sync::Arc};

/// Common name of the authority, which is the issuer of its certificates.
const NAME: &str = "steersman-ca";

type BoxError = Box<dyn Error + Send + Sync>;
type Clients = Arc<RwLock<HashMap<CertificateDer<'static>, Identity>>>;

/// A certificate authority whose key exists only in memory.
///
/// It remembers the identity of each client certificate that it signs. The certificates do not
/// expire, because they become worthless with the key.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    clients: Clients,
}

/// A client certificate and its key, both as PEM.
#[derive(Clone)]
pub struct ClientCertificate {
    /// Certificate as PEM.
    pub certificate_pem: String,
    /// Private key as PEM. Keep it secret.
    pub key_pem: String,
}

/// A certificate for another server and its key, both as PEM.
#[derive(Clone)]
pub struct ServerCertificate {
    /// Certificate as PEM.
    pub certificate_pem: String,
    /// Private key as PEM. Keep it secret.
    pub key_pem: String,
}

/// Configuration of a TLS listener.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) config: Arc<ServerConfig>,
    clients: Clients,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate")
            .field("certificate_pem", &self.certificate_pem)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificate")
            .field("certificate_pem", &self.certificate_pem)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Authority {
    /// Generates a new authority.
    pub fn generate() -> Result<Self, TlsError> {
        Self::try_generate().map_err(TlsError::new)
    }

    fn try_generate() -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(NAME);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self {
            issuer,
            clients: Arc::default(),
        })
    }

    /// Returns the authority's certificate as PEM, with which clients verify the server.
    pub fn ca_pem(&self) -> String {
        self.issuer.pem()
    }

    /// Returns the authority's certificate as DER.
    pub fn ca_der(&self) -> Vec<u8> {
        self.issuer.der().to_vec()
    }

    /// Signs a client certificate for `user` in `groups`.
    ///
    /// The user is the `CN` and each group an `O`, so the certificate works with every API server
    /// that trusts this authority.
    pub fn client_certificate(
        &self,
        user: &str,
        groups: &[&str],
    ) -> Result<ClientCertificate, TlsError> {
        self.sign_client(user, groups).map_err(TlsError::new)
    }

    fn sign_client(&self, user: &str, groups: &[&str]) -> Result<ClientCertificate, rcgen::Error> {
        let key = KeyPair::generate()?;
        let certificate = client_certificate::sign(NAME, self.issuer.key(), user, groups, &key)?;
        let certificate_pem = pem(&certificate);
        // Remembered, so that the certificate need not be parsed.
        self.clients.write().insert(
            certificate.into(),
            Identity::new(user, "", groups.iter().copied()),
        );
        Ok(ClientCertificate {
            certificate_pem,
            key_pem: key.serialize_pem(),
        })
    }

    /// Signs a certificate for `localhost`, `127.0.0.1` and `::1`, to be used by another server.
    pub fn server_certificate(&self) -> Result<ServerCertificate, TlsError> {
        let (certificate, key) = self.sign_names(None).map_err(TlsError::new)?;
        Ok(ServerCertificate {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        })
    }

    /// Creates the configuration of a listener for `localhost`, `127.0.0.1`, `::1` and the address
    /// `listen`.
    ///
    /// Client certificates are optional. The connection is closed if another authority signed it.
    pub(crate) fn server(&self, listen: IpAddr) -> Result<Tls, TlsError> {
        self.sign_server(listen).map_err(TlsError::new)
    }

    fn sign_names(&self, further: Option<IpAddr>) -> Result<(Certificate, KeyPair), rcgen::Error> {
        let mut names = vec!["localhost".into(), "127.0.0.1".into(), "::1".into()];
        names.extend(further.map(|address| address.to_string()));
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = distinguished_name("steersman-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &self.issuer)?, key))
    }

    fn sign_server(&self, listen: IpAddr) -> Result<Tls, BoxError> {
        let further =
            Some(listen).filter(|listen| !listen.is_loopback() && !listen.is_unspecified());
        let (certificate, key) = self.sign_names(further)?;
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        // A library must not install a default provider for the process.
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
            .allow_unauthenticated()
            .build()?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )?;
        config.alpn_protocols = vec![b"http/1.1".into()];
        Ok(Tls {
            config: config.into(),
            clients: self.clients.clone(),
        })
    }
}

impl Tls {
    /// Returns the identity of a client certificate.
    pub(crate) fn identity(&self, certificate: &CertificateDer<'_>) -> Option<Identity> {
        self.clients.read().get(certificate).cloned()
    }
}

/// Error of creating certificates.
#[derive(Debug)]
pub struct TlsError(BoxError);

impl TlsError {
    // Not `From`, which would make the crates behind it part of the API.
    pub(crate) fn new(error: impl Into<BoxError>) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot create certificates: {}", self.0)
    }
}

// The text contains the cause, so `source` continues behind it.
impl Error for TlsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// Encodes a certificate as PEM.
fn pem(der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut rest = encoded.as_str();
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        text.extend([line, "\n"]);
        rest = more;
    }
    text + "-----END CERTIFICATE-----\n"
}

fn distinguished_name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::pem::PemObject;

    #[test]
    fn a_client_certificate_identifies_its_user_and_all_groups() {
        let authority = Authority::generate().unwrap();
        let tls = authority.server([127, 0, 0, 1].into()).unwrap();
        let der = |authority: &Authority| {
            let certificate = authority
                .client_certificate("alice", &["dev", "ops"])
                .unwrap();
            CertificateDer::from_pem_slice(certificate.certificate_pem.as_bytes()).unwrap()
        };
        assert_eq!(
            tls.identity(&der(&authority)),
            Some(Identity::new("alice", "", ["dev", "ops"]))
        );
        assert_eq!(tls.identity(&der(&Authority::generate().unwrap())), None);
    }

    #[test]
    fn an_error_shows_its_cause_once() {
        let error = TlsError::new(rcgen::Error::CouldNotParseCertificate);
        assert_eq!(
            error.to_string(),
            format!(
                "cannot create certificates: {}",
                rcgen::Error::CouldNotParseCertificate
            )
        );
        assert!(error.source().is_none());
    }

    #[test]
    fn keys_are_not_shown_by_debug() {
        let certificate = Authority::generate()
            .unwrap()
            .client_certificate("alice", &[])
            .unwrap();
        assert!(
            certificate.key_pem.contains("PRIVATE KEY")
                && !format!("{certificate:?}").contains("PRIVATE KEY")
        );
    }
}
