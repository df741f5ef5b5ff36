//! When to ask again for a kind that the server does not have.
//!
//! Most kinds come with a `CustomResourceDefinition`, so that those are watched, by one watch for the whole cache and only while somebody waits. Any change of
//! a definition of the same group is a hint: what is in it does not matter, and only its metadata is sent. A hint is worth several tries, since a
//! definition is served a moment after it says so.
//!
//! What holds: who waits asks once more after it has begun to, so that no hint is missed. Where definitions cannot be watched the server is asked at a
//! pace; where they can, once in a long while all the same, since there are kinds that come without a definition: those of other servers, behind this one.

use super::{
    life::first,
    reflect::{Failure, Pace, Place, Reflector, Sink},
    store::Entry,
};
use crate::{
    client::Link,
    object::{Decoder, MetadataOnly, ObjectKey, Undecodable, Undecoded},
};
use hashbrown::{HashMap, HashSet};
use kube_core::TypeMeta;
use rand::RngExt;
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PAGE_SIZE: u32 = 500;
/// Tries after a hint: the first at once, the others after this, and twice as long each time; six seconds in all.
const TRIES: u32 = 6;
const FIRST_TRY: Duration = Duration::from_millis(100);
/// How often a kind is looked for that no definition has been seen for.
const SELDOM: Duration = Duration::from_mins(5);

/// Who waits for which kinds, and what has been heard of them.
#[derive(Default)]
pub(super) struct Arrivals(watch::Sender<Heard>);

#[derive(Default)]
struct Heard {
    groups: HashMap<String, Group>,
    /// Why definitions cannot be watched.
    blind: Option<String>,
}

#[derive(Default)]
struct Group {
    waiting: usize,
    hints: u64,
}

impl Arrivals {
    /// Somebody waits for a kind of this group.
    pub(super) fn wait_for(&self, group: &str) -> Waiting<'_> {
        let mut hints = 0;
        self.0.send_modify(|heard| {
            let group = heard.groups.entry_ref(group).or_default();
            group.waiting += 1;
            hints = group.hints;
        });
        Waiting { arrivals: self, group: group.to_owned(), hints, blind: false, tries: 0, pace: Pace::default() }
    }

    /// Watch definitions whenever somebody waits.
    pub(super) async fn run(&self, client: &Link) -> Infallible {
        let (mut begun, mut over) = (self.0.subscribe(), self.0.subscribe());
        // The sender is here, so that it cannot be gone.
        loop {
            let _ = begun.wait_for(|heard| !heard.groups.is_empty()).await;
            let nobody = async { drop(over.wait_for(|heard| heard.groups.is_empty()).await) };
            first(nobody, self.watch(client)).await;
            self.set_blind(None);
        }
    }

    async fn watch(&self, client: &Link) -> Infallible {
        let types = TypeMeta { api_version: "apiextensions.k8s.io/v1".into(), kind: "CustomResourceDefinition".into() };
        let decoder = Decoder::new(types);
        let mut pace = Pace::default();
        loop {
            let place = Place { path: PATH.into(), labels: None, fields: None, metadata_only: true, doubts: None };
            let ear = Ear { arrivals: self, decoder: &decoder };
            let refused = Reflector::new(client.clone(), place, ear, PAGE_SIZE).run().await;
            self.set_blind(Some(refused.to_string()));
            sleep(pace.failed(None)).await;
        }
    }

    fn hint<'a>(&self, groups: impl IntoIterator<Item = &'a str>) {
        self.0.send_if_modified(|heard| {
            let mut known = false;
            for group in groups {
                if let Some(group) = heard.groups.get_mut(group) {
                    group.hints += 1;
                    known = true;
                }
            }
            known
        });
    }

    fn set_blind(&self, why: Option<String>) {
        self.0.send_if_modified(|heard| {
            let turned = heard.blind.is_some() != why.is_some();
            heard.blind = why;
            turned
        });
    }
}

/// Somebody who waits for a kind, until it is dropped.
pub(super) struct Waiting<'a> {
    arrivals: &'a Arrivals,
    group: String,
    /// Those that were acted upon.
    hints: u64,
    blind: bool,
    /// That are left of the last hint.
    tries: u32,
    pace: Pace,
}

