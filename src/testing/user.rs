//! Somebody who uses a server: a client certificate, as a kubeconfig, a configuration, a client.

use super::{Error, control_plane::client};
use http::Uri;
use kube_client::{
    Client, Config,
    config::{AuthInfo, Kubeconfig},
};
use std::{fmt, path::Path};
use steersman_apiserver::{Authority, Credentials};

/// Somebody who may use a server, by a client certificate: for tests of what a role allows.
#[derive(Clone)]
pub struct User {
    name: String,
    kubeconfig: String,
    config: Config,
    written: steersman_apiserver::Kubeconfig,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

impl User {
    /// Who has a certificate of `authority`'s, at the server `url`.
    pub(super) fn new(name: &str, groups: &[&str], url: &Uri, authority: &Authority) -> Result<Self, Error> {
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
        // A test sees every answer as it comes.
        config.default_retry = false;
        Ok(Self { name: name.into(), kubeconfig, config, written })
    }

    /// Their name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A kubeconfig's text, for another program. It has the key in it.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Write the kubeconfig to a file that only its owner may read.
    pub fn write_kubeconfig(&self, path: &Path) -> Result<(), Error> {
        self.written.write(path).map_err(|error| Error::Certificates(error.to_string()))
    }

    /// The configuration of a client: verifies the server, retries nothing by itself.
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// A new client, for the runtime that this is called in.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn client(&self) -> Result<Client, Error> {
        client(self.config())
    }
}

/// Who a kubeconfig that was made here says that they are.
fn credentials(kubeconfig: &str) -> Result<AuthInfo, Error> {
    let parsed = Kubeconfig::from_yaml(kubeconfig).map_err(|error| Error::Certificates(error.to_string()))?;
    Ok(parsed.auth_infos.into_iter().find_map(|named| named.auth_info).unwrap_or_default())
}
