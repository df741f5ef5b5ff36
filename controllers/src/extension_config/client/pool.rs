//! Pool of connections: at most one idle connection per host and CA.
//!
//! Hosts with different CAs never share a TLS configuration, so that the certificate of one
//! extension server cannot be verified with the CA of another.

use super::{
    connection::{Connection, IdleConnection},
    tls::{TlsConfigError, TlsConfigs},
    url::ExtensionUrl,
};
use parking_lot::Mutex;
use rustls::{ClientConfig, sign::CertifiedKey};
use std::{collections::HashMap, fmt, sync::Arc};
use steersman::tls::CertificateWatcher;
use tokio::time::Instant;

/// Maximum number of hosts. Beyond it, the least recently used host is removed.
const MAX_HOSTS: usize = 1024;

/// Connections and TLS configurations by host and CA.
pub(super) struct Pool {
    configs: TlsConfigs,
    client_certificate: Option<Arc<CertificateWatcher>>,
    hosts: Mutex<Hosts>,
}

#[derive(Default)]
struct Hosts {
    /// Client certificate of all hosts in the map.
    client_certificate: Option<Arc<CertifiedKey>>,
    by_key: HashMap<HostKey, Arc<Host>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct HostKey {
    host: String,
    port: u16,
    /// Whether the host is a Service, which the resolver maps to an address.
    is_service: bool,
    ca_bundle: Vec<u8>,
}

/// Host with one CA.
pub(super) struct Host {
    pub(super) tls: Arc<ClientConfig>,
    idle: Mutex<Option<IdleConnection>>,
    last_used: Mutex<Instant>,
}

impl Pool {
    pub(super) fn new(client_certificate: Option<Arc<CertificateWatcher>>) -> Self {
        Self {
            configs: TlsConfigs::default(),
            client_certificate,
            hosts: Mutex::default(),
        }
    }

    pub(super) fn client_certificate(&self) -> Option<&Arc<CertificateWatcher>> {
        self.client_certificate.as_ref()
    }

    /// Returns the host of `url` with its TLS configuration.
    ///
    /// A change of the client certificate removes all hosts, with their idle connections.
    pub(super) async fn host(
        &self,
        url: &ExtensionUrl,
        ca_bundle: &[u8],
    ) -> Result<Arc<Host>, TlsConfigError> {
        let key = HostKey {
            host: url.host().into(),
            port: url.port(),
            is_service: url.service.is_some(),
            ca_bundle: ca_bundle.into(),
        };
        let certificate = self.client_certificate.as_ref().map(|it| it.current());
        if let Some(host) = self.hosts.lock().find(&key, certificate.as_ref()) {
            return Ok(host);
        }
        let tls = self.configs.config(ca_bundle, certificate.clone()).await?;
        let host = Arc::new(Host {
            tls,
            idle: Mutex::default(),
            last_used: Mutex::new(Instant::now()),
        });
        Ok(self.hosts.lock().insert(key, host, certificate.as_ref()))
    }
}

impl Hosts {
    fn find(
        &mut self,
        key: &HostKey,
        certificate: Option<&Arc<CertifiedKey>>,
    ) -> Option<Arc<Host>> {
        if !self.has(certificate) {
            self.by_key.clear();
            self.client_certificate = certificate.cloned();
        }
        let host = self.by_key.get(key)?;
        *host.last_used.lock() = Instant::now();
        Some(host.clone())
    }

    /// Adds a host, unless a concurrent call has added it.
    fn insert(
        &mut self,
        key: HostKey,
        host: Arc<Host>,
        certificate: Option<&Arc<CertifiedKey>>,
    ) -> Arc<Host> {
        if !self.has(certificate) {
            // The client certificate has changed meanwhile. Use this host for one call only.
            return host;
        }
        if let Some(known) = self.by_key.get(&key) {
            return known.clone();
        }
        if self.by_key.len() >= MAX_HOSTS {
            let oldest = self
                .by_key
                .iter()
                .min_by_key(|(_, host)| *host.last_used.lock());
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.by_key.remove(&oldest);
            }
        }
        self.by_key.insert(key, host.clone());
        host
    }

    fn has(&self, certificate: Option<&Arc<CertifiedKey>>) -> bool {
        match (&self.client_certificate, certificate) {
            (Some(known), Some(current)) => Arc::ptr_eq(known, current),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Host {
    /// Returns the idle connection, if it is open.
    pub(super) fn take(&self) -> Option<Connection> {
        self.idle.lock().take()?.reuse()
    }

    /// Keeps a connection for the next call. Closes it if the host has another open one.
    pub(super) fn put(&self, connection: Connection) {
        let connection = connection.release();
        let mut idle = self.idle.lock();
        match &*idle {
            Some(other) if other.is_open() => {}
            _ => *idle = Some(connection),
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("hosts", &self.hosts.lock().by_key.len())
            .finish_non_exhaustive()
    }
}
