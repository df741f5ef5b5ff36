//! Serving certificates from files that are replaced while the server runs.
//!
//! Feature `tls`, part of `admin`. Use [`CertificateWatcher`] for a server of your own, such as a
//! webhook. The admin server has one.
//!
//! ```
//! # async fn example() -> Result<(), steersman::tls::TlsError> {
//! use steersman::tls::{CertificateWatcher, TlsFiles};
//!
//! let watcher = CertificateWatcher::new(TlsFiles::in_directory("/etc/tls"))?;
//! let acceptor = tokio_rustls::TlsAcceptor::from(watcher.server_config()?);
//! tokio::spawn(watcher.run());
//! # Ok(())
//! # }
//! ```
//!
//! Invariant: the certificate that is served was read together with its key. A pair that is not
//! valid changes nothing.

use parking_lot::{Mutex, RwLock};
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
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{task::spawn_blocking, time::sleep};

/// Interval between two reads of the files. It is short against the overlap of two certificates.
const INTERVAL: Duration = Duration::from_secs(10);

/// Maximum size of a file in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// PEM files of a certificate chain and its key, as in a Secret of type `kubernetes.io/tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// File of the certificate, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// File of the private key.
    pub key: PathBuf,
}

impl TlsFiles {
    /// Returns `tls.crt` and `tls.key` in a directory, which is how a Secret is mounted.
    pub fn in_directory(directory: impl AsRef<Path>) -> Self {
        let directory = directory.as_ref();
        Self {
            certificate: directory.join("tls.crt"),
            key: directory.join("tls.key"),
        }
    }
}

/// A certificate or its key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use {}: {reason}; provide a certificate and its key as PEM files that this process can read", path.display())]
#[non_exhaustive]
pub struct TlsError {
    /// File that cannot be used.
    pub path: PathBuf,
    /// Reason, without contents of the file.
    pub reason: String,
}

/// Holds a certificate from files, and reloads it when they change.
///
/// It is a certificate resolver of rustls for servers. [`server_config`](Self::server_config)
/// returns a configuration that uses it. A client uses [`current`](Self::current). The files are read every 10 s while [`run`](Self::run) runs. A new
/// pair that is not valid is logged, and the old one stays.
pub struct CertificateWatcher {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
    current: RwLock<Arc<CertifiedKey>>,
    /// Fingerprint of the last contents, valid or not.
    seen: Mutex<Fingerprint>,
    reads: AtomicU64,
    errors: AtomicU64,
}

type Fingerprint = [u8; 32];

struct Read {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl CertificateWatcher {
    /// Reads the files once and creates a watcher for them.
    pub fn new(files: TlsFiles) -> Result<Arc<Self>, TlsError> {
        // A library does not install the default provider of the process.
        let provider = Arc::new(default_provider());
        let read = Read::from(&files)?;
        let current = RwLock::new(read.pair(&files, &provider)?);
        let seen = Mutex::new(read.fingerprint());
        Ok(Arc::new(Self {
            files,
            provider,
            current,
            seen,
            reads: AtomicU64::new(1),
            errors: AtomicU64::new(0),
        }))
    }

    /// Returns the last valid certificate with its key.
    ///
    /// It is the same `Arc` until a new certificate is loaded.
    pub fn current(&self) -> Arc<CertifiedKey> {
        self.current.read().clone()
    }

    /// Returns a configuration for a listener: TLS 1.2 and 1.3, HTTP/1.1, no client certificates.
    pub fn server_config(self: &Arc<Self>) -> Result<Arc<ServerConfig>, TlsError> {
        let builder = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| invalid(&self.files.certificate, error))?;
        let mut config = builder
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"http/1.1".into()];
        Ok(Arc::new(config))
    }

    /// Reloads the files until the future is dropped.
    pub async fn run(self: Arc<Self>) {
        loop {
            sleep(INTERVAL).await;
            let watcher = self.clone();
            // Cannot fail: `reload` does not panic.
            drop(spawn_blocking(move || watcher.reload()).await);
        }
    }

    fn reload(&self) {
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
                tracing::info!(certificate = %self.files.certificate.display(), "certificate reloaded");
            }
            Err(error) => {
                self.errors.fetch_add(1, Relaxed);
                tracing::error!(%error, "new certificate is not valid, serving the old one");
            }
        }
    }
}

impl Read {
    fn from(files: &TlsFiles) -> Result<Self, TlsError> {
        let read = |path: &Path| {
            let length = fs::metadata(path)
                .map_err(|error| invalid(path, error))?
                .len();
            if length > MAX_SIZE {
                return Err(invalid(
                    path,
                    format!("{length} bytes are more than {MAX_SIZE}"),
                ));
            }
            fs::read(path).map_err(|error| invalid(path, error))
        };
        Ok(Self {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
        })
    }

    fn fingerprint(&self) -> Fingerprint {
        let both = [
            digest(&SHA256, &self.certificate),
            digest(&SHA256, &self.key),
        ]
        .map(|one| one.as_ref().to_vec());
        digest(&SHA256, &both.concat())
            .as_ref()
            .try_into()
            .unwrap_or_default()
    }

