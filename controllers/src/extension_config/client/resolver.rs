//! Resolution of the Services of extension servers to addresses.

use crate::extension_config::ServiceReference;
use std::{fmt, future::ready, net::SocketAddr, pin::Pin, sync::Arc};

/// Future of a [`Resolver`].
pub type Resolution<'a> = Pin<Box<dyn Future<Output = Option<SocketAddr>> + Send + 'a>>;

/// Resolves the Service of an extension server to an address.
///
/// Use it outside of a cluster, where the names of Services do not resolve. A function from a
/// Service and a port to an address is a resolver. The certificate of the server is always verified
/// with the name of the Service.
pub trait Resolver: Send + Sync + 'static {
    /// Returns the address of a port of a Service; `None` to use DNS.
    fn resolve<'a>(&'a self, service: &'a ServiceReference, port: u16) -> Resolution<'a>;
}

impl<F> Resolver for F
where
    F: Fn(&ServiceReference, u16) -> Option<SocketAddr> + Send + Sync + 'static,
{
    fn resolve<'a>(&'a self, service: &'a ServiceReference, port: u16) -> Resolution<'a> {
        Box::pin(ready(self(service, port)))
    }
}

/// Resolver of a client. `None`: DNS.
#[derive(Clone, Default)]
pub(super) struct SharedResolver(pub(super) Option<Arc<dyn Resolver>>);

impl SharedResolver {
    pub(super) async fn resolve(
        &self,
        service: &ServiceReference,
        port: u16,
    ) -> Option<SocketAddr> {
        self.0.as_ref()?.resolve(service, port).await
    }
}

impl fmt::Debug for SharedResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedResolver").finish_non_exhaustive()
    }
}