impl Waiting<'_> {
    /// The server does not have it: until it is worth asking again.
    pub(super) async fn pause(&mut self) {
        let at_most = if self.tries > 0 {
            self.tries -= 1;
            FIRST_TRY * (1 << (TRIES - 1 - self.tries))
        } else if self.blind {
            // From half a second up to half a minute.
            self.pace.failed(None) / 2
        } else {
            SELDOM.mul_f64(rand::rng().random_range(0.9..1.1))
        };
        let mut heard = self.arrivals.0.subscribe();
        let hints = |heard: &Heard| heard.groups.get(&self.group).map_or(0, |group| group.hints);
        let news = heard.wait_for(|heard| hints(heard) != self.hints || heard.blind.is_some() != self.blind);
        let Ok(Ok((hints, blind))) =
            timeout(at_most, async { news.await.map(|heard| (hints(&heard), heard.blind.is_some())) }).await
        else {
            return;
        };
        if hints != self.hints {
            self.tries = TRIES;
        }
        (self.hints, self.blind) = (hints, blind);
    }

    /// What it waits for, in words.
    pub(super) fn how(&self) -> String {
        match &self.arrivals.0.borrow().blind {
            None => "it is looked for when a CustomResourceDefinition of its group changes".into(),
            Some(why) => format!(
                "it is looked for at least every 30 s, because CustomResourceDefinitions cannot be watched ({why}): \
                 allow to list and watch them to have it at once"
            ),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.arrivals.0.send_modify(|heard| {
            if let Some(group) = heard.groups.get_mut(&self.group) {
                group.waiting -= 1;
                if group.waiting == 0 {
                    heard.groups.remove(&self.group);
                }
            }
        });
    }
}

/// Hears of definitions, and keeps nothing of them.
struct Ear<'a> {
    arrivals: &'a Arrivals,
    decoder: &'a Decoder,
}

/// A definition's name is `plural.group`.
fn group(key: &ObjectKey) -> Option<&str> {
    key.name().split_once('.').map(|(_, group)| group)
}

impl Sink for Ear<'_> {
    type Payload = MetadataOnly;

    fn decoder(&self) -> &Decoder {
        self.decoder
    }
    fn all(&self, entries: Vec<Entry<MetadataOnly>>, _: Vec<Arc<Undecoded>>, _: u64) {
        let groups: HashSet<_> = entries.iter().filter_map(|entry| group(&entry.key)).collect();
        self.arrivals.hint(groups);
    }
    fn put(&self, entry: Entry<MetadataOnly>, _: u64) {
        self.arrivals.hint(group(&entry.key));
    }
    fn put_undecoded(&self, _: Arc<Undecoded>, _: u64) {}
    fn deleted(&self, _: &ObjectKey, _: Option<MetadataOnly>, _: u64) {}
    fn tell(&self) {}
    fn nothing_up_to(&self, _: u64) {}
    fn undecodable(&self, what: &Undecodable) {
        self.arrivals.hint(what.key.as_ref().and_then(group));
    }
    fn watching(&self) {}
    fn well(&self) {
        self.arrivals.set_blind(None);
    }
    fn failed(&self, failure: &Failure) {
        self.arrivals.set_blind(Some(failure.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    const GROUP: &str = "example.com";

    async fn paused(waiting: &mut Waiting<'_>) -> Duration {
        let begun = Instant::now();
        waiting.pause().await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_hint_of_its_group_is_worth_some_quick_tries_and_no_more() {
        let arrivals = Arrivals::default();
        let mut waiting = arrivals.wait_for(GROUP);
        arrivals.hint(["other.example.com"]);
        assert!(paused(&mut waiting).await > SELDOM / 2, "that was not for it");
        arrivals.hint([GROUP]);
        assert_eq!(paused(&mut waiting).await, Duration::ZERO, "a hint before the pause counts");
        let mut tries = Duration::ZERO;
        for _ in 0..TRIES {
            tries += paused(&mut waiting).await;
        }
        assert!((6..8).contains(&tries.as_secs()), "{tries:?}");
        assert!(paused(&mut waiting).await > SELDOM / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn who_cannot_hear_asks_at_a_pace_of_half_a_minute_at_most() {
        let arrivals = Arrivals::default();
        let mut waiting = arrivals.wait_for(GROUP);
        assert!(!waiting.how().contains("forbidden"));
        arrivals.set_blind(Some("forbidden".into()));
        assert_eq!(paused(&mut waiting).await, Duration::ZERO, "it is told");
        assert!(waiting.how().contains("forbidden"));
        for _ in 0..20 {
            let pause = paused(&mut waiting).await;
            assert!((0.4..=30.1).contains(&pause.as_secs_f64()), "{pause:?}");
        }
        arrivals.set_blind(None);
        waiting.pause().await;
        assert!(paused(&mut waiting).await > SELDOM / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn hints_are_counted_for_those_who_wait_only() {
        let arrivals = Arrivals::default();
        let (one, two) = (arrivals.wait_for(GROUP), arrivals.wait_for(GROUP));
        drop(one);
        arrivals.hint([GROUP]);
        assert_eq!(arrivals.0.borrow().groups[GROUP].hints, 1);
        drop(two);
        assert!(arrivals.0.borrow().groups.is_empty());
    }
}
