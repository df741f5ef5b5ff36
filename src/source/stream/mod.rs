//! Source of a stream of kube-runtime.
//!
//! Use it for a watcher or reflector of kube-rs that exists already, and [`Kind`](super::Kind) for
//! everything else: [`stream`] lists what it does not offer.
//!
//! `item.rs` holds the types of streams, `tracker.rs` the known objects.

mod item;
mod tracker;

use self::{item::Change, tracker::Tracker};
use super::{
    SelfContained, Source, SourceContext,
    deliver::{Delivery, Pipeline},
};
use crate::{
    event::Event,
    handler::{Enqueue, Handler},
    object::KubeObject,
    predicate::Predicate,
    workqueue::Key,
};
use anyhow::{anyhow, bail, ensure};
use futures::{Stream, StreamExt, stream::BoxStream};
use kube_runtime::{
    utils::Backoff,
    watcher::{self, DefaultBackoff},
};
use std::fmt;
use tokio::{select, time::sleep};

pub use self::item::StreamItem;

/// Items of a stream, or the texts of its errors.
type Changes<K> = BoxStream<'static, Result<Change<K>, String>>;

/// Creates a source from a stream of kube-runtime.
///
/// The items of the stream are one of these:
///
/// | items | stream | events | a controller's start waits |
/// |---|---|---|---|
/// | `Result<watcher::Event<K>, _>`, `watcher::Event<K>` | `watcher`, `reflector` | create, update, delete | until the first `InitDone` was handled |
/// | `Result<K, _>`, `Arc<K>` | `touched_objects`, `applied_objects`, subscriptions of a shared store | [generic](Event::Generic), because an object does not tell what happened to it | no |
///
/// `InitApply` of an unchanged object is not an event. An object that is missing after `InitDone`
/// is a delete event with `state_unknown`.
///
/// # When to use `Kind` instead
///
/// Use a stream for a watcher or reflector that you already have: one with a configuration that
/// [`Select`](crate::cache::Select) does not offer, one that other code uses as well, or one of a
/// controller that is ported from kube-rs step by step. Use [`Kind`](super::Kind) for everything
/// else:
///
/// * Controllers share the informers of `Kind`, and cached reads of the
///   [`Client`](crate::client::Client) return their objects. A stream has a watch of its own and
///   does not fill the cache.
/// * Informers observe own writes, so that a controller defers a request until the cache has caught
///   up. A stream does not.
/// * The events of `Kind` have the whole old object. Those of a stream have its metadata, unless
///   the source [keeps objects](StreamSource::keep_objects).
/// * An informer reports when a broken watch is established again. A watcher of kube-runtime
///   reports the error only, so the source stays degraded until the next event.
///
/// # Errors of the stream
///
/// After an error the source is [degraded](super::WatchState::Degraded) and polls the stream again
/// after 0.8 to 30 s, with kube-runtime's `DefaultBackoff`. The stream needs no backoff of its own.
///
/// A stream that ends after an error, or before the first `InitDone`, fails the source. Otherwise
/// the source stops.
///
/// # Example
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> anyhow::Result<()> {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube_client::{Api, api::PostParams};
/// use kube_runtime::{WatchStreamExt, reflector, watcher};
/// use steersman::{prelude::*, testing::{Env, TestServer}};
///
/// let client = Env::embedded()?.client()?; // or any other
/// let api = Api::<ConfigMap>::default_namespaced(client);
/// let colors = serde_json::from_value(serde_json::json!({"metadata": {"name": "colors"}}))?;
/// api.create(&PostParams::default(), &colors).await?;
///
/// let (store, writer) = reflector::store();
/// let config_maps = watcher(api, watcher::Config::default()).reflect(writer);
/// let queue = WorkQueue::default();
/// let watch = source::stream(config_maps, handler::object()).start(&queue)?; // or `watches_source`
/// watch.await_synced().await?;
/// assert_eq!(queue.get().await.unwrap().name(), "colors");
/// assert_eq!(store.len(), 1);
/// # Ok(())
/// # }
/// ```
pub fn stream<K, R, S>(stream: S, handler: impl Handler<K, R>) -> StreamSource<K, R>
where
    K: KubeObject,
    R: Key,
    S: Stream<Item: StreamItem<K>> + Send + 'static,
{
    StreamSource {
        stream: stream.map(StreamItem::into_change).boxed(),
        reports_lists: S::Item::REPORTS_LISTS,
        pipeline: Pipeline::new(handler),
        keep_objects: false,
        optional: false,
    }
}

/// Source of a stream of kube-runtime, created by [`stream`].
#[must_use = "let a controller watch it, or start it"]
pub struct StreamSource<K, R> {
    stream: Changes<K>,
    /// Whether the stream reports the end of the first list.
    reports_lists: bool,
    pipeline: Pipeline<K, R>,
    keep_objects: bool,
    optional: bool,
}

impl<K: KubeObject, R: Key> StreamSource<K, R> {
    /// Adds a predicate. The first predicate that rejects an event drops it.
    pub fn filter(mut self, predicate: impl Predicate<K>) -> Self {
        self.pipeline.predicates.push(Box::new(predicate));
        self
    }

    /// Keeps the last state of each object in memory.
    ///
    /// Use it for predicates and handlers that decode the old object of an update, or an object
    /// whose deletion was missed. Without it, decoding them fails with
    /// [`DecodeError::BodyDropped`](crate::object::DecodeError::BodyDropped). Default: only
    /// metadata without `managedFields` is kept.
    pub fn keep_objects(self) -> Self {
        Self {
            keep_objects: true,
            ..self
        }
    }

    /// Lets a controller start without this source.
    ///
    /// The start waits until the first `InitDone` was handled or the stream fails, and for at most
    /// the sync timeout. Default: a stream that is not synced in time fails the start.
    pub fn optional(self) -> Self {
        Self {
            optional: true,
            ..self
        }
    }
}

impl<K, R> SelfContained for StreamSource<K, R> {}

impl<K: KubeObject, R: Key> Source<R> for StreamSource<K, R> {
    fn name(&self) -> String {
        kind::<K>().map_or_else(
            || "stream source".to_owned(),
            |kind| format!("stream source: {kind}"),
        )
    }

    fn is_optional(&self) -> bool {
        self.optional
    }

    async fn run(self, queue: Enqueue<R>, cx: SourceContext) -> anyhow::Result<()> {
        let kind = kind::<K>().unwrap_or_else(|| "stream".to_owned());
        let mut running = Running {
            delivery: self.pipeline.connect(&kind, queue, cx.clone()),
            tracker: Tracker::new(self.keep_objects),
            synced: !self.reports_lists,
            last_error: None,
            backoff: DefaultBackoff::default(),
            cx,
        };
        if running.synced {
            running.cx.synced();
        }
        running.forward(self.stream).await
    }
}

impl<K, R> fmt::Debug for StreamSource<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSource")
            .field("keep_objects", &self.keep_objects)
            .field("optional", &self.optional)
            .finish_non_exhaustive()
    }
}

