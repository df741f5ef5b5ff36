//! Users with client certificates.

use super::{Error, control_plane::client};
use http::Uri;
use kube_client::{
    Client, Config,
    config::{AuthInfo, Kubeconfig},
};
use std::{fmt, path::Path};
use steersman_apiserver::{Authority, Credentials};

/// User with a client certificate, for tests of RBAC.
#[derive(Clone)]
pub struct User {
    name: String,
    kubeconfig: String,
    config: Config,
    written: steersman_apiserver::Kubeconfig,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl User {
    /// Creates a user of the server `url`, with a certificate of `authority`.
    pub(super) fn new(
        name: &str,
        groups: &[&str],
        url: &Uri,
        authority: &Authority,
    ) -> Result<Self, Error> {
        let certificate = authority.client_certificate(name, groups);
        let certificate = certificate.map_err(|error| Error::Certificates(error.to_string()))?;
        let written = steersman_apiserver::Kubeconfig {
            server: url.to_string(),
            ca_pem: Some(authority.ca_pem()),
            credentials: Credentials::Certificate(certificate),
        };
        let kubeconfig = written.to_yaml();
        let mut config = Config::new(url.clone());
        config.root_cert = Some(vec![authority.ca_der()]);
        config.auth_info = credentials(&kubeconfig)?;
        // A test must see every response, also failed ones.
        config.default_retry = false;
        Ok(Self {
            name: name.into(),
            kubeconfig,
            config,
            written,
        })
    }

    /// Returns the name of the user.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kubeconfig as text, including the private key.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Writes the kubeconfig to a file that only its owner may read.
    pub fn write_kubeconfig(&self, path: &Path) -> Result<(), Error> {
        self.written
            .write(path)
            .map_err(|error| Error::Certificates(error.to_string()))
    }

    /// Returns the configuration of a client.
    ///
    /// It verifies the server and does not retry.
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// Creates a client for the current runtime.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub fn client(&self) -> Result<Client, Error> {
        client(self.config())
    }
}

/// Returns the credentials of a generated kubeconfig.
fn credentials(kubeconfig: &str) -> Result<AuthInfo, Error> {
    let parsed = Kubeconfig::from_yaml(kubeconfig)
        .map_err(|error| Error::Certificates(error.to_string()))?;
    Ok(parsed
        .auth_infos
        .into_iter()
        .find_map(|named| named.auth_info)
        .unwrap_or_default())
}
