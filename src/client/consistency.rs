//! Cached reads that include the earlier writes of the client.
//!
//! Invariant: a write is recorded after its response arrived and before its caller returns. A
//! cached read waits, according to [`Consistency`], for the writes that were recorded when it
//! started. The [ledger](crate::cache::ledger) tracks them.

use super::{Client, Discovered, Result, Verb};
use crate::{
    cache::{
        Cache, Informer,
        ledger::{DeleteAnnouncements, ReadPolicy, ReadScope, Token},
    },
    object::ObjectKey,
};
use kube_core::GroupVersionKind;
use std::time::Duration;

/// Default limit of the wait of a read: longer than the lag of a healthy watch.
pub(crate) const OWN_WRITES_TIMEOUT: Duration = Duration::from_secs(5);

/// Policy of a cached read if the cache has not observed the client's own writes.
///
/// Own writes are those of this client and of all clients derived from the same client, if they
/// have the cache. Writes through a client without the cache are not recorded, such as the one on
/// which [`with_cache`](Client::with_cache) was called.
///
/// A get waits for writes of its object, a list for writes of its kind, in its namespace if it has
/// one. Both wait only for writes whose response arrived before the read started. Writes never
/// wait. Objects outside of the cache's selectors are not waited for.
///
/// In a reconcile, a read by default waits only for the writes of that reconcile, through any
/// client with the cache. It does not wait for writes of a task that the reconcile spawned, nor for
/// those of other reconciles.
///
/// After the cache has stopped, or the informer was removed, a read that includes own writes fails
/// with [`Closed`](crate::cache::CacheError::Closed) or
/// [`Removed`](crate::cache::CacheError::Removed). Use `client.live()` then. With
/// [`Ignore`](Self::Ignore), or from an [`Informer`], the read returns the last known objects.
///
/// Not covered:
///
/// * writes of other clients;
/// * writes whose response was lost, such as one that [timed out](super::Error::WriteTimeout);
/// * evictions and bindings of pods, whose responses have no resource version, and servers whose
///   resource versions are not numbers;
/// * where the cache keeps a kind with selectors, a delete of an object that another client has
///   just created and that the cache has not received: the cache may show the object until it
///   receives the deletion. Use `client.live()` if that matters, or keep the kind without
///   selectors.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use steersman::{client::{Client, Consistency, Result}, object::ObjectKey};
/// # async fn example(client: Client, map: ConfigMap) -> Result<()> {
/// client.create(&map).await?;
/// assert!(client.get::<ConfigMap>(&ObjectKey::of(&map)).await?.is_some()); // waits for the cache
///
/// let without_waiting = client.consistency(Consistency::Ignore);
/// without_waiting.get::<ConfigMap>(&ObjectKey::of(&map)).await?; // does not wait
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Applies the policy of the [controller](crate::controller::Options::consistency).
    ///
    /// By default, a read in a reconcile waits for the writes of the same reconcile, at most 5 s,
    /// and for nothing else. The next reconcile of the request starts once the cache shows these
    /// writes. Outside of a reconcile, this is [`Block`](Self::Block) with 5 s.
    #[default]
    Defer,
    /// Waits at most this long, then fails with
    /// [`WriteNotObserved`](crate::cache::CacheError::WriteNotObserved).
    Block(Duration),
    /// Reads the current objects of the cache without waiting.
    Ignore,
}

impl Client {
    /// Sets the policy of cached reads after own writes. Default: [`Consistency::Defer`].
    #[must_use]
    pub fn consistency(&self, consistency: Consistency) -> Self {
        self.with(|settings| settings.consistency = consistency)
    }

    /// Waits until the cache has observed all earlier own writes, of any kind.
    ///
    /// Own writes are those of [`Consistency`]. In a reconcile, they are the writes of that
    /// reconcile through any client with the cache, without those of spawned tasks.
    ///
    /// Use it before a decision that depends on many reads, or at the end of a test.
    ///
    /// # Errors
    /// [`WriteNotObserved`](crate::cache::CacheError::WriteNotObserved) after the limit of
    /// [`Consistency::Block`], or 5 s with another policy.
    /// [`Closed`](crate::cache::CacheError::Closed) if the cache has stopped.
    pub async fn caught_up(&self) -> Result<()> {
        let Some(cache) = &self.0.cache else {
            return Ok(());
        };
        let timeout = if let Consistency::Block(timeout) = self.0.settings.consistency {
            timeout
        } else {
            OWN_WRITES_TIMEOUT
        };
        let token = Token::current().unwrap_or_else(|| self.0.family.token.clone());
        Ok(cache.caught_up(&token, timeout).await?)
    }

