//! A certificate authority made on the spot: the server's certificate, and those that clients show.

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

/// The authority's own name, as it stands in what it signs.
const NAME: &str = "steersman-ca";

type BoxError = Box<dyn Error + Send + Sync>;
type Clients = Arc<RwLock<HashMap<CertificateDer<'static>, Identity>>>;

/// Signs certificates, and remembers whose they are. Its key is nowhere but in memory: what it signed is worth nothing
/// once it is gone, so nothing that it signs needs to expire.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    clients: Clients,
}

/// What a client shows: a certificate and its key, both as PEM.
#[derive(Clone)]
pub struct ClientCertificate {
    /// The certificate.
    pub certificate_pem: String,
    /// The key: a secret.
    pub key_pem: String,
}

/// What another server shows: a certificate and its key, both as PEM.
#[derive(Clone)]
pub struct ServerCertificate {
    /// The certificate.
    pub certificate_pem: String,
    /// The key: a secret.
    pub key_pem: String,
}

/// What a TLS listener needs.
#[derive(Clone)]
pub(crate) struct Tls {
    /// The server's certificate and its terms.
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
        f.debug_struct("ClientCertificate").field("certificate_pem", &self.certificate_pem).finish_non_exhaustive()
    }
}

impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificate").field("certificate_pem", &self.certificate_pem).finish_non_exhaustive()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Authority {
    /// A new one.
    pub fn generate() -> Result<Self, TlsError> {
        Self::try_generate().map_err(TlsError::new)
    }

    fn try_generate() -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(NAME);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self { issuer, clients: Arc::default() })
    }

    /// Its own certificate as PEM, by which clients know the server.
    pub fn ca_pem(&self) -> String {
        self.issuer.pem()
    }

    /// The same as DER, for those who take it so.
    pub fn ca_der(&self) -> Vec<u8> {
        self.issuer.der().to_vec()
    }

    /// A certificate that makes whoever shows it `user` of `groups`, here and in any server that trusts this authority: it
    /// names them as `CN` and, one for each group, as `O`.
    pub fn client_certificate(&self, user: &str, groups: &[&str]) -> Result<ClientCertificate, TlsError> {
        self.sign_client(user, groups).map_err(TlsError::new)
    }

    fn sign_client(&self, user: &str, groups: &[&str]) -> Result<ClientCertificate, rcgen::Error> {
        let key = KeyPair::generate()?;
        let certificate = client_certificate::sign(NAME, self.issuer.key(), user, groups, &key)?;
        let certificate_pem = pem(&certificate);
        // Remembered, so that who a certificate stands for need not be read from it.
        self.clients.write().insert(certificate.into(), Identity::new(user, "", groups.iter().copied()));
        Ok(ClientCertificate { certificate_pem, key_pem: key.serialize_pem() })
    }

    /// A certificate for a server of another program, as `localhost`, `127.0.0.1` and `::1`.
    pub fn server_certificate(&self) -> Result<ServerCertificate, TlsError> {
        let (certificate, key) = self.sign_names(None).map_err(TlsError::new)?;
        Ok(ServerCertificate { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    /// What a listener needs to serve as `localhost`, `127.0.0.1`, `::1`, and the address it listens on. Clients may show
    /// a certificate; one of another authority ends the connection.
    pub(crate) fn server(&self, listen: IpAddr) -> Result<Tls, TlsError> {
        self.sign_server(listen).map_err(TlsError::new)
    }

    fn sign_names(&self, further: Option<IpAddr>) -> Result<(Certificate, KeyPair), rcgen::Error> {
        let mut names = vec!["localhost".into(), "127.0.0.1".into(), "::1".into()];
        names.extend(further.map(|address| address.to_string()));
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = named("steersman-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &self.issuer)?, key))
    }

    fn sign_server(&self, listen: IpAddr) -> Result<Tls, BoxError> {
        let further = Some(listen).filter(|listen| !listen.is_loopback() && !listen.is_unspecified());
        let (certificate, key) = self.sign_names(further)?;
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        // Given each time: a default for the process is for the program to choose, not for a library.
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
            .allow_unauthenticated()
            .build()?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())?;
        config.alpn_protocols = vec![b"http/1.1".into()];
        Ok(Tls { config: config.into(), clients: self.clients.clone() })
    }
}

impl Tls {
    /// Whose certificate this is.
    pub(crate) fn identity(&self, certificate: &CertificateDer<'_>) -> Option<Identity> {
        self.clients.read().get(certificate).cloned()
    }
}

/// Certificates could not be made.
#[derive(Debug)]
pub struct TlsError(BoxError);

impl TlsError {
    /// Not by `From`: what makes the certificates is nobody's business, and may be something else one day.
    pub(crate) fn new(error: impl Into<BoxError>) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot make certificates: {}", self.0)
    }
}

/// Its text has what is behind it.
impl Error for TlsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// A certificate as PEM: its bytes in base64, lines of 64.
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

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::pem::PemObject;

    #[test]
    fn a_certificate_stands_for_its_user_with_every_group() {
        let authority = Authority::generate().unwrap();
        let tls = authority.server([127, 0, 0, 1].into()).unwrap();
        let der = |authority: &Authority| {
            let certificate = authority.client_certificate("alice", &["dev", "ops"]).unwrap();
            CertificateDer::from_pem_slice(certificate.certificate_pem.as_bytes()).unwrap()
        };
        assert_eq!(tls.identity(&der(&authority)), Some(Identity::new("alice", "", ["dev", "ops"])));
        assert_eq!(tls.identity(&der(&Authority::generate().unwrap())), None);
    }

    #[test]
    fn what_went_wrong_is_told_once() {
        let error = TlsError::new(rcgen::Error::CouldNotParseCertificate);
        assert_eq!(error.to_string(), format!("cannot make certificates: {}", rcgen::Error::CouldNotParseCertificate));
        assert!(error.source().is_none());
    }

    #[test]
    fn keys_are_not_shown_by_debug() {
        let certificate = Authority::generate().unwrap().client_certificate("alice", &[]).unwrap();
        assert!(certificate.key_pem.contains("PRIVATE KEY") && !format!("{certificate:?}").contains("PRIVATE KEY"));
    }
}
