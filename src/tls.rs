//! Certificates of servers, from files, which change while the server runs.
//!
//! What holds: what is shown is always a certificate with its own key, as they were read together; a pair that cannot be used changes nothing.

use crate::page::Page;
use parking_lot::{Mutex, RwLock};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use ring::digest::{SHA256, digest};
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring::default_provider},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{task::spawn_blocking, time::sleep};

/// How often the files are looked at. Whoever changes them leaves the old ones valid for longer.
const LOOK: Duration = Duration::from_secs(10);

/// The most bytes of a file.
const MOST: u64 = 1 << 20;

/// A certificate with those that vouch for it, and its key, as PEM files: what `kubernetes.io/tls` secrets have as `tls.crt` and `tls.key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate first, then those that vouch for it.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl TlsFiles {
    /// `tls.crt` and `tls.key` in a directory, as secrets are mounted.
    pub fn in_directory(directory: impl AsRef<Path>) -> Self {
        let directory = directory.as_ref();
        Self { certificate: directory.join("tls.crt"), key: directory.join("tls.key") }
    }
}

/// Files without a certificate that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}: give a certificate and its key as PEM files that this process may read", path.display())]
#[non_exhaustive]
pub struct TlsError {
    /// Which one.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

/// What is shown now.
pub(crate) struct Certificates {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
    current: RwLock<Arc<CertifiedKey>>,
    /// Of what was read last, whether or not it could be used.
    seen: Mutex<Fingerprint>,
    reads: AtomicU64,
    errors: AtomicU64,
}

type Fingerprint = [u8; 32];

struct Read {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Certificates {
    /// As they are now.
    pub(crate) fn read(files: TlsFiles) -> Result<Arc<Self>, TlsError> {
        // Given each time: a default for the process is for the program to choose, not for a library.
        let provider = Arc::new(default_provider());
        let read = Read::from(&files)?;
        let current = RwLock::new(read.pair(&files, &provider)?);
        let seen = Mutex::new(read.fingerprint());
        Ok(Arc::new(Self { files, provider, current, seen, reads: AtomicU64::new(1), errors: AtomicU64::new(0) }))
    }

    /// For a listener: TLS 1.2 and 1.3, HTTP/1.1, no certificates of clients.
    pub(crate) fn config(self: &Arc<Self>) -> Result<Arc<ServerConfig>, TlsError> {
        let builder = ServerConfig::builder_with_provider(self.provider.clone()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| wrong(&self.files.certificate, error))?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"http/1.1".into()];
        Ok(Arc::new(config))
    }

    /// Look after the files for ever.
    pub(crate) async fn keep_fresh(self: Arc<Self>) {
        loop {
            sleep(LOOK).await;
            let look = self.clone();
            // It does not panic.
            drop(spawn_blocking(move || look.look()).await);
        }
    }

    fn look(&self) {
        let read = Read::from(&self.files);
        if let Ok(read) = &read {
            let fingerprint = read.fingerprint();
            if std::mem::replace(&mut *self.seen.lock(), fingerprint) == fingerprint {
                return;
            }
        }
        self.reads.fetch_add(1, Relaxed);
        match read.and_then(|read| read.pair(&self.files, &self.provider)) {
            Ok(pair) => {
                *self.current.write() = pair;
                tracing::info!(certificate = %self.files.certificate.display(), "a new certificate is in use");
            }
            Err(error) => {
                self.errors.fetch_add(1, Relaxed);
                tracing::error!(%error, "the certificate has changed and cannot be used; the old one stays");
            }
        }
    }
}

impl Read {
    fn from(files: &TlsFiles) -> Result<Self, TlsError> {
        let read = |path: &Path| {
            let length = fs::metadata(path).map_err(|error| wrong(path, error))?.len();
            if length > MOST {
                return Err(wrong(path, format!("{length} bytes are too many")));
            }
            fs::read(path).map_err(|error| wrong(path, error))
        };
        Ok(Self { certificate: read(&files.certificate)?, key: read(&files.key)? })
    }

    fn fingerprint(&self) -> Fingerprint {
        let both = [digest(&SHA256, &self.certificate), digest(&SHA256, &self.key)].map(|one| one.as_ref().to_vec());
        digest(&SHA256, &both.concat()).as_ref().try_into().unwrap_or_default()
    }