    /// Parses the pair. Errors never contain the contents of the files.
    fn pair(
        &self,
        files: &TlsFiles,
        provider: &CryptoProvider,
    ) -> Result<Arc<CertifiedKey>, TlsError> {
        let TlsFiles { certificate, key } = files;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.certificate).collect();
        let chain = chain.map_err(|_| invalid(certificate, "it is not valid PEM"))?;
        if chain.is_empty() {
            return Err(invalid(certificate, "it contains no certificate"));
        }
        let private = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|_| invalid(key, "it contains no private key"))?;
        let pair = CertifiedKey::from_der(chain, private, provider);
        pair.map(Arc::new)
            .map_err(|error| invalid(key, format!("it does not match the certificate: {error}")))
    }
}

fn invalid(path: &Path, reason: impl ToString) -> TlsError {
    TlsError {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

impl ResolvesServerCert for CertificateWatcher {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl fmt::Debug for CertificateWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateWatcher")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "admin")]
pub(crate) use self::metrics::TlsMetrics;

#[cfg(feature = "admin")]
mod metrics {
    use super::{Arc, CertificateWatcher, Mutex, Relaxed, fmt};
    use crate::prometheus::Page;
    use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
    use std::sync::{Weak, atomic::AtomicU64};

    /// Counts reads of certificates by all servers, under the names of controller-runtime.
    ///
    /// Clones share the counts.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct TlsMetrics(Arc<Mutex<Vec<Weak<CertificateWatcher>>>>);

    impl TlsMetrics {
        pub(crate) fn watch(&self, certificates: &Arc<CertificateWatcher>) {
            self.0.lock().push(Arc::downgrade(certificates));
        }
    }

    impl Collector for TlsMetrics {
        fn encode(&self, mut page: DescriptorEncoder) -> fmt::Result {
            let all: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
            if all.is_empty() {
                return Ok(());
            }
            let sum = |count: fn(&CertificateWatcher) -> &AtomicU64| {
                all.iter().map(|it| count(it).load(Relaxed)).sum()
            };
            let mut page = Page(&mut page);
            page.counters(
                (
                    "certwatcher_read_certificate",
                    "Number of certificates that were read",
                ),
                [(Vec::new(), sum(|it| &it.reads))],
            )?;
            page.counters(
                (
                    "certwatcher_read_certificate_errors",
                    "Number of certificates that could not be used",
                ),
                [(Vec::new(), sum(|it| &it.errors))],
            )
        }
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
            fs::write(self.files().certificate, signed.certificate_pem).expect("written");
            fs::write(self.files().key, signed.key_pem).expect("written");
        }
    }

    #[test]
    fn a_new_pair_is_served_and_a_pair_that_does_not_match_is_not() {
        let mounted = Mounted::new();
        let certificates = CertificateWatcher::new(mounted.files()).expect("readable");
        let shown = || certificates.current.read().cert.clone();
        let first = shown();
        certificates.reload();
        assert_eq!(certificates.reads.load(Relaxed), 1, "nothing has changed");

        let key = fs::read(mounted.files().key).expect("the file exists");
        mounted.renew();
        let renewed = fs::read(mounted.files().key).expect("the file exists");
        fs::write(mounted.files().key, key).expect("written");
        certificates.reload();
        certificates.reload();
        assert_eq!(
            (shown(), certificates.errors.load(Relaxed)),
            (first.clone(), 1),
            "a pair that does not match is not used"
        );
        fs::write(mounted.files().key, renewed).expect("written");
        certificates.reload();
        assert_ne!(shown(), first);
        assert_eq!(
            (
                certificates.reads.load(Relaxed),
                certificates.errors.load(Relaxed)
            ),
            (3, 1)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn changed_files_are_reloaded_as_time_passes() {
        let mounted = Mounted::new();
        let certificates = CertificateWatcher::new(mounted.files()).expect("readable");
        let first = certificates.current.read().cert.clone();
        let looking = tokio::spawn(certificates.clone().run());
        mounted.renew();
        while certificates.current.read().cert == first {
            advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
        }
        looking.abort();
    }

    #[test]
    fn an_error_names_the_file_and_not_its_contents() {
        let mounted = Mounted::new();
        let files = mounted.files();
        let error_of = |certificate: &Path, key: &Path| {
            let files = TlsFiles {
                certificate: certificate.to_owned(),
                key: key.to_owned(),
            };
            CertificateWatcher::new(files)
                .expect_err("invalid files")
                .to_string()
        };
        let (swapped, absent) = (
            error_of(&files.key, &files.certificate),
            error_of(Path::new("/none/tls.crt"), &files.key),
        );
        assert!(
            swapped.contains("tls.key: it contains no certificate; provide"),
            "{swapped}"
        );
        assert!(absent.starts_with("cannot use /none/tls.crt: "), "{absent}");
        assert!(
            error_of(&files.certificate, &files.certificate).contains("it contains no private key")
        );
        assert!(!swapped.contains("BEGIN"));
    }
}