/// Returns the kind, if it is known at compile time.
fn kind<K: KubeObject>() -> Option<String> {
    K::static_resource().map(|(resource, _)| resource.kind)
}

/// Source that forwards the events of its stream.
struct Running<K, R> {
    delivery: Delivery<K, R>,
    tracker: Tracker<K>,
    synced: bool,
    /// Error after which the stream has not delivered an object or the end of a list.
    last_error: Option<String>,
    backoff: DefaultBackoff,
    cx: SourceContext,
}

impl<K: KubeObject, R: Key> Running<K, R> {
    async fn forward(&mut self, mut stream: Changes<K>) -> anyhow::Result<()> {
        while self.delivery.wait_for_capacity().await {
            let change = select! {
                biased;
                change = stream.next() => change,
                () = self.cx.stopped() => break,
            };
            match change {
                Some(Ok(change)) => self.handle(change).await,
                Some(Err(error)) => self.back_off(error).await,
                None => return self.end(),
            }
        }
        Ok(())
    }

    async fn handle(&mut self, change: Change<K>) {
        // A watcher reports `Init` before it sends a request, so it is not a recovery.
        if self.last_error.is_some() && !matches!(change, Change::Watcher(watcher::Event::Init)) {
            self.last_error = None;
            self.backoff.reset();
            self.cx.recovered();
        }
        match change {
            Change::Touched(object) => self.delivery.deliver(&Event::generic(object)),
            Change::Watcher(watcher::Event::Init) => self.tracker.begin_list(),
            Change::Watcher(watcher::Event::InitDone) => self.end_list().await,
            Change::Watcher(watcher::Event::InitApply(object)) => {
                if let Some(event) = self.tracker.list(object, !self.synced) {
                    self.delivery.deliver(&event);
                }
            }
            Change::Watcher(watcher::Event::Apply(object)) => {
                self.delivery.deliver(&self.tracker.apply(object));
            }
            Change::Watcher(watcher::Event::Delete(object)) => {
                self.delivery.deliver(&self.tracker.delete(object));
            }
        }
    }

    async fn end_list(&mut self) {
        for missing in self.tracker.end_list() {
            if !self.delivery.wait_for_capacity().await {
                return;
            }
            self.delivery.deliver(&missing);
        }
        self.synced = true;
        self.cx.synced();
    }

    /// Reports an error, and waits before the stream is polled again.
    async fn back_off(&mut self, error: String) {
        let (controller, source) = (self.cx.controller(), self.cx.name());
        if self.last_error.is_none() {
            tracing::warn!(controller, source, error, "watch stream failed, retrying");
        } else {
            tracing::debug!(
                controller,
                source,
                error,
                "watch stream failed again, retrying"
            );
        }
        self.cx.degraded(anyhow!("{error}"));
        self.last_error = Some(error);
        let delay = self.backoff.next().unwrap_or_default();
        select! {
            () = sleep(delay) => {}
            () = self.cx.stopped() => {}
        }
    }

    fn end(&self) -> anyhow::Result<()> {
        if let Some(error) = &self.last_error {
            bail!("stream ended after an error: {error}");
        }
        ensure!(
            self.synced,
            "stream ended before its first list was complete"
        );
        let (controller, source) = (self.cx.controller(), self.cx.name());
        tracing::info!(controller, source, "stream ended, source stopped");
        Ok(())
    }
}