    /// Errors never show what is in the files.
    fn pair(&self, files: &TlsFiles, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, TlsError> {
        let TlsFiles { certificate, key } = files;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.certificate).collect();
        let chain = chain.map_err(|_| wrong(certificate, "it is no PEM"))?;
        if chain.is_empty() {
            return Err(wrong(certificate, "there is no certificate in it"));
        }
        let private =
            PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| wrong(key, "there is no private key in it"))?;
        let pair = CertifiedKey::from_der(chain, private, provider);
        pair.map(Arc::new).map_err(|error| wrong(key, format!("it does not fit the certificate: {error}")))
    }
}

fn wrong(path: &Path, what: impl ToString) -> TlsError {
    TlsError { path: path.to_owned(), what: what.to_string() }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().clone())
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("files", &self.files).finish_non_exhaustive()
    }
}

/// How often certificates were read, under controller-runtime's names; of all servers together. A clone shares them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsMetrics(Arc<Mutex<Vec<Weak<Certificates>>>>);

impl TlsMetrics {
    pub(crate) fn watch(&self, certificates: &Arc<Certificates>) {
        self.0.lock().push(Arc::downgrade(certificates));
    }
}

impl Collector for TlsMetrics {
    fn encode(&self, mut page: DescriptorEncoder) -> fmt::Result {
        let all: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        if all.is_empty() {
            return Ok(());
        }
        let sum = |count: fn(&Certificates) -> &AtomicU64| all.iter().map(|it| count(it).load(Relaxed)).sum();
        let mut page = Page(&mut page);
        page.counters(
            ("certwatcher_read_certificate", "Certificates that were read"),
            [(Vec::new(), sum(|it| &it.reads))],
        )?;
        page.counters(
            ("certwatcher_read_certificate_errors", "Certificates that could not be used"),
            [(Vec::new(), sum(|it| &it.errors))],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steersman_apiserver::Authority;
    use tempfile::TempDir;
    use tokio::time::advance;

    struct Mounted(TempDir);

    impl Mounted {
        fn new() -> Self {
            let mounted = Self(tempfile::tempdir().expect("a directory"));
            mounted.renew();
            mounted
        }

        fn files(&self) -> TlsFiles {
            TlsFiles::in_directory(&self.0)
        }

        fn renew(&self) {
            let authority = Authority::generate().expect("an authority");
            let signed = authority.server_certificate().expect("a certificate");
            fs::write(self.files().certificate, signed.certificate_pem).expect("it is written");
            fs::write(self.files().key, signed.key_pem).expect("it is written");
        }
    }

    #[test]
    fn a_new_pair_is_shown_and_a_pair_that_does_not_fit_is_not() {
        let mounted = Mounted::new();
        let certificates = Certificates::read(mounted.files()).expect("it can be read");
        let shown = || certificates.current.read().cert.clone();
        let first = shown();
        certificates.look();
        assert_eq!(certificates.reads.load(Relaxed), 1, "nothing has changed");

        let key = fs::read(mounted.files().key).expect("it is there");
        mounted.renew();
        let renewed = fs::read(mounted.files().key).expect("it is there");
        fs::write(mounted.files().key, key).expect("it is written");
        certificates.look();
        certificates.look();
        assert_eq!((shown(), certificates.errors.load(Relaxed)), (first.clone(), 1), "half of a change is none");
        fs::write(mounted.files().key, renewed).expect("it is written");
        certificates.look();
        assert_ne!(shown(), first);
        assert_eq!((certificates.reads.load(Relaxed), certificates.errors.load(Relaxed)), (3, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn files_are_looked_at_as_time_passes() {
        let mounted = Mounted::new();
        let certificates = Certificates::read(mounted.files()).expect("it can be read");
        let first = certificates.current.read().cert.clone();
        let looking = tokio::spawn(certificates.clone().keep_fresh());
        mounted.renew();
        while certificates.current.read().cert == first {
            advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
        }
        looking.abort();
    }

    #[test]
    fn files_that_cannot_be_used_are_named_and_not_shown() {
        let mounted = Mounted::new();
        let files = mounted.files();
        let told = |certificate: &Path, key: &Path| {
            let files = TlsFiles { certificate: certificate.to_owned(), key: key.to_owned() };
            Certificates::read(files).expect_err("it cannot be used").to_string()
        };
        let (swapped, absent) = (told(&files.key, &files.certificate), told(Path::new("/none/tls.crt"), &files.key));
        assert!(swapped.contains("tls.key: there is no certificate in it: give"), "{swapped}");
        assert!(absent.starts_with("/none/tls.crt: "), "{absent}");
        assert!(told(&files.certificate, &files.certificate).contains("there is no private key in it"));
        assert!(!swapped.contains("BEGIN"));
    }
}
