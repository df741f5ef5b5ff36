//! Client that reads from the cache and writes to the API server.
//!
//! * [`Client`] has the verbs. Reads return cached objects, and fail for a kind that has no
//!   declared informer. `client.live()` reads from the API server. Modifiers return a client with
//!   one changed setting: `client.status().update(&web)`, `client.dry_run().create(&web)`.
//! * [`Client::dynamic`] has the verbs for a kind that is named at run time. Its resource is
//!   [discovered](Client::discover), and so are [the versions of a kind](Client::discover_kind).
//! * [`Client::create_or_patch`] creates or changes an object. [`owner`] sets owner references, and
//!   [`Client::finalizer`] runs cleanup before a deletion.
//! * Cached reads include the earlier writes of the same client, or in a reconcile those of that
//!   reconcile: see [`Consistency`].
//!
//! [`Error`] distinguishes conflicts from objects that are not found, and [`IgnoreNotFound`] drops
//! the latter. [`ConnectionOptions`] limit the duration of requests. An [`Interceptor`] lets a test
//! replace or drop the response of the API server.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use steersman::{prelude::*, testing::{Env, TestServer}};
//!
//! let connection = Env::embedded()?.client()?; // or a `Config`
//! let cache = Cache::new(connection.clone(), CacheOptions::default())?;
//! let maps = cache.informer::<ConfigMap>()?;
//! let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//! let running = tokio::spawn(cache.clone().run_until(async { drop(stopped.await) }));
//! maps.await_synced().await?;
//!
//! let client = Client::new(connection)?.with_cache(cache);
//! let colors = serde_json::json!({"metadata": {"namespace": "default", "name": "colors"}, "data": {"door": "blue"}});
//! let colors: ConfigMap = client.create(&serde_json::from_value(colors)?).await?;
//!
//! let mut changed = colors.clone();
//! changed.data.get_or_insert_default().insert("door".into(), "red".into());
//! client.patch_from(&colors, &changed).await?;
//! let key = ObjectKey::of(&colors);
//! let now = client.get::<ConfigMap>(&key).await?.expect("the object exists"); // cached, includes the patch
//! assert_eq!(now.data, changed.data);
//! assert!(client.delete::<ConfigMap>(&key).await?);
//!
//! drop(stop);
//! running.await??;
//! # Ok(())
//! # }
//! ```

// The API: verbs, modifiers, helpers and errors.
mod change;
mod dynamic;
mod error;
mod finalizer;
mod intercept;
pub mod owner;
mod patch;
mod read;
mod settings;
mod subresource;
mod upsert;
mod write;

// Cached reads after own writes.
mod consistency;

// Requests: from a verb to the connection.
mod connection;
mod counted;
mod diff;
mod discovery;
mod inline_connection;
mod limits;
mod live_list;
mod redact;
mod wire;

pub use self::{
    change::Change,
    connection::Connection,
    consistency::Consistency,
    counted::ClientMetrics,
    discovery::Discovered,
    dynamic::Dynamic,
    error::{BoxError, ConnectionError, Error, IgnoreNotFound, Result, StatusError},
    finalizer::{Deletion, Finalize, add_finalizer, has_finalizer, remove_finalizer},
    intercept::{Answer, Call, Interceptor, Next, Verb},
    limits::{ConnectionOptions, ResponseTimeout},
    patch::delete_only,
    settings::Validation,
    subresource::Subresource,
};
pub(crate) use self::{
    consistency::OWN_WRITES_TIMEOUT,
    counted::{CountedClient, Requests},
    discovery::served_resources,
    inline_connection::{poll_frame, with_inline_connections},
};
use self::{discovery::Kinds, intercept::Intercept, settings::Settings};
pub use crate::rate_limit::Rate;
use crate::{
    cache::{Cache, ledger::Token},
    object::{KubeObject, ObjectKey},
};
use kube_core::GroupVersionKind;
pub use kube_core::params::{DeleteParams, Patch, Preconditions, PropagationPolicy};
use std::{fmt, sync::Arc};

/// Client for reads and writes. Clones share the connection and the cache.
///
/// Modifiers return a client that differs in one setting. Reads return `None` for an object that
/// does not exist. Writes return the object as stored by the API server.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    family: Arc<Family>,
    cache: Option<Cache>,
    interceptor: Option<Arc<dyn Intercept>>,
    settings: Settings,
}

/// State shared by a client and all clients derived from it.
struct Family {
    client: CountedClient,
    kinds: Kinds,
    /// Identifies the writes that cached reads must include.
    token: Token,
}

impl Client {
    /// Creates a client without a cache, so that every read is live.
    ///
    /// [`Connection::with_options`] sets the time and rate limits of requests.
    ///
    /// # Errors
    /// If the connection is a configuration from which no client can be created. An existing `kube`
    /// client never fails.
    ///
    /// # Panics
    /// If the connection is a configuration, and this is called outside of a tokio runtime.
    pub fn new(connection: impl Into<Connection>) -> Result<Self> {
        let family = Family {
            client: connection.into().client()?,
            kinds: Kinds::default(),
            token: Token::default(),
        };
        let settings = Settings::default();
        Ok(Self(Arc::new(Inner {
            family: Arc::new(family),
            cache: None,
            interceptor: None,
            settings,
        })))
    }

