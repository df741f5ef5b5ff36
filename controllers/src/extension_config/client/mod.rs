//! Runtime client: discovers and calls the handlers of extension servers.
//!
//! A call passes these files:
//!
//! | file | content |
//! |---|---|
//! | `discover.rs` | discovery, and validation of its response |
//! | `call.rs`, `call_all.rs` | calls of one handler, and of all handlers of a hook |
//! | `namespaces.rs` | namespace selectors |
//! | `response_cache.rs`, `hook_cache.rs`, `ttl_map.rs` | caches for callers |
//! | `exchange.rs` | a typed call: JSON, and the status of the response |
//! | `url.rs` | URLs of hooks |
//! | `http.rs` | the HTTP step: one POST request with limits of time and size |
//! | `pool.rs` | one idle connection per host and CA |
//! | `connection.rs`, `resolver.rs` | opening and driving a connection |
//! | `tls.rs`, `bundle.rs` | TLS configurations, and verification with a `caBundle` |
//! | `metrics.rs` | metrics of calls |
//! | `error.rs`, `quote.rs` | errors, and foreign texts in them |
//!
//! The client speaks HTTP/1.1 over TLS. It does not use the proxies of the environment.

mod builder;
mod bundle;
mod call;
mod call_all;
mod connection;
mod discover;
mod error;
mod exchange;
mod hook_cache;
mod http;
mod metrics;
mod namespaces;
mod pool;
mod quote;
mod resolver;
mod response_cache;
mod tls;
mod ttl_map;
mod url;

pub use self::{
    builder::RuntimeClientBuilder,
    error::{
        CallError, CallFailure, ClientError, DiscoveryError, DiscoveryFailure, HttpError,
        ListFailure, NamespaceError, NamespaceFailure, ResponseError, SetupError,
    },
    hook_cache::{BlockedHook, HookCache},
    metrics::RuntimeSdkMetrics,
    resolver::{Resolution, Resolver},
    response_cache::{CallOptions, ResponseCache},
    tls::TlsConfigError,
    url::UrlError,
};

use self::builder::Inner;
use super::{
    ExtensionConfig,
    catalog::Catalog,
    registry::{Registry, RegistryError},
};
use kube::ResourceExt;
use std::sync::Arc;
use steersman::{client::Client, tls::CertificateWatcher};

/// Client of the Runtime SDK. Clones share the registry and the connections.
///
/// [`discover`](Self::discover) asks an extension server for its handlers.
/// [`register`](Self::register) makes the handlers in the status of an `ExtensionConfig` known to
/// [`call_extension`](Self::call_extension) and
/// [`call_all_extensions`](Self::call_all_extensions).
///
/// ```
/// use steersman::{client::Client, testing::{Env, TestServer}};
/// use steersman_controllers::extension_config::{
///     catalog::{Catalog, hooks::BeforeClusterCreate},
///     client::RuntimeClient,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> anyhow::Result<()> {
/// let client = Client::new(Env::embedded()?.client()?)?; // reads Namespaces
/// let catalog = Catalog::new().with::<BeforeClusterCreate>();
/// let runtime = RuntimeClient::builder(client, catalog).build()?;
///
/// runtime.warm_up(&[])?;
/// let cluster = steersman::object::ObjectKey::new("shop", "web");
/// let response = runtime
///     .call_all_extensions::<BeforeClusterCreate>(&cluster, &Default::default())
///     .await?;
/// assert_eq!(response.retry_after_seconds, 0, "no handler delays the Cluster");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RuntimeClient {
    inner: Arc<Inner>,
}

impl RuntimeClient {
    /// Returns a builder. The client reads the metadata of Namespaces.
    ///
    /// If `client` has a cache, declare an informer of `Metadata<Namespace>`.
    pub fn builder(client: Client, catalog: Catalog) -> RuntimeClientBuilder {
        RuntimeClientBuilder::new(client, catalog)
    }

    /// Returns the registry of handlers.
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// Returns the catalog of hooks.
    pub fn catalog(&self) -> &Catalog {
        &self.inner.catalog
    }

    /// Returns the watcher of the client certificate, if there is one.
    ///
    /// Run it beside the client: `tokio::spawn(watcher.clone().run())`. After a new certificate is
    /// loaded, the next calls open new connections.
    pub fn client_certificate(&self) -> Option<&Arc<CertificateWatcher>> {
        self.inner.pool.client_certificate()
    }

    /// Replaces the handlers of an `ExtensionConfig` in the registry by those in its status.
    pub fn register(&self, config: &ExtensionConfig) -> Result<(), ClientError> {
        let added = self.inner.registry.add(config);
        added.map_err(|error| ClientError::Register {
            config: config.name_any(),
            error,
        })
    }

    /// Removes the handlers of an `ExtensionConfig` from the registry.
    pub fn unregister(&self, name: &str) -> Result<(), ClientError> {
        let removed = self.inner.registry.remove(name);
        removed.map_err(|error| ClientError::Unregister {
            config: name.into(),
            error,
        })
    }

    /// Fills the registry, which makes it ready.
    pub fn warm_up(&self, configs: &[ExtensionConfig]) -> Result<(), RegistryError> {
        self.inner.registry.warm_up(configs)
    }
}
