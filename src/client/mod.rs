//! Reads from the cache, writes to the server.
//!
//! * [`Client`] has the verbs. Reads share what is in memory; a kind that was not declared there is an error, never a hidden watch. `client.live()` asks the
//!   server instead.
//! * Its modifiers give a client that differs in one setting: `client.status().update(&web)`, `client.dry_run().create(&web)`.
//! * [`Client::dynamic`] has the verbs for a kind that is named at run time; its resource is [discovered](Client::discover), never guessed.
//! * [`Client::create_or_patch`] makes an object as it is wanted, whether it is there or not; [`owner`] says what goes with what, and [`Client::finalizer`]
//!   what has to be done before.
//! * Cached reads show what was written through the same client before; in a reconcile, what that
//!   reconcile wrote: [`Consistency`].
//! * [`Error`] tells conflicts and absences apart; [`IgnoreNotFound`] drops the latter.
//! * A request that the API server does not answer in time is an error: [`ConnectionOptions`] set the limits.
//! * [`Interceptor`] lets a test answer in the server's place, or lose the answer.
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
//! let now = client.get::<ConfigMap>(&key).await?.expect("it was made"); // from the cache, and not from before
//! assert_eq!(now.data, changed.data);
//! assert!(client.delete::<ConfigMap>(&key).await?);
//!
//! drop(stop);
//! running.await??;
//! # Ok(())
//! # }
//! ```

mod change;
mod connection;
mod consistency;
mod diff;
mod discovery;
mod discreet;
mod drive;
mod dynamic;
mod error;
mod finalizer;
mod intercept;
mod limits;
mod link;
mod live_list;
pub mod owner;
mod patch;
mod read;
mod settings;
mod subresource;
mod upsert;
mod wire;
mod write;

pub use self::{
    change::Change,
    connection::Connection,
    consistency::Consistency,
    discovery::Discovered,
    dynamic::Dynamic,
    error::{BoxError, ConnectionError, Error, IgnoreNotFound, Refusal, Result},
    finalizer::{Deletion, Finalize, add_finalizer, has_finalizer, remove_finalizer},
    intercept::{Answer, Call, Interceptor, Next, Verb},
    limits::{ConnectionOptions, ResponseTimeout},
    link::ClientMetrics,
    patch::{Deleting, Patch, Propagation},
    settings::Validation,
    subresource::Subresource,
};
pub(crate) use self::{
    consistency::BOUND as OWN_WRITES_BOUND,
    discovery::served_resources,
    drive::{driving, poll_part},
    link::{Link, Requests},
};
use self::{discovery::Kinds, intercept::Intercept, settings::Settings};
use crate::{
    cache::{Cache, ledger::Token},
    object::{KubeObject, ObjectKey},
};
use kube_core::GroupVersionKind;
use std::{fmt, sync::Arc};

/// Reads and writes. A handle; clones share everything. The modifiers give a client that differs in one setting, and shares the rest.
///
/// Reads give `None` for what does not exist; writes give the object as the server has it then.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    family: Arc<Family>,
    cache: Option<Cache>,
    interceptor: Option<Arc<dyn Intercept>>,
    settings: Settings,
}

/// What a client shares with all that were made from it.
struct Family {
    link: Link,
    kinds: Kinds,
    /// Whose writes reads must show.
    token: Token,
}

impl Client {
    /// Without a cache: every read is live. With a ready client as the connection it never fails. [`Connection::with_options`] sets the time limits of requests.
    ///
    /// # Panics
    /// If it is a configuration, and this is called outside of a tokio runtime.
    pub fn new(connection: impl Into<Connection>) -> Result<Self> {
        let family = Family { link: connection.into().client()?, kinds: Kinds::default(), token: Token::default() };
        let settings = Settings::default();
        Ok(Self(Arc::new(Inner { family: Arc::new(family), cache: None, interceptor: None, settings })))
    }

    /// One that reads from this cache, and waits for none of it but for its [own writes](Consistency): declare what is to be read, and let the cache run.
    #[must_use]
    pub fn with_cache(&self, cache: Cache) -> Self {
        let mut client = self.clone();
        Arc::make_mut(&mut client.0).cache = Some(cache);
        client
    }

    /// The verbs for a kind named at run time.
    pub fn dynamic(&self, kind: &GroupVersionKind) -> Dynamic {
        Dynamic::new(self.clone(), kind.clone())
    }

    /// Where a kind is on the server; `None` if it has listed what it has, and there is no such kind. Of several resources of one kind it is the one that can be
    /// read; if that is not one, it is [`AmbiguousKind`](Error::AmbiguousKind).
    ///
    /// What the server has said once is known from then on, to all clients that were made from one; what it did not have is asked for each time. Kinds with a
    /// type need no discovery.
    pub async fn discover(&self, kind: &GroupVersionKind) -> Result<Option<Discovered>> {
        let found = self.0.family.kinds.find(self.link(), kind).await?;
        Ok(found.map(Arc::unwrap_or_clone))
    }

    /// For what is not here: logs, exec, watches of your own. It repeats what is refused only if it was given ready, and does so: see [`Connection`].
    /// [`ConnectionOptions`] do not apply to its requests, because some of them stream for hours.
    pub fn kube(&self) -> &kube_client::Client {
        self.link().kube()
    }

    /// Where its requests are counted.
    pub(crate) fn link(&self) -> &Link {
        &self.0.family.link
    }

    /// As the type says, or the server.
    async fn kind_of<K: KubeObject>(&self, object: &K) -> Result<Arc<Discovered>> {
        if let Some(kind) = Discovered::of::<K>() {
            return Ok(Arc::new(kind));
        }
        let kind = object.gvk().ok_or_else(|| Error::NoKind(ObjectKey::of(object)))?;
        self.find(&kind).await
    }

    async fn find(&self, kind: &GroupVersionKind) -> Result<Arc<Discovered>> {
        let found = self.0.family.kinds.find(self.link(), kind).await?;
        found.ok_or_else(|| Error::NoSuchKind(format!("{} {}", kind.api_version(), kind.kind)))
    }

    /// What an answer means: that nothing was found, and not what, may be said of the object, of its kind, or by a proxy of everything.
    async fn judged<T>(&self, kind: &Discovered, answer: Result<T>) -> Result<T> {
        match answer {
            // So that what asks stays small.
            Err(error) if error.is_nameless_404() => Err(Box::pin(self.judge(kind, error)).await),
            answer => answer,
        }
    }

    /// If the server does not have even the kind, it has said all that it knows of it; unless it says so itself, the error is what it was.
    async fn judge(&self, kind: &Discovered, error: Error) -> Error {
        self.0.family.kinds.forget(&kind.gvk());
        let part = self.0.settings.subresource.as_deref();
        if !discovery::lacks(self.link(), kind, part).await {
            return error;
        }
        let part = part.map(|part| format!("/{part}")).unwrap_or_default();
        Error::NoSuchKind(format!("{} {}{part}", kind.resource.api_version, kind.resource.kind))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("cache", &self.0.cache).finish_non_exhaustive()
    }
}