    /// Returns the token whose writes a read from `cache` waits for, and the limit.
    fn required_writes(&self, cache: &Cache) -> Option<(Token, Duration)> {
        let of_client = |timeout| Some((self.0.family.token.clone(), timeout));
        match self.0.settings.consistency {
            Consistency::Ignore => None,
            Consistency::Block(timeout) => of_client(timeout),
            Consistency::Defer => {
                let Some(reconcile) = Token::current() else {
                    return of_client(OWN_WRITES_TIMEOUT);
                };
                match reconcile.reads() {
                    ReadPolicy::DoNotWait => None,
                    ReadPolicy::OfClient(timeout) => of_client(timeout),
                    ReadPolicy::OfReconcile(timeout) => {
                        reconcile.has_written(cache).then_some((reconcile, timeout))
                    }
                }
            }
        }
    }

    /// Waits for own writes before a read of an object, a namespace or the whole kind.
    pub(super) async fn show_own_writes<K>(
        &self,
        cache: &Cache,
        informer: &Informer<K>,
        key: &ObjectKey,
    ) -> Result<()> {
        let Some((token, timeout)) = self.required_writes(cache) else {
            return Ok(());
        };
        let wanted = match key.namespace() {
            _ if !key.name().is_empty() => ReadScope::Key(key),
            Some(namespace) => ReadScope::Namespace(namespace),
            None => ReadScope::All,
        };
        if let Some(pending) = informer.pending_writes(&token, wanted) {
            pending.within(&informer.gvk().kind, timeout).await?;
        }
        // A stopped informer does not track writes, so it cannot tell which ones it lacks.
        Ok(informer.check_open()?)
    }

    /// Registers a write that is about to be sent.
    pub(super) fn own_write(&self, verb: Verb, kind: &Discovered, key: &ObjectKey) -> OwnWrite<'_> {
        let cache = self.0.cache.as_ref().filter(|_| !self.0.settings.dry_run);
        let Some(cache) = cache else {
            return OwnWrite::NotRecorded;
        };
        Token::record_write(cache);
        let (token, kind) = (&self.0.family.token, kind.gvk());
        match verb {
            Verb::Delete => OwnWrite::Delete {
                token,
                announced: cache.announce_delete(&kind, key),
            },
            Verb::DeleteCollection => OwnWrite::Collection { cache, token, kind },
            _ => OwnWrite::Object { cache, token, kind },
        }
    }
}

/// Write in flight. Dropping it means that no response arrived.
pub(super) enum OwnWrite<'a> {
    /// The write is not recorded: the client has no cache, or it is a dry run.
    NotRecorded,
    Object {
        cache: &'a Cache,
        token: &'a Token,
        kind: GroupVersionKind,
    },
    Delete {
        token: &'a Token,
        announced: DeleteAnnouncements,
    },
    Collection {
        cache: &'a Cache,
        token: &'a Token,
        kind: GroupVersionKind,
    },
}

