//! Triggers of repeated discovery for kinds that the API server does not serve.
//!
//! Most missing kinds are defined by a `CustomResourceDefinition`. One metadata watch of CRDs
//! serves the whole cache, and runs only while informers wait for a kind. Any change of a CRD of
//! the group is a hint to discover the kind again. A hint causes several attempts, because the API
//! server serves a CRD shortly after it is established.
//!
//! Invariant: a waiter repeats discovery after it has registered, so that no hint is missed. If
//! CRDs cannot be watched, discovery is repeated with backoff. If they can, it is still repeated
//! every few minutes, because aggregated API servers have kinds without a CRD.

use super::{
    refcount::race,
    reflector::{Backoff, Failure, ListWatch, Reflector, Sink},
    store::Entry,
};
use crate::{
    client::CountedClient,
    jitter,
    object::{Decoder, MetadataOnly, ObjectKey, Undecodable, Undecoded},
};
use hashbrown::{HashMap, HashSet};
use kube_core::TypeMeta;
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PAGE_SIZE: u32 = 500;
/// Attempts after a hint. The first follows at once, the others after a delay that doubles from
/// [`FIRST_DELAY`]: about 6 s in total.
const ATTEMPTS: u32 = 6;
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// Interval of discovery without a hint.
const POLL_INTERVAL: Duration = Duration::from_mins(5);

/// Waiting informers by group, and the hints for them.
#[derive(Default)]
pub(super) struct CrdWatch(watch::Sender<WatchState>);

#[derive(Default)]
struct WatchState {
    groups: HashMap<String, Group>,
    /// Error of the CRD watch, while it fails.
    error: Option<String>,
}

#[derive(Default)]
struct Group {
    waiter: usize,
    hints: u64,
}

impl CrdWatch {
    /// Registers a waiter for a kind of this group.
    pub(super) fn register(&self, group: &str) -> CrdWaiter<'_> {
        let mut hints = 0;
        self.0.send_modify(|state| {
            let group = state.groups.entry_ref(group).or_default();
            group.waiter += 1;
            hints = group.hints;
        });
        CrdWaiter {
            crd_watch: self,
            group: group.to_owned(),
            hints,
            watch_failed: false,
            attempts: 0,
            backoff: Backoff::default(),
        }
    }

    /// Watches CRDs while there are waiters.
    pub(super) async fn run(&self, client: &CountedClient) -> Infallible {
        let (mut started, mut ended) = (self.0.subscribe(), self.0.subscribe());
        // `self` owns the sender, so `wait_for` cannot fail.
        loop {
            let _ = started.wait_for(|state| !state.groups.is_empty()).await;
            let no_waiters = async { drop(ended.wait_for(|state| state.groups.is_empty()).await) };
            race(no_waiters, self.watch(client)).await;
            self.set_error(None);
        }
    }

    async fn watch(&self, client: &CountedClient) -> Infallible {
        let types = TypeMeta {
            api_version: "apiextensions.k8s.io/v1".into(),
            kind: "CustomResourceDefinition".into(),
        };
        let decoder = Decoder::new(types);
        let mut backoff = Backoff::default();
        loop {
            let list_watch = ListWatch {
                path: PATH.into(),
                labels: None,
                fields: None,
                metadata_only: true,
                kind_checks: None,
            };
            let sink = HintSink {
                crd_watch: self,
                decoder: &decoder,
            };
            let failure = Reflector::new(client.clone(), list_watch, sink, PAGE_SIZE)
                .run()
                .await;
            self.set_error(Some(failure.to_string()));
            sleep(backoff.next_delay(None)).await;
        }
    }

    fn hint<'a>(&self, groups: impl IntoIterator<Item = &'a str>) {
        self.0.send_if_modified(|state| {
            let mut known = false;
            for group in groups {
                if let Some(group) = state.groups.get_mut(group) {
                    group.hints += 1;
                    known = true;
                }
            }
            known
        });
    }

    fn set_error(&self, error: Option<String>) {
        self.0.send_if_modified(|state| {
            let changed = state.error.is_some() != error.is_some();
            state.error = error;
            changed
        });
    }
}

/// Registration of a waiter for a kind. Dropping it unregisters the waiter.
pub(super) struct CrdWaiter<'a> {
    crd_watch: &'a CrdWatch,
    group: String,
    /// Number of hints that were handled.
    hints: u64,
    watch_failed: bool,
    /// Remaining attempts of the last hint.
    attempts: u32,
    backoff: Backoff,
}

