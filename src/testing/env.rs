//! One test, two servers: what both can do is one trait, and [`Env`] is either.

use super::{Embedded, Error, Real};
use kube_client::Client;
use serde::Serialize;
use std::path::PathBuf;

/// A Kubernetes API server that a test can use, whichever it is.
pub trait TestServer {
    /// `embedded` or `real`, for messages.
    fn name(&self) -> &'static str;

    /// A new client that may do everything, for the runtime that this is called in. It retries nothing by itself.
    fn client(&self) -> Result<Client, Error>;

    /// A new client of somebody's. The embedded server knows who it is, and lets everybody do everything.
    fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client, Error>;

    /// Install definitions, or update those that are there, and wait until they are served. All tests on the real server share them: give
    /// different definitions different groups.
    fn install(
        &self,
        definitions: impl IntoIterator<Item: Serialize> + Send,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Restart the server: the data stays, connections break, watches from before are told that their revision is too old. On the real
    /// server this disturbs the tests beside this one: prefer an [`Environment`](super::Environment) of your own.
    fn restart(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// A new namespace, `prefix-xxxxx`. What a test does in one of its own, no other test sees.
    fn namespace(&self, prefix: &str) -> impl Future<Output = Result<String, Error>> + Send;

    /// A kubeconfig of the admin's, for kubectl and other programs. It goes with the server.
    fn kubeconfig(&self) -> impl Future<Output = Result<PathBuf, Error>> + Send;
}

/// The server that a test runs on; [`env_test!`](crate::env_test) gives it one, and then the other.
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
    /// The embedded server, one for each test.
    Embedded(Embedded),
    /// The real server, shared by the tests of a binary.
    Real(Real),
}

impl Env {
    /// An embedded server.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn embedded() -> Result<Self, Error> {
        Embedded::start().map(Self::Embedded)
    }

    /// The real server that the tests of this binary share; see [`Environment::shared`](super::Environment::shared).
    pub async fn real() -> Result<Self, Error> {
        super::Environment::shared().await.map(|environment| Self::Real(Real::new(environment)))
    }
}

/// Do it on the one that it is.
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

    async fn install(&self, definitions: impl IntoIterator<Item: Serialize> + Send) -> Result<(), Error> {
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
