//! How to reach a cluster.
//!
//! What holds: nothing is sent twice in silence. A server that is asked too much or cannot answer is told of, with the time it wants, and who asked decides: a
//! controller waits in its queue. That a gateway has waited for too long does not say that nothing was done: a create whose name the server finds, sent again,
//! makes two objects.

use super::{ConnectionOptions, Link, discreet::discreet, drive::ByWhoAsks};
use kube_client::{Client, Config, client::ClientBuilder};
use std::fmt;

/// How to reach a cluster: a [`Config`], or a ready client.
///
/// Prefer a configuration. kube's clients retry by themselves, for minutes and in silence, what the server refuses with 429, 503 or 504: bad for a write,
/// which may have been done all the same, and is done twice then; and for a watch, whose state says that all is well while nothing comes. Clients that are made
/// from a configuration do not, whatever its `default_retry` says: what is refused is an error that says [how long](super::Error::retry_after) to wait, and
/// controllers do. And the cache makes another one for watches, each of which drives a connection of its own: no thread is woken for each event. A ready
/// client is used as it was built: set `default_retry` to false in its configuration.
///
/// Requests have the default [`ConnectionOptions`]. [`with_options`](Self::with_options) sets others.
#[derive(Clone)]
pub struct Connection {
    target: Target,
    options: ConnectionOptions,
}

#[derive(Clone)]
enum Target {
    /// Clients are built from it on the current runtime.
    Config(Box<Config>),
    Client(Client),
}

impl Connection {
    /// Sets the time limits of requests.
    #[must_use]
    pub fn with_options(self, options: ConnectionOptions) -> Self {
        Self { options, ..self }
    }

    /// For requests, and for watches: what the server refuses is told.
    pub(crate) fn client(self) -> Result<Link, kube_client::Error> {
        let (client, host) = match self.target {
            Target::Config(mut config) => {
                config.default_retry = false;
                let host = host(&config);
                (Client::try_from(*config).map_err(discreet)?, host)
            }
            // The host of a ready client is unknown.
            Target::Client(client) => (client, String::new()),
        };
        Ok(Link::new(client, host, self.options))
    }

    /// The same for informers, whose watches [drive](super::drive) their own connections: with a client for those alone.
    pub(crate) fn informing(self) -> Result<Link, kube_client::Error> {
        let driven = match &self.target {
            Target::Config(config) => {
                let mut config = Config::clone(config);
                config.default_retry = false;
                Some(ClientBuilder::try_from((config, ByWhoAsks)).map_err(discreet)?.build())
            }
            Target::Client(_) => None,
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
        Self { target: Target::Config(Box::new(config)), options: ConnectionOptions::default() }
    }
}

impl From<Client> for Connection {
    fn from(client: Client) -> Self {
        Self { target: Target::Client(client), options: ConnectionOptions::default() }
    }
}

/// Where it leads to, and nothing secret.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target: &dyn fmt::Debug = match &self.target {
            Target::Config(config) => &config.cluster_url,
            Target::Client(_) => &"Client",
        };
        f.debug_struct("Connection").field("target", target).field("options", &self.options).finish()
    }
}