impl CrdWaiter<'_> {
    /// Waits until discovery should be repeated.
    pub(super) async fn wait(&mut self) {
        let at_most = if self.attempts > 0 {
            self.attempts -= 1;
            FIRST_DELAY * (1 << (ATTEMPTS - 1 - self.attempts))
        } else if self.watch_failed {
            // The backoff is at most 60 s, so this is at most 30 s.
            self.backoff.next_delay(None) / 2
        } else {
            POLL_INTERVAL.mul_f64(jitter::factor(0.9..1.1))
        };
        let mut state = self.crd_watch.0.subscribe();
        let hints =
            |state: &WatchState| state.groups.get(&self.group).map_or(0, |group| group.hints);
        let changed = state.wait_for(|state| {
            hints(state) != self.hints || state.error.is_some() != self.watch_failed
        });
        let Ok(Ok((hints, watch_failed))) = timeout(at_most, async {
            changed
                .await
                .map(|state| (hints(&state), state.error.is_some()))
        })
        .await
        else {
            return;
        };
        if hints != self.hints {
            self.attempts = ATTEMPTS;
        }
        (self.hints, self.watch_failed) = (hints, watch_failed);
    }

    /// Describes when discovery is repeated.
    pub(super) fn describe(&self) -> String {
        match &self.crd_watch.0.borrow().error {
            None => {
                "discovery is repeated when a CustomResourceDefinition of its group changes".into()
            }
            Some(error) => format!(
                "discovery is repeated at least every 30 s, because CustomResourceDefinitions \
                 cannot be watched ({error}); grant list and watch of them to notice it at once"
            ),
        }
    }
}

impl Drop for CrdWaiter<'_> {
    fn drop(&mut self) {
        self.crd_watch.0.send_modify(|state| {
            if let Some(group) = state.groups.get_mut(&self.group) {
                group.waiter -= 1;
                if group.waiter == 0 {
                    state.groups.remove(&self.group);
                }
            }
        });
    }
}

/// Sink of the CRD watch. Converts changes to hints and stores nothing.
struct HintSink<'a> {
    crd_watch: &'a CrdWatch,
    decoder: &'a Decoder,
}

/// Returns the group of a CRD, whose name is `plural.group`.
fn group(key: &ObjectKey) -> Option<&str> {
    key.name().split_once('.').map(|(_, group)| group)
}

impl Sink for HintSink<'_> {
    type Payload = MetadataOnly;

    fn decoder(&self) -> &Decoder {
        self.decoder
    }
    fn replace(&self, entries: Vec<Entry<MetadataOnly>>, _: Vec<Arc<Undecoded>>, _: u64) {
        let groups: HashSet<_> = entries
            .iter()
            .filter_map(|entry| group(&entry.key))
            .collect();
        self.crd_watch.hint(groups);
    }
    fn put(&self, entry: Entry<MetadataOnly>, _: u64) {
        self.crd_watch.hint(group(&entry.key));
    }
    fn put_undecoded(&self, _: Arc<Undecoded>, _: u64) {}
    fn delete(&self, _: &ObjectKey, _: Option<MetadataOnly>, _: u64) {}
    fn wake_handlers(&self) {}
    fn advance(&self, _: u64) {}
    fn report_undecodable(&self, what: &Undecodable) {
        self.crd_watch.hint(what.key.as_ref().and_then(group));
    }
    fn watch_opened(&self) {}
    fn succeeded(&self) {
        self.crd_watch.set_error(None);
    }
    fn failed(&self, failure: &Failure) {
        self.crd_watch.set_error(Some(failure.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    const GROUP: &str = "example.com";

    async fn paused(waiting: &mut CrdWaiter<'_>) -> Duration {
        let started = Instant::now();
        waiting.wait().await;
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_hint_causes_several_attempts() {
        let crd_watch = CrdWatch::default();
        let mut waiting = crd_watch.register(GROUP);
        crd_watch.hint(["other.example.com"]);
        assert!(
            paused(&mut waiting).await > POLL_INTERVAL / 2,
            "a hint for another group has no effect"
        );
        crd_watch.hint([GROUP]);
        assert_eq!(
            paused(&mut waiting).await,
            Duration::ZERO,
            "a hint before the pause counts"
        );
        let mut tries = Duration::ZERO;
        for _ in 0..ATTEMPTS {
            tries += paused(&mut waiting).await;
        }
        assert!((6..8).contains(&tries.as_secs()), "{tries:?}");
        assert!(paused(&mut waiting).await > POLL_INTERVAL / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_crd_watch_discovery_repeats_within_30_s() {
        let crd_watch = CrdWatch::default();
        let mut waiter = crd_watch.register(GROUP);
        assert!(!waiter.describe().contains("forbidden"));
        crd_watch.set_error(Some("forbidden".into()));
        assert_eq!(
            paused(&mut waiter).await,
            Duration::ZERO,
            "the failure wakes the waiter"
        );
        assert!(waiter.describe().contains("forbidden"));
        for _ in 0..20 {
            let pause = paused(&mut waiter).await;
            assert!((0.4..=30.1).contains(&pause.as_secs_f64()), "{pause:?}");
        }
        crd_watch.set_error(None);
        waiter.wait().await;
        assert!(paused(&mut waiter).await > POLL_INTERVAL / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn hints_are_counted_for_waiters_only() {
        let crd_watch = CrdWatch::default();
        let (one, two) = (crd_watch.register(GROUP), crd_watch.register(GROUP));
        drop(one);
        crd_watch.hint([GROUP]);
        assert_eq!(crd_watch.0.borrow().groups[GROUP].hints, 1);
        drop(two);
        assert!(crd_watch.0.borrow().groups.is_empty());
    }
}
