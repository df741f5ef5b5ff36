//! Builder of runtime clients.

use super::{
    RuntimeClient,
    metrics::RuntimeSdkMetrics,
    pool::Pool,
    resolver::{Resolver, SharedResolver},
};
use crate::extension_config::{catalog::Catalog, registry::Registry};
use std::sync::Arc;
use steersman::{
    client::Client,
    tls::{CertificateWatcher, TlsError, TlsFiles},
};

/// Builder of a [`RuntimeClient`].
#[derive(Clone)]
#[must_use = "call `build`"]
pub struct RuntimeClientBuilder {
    client: Client,
    catalog: Catalog,
    registry: Registry,
    resolver: SharedResolver,
    client_certificate: Option<TlsFiles>,
    metrics: RuntimeSdkMetrics,
}

/// State of a runtime client, which its clones share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) client: Client,
    pub(super) catalog: Catalog,
    pub(super) registry: Registry,
    pub(super) resolver: SharedResolver,
    pub(super) pool: Pool,
    pub(super) metrics: RuntimeSdkMetrics,
}

impl RuntimeClientBuilder {
    pub(super) fn new(client: Client, catalog: Catalog) -> Self {
        Self {
            client,
            catalog,
            registry: Registry::new(),
            resolver: SharedResolver::default(),
            client_certificate: None,
            metrics: RuntimeSdkMetrics::default(),
        }
    }

    /// Sets the registry. Default: an empty one that is not ready.
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Sets the resolver of Services. Default: DNS.
    pub fn resolver(mut self, resolver: impl Resolver) -> Self {
        self.resolver = SharedResolver(Some(Arc::new(resolver)));
        self
    }

    /// Sets the files of a certificate with which the client authenticates itself.
    ///
    /// Run the [watcher](RuntimeClient::client_certificate) of the files.
    pub fn client_certificate(mut self, files: TlsFiles) -> Self {
        self.client_certificate = Some(files);
        self
    }

    /// Sets the metrics. Default: metrics that no page exports.
    pub fn metrics(mut self, metrics: RuntimeSdkMetrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Creates the client. It opens no connection and starts no task.
    ///
    /// Errors: the files of the client certificate cannot be used.
    pub fn build(self) -> Result<RuntimeClient, TlsError> {
        let certificate = self.client_certificate.map(CertificateWatcher::new);
        let inner = Inner {
            client: self.client,
            catalog: self.catalog,
            registry: self.registry,
            resolver: self.resolver,
            pool: Pool::new(certificate.transpose()?),
            metrics: self.metrics,
        };
        Ok(RuntimeClient {
            inner: Arc::new(inner),
        })
    }
}
