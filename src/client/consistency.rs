//! Reads that show what was written before.
//!
//! What holds: a write is recorded when its answer is in and before its caller has it; a cached read waits, as [`Consistency`] says, for what was
//! recorded when it began. The rest is the [ledger](crate::cache::ledger)'s.

use super::{Client, Discovered, Result, Verb};
use crate::{
    cache::{
        Cache, Informer,
        ledger::{Announced, Reads, Token, Wanted},
    },
    object::ObjectKey,
};
use kube_core::GroupVersionKind;
use std::time::Duration;

/// How long a read waits if nothing else is said: long for a watch that is well, short for a person.
pub(crate) const BOUND: Duration = Duration::from_secs(5);

/// What a cached read does while the cache does not have what was written through this client, or one that it was made from or that was made from it, if that one
/// has the cache, too: what is written through a client without it, as the one that [`with_cache`](Client::with_cache) was called on, nobody notes.
///
/// A read of one object is about the writes of that object, a list about those of its kind, in its namespace if it has one; both about writes whose answer was
/// in when the read began, and no later ones. Writes never wait. What the cache's selectors leave out is not waited for.
///
/// In a reconcile, a read by default waits only for what that reconcile wrote, through any client
/// with the cache. It does not wait for what a task wrote that the reconcile spawned, nor for other
/// reconciles.
///
/// When the cache has ended, or the informer was removed, nothing more is shown: a read that is to show own writes is
/// [`Ended`](crate::cache::CacheError::Ended) or [`Removed`](crate::cache::CacheError::Removed) then, and `client.live()` the way. With
/// [`Ignore`](Self::Ignore), or from an [`Informer`], it serves what was there.
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
/// assert!(client.get::<ConfigMap>(&ObjectKey::of(&map)).await?.is_some()); // not before the cache has it
///
/// let hasty = client.consistency(Consistency::Ignore);
/// hasty.get::<ConfigMap>(&ObjectKey::of(&map)).await?; // as it is
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Applies the policy of the [controller](crate::controller::Options::consistency). The
    /// default.
    ///
    /// By default, a read in a reconcile waits for the writes of the same reconcile, at most 5 s,
    /// and for nothing else. The next reconcile of the request starts once the cache shows these
    /// writes. Outside of a reconcile, this is [`Block`](Self::Block) with 5 s.
    #[default]
    Defer,
    /// Wait, at most this long; then it is [`Behind`](crate::cache::CacheError::Behind).
    Block(Duration),
    /// Read what is there.
    Ignore,
}

impl Client {
    /// What cached reads do while the cache is behind this client's own writes.
    #[must_use]
    pub fn consistency(&self, consistency: Consistency) -> Self {
        self.with(|settings| settings.consistency = consistency)
    }

    /// Until the cache has all that was written before through this client and those of its relatives that have the cache, whatever its kind. At most
    /// as long as [`Consistency::Block`] says, and 5 s if it is something else; then it is [`Behind`](crate::cache::CacheError::Behind). It never will if the
    /// cache has [`Ended`](crate::cache::CacheError::Ended).
    ///
    /// In a reconcile it is what this run has written so far, through any client that has the cache, and nothing else: neither what other runs have written
    /// through this client, nor what a task has that the run has spawned.
    ///
    /// Use it before a decision that rests on many reads, or at the end of a test.
    pub async fn caught_up(&self) -> Result<()> {
        let Some(cache) = &self.0.cache else { return Ok(()) };
        let bound = if let Consistency::Block(bound) = self.0.settings.consistency { bound } else { BOUND };
        let token = Token::current().unwrap_or_else(|| self.0.family.token.clone());
        Ok(cache.caught_up(&token, bound).await?)
    }

    /// Returns the token whose writes a read from this cache waits for here, and for how long at
    /// most.
    fn awaited(&self, cache: &Cache) -> Option<(Token, Duration)> {
        let of_client = |bound| Some((self.0.family.token.clone(), bound));
        match self.0.settings.consistency {
            Consistency::Ignore => None,
            Consistency::Block(bound) => of_client(bound),
            Consistency::Defer => {
                let Some(reconcile) = Token::current() else { return of_client(BOUND) };
                match reconcile.reads() {
                    Reads::DoNotWait => None,
                    Reads::OfClient(bound) => of_client(bound),
                    Reads::OfReconcile(bound) => reconcile.has_written(cache).then_some((reconcile, bound)),
                }
            }
        }
    }

    /// Before a read of one object, or of all in a namespace, or of all.
    pub(super) async fn show_own_writes<K>(
        &self,
        cache: &Cache,
        informer: &Informer<K>,
        key: &ObjectKey,
    ) -> Result<()> {
        let Some((token, bound)) = self.awaited(cache) else { return Ok(()) };
        let wanted = match key.namespace() {
            _ if !key.name().is_empty() => Wanted::Key(key),
            Some(namespace) => Wanted::Namespace(namespace),
            None => Wanted::All,
        };
        if let Some(pending) = informer.own_writes(&token, wanted) {
            pending.within(&informer.gvk().kind, bound).await?;
        }
        // One that has ended keeps no account of writes: it cannot know what it lacks.
        Ok(informer.check_lives()?)
    }

