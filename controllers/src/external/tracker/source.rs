//! Source of the events of an external kind in one version.
//!
//! When the API server does not serve the version any more, the informer reports the objects as
//! deleted. The source then waits for another version, replaces its watch by one of that version,
//! and ends.
//!
//! Owners can read an object from the API server before the informer lists the kind. If it is
//! deleted in between, no event reports it. Therefore the source enqueues the owners whenever the
//! informer becomes synced.
//!
//! Invariant: a change of a CRD after discovery is not lost, because the source subscribes to the
//! events of CRDs before it runs discovery.

use super::{ObjectTracker, Shared};
use crate::external::{
    GroupKind,
    contract::{self, CrdMetadata},
};
use kube::core::{DynamicObject, GroupVersionKind};
use std::{
    future::pending,
    sync::{Arc, Weak},
    time::Duration,
};
use steersman::{
    cache::{Events, InformerEvent, InformerState},
    client,
    handler::Enqueue,
    prelude::*,
    source::{KindWithCache, Source, SourceContext, WatchError},
    workqueue::{Add, Key, Priority},
};
use tokio::{select, time::sleep};

/// Discovery attempts after a change of a CRD, because discovery follows the CRD with a delay.
const ATTEMPTS: u32 = 5;
/// Delay before the second attempt. It doubles with each attempt: 6 s in total.
const FIRST_DELAY: Duration = Duration::from_millis(200);
/// Interval of attempts without a change of a CRD.
///
/// Needed for the kinds of aggregated API servers, which have no CRD.
const POLL_INTERVAL: Duration = Duration::from_mins(5);

pub(super) struct ExternalKind<R: Key> {
    source: KindWithCache<DynamicObject, R>,
    kind: GroupVersionKind,
    /// Weak, because the controller that runs the source is part of the tracker.
    tracker: Weak<Shared<R>>,
}

impl<R: Key> ExternalKind<R> {
    pub(super) fn new(
        tracker: &ObjectTracker<R>,
        kind: &GroupVersionKind,
        source: KindWithCache<DynamicObject, R>,
    ) -> Self {
        Self {
            source,
            kind: kind.clone(),
            tracker: Arc::downgrade(&tracker.0),
        }
    }
}

impl<R: Key> Source<R> for ExternalKind<R> {
    fn name(&self) -> String {
        self.source.name()
    }

    fn bind(&mut self, cache: Option<&Cache>) -> Result<(), WatchError> {
        self.source.bind(cache)
    }

    fn is_optional(&self) -> bool {
        self.source.is_optional()
    }

    async fn run(self, queue: Enqueue<R>, cx: SourceContext) -> anyhow::Result<()> {
        let Self {
            source,
            kind,
            tracker,
        } = self;
        let owners = queue.clone();
        select! {
            ended = source.run(queue, cx) => ended,
            replaced = replaced(&kind, &tracker) => replaced,
            failed = enqueue_owners(&kind, &tracker, &owners) => failed,
        }
    }
}

/// Enqueues the owners that refer to the kind whenever its informer becomes synced.
async fn enqueue_owners<R: Key>(
    kind: &GroupVersionKind,
    tracker: &Weak<Shared<R>>,
    queue: &Enqueue<R>,
) -> anyhow::Result<()> {
    let Some(informer) = informer(kind, tracker)? else {
        return pending().await;
    };
    loop {
        informer
            .wait_for(|state| *state == InformerState::Synced)
            .await;
        let owners = tracker.upgrade().map(|shared| shared.owners(kind));
        for owner in owners.into_iter().flatten() {
            let priority = Some(Priority::LOW);
            queue.add_with(
                owner,
                Add {
                    priority,
                    ..Add::default()
                },
            );
        }
        informer
            .wait_for(|state| *state != InformerState::Synced)
            .await;
    }
}

/// Returns the informer of a kind; `None` if the tracker was dropped.
fn informer<R: Key>(
    kind: &GroupVersionKind,
    tracker: &Weak<Shared<R>>,
) -> anyhow::Result<Option<Informer<DynamicObject>>> {
    let Some(shared) = tracker.upgrade() else {
        return Ok(None);
    };
    let select = Select::dynamic(kind.clone()).optional();
    Ok(Some(shared.parts.cache.informer_of(select)?))
}

