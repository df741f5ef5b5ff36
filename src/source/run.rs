//! Runs one source, from the start of the watch until its last handler call.
//!
//! Invariant: the end of the watch is reported last, also if the future is dropped.

use super::{
    Source, SourceContext, WatchError, WatchHandle,
    context::{WatchEnd, WatchInner},
};
use crate::{
    cache::Cache,
    handler::{Enqueue, Target},
    panic_message::panic_message,
    workqueue::Key,
};
use futures::FutureExt;
use std::{
    convert::Infallible,
    future::pending,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};
use tokio::{select, time::timeout};

/// Default sync timeout of a source.
pub(crate) const SYNC_TIMEOUT: Duration = Duration::from_mins(2);

/// Time that a stopped source has to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Object-safe variant of [`Source`].
trait DynSource<R>: Send {
    fn run(self: Box<Self>, queue: Enqueue<R>, cx: SourceContext) -> RunFuture;
}

type RunFuture = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

impl<R: Key, S: Source<R>> DynSource<R> for S {
    fn run(self: Box<Self>, queue: Enqueue<R>, cx: SourceContext) -> RunFuture {
        Box::pin(Source::run(*self, queue, cx))
    }
}

/// Source that is watched and does not run yet. Dropping it stops the watch.
pub(crate) struct Prepared<R> {
    source: Box<dyn DynSource<R>>,
    end_guard: EndGuard,
}

/// Reports the end of the watch when dropped.
struct EndGuard(Arc<WatchInner>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.stop.cancel();
        self.0.retrier.close();
        self.0.end(WatchEnd::Stopped);
    }
}

impl<R: Key> Prepared<R> {
    pub(crate) fn new(
        mut source: impl Source<R>,
        cache: Option<&Cache>,
        sync_timeout: Duration,
    ) -> Result<Self, WatchError> {
        source.bind(cache)?;
        let watch = WatchInner::new(
            source.name(),
            cache.cloned(),
            sync_timeout,
            source.is_optional(),
        );
        Ok(Self {
            source: Box::new(source),
            end_guard: EndGuard(Arc::new(watch)),
        })
    }

    /// Sets the name of the controller, for logs.
    pub(crate) fn with_controller_name(self, name: &Arc<str>) -> Self {
        drop(self.end_guard.0.controller.set(name.clone()));
        self
    }

    pub(crate) fn handle(&self) -> WatchHandle {
        WatchHandle(self.end_guard.0.clone())
    }

    /// Runs the source until it ends or is stopped.
    pub(crate) async fn run(self, target: Arc<dyn Target<R>>) {
        // `end_guard` is dropped last.
        let Self { source, end_guard } = self;
        let watch = &end_guard.0;
        if !watch.start() {
            return;
        }
        tracing::info!(
            controller = watch.controller(),
            source = watch.name(),
            "starting source"
        );
        if let Err(error) = run_with_mappings(source, watch, target).await {
            tracing::error!(
                controller = watch.controller(),
                source = watch.name(),
                error = format!("{error:#}"),
                "source failed, not retrying"
            );
            watch.end(WatchEnd::Failed(Arc::new(error)));
        }
    }
}

/// Runs the source and its asynchronous mappings.
///
/// When this returns or is dropped, nothing of them is left.
async fn run_with_mappings<R: Key>(
    source: Box<dyn DynSource<R>>,
    watch: &Arc<WatchInner>,
    target: Arc<dyn Target<R>>,
) -> anyhow::Result<()> {
    let retrier = &watch.retrier;
    let queue = Enqueue::new(target, retrier.clone(), watch.cache.clone());
    let cx = SourceContext(watch.clone());
    // Calls `run` inside the future, to catch its panics as well.
    let source = AssertUnwindSafe(async move { source.run(queue, cx).await });
    let mut source = pin!(source.catch_unwind());
    let background = async {
        let publish = async {
            watch.wait_reported_synced().await;
            retrier.first_attempts().await;
            watch.publish_synced();
            tracing::debug!(
                controller = watch.controller(),
                source = watch.name(),
                "source synced"
            );
            pending::<Infallible>().await
        };
        select! {
            never = publish => never,
            never = retrier.run(watch.controller(), watch.name()) => never,
        }
    };
    let mut background = pin!(background);
    let ended = select! {
        biased;
        () = watch.stop.cancelled() => match timeout(STOP_TIMEOUT, source).await {
            Ok(ended) => ended,
            Err(_) => return Ok(()),
        },
        never = background.as_mut() => match never {},
        ended = source.as_mut() => ended,
    };
    ended.unwrap_or_else(|panic| Err(anyhow::anyhow!("panicked: {}", panic_message(&*panic))))?;
    // A source that returned has delivered all events, so only first attempts are awaited.
    SourceContext(watch.clone()).synced();
    select! {
        biased;
        () = watch.stop.cancelled() => {}
        never = background => match never {},
        () = retrier.drained() => watch.publish_synced(),
    }
    Ok(())
}