    /// A write that is about to be sent.
    pub(super) fn own_write(&self, verb: Verb, kind: &Discovered, key: &ObjectKey) -> OwnWrite<'_> {
        let cache = self.0.cache.as_ref().filter(|_| !self.0.settings.dry_run);
        let Some(cache) = cache else { return OwnWrite::Unseen };
        Token::writes(cache);
        let (token, kind) = (&self.0.family.token, kind.gvk());
        match verb {
            Verb::Delete => OwnWrite::Delete { token, announced: cache.deleting(&kind, key) },
            Verb::DeleteCollection => OwnWrite::Collection { cache, token, kind },
            _ => OwnWrite::Object { cache, token, kind },
        }
    }
}

/// A write that is on its way. Dropped, it was not answered.
pub(super) enum OwnWrite<'a> {
    /// Nobody will read it from a cache.
    Unseen,
    Object {
        cache: &'a Cache,
        token: &'a Token,
        kind: GroupVersionKind,
    },
    Delete {
        token: &'a Token,
        announced: Announced,
    },
    Collection {
        cache: &'a Cache,
        token: &'a Token,
        kind: GroupVersionKind,
    },
}

impl OwnWrite<'_> {
    pub(super) fn answered(self, answer: &[u8]) {
        match self {
            Self::Unseen => {}
            Self::Object { cache, token, kind } => cache.wrote(token, &kind, answer),
            Self::Delete { token, announced } => announced.answered(token, answer),
            Self::Collection { cache, token, kind } => cache.collected(token, &kind, answer),
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
        serde_json::from_value(json!({"metadata": {"namespace": "default", "name": name}})).expect("a config map")
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
        /// A synced cache that hears of changes to config maps after `lag`.
        async fn new(lag: Duration) -> Self {
            let server = ApiServer::new(Options::default()).expect("a server without data starts");
            // The first watch reports that there is nothing, and breaks. The next one is answered
            // late.
            server.faults().add(Fault::on("watch configmaps").drop_watch_after(1).times(1));
            server.faults().add(Fault::on("watch configmaps").delay(lag));
            let kube = kube_client::Client::new(server.service(), "default");
            let cache = Cache::new(kube.clone(), CacheOptions::default()).expect("a cache");
            let running = tokio::spawn(cache.clone().run_until(pending()));
            cache.informer::<ConfigMap>().expect("it is new").await_synced().await.expect("it syncs");
            cache.informer::<Secret>().expect("it is new").await_synced().await.expect("it syncs");
            let client = Client::new(kube).expect("a client").with_cache(cache.clone());
            Self { _server: server, cache, client, running }
        }

        async fn create(&self, name: &str) -> ObjectKey {
            ObjectKey::of(&self.client.create(&map(name)).await.expect("it is new"))
        }

        async fn has(&self, key: &ObjectKey) -> bool {
            self.client.get::<ConfigMap>(key).await.expect("a read").is_some()
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
        let reconcile = || Token::of_reconcile(Reads::OfReconcile(BOUND));
        let (one, other) = (reconcile(), reconcile());
        let begun = Instant::now();
        let key = one.clone().scope(fixture.create("a")).await;
        other.clone().scope(fixture.create("b")).await;

        let reads = async {
            assert!(!fixture.has(&key).await);
            assert!(!fixture.has(&ObjectKey::new("default", "c")).await);
            assert!(fixture.client.list::<Secret>(&all()).await.expect("a read").is_empty());
        };
        other.scope(reads).await;
        assert_eq!(begun.elapsed(), Duration::ZERO, "neither another reconcile's object nor another kind");

        let everything = all::<ConfigMap>();
        let reads = async { futures::join!(fixture.has(&key), fixture.client.list(&everything)) };
        let (get, list) = one.scope(reads).await;
        assert!(get, "the reconcile sees what it created");
        assert!(list.expect("a read").iter().any(|map| ObjectKey::of(&**map) == key), "also in a list");
        assert!(begun.elapsed() > Duration::ZERO, "they have waited");
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_in_a_reconcile_fails_if_the_cache_does_not_show_its_writes_in_time() {
        let fixture = Fixture::new(BOUND * 10).await;
        let reconcile = async {
            let (key, begun) = (fixture.create("a").await, Instant::now());
            let get = fixture.client.get::<ConfigMap>(&key).await.expect_err("the cache is behind");
            let list = fixture.client.list::<ConfigMap>(&all()).await.expect_err("the cache is behind");
            for error in [get, list] {
                assert!(matches!(error, super::super::Error::Cache(CacheError::Behind { .. })), "{error}");
            }
            assert_eq!(begun.elapsed(), BOUND * 2);
        };
        Token::of_reconcile(Reads::OfReconcile(BOUND)).scope(reconcile).await;
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
        other.scope(client.caught_up()).await.expect("it has written nothing");
        assert!(!cache.is_caught_up(&one), "and so has not waited");
        one.clone().scope(client.caught_up()).await.expect("the watch comes back");
        assert!(cache.is_caught_up(&one));
        assert!(fixture.has(&key).await);
    }
}
