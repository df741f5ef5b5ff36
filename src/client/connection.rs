//! Connection to a cluster.
//!
//! Invariant: a client that was built here never repeats a request by itself. A 429 or 503 is
//! returned to the caller with its `Retry-After`, and a controller waits in its queue. A gateway
//! timeout does not prove that the request had no effect: a repeated create with `generateName`
//! would create two objects.

use super::{ConnectionOptions, CountedClient, inline_connection::InlineExecutor, redact::redact};
use crate::rate_limit::Permits;
use kube_client::{Client, Config, client::ClientBuilder};
use std::{fmt, sync::Arc};

/// Connection to a cluster: a [`Config`] or an existing `kube` client.
///
/// Prefer a configuration. By default, kube's clients silently retry a request for minutes if the
/// API server answers with 429, 503 or 504. A write that had an effect nevertheless is then
/// repeated, and a watch that is rejected looks healthy. Clients that are created from a
/// configuration do not retry, regardless of its `default_retry`: the request fails with an error
/// that contains the [delay](super::Error::retry_after), and controllers observe it. The cache also
/// creates a second client for its watches, which read their connections without waking another
/// task for each event. An existing client is used as it is: set `default_retry` to false in its
/// configuration.
///
/// Requests have the default [`ConnectionOptions`]. [`with_options`](Self::with_options) sets
/// others.
#[derive(Clone)]
pub struct Connection {
    target: Target,
    options: ConnectionOptions,
    /// Shared by all clients of this connection. `None` without a rate limit.
    permits: Option<Arc<Permits>>,
}

#[derive(Clone)]
enum Target {
    /// Clients are built from the configuration on the current runtime.
    Config(Box<Config>),
    Client(Client),
}

impl Connection {
    /// Sets the time and rate limits of requests.
    #[must_use]
    pub fn with_options(self, options: ConnectionOptions) -> Self {
        Self {
            options,
            permits: options.rate_limit.map(|rate| Arc::new(Permits::new(rate))),
            ..self
        }
    }

    /// Removes the rate limit, for the requests of leader election.
    pub(crate) fn without_rate_limit(self) -> Self {
        Self {
            permits: None,
            ..self
        }
    }

    /// Creates a client that does not retry rejected requests.
    pub(crate) fn client(self) -> Result<CountedClient, kube_client::Error> {
        let (client, host) = match self.target {
            Target::Config(mut config) => {
                config.default_retry = false;
                let host = host(&config);
                (Client::try_from(*config).map_err(redact)?, host)
            }
            // The host of an existing client is unknown.
            Target::Client(client) => (client, String::new()),
        };
        Ok(CountedClient::new(client, host, self.options, self.permits))
    }

    /// Creates a client for informers, with a second one for their watches.
    ///
    /// The reader of a watch polls its connection itself.
    pub(crate) fn informer_client(self) -> Result<CountedClient, kube_client::Error> {
        let driven = match &self.target {
            Target::Config(config) => {
                let mut config = Config::clone(config);
                config.default_retry = false;
                Some(
                    ClientBuilder::try_from((config, InlineExecutor))
                        .map_err(redact)?
                        .build(),
                )
            }
            Target::Client(_) => None,
        };
        Ok(self.client()?.with_inline(driven))
    }
}

/// Returns the host, as client-go labels its metrics.
fn host(config: &Config) -> String {
    let authority = config
        .cluster_url
        .authority()
        .map(http::uri::Authority::as_str)
        .unwrap_or_default();
    // Removes a user name and password from the URL.
    authority.rsplit('@').next().unwrap_or_default().to_owned()
}

impl From<Config> for Connection {
    fn from(config: Config) -> Self {
        Self {
            target: Target::Config(Box::new(config)),
            options: ConnectionOptions::default(),
            permits: None,
        }
    }
}

impl From<Client> for Connection {
    fn from(client: Client) -> Self {
        Self {
            target: Target::Client(client),
            options: ConnectionOptions::default(),
            permits: None,
        }
    }
}

/// Prints the URL without credentials.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target: &dyn fmt::Debug = match &self.target {
            Target::Config(config) => &config.cluster_url,
            Target::Client(_) => &"Client",
        };
        f.debug_struct("Connection")
            .field("target", target)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