    /// Returns a client that reads from `cache`.
    ///
    /// Reads wait only for the client's [own writes](Consistency). Declare the informers that are
    /// read, and run the cache.
    #[must_use]
    pub fn with_cache(&self, cache: Cache) -> Self {
        let mut client = self.clone();
        Arc::make_mut(&mut client.0).cache = Some(cache);
        client
    }

    /// Returns the verbs for a kind that is named at run time.
    pub fn dynamic(&self, kind: &GroupVersionKind) -> Dynamic {
        Dynamic::new(self.clone(), kind.clone())
    }

    /// Discovers the resource of a kind; `None` if the API server does not serve it.
    ///
    /// If several resources have this kind, returns the one that can be read, or
    /// [`AmbiguousKind`](Error::AmbiguousKind) if there is not exactly one.
    ///
    /// All clients derived from the same client share the resources that were found. A missing kind
    /// is discovered again on each call. Typed kinds need no discovery.
    pub async fn discover(&self, kind: &GroupVersionKind) -> Result<Option<Discovered>> {
        let found = self.0.family.kinds.find(self.counted(), kind).await?;
        Ok(found.map(Arc::unwrap_or_clone))
    }

    /// Discovers a kind in all versions of its group that the API server serves.
    ///
    /// Use it if only group and kind are known. The group's preferred version is the first, the
    /// others follow in the order of the API server. Empty if no version has the kind. Sends a
    /// request for the group and one for each of its versions, and uses no earlier result.
    ///
    /// ```
    /// # use steersman::client::{Client, Result};
    /// # async fn example(client: Client) -> Result<()> {
    /// for found in client.discover_kind("cluster.x-k8s.io", "Cluster").await? {
    ///     println!("{} in {}", found.resource.plural, found.resource.api_version);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn discover_kind(&self, group: &str, kind: &str) -> Result<Vec<Discovered>> {
        let kinds = &self.0.family.kinds;
        let found = kinds.find_versions(self.counted(), group, kind).await?;
        Ok(found.into_iter().map(Arc::unwrap_or_clone).collect())
    }

    /// Discovers the plural name of a kind, which is the same in all versions.
    ///
    /// `None` if no served version of the group has the kind. A name that was found once is
    /// cached like the resources of [`discover`](Self::discover). A missing kind is discovered
    /// again on each call, see [`discover_kind`](Self::discover_kind).
    pub async fn discover_plural(&self, group: &str, kind: &str) -> Result<Option<String>> {
        if let Some(known) = self.0.family.kinds.known_plural(group, kind) {
            return Ok(Some(known));
        }
        let found = self.discover_kind(group, kind).await?;
        Ok(found.into_iter().next().map(|found| found.resource.plural))
    }

    /// Returns the `kube` client, for other requests such as logs, exec and watches.
    ///
    /// It retries requests only if it was passed in as a client that does so, see [`Connection`].
    /// [`ConnectionOptions`] do not apply to its requests, because some of them stream for hours.
    pub fn kube(&self) -> &kube_client::Client {
        self.counted().kube()
    }

    /// Returns the connection that counts requests.
    pub(crate) fn counted(&self) -> &CountedClient {
        &self.0.family.client
    }

    /// Returns the resource of the object's type, or discovers that of its kind.
    async fn kind_of<K: KubeObject>(&self, object: &K) -> Result<Arc<Discovered>> {
        if let Some(kind) = Discovered::of::<K>() {
            return Ok(Arc::new(kind));
        }
        let kind = object
            .gvk()
            .ok_or_else(|| Error::NoKind(ObjectKey::of(object)))?;
        self.find(&kind).await
    }

    async fn find(&self, kind: &GroupVersionKind) -> Result<Arc<Discovered>> {
        let found = self.0.family.kinds.find(self.counted(), kind).await?;
        found.ok_or_else(|| Error::NoSuchKind(format!("{} {}", kind.api_version(), kind.kind)))
    }

    /// Distinguishes a missing object from a missing kind.
    ///
    /// A 404 without the name of an object can mean either, or come from a proxy.
    async fn classified<T>(&self, kind: &Discovered, response: Result<T>) -> Result<T> {
        match response {
            // Boxed to keep the futures of the callers small.
            Err(error) if error.is_nameless_404() => {
                Err(Box::pin(self.classify_error(kind, error)).await)
            }
            response => response,
        }
    }

    /// Returns `NoSuchKind` if discovery confirms it, else `error`.
    async fn classify_error(&self, kind: &Discovered, error: Error) -> Error {
        self.0.family.kinds.forget(&kind.gvk());
        let part = self.0.settings.subresource.as_deref();
        if !discovery::is_missing(self.counted(), kind, part).await {
            return error;
        }
        let part = part.map(|part| format!("/{part}")).unwrap_or_default();
        Error::NoSuchKind(format!(
            "{} {}{part}",
            kind.resource.api_version, kind.resource.kind
        ))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("cache", &self.0.cache)
            .finish_non_exhaustive()
    }
}