/// Waits until another version is served instead of the watched one, and replaces the watch.
async fn replaced<R: Key>(
    kind: &GroupVersionKind,
    tracker: &Weak<Shared<R>>,
) -> anyhow::Result<()> {
    let Some(versions) = Versions::of(kind, tracker)? else {
        return pending().await;
    };
    let version = versions.await_another().await;
    let Some(shared) = tracker.upgrade() else {
        return pending().await;
    };
    ObjectTracker(shared).replace(kind, &version)?;
    Ok(())
}

/// Observes which versions of a kind are served.
struct Versions<'a> {
    kind: &'a GroupVersionKind,
    resolver: Client,
    span: tracing::Span,
    informer: Informer<DynamicObject>,
    crds: Informer<CrdMetadata>,
}

impl<'a> Versions<'a> {
    /// Returns `None` if the tracker was dropped.
    fn of<R: Key>(
        kind: &'a GroupVersionKind,
        tracker: &Weak<Shared<R>>,
    ) -> anyhow::Result<Option<Self>> {
        let (Some(informer), Some(shared)) = (informer(kind, tracker)?, tracker.upgrade()) else {
            return Ok(None);
        };
        Ok(Some(Self {
            kind,
            resolver: shared.parts.resolver.clone(),
            span: shared.parts.span.clone(),
            informer,
            crds: shared.crds.clone(),
        }))
    }

    /// Waits until another version is served instead of the watched one. Returns that version.
    async fn await_another(&self) -> String {
        let is_missing =
            |state: &InformerState| matches!(state, InformerState::KindNotFound { .. });
        loop {
            self.informer.wait_for(is_missing).await;
            select! {
                version = self.discover_another() => return version,
                _ = self.informer.wait_for(|state| !is_missing(state)) => {}
            }
        }
    }

    /// Repeats discovery until another version is served. Returns that version.
    async fn discover_another(&self) -> String {
        let mut changes = self.crds.events();
        let mut attempts = 0;
        loop {
            match self.choose().await {
                Ok(Some(version)) => return version,
                Ok(None) => {}
                Err(error) => self.span.in_scope(|| {
                    let error = format!("{:#}", anyhow::Error::new(error));
                    let kind = &*self.kind.kind;
                    tracing::warn!(kind, error, "discovery of external kind failed, retrying");
                }),
            }
            let pause = if attempts < ATTEMPTS {
                FIRST_DELAY * (1 << attempts)
            } else {
                POLL_INTERVAL
            };
            select! {
                () = sleep(pause) => attempts += 1,
                () = next_change(&mut changes, &self.kind.group) => attempts = 0,
            }
        }
    }

    /// Returns the version to watch instead; `None` if the watched one is served, or none is.
    async fn choose(&self) -> client::Result<Option<String>> {
        let kind = GroupKind::from(self.kind);
        let served = self.resolver.discover_kind(&kind.group, &kind.kind).await?;
        let mut served: Vec<_> = served
            .into_iter()
            .map(|found| found.resource.version)
            .collect();
        if served.is_empty() || served.contains(&self.kind.version) {
            return Ok(None);
        }
        // Reads the CRD live, because the cache may not have the labels of the new versions yet.
        let live = self.resolver.live();
        let metadata = contract::crd_metadata(&live, &kind).await.ok();
        let of_contract = metadata.and_then(|metadata| {
            let metadata = &metadata.metadata;
            contract::latest_contract_and_api_version(metadata, contract::VERSION).ok()
        });
        let of_contract = of_contract
            .map(|latest| latest.version)
            .filter(|version| served.contains(version));
        Ok(Some(of_contract.unwrap_or_else(|| served.swap_remove(0))))
    }
}

/// Waits for a change of a CRD of this group.
///
/// The initial CRDs together count as one change, because they arrive at once.
async fn next_change(events: &mut Events<CrdMetadata>, group: &str) {
    loop {
        match events.next().await {
            Some(InformerEvent::Synced) => return,
            Some(InformerEvent::Event(Event::Create { initial: true, .. })) => {}
            Some(InformerEvent::Event(event)) => {
                let name = event.object().key().name();
                let of_group = name.split_once('.').map(|(_, group)| group);
                if of_group == Some(group) {
                    return;
                }
            }
            None => pending().await,
        }
    }
}