impl OwnWrite<'_> {
    pub(super) fn record_response(self, response: &[u8]) {
        match self {
            Self::NotRecorded => {}
            Self::Object { cache, token, kind } => cache.record_write(token, &kind, response),
            Self::Delete { token, announced } => announced.record_response(token, response),
            Self::Collection { cache, token, kind } => {
                cache.record_collection_delete(token, &kind, response);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{CacheError, CacheOptions, Query};
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use serde_json::json;
    use std::future::pending;
    use steersman_apiserver::{ApiServer, Fault, Options};
    use tokio::{task::JoinHandle, time::Instant};

    const LAG: Duration = Duration::from_secs(3);

    fn map(name: &str) -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"namespace": "default", "name": name}}))
            .expect("a config map")
    }

    fn all<K: 'static>() -> Query<K> {
        Query::default()
    }

    struct Fixture {
        _server: ApiServer,
        cache: Cache,
        client: Client,
        running: JoinHandle<Result<(), CacheError>>,
    }

    impl Fixture {
        /// Returns a synced cache that observes changes of config maps after `lag`.
        async fn new(lag: Duration) -> Self {
            let server = ApiServer::new(Options::default()).expect("a server without data starts");
            // The first watch delivers nothing and breaks. The next one is answered after `lag`.
            server
                .faults()
                .add(Fault::on("watch configmaps").drop_watch_after(1).times(1));
            server
                .faults()
                .add(Fault::on("watch configmaps").delay(lag));
            let kube = kube_client::Client::new(server.service(), "default");
            let cache = Cache::new(kube.clone(), CacheOptions::default()).expect("a cache");
            let running = tokio::spawn(cache.clone().run_until(pending()));
            cache
                .informer::<ConfigMap>()
                .expect("the kind is declared")
                .await_synced()
                .await
                .expect("synced without an error");
            cache
                .informer::<Secret>()
                .expect("the kind is declared")
                .await_synced()
                .await
                .expect("synced without an error");
            let client = Client::new(kube)
                .expect("a client")
                .with_cache(cache.clone());
            Self {
                _server: server,
                cache,
                client,
                running,
            }
        }

        async fn create(&self, name: &str) -> ObjectKey {
            ObjectKey::of(
                &self
                    .client
                    .create(&map(name))
                    .await
                    .expect("the object is created"),
            )
        }

        async fn has(&self, key: &ObjectKey) -> bool {
            self.client
                .get::<ConfigMap>(key)
                .await
                .expect("a read")
                .is_some()
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            self.running.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_in_a_reconcile_waits_for_writes_of_that_reconcile_only() {
        let fixture = Fixture::new(LAG).await;
        let reconcile = || Token::of_reconcile(ReadPolicy::OfReconcile(OWN_WRITES_TIMEOUT));
        let (one, other) = (reconcile(), reconcile());
        let begun = Instant::now();
        let key = one.clone().scope(fixture.create("a")).await;
        other.clone().scope(fixture.create("b")).await;

        let reads = async {
            assert!(!fixture.has(&key).await);
            assert!(!fixture.has(&ObjectKey::new("default", "c")).await);
            assert!(
                fixture
                    .client
                    .list::<Secret>(&all())
                    .await
                    .expect("a read")
                    .is_empty()
            );
        };
        other.scope(reads).await;
        assert_eq!(
            begun.elapsed(),
            Duration::ZERO,
            "neither another reconcile's object nor another kind"
        );

        let everything = all::<ConfigMap>();
        let reads = async { futures::join!(fixture.has(&key), fixture.client.list(&everything)) };
        let (get, list) = one.scope(reads).await;
        assert!(get, "the reconcile reads its own write");
        assert!(
            list.expect("a read")
                .iter()
                .any(|map| ObjectKey::of(&**map) == key),
            "also in a list"
        );
        assert!(begun.elapsed() > Duration::ZERO, "the reads have waited");
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_in_a_reconcile_fails_if_the_cache_does_not_show_its_writes_in_time() {
        let fixture = Fixture::new(OWN_WRITES_TIMEOUT * 10).await;
        let reconcile = async {
            let (key, begun) = (fixture.create("a").await, Instant::now());
            let get = fixture
                .client
                .get::<ConfigMap>(&key)
                .await
                .expect_err("the cache is behind");
            let list = fixture
                .client
                .list::<ConfigMap>(&all())
                .await
                .expect_err("the cache is behind");
            for error in [get, list] {
                assert!(
                    matches!(
                        error,
                        super::super::Error::Cache(CacheError::WriteNotObserved { .. })
                    ),
                    "{error}"
                );
            }
            assert_eq!(begun.elapsed(), OWN_WRITES_TIMEOUT * 2);
        };
        Token::of_reconcile(ReadPolicy::OfReconcile(OWN_WRITES_TIMEOUT))
            .scope(reconcile)
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn caught_up_in_a_reconcile_waits_for_its_writes_also_if_reads_do_not() {
        let fixture = Fixture::new(LAG).await;
        let (one, other) = (Token::default(), Token::default());
        let reconcile = async {
            let (key, begun) = (fixture.create("a").await, Instant::now());
            assert!(!fixture.has(&key).await);
            assert_eq!(begun.elapsed(), Duration::ZERO);
            key
        };
        let key = one.clone().scope(reconcile).await;
        let (cache, client) = (&fixture.cache, &fixture.client);
        assert!(!cache.is_caught_up(&one) && !cache.is_caught_up(&client.0.family.token));
        assert!(cache.is_caught_up(&other));
        other
            .scope(client.caught_up())
            .await
            .expect("no writes are pending");
        assert!(!cache.is_caught_up(&one), "the read has not waited");
        one.clone()
            .scope(client.caught_up())
            .await
            .expect("the watch comes back");
        assert!(cache.is_caught_up(&one));
        assert!(fixture.has(&key).await);
    }
}
