//! Common interface of the embedded and the real API server.

use super::{Embedded, Error, Real};
use kube_client::Client;
use serde::Serialize;
use std::path::PathBuf;

/// Kubernetes API server for tests.
pub trait TestServer {
    /// Returns `embedded` or `real`, for messages.
    fn name(&self) -> &'static str;

    /// Creates an admin client for the current runtime. It does not retry.
    fn client(&self) -> Result<Client, Error>;

    /// Creates a client of a user.
    ///
    /// The embedded server records the user and allows every request.
    fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client, Error>;

    /// Installs or updates CRDs, and waits until they are served.
    ///
    /// All tests on the real server share its CRDs: use a different group for each different CRD.
    fn install(
        &self,
        definitions: impl IntoIterator<Item: Serialize> + Send,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Restarts the server.
    ///
    /// Data is kept, connections break, and resource versions from before are too old for a watch.
    /// On the real server this disturbs concurrent tests: prefer a separate
    /// [`Environment`](super::Environment).
    fn restart(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Creates a namespace `prefix-xxxxx`, to isolate a test from others.
    fn namespace(&self, prefix: &str) -> impl Future<Output = Result<String, Error>> + Send;

    /// Returns an admin kubeconfig for kubectl and other programs.
    ///
    /// It is removed with the server.
    fn kubeconfig(&self) -> impl Future<Output = Result<PathBuf, Error>> + Send;
}

/// API server that a test runs on.
///
/// [`env_test!`](crate::env_test) runs a test on each.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), steersman::testing::Error> {
/// use steersman::testing::{Env, TestServer};
///
/// let env = Env::embedded()?; // a server of its own, ready in a millisecond
/// assert!(env.namespace("shop").await?.starts_with("shop-"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Env {
    /// The embedded server, one per test.
    Embedded(Embedded),
    /// The real server, shared by the tests of a binary.
    Real(Real),
}

impl Env {
    /// Starts an embedded server.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub fn embedded() -> Result<Self, Error> {
        Embedded::start().map(Self::Embedded)
    }

    /// Returns the real server that the tests of this binary share.
    ///
    /// See [`Environment::shared`](super::Environment::shared).
    pub async fn real() -> Result<Self, Error> {
        super::Environment::shared()
            .await
            .map(|environment| Self::Real(Real::new(environment)))
    }
}

/// Dispatches a call to the variant.
macro_rules! either {
    ($env:expr, $server:ident => $call:expr) => {
        match $env {
            Env::Embedded($server) => $call,
            Env::Real($server) => $call,
        }
    };
}

impl TestServer for Env {
    fn name(&self) -> &'static str {
        either!(self, server => server.name())
    }

    fn client(&self) -> Result<Client, Error> {
        either!(self, server => server.client())
    }

    fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client, Error> {
        either!(self, server => server.client_as(user, groups))
    }

    async fn install(
        &self,
        definitions: impl IntoIterator<Item: Serialize> + Send,
    ) -> Result<(), Error> {
        let definitions = super::definitions::values(definitions)?;
        either!(self, server => server.install(definitions).await)
    }

    async fn restart(&self) -> Result<(), Error> {
        either!(self, server => server.restart().await)
    }

    async fn namespace(&self, prefix: &str) -> Result<String, Error> {
        either!(self, server => server.namespace(prefix).await)
    }

    async fn kubeconfig(&self) -> Result<PathBuf, Error> {
        either!(self, server => server.kubeconfig().await)
    }
}
