//! Builder of a runtime extension.

use super::{
    certificate::ServingCertificate,
    error::{RegistrationError, ServeError},
    handler::{CallContext, Handler, IntoResponse},
    routes::Routes,
    serve::{Running, Server},
};
use crate::extension_config::{
    FailurePolicy,
    admission::dns::label_1123,
    catalog::{Catalog, Hook, hooks::Discovery},
};
use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
};
use tokio::net::TcpListener;

/// Default address: loopback, with the port of Cluster API's own server.
///
/// In a Pod, listen on all addresses instead: `([0, 0, 0, 0], 9443)`.
pub const DEFAULT_ADDRESS: SocketAddr =
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9443));

/// Longest time limit that clients accept, in seconds.
const MAX_TIMEOUT: i32 = 30;

/// Builder of a runtime extension: handlers of hooks, and options of its server.
///
/// If a handler cannot be registered, [`serve`](Self::serve) returns the first such error.
pub struct Extension {
    catalog: Catalog,
    handlers: Vec<Handler>,
    error: Option<RegistrationError>,
    certificate: Option<ServingCertificate>,
    client_ca: Option<Vec<u8>>,
    max_connections: usize,
}

impl Extension {
    /// Creates an extension without handlers. It can serve only hooks of the catalog.
    pub fn new(catalog: Catalog) -> Self {
        Self {
            catalog,
            handlers: Vec::new(),
            error: None,
            certificate: None,
            client_ca: None,
            max_connections: 100,
        }
    }

    /// Adds a handler of a hook.
    ///
    /// `name` is a DNS label that is unique across hooks. The handler returns the response, or a
    /// `Result` whose error becomes the message of a response with the status `Failure`. A response
    /// without a status is sent with `Success`.
    ///
    /// Cancel safety: the handler's future is dropped 5 s after its time limit, or when the client
    /// closes the connection. A handler that blocks its thread cannot be interrupted.
    #[must_use]
    pub fn on<H: Hook, Fut>(
        mut self,
        name: impl Into<String>,
        handler: impl Fn(H::Request, CallContext) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future + Send + 'static,
        Fut::Output: IntoResponse<H::Response>,
    {
        let name = name.into();
        let hook = H::group_version_hook();
        if hook == Discovery::group_version_hook() {
            self.fail(RegistrationError::ReservedHook(name.clone()));
        } else if !label_1123(&name).is_empty() {
            self.fail(RegistrationError::InvalidName(name.clone()));
        } else if self.handlers.iter().any(|other| other.name == name) {
            self.fail(RegistrationError::DuplicateName(name.clone()));
        } else if !self.catalog.contains(&hook) {
            let handler = name.clone();
            self.fail(RegistrationError::UnknownHook { handler, hook });
        }
        self.handlers.push(Handler::new::<H, _, _>(name, handler));
        self
    }

    /// Sets the time limit of the handler that was added last: 0 to 30 seconds.
    ///
    /// Discovery announces it. 0 means 10 s. Default: not announced, which also means 10 s.
    #[must_use]
    pub fn timeout_seconds(mut self, seconds: i32) -> Self {
        let Some(handler) = self.handlers.last_mut() else {
            return self.failed(RegistrationError::NoHandler);
        };
        if !(0..=MAX_TIMEOUT).contains(&seconds) {
            let handler = handler.name.clone();
            return self.failed(RegistrationError::InvalidTimeout { handler, seconds });
        }
        handler.timeout_seconds = Some(seconds);
        self
    }

    /// Sets the failure policy of the handler that was added last.
    ///
    /// Discovery announces it. Default: not announced, which means `Fail`.
    #[must_use]
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Self {
        let Some(handler) = self.handlers.last_mut() else {
            return self.failed(RegistrationError::NoHandler);
        };
        handler.failure_policy = Some(policy);
        self
    }

    /// Sets the certificate of the server.
    #[must_use]
    pub fn tls(mut self, certificate: impl Into<ServingCertificate>) -> Self {
        self.certificate = Some(certificate.into());
        self
    }

    /// Requires client certificates that one of these CAs has signed. `pem` has the CAs.
    ///
    /// Default: every client is accepted.
    #[must_use]
    pub fn client_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.client_ca = Some(pem.into());
        self
    }

    /// Sets the limit of open connections. Further ones wait until another is closed. Default: 100.
    #[must_use]
    pub fn max_connections(mut self, limit: usize) -> Self {
        self.max_connections = limit.max(1);
        self
    }

    /// Starts the server in a new task. It stops when the returned value is dropped.
    ///
    /// Port 0 of `address` selects a free port. See also [`DEFAULT_ADDRESS`].
    ///
    /// # Errors
    /// A handler cannot be registered, the certificate cannot be used, or the address cannot be
    /// bound.
    pub async fn serve(self, address: SocketAddr) -> Result<Running, ServeError> {
        if let Some(error) = self.error {
            return Err(error.into());
        }
        let certificate = self.certificate.ok_or(ServeError::NoCertificate)?;
        let certificate = certificate.load()?;
        let tls = certificate.server_config(self.client_ca.as_deref())?;
        let bind = |source| ServeError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let local = listener.local_addr().map_err(bind)?;
        let server = Server {
            tls,
            routes: Routes::new(self.handlers),
            max_connections: self.max_connections,
        };
        tracing::info!(address = %local, "serving runtime extension");
        Ok(server.start(listener, local, certificate))
    }

    /// Records an error, unless there is an earlier one.
    fn fail(&mut self, error: RegistrationError) {
        self.error.get_or_insert(error);
    }

    fn failed(mut self, error: RegistrationError) -> Self {
        self.fail(error);
        self
    }
}

impl fmt::Debug for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extension")
            .field("handlers", &self.handlers)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}
