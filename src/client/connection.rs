//! How to reach a cluster.
//!
//! What holds: nothing is sent twice in silence. A server that is asked too much or cannot answer is told of, with the time it wants, and who asked decides: a
//! controller waits in its queue. That a gateway has waited for too long does not say that nothing was done: a create whose name the server finds, sent again,
//! makes two objects.

use super::{Link, discreet::discreet, drive::ByWhoAsks};
use kube_client::{Client, Config, client::ClientBuilder};
use std::fmt;

/// How to reach a cluster: a [`Config`], or a ready client.
///
/// Prefer a configuration. kube's clients retry by themselves, for minutes and in silence, what the server refuses with 429, 503 or 504: bad for a write,
/// which may have been done all the same, and is done twice then; and for a watch, whose state says that all is well while nothing comes. Clients that are made
/// from a configuration do not, whatever its `default_retry` says: what is refused is an error that says [how long](super::Error::retry_after) to wait, and
/// controllers do. And the cache makes another one for watches, each of which drives a connection of its own: no thread is woken for each event. A ready
/// client is used as it was built: set `default_retry` to false in its configuration.
#[derive(Clone)]
#[non_exhaustive]
pub enum Connection {
    /// What clients are made from, on the runtime that they are made in.
    Config(Box<Config>),
    /// What is used as it is.
    Client(Client),
}

impl Connection {
    /// For requests, and for watches: what the server refuses is told.
    pub(crate) fn client(self) -> Result<Link, kube_client::Error> {
        match self {
            Self::Config(mut config) => {
                config.default_retry = false;
                let host = host(&config);
                Ok(Link::new(Client::try_from(*config).map_err(discreet)?, host))
            }
            Self::Client(client) => Ok(client.into()),
        }
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
        Ok(self.client()?.with_driven(driven))
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
