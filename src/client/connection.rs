//! How to reach a cluster.

use super::{Link, discreet::discreet, drive::ByWhoAsks};
use kube_client::{Client, Config, client::ClientBuilder};
use std::fmt;

/// How to reach a cluster: a [`Config`], or a ready client.
///
/// Prefer a configuration. kube's clients retry by themselves, for minutes and in silence, what the server refuses with 429, 503 or 504: good for a write,
/// bad for a watch, whose state then says that all is well while nothing comes. From a configuration the cache makes a client of its own without that, and
/// another one for watches, each of which drives a connection of its own: no thread is woken for each event. With
/// a ready client this is as it was built: set `default_retry` to false in its configuration if the cache uses it too.
#[derive(Clone)]
#[non_exhaustive]
pub enum Connection {
    /// What clients are made from, on the runtime that they are made in.
    Config(Box<Config>),
    /// What is used as it is.
    Client(Client),
}

impl Connection {
    /// For requests: as the configuration says.
    pub(crate) fn client(self) -> Result<Link, kube_client::Error> {
        match self {
            Self::Config(config) => {
                let host = host(&config);
                Ok(Link::new(Client::try_from(*config).map_err(discreet)?, host))
            }
            Self::Client(client) => Ok(client.into()),
        }
    }

    /// For watches: what the server refuses is told.
    pub(crate) fn watching(mut self) -> Result<Link, kube_client::Error> {
        if let Self::Config(config) = &mut self {
            config.default_retry = false;
        }
        self.client()
    }

    /// The same for informers, whose watches [drive](super::drive) their own connections: with a client for those alone.
    pub(crate) fn informing(self) -> Result<Link, kube_client::Error> {
        let driven = match &self {
            Self::Config(config) => {
                let mut config = Config::clone(config);
                config.default_retry = false;
                Some(ClientBuilder::try_from((config, ByWhoAsks)).map_err(discreet)?.build())
            }
            Self::Client(_) => None,
        };
        Ok(self.watching()?.with_driven(driven))
    }
}

/// As client-go labels it.
fn host(config: &Config) -> String {
    let authority = config.cluster_url.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    // Without a name and a password, should somebody have put them there.
    authority.rsplit('@').next().unwrap_or_default().to_owned()
}

impl From<Config> for Connection {
    fn from(config: Config) -> Self {
        Self::Config(Box::new(config))
    }
}

impl From<Client> for Connection {
    fn from(client: Client) -> Self {
        Self::Client(client)
    }
}

/// Where it leads to, and nothing secret.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(config) => f.debug_tuple("Config").field(&config.cluster_url).finish(),
            Self::Client(_) => f.write_str("Client"),
        }
    }
}
