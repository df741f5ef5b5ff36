//! Reads that show what was written before.
//!
//! What holds: a write is recorded when its answer is in and before its caller has it; a cached read waits, as [`Consistency`] says, for what was
//! recorded when it began. The rest is the [ledger](crate::cache::ledger)'s.

use super::{Client, Discovered, Result, Verb};
use crate::{
    cache::{
        Cache, Informer,
        ledger::{Announced, Token, Wanted},
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
/// When the cache has ended, or the informer was removed, nothing more is shown: a read that is to show own writes is
/// [`Ended`](crate::cache::CacheError::Ended) or [`Removed`](crate::cache::CacheError::Removed) then, and `client.live()` the way. With
/// [`Ignore`](Self::Ignore), or from an [`Informer`], it serves what was there.
///
/// Not covered: writes of other clients, writes whose answer was lost, as one that [timed out](super::Error::WriteTimeout), evictions and bindings of pods, whose answers name no version, and servers whose
/// resource versions are no numbers. And, where the cache keeps a kind with selectors, a delete of what another client has made a moment ago, and the cache has not
/// heard of: it may show the object until it hears that it is gone. Who must not see it reads it with `client.live()`, or keeps the kind without selectors.
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
    /// In a reconcile, as the [controller](crate::controller::Options::consistency) says: by default it reads what is there, and the next run of the
    /// request is held back until the cache has caught up. Elsewhere as [`Block`](Self::Block) of 5 s. The default.
    #[default]
    Defer,
    /// Wait, at most this long; then it is [`Behind`](crate::cache::CacheError::Behind).
    Block(Duration),
    /// Read what is there.
    Ignore,
}

impl Consistency {
    /// How long a read waits here.
    fn bound(self) -> Option<Duration> {
        match self {
            Self::Defer => Token::current().map_or(Some(BOUND), |reconcile| reconcile.reads_wait()),
            Self::Block(bound) => Some(bound),
            Self::Ignore => None,
        }
    }
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

    /// Before a read of one object, or of all in a namespace, or of all.
    pub(super) async fn show_own_writes<K>(&self, informer: &Informer<K>, key: &ObjectKey) -> Result<()> {
        let Some(bound) = self.0.settings.consistency.bound() else { return Ok(()) };
        let wanted = match key.namespace() {
            _ if !key.name().is_empty() => Wanted::Key(key),
            Some(namespace) => Wanted::Namespace(namespace),
            None => Wanted::All,
        };
        if let Some(pending) = informer.own_writes(&self.0.family.token, wanted) {
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
    use crate::cache::CacheOptions;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;
    use std::future::pending;
    use steersman_apiserver::{ApiServer, Fault, Options};
    use tokio::time::Instant;

    fn map(name: &str) -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"namespace": "default", "name": name}})).expect("a config map")
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_reconcile_reads_do_not_wait_and_what_it_wrote_can_be_waited_for() {
        let server = ApiServer::new(Options::default()).expect("a server without data starts");
        // The first watch tells that there is nothing, and breaks; the next one takes a while.
        server.faults().add(Fault::on("watch configmaps").drop_watch_after(1).times(1));
        server.faults().add(Fault::on("watch configmaps").delay(Duration::from_secs(3)));
        let kube = kube_client::Client::new(server.service(), "default");
        let cache = Cache::new(kube.clone(), CacheOptions::default()).expect("a cache");
        let running = tokio::spawn(cache.clone().run_until(pending()));
        let maps = cache.informer::<ConfigMap>().expect("it is new");
        maps.await_synced().await.expect("it syncs");

        let client = Client::new(kube).expect("a client").with_cache(cache.clone());
        let (one, other) = (Token::default(), Token::default());
        let reconcile = async {
            let key = ObjectKey::of(&client.create(&map("a")).await.expect("it is new"));
            let begun = Instant::now();
            assert_eq!(client.get::<ConfigMap>(&key).await.expect("a read"), None, "the controller will hold it back");
            assert_eq!(begun.elapsed(), Duration::ZERO);
            key
        };
        let key = one.clone().scope(reconcile).await;
        assert!(!cache.is_caught_up(&one) && !cache.is_caught_up(&client.0.family.token));
        assert!(cache.is_caught_up(&other));
        other.scope(client.caught_up()).await.expect("it has written nothing");
        assert!(!cache.is_caught_up(&one), "and so has not waited");
        one.clone().scope(client.caught_up()).await.expect("the watch comes back");
        assert!(cache.is_caught_up(&one));
        assert!(maps.get(&key).expect("it is synced").is_some());
        running.abort();
    }
}
