//! Runs one source: from being watched until no call of its handler can begin any more.
//!
//! What holds: that it is over is said last, whatever it ended by, and whoever was dropped.

use super::{
    Source, SourceContext, WatchError, WatchHandle,
    context::{End, Watching},
};
use crate::{
    cache::Cache,
    caught::caught,
    handler::{Enqueue, Target},
    workqueue::Key,
};
use std::{
    convert::Infallible,
    future::pending,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};
use tokio::{select, time::timeout};

/// How long a source may take to sync if nothing else is said.
pub(crate) const SYNC_TIMEOUT: Duration = Duration::from_mins(2);

/// How long a source that is to end may go on.
const ENDING: Duration = Duration::from_secs(1);

/// A source whose type is forgotten.
trait DynSource<R>: Send {
    fn run(self: Box<Self>, queue: Enqueue<R>, cx: SourceContext) -> Running;
}

type Running = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

impl<R: Key, S: Source<R>> DynSource<R> for S {
    fn run(self: Box<Self>, queue: Enqueue<R>, cx: SourceContext) -> Running {
        Box::pin(Source::run(*self, queue, cx))
    }
}

/// A source that is watched, and does not run yet. Dropped, it is stopped.
pub(crate) struct Prepared<R> {
    source: Box<dyn DynSource<R>>,
    over: Over,
}

/// Says that it is over, also if whoever ran it was dropped.
struct Over(Arc<Watching>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.stop.cancel();
        self.0.laters.close();
        self.0.end(End::Stopped);
    }
}

impl<R: Key> Prepared<R> {
    pub(crate) fn new(
        mut source: impl Source<R>,
        cache: Option<&Cache>,
        sync_timeout: Duration,
    ) -> Result<Self, WatchError> {
        source.bind(cache)?;
        let watching = Watching::new(source.name(), cache.cloned(), sync_timeout, source.is_optional());
        Ok(Self { source: Box::new(source), over: Over(Arc::new(watching)) })
    }

    /// As logs have it.
    pub(crate) fn of_controller(self, name: &Arc<str>) -> Self {
        drop(self.over.0.controller.set(name.clone()));
        self
    }

    pub(crate) fn handle(&self) -> WatchHandle {
        WatchHandle(self.over.0.clone())
    }

    /// Until it ends, or is stopped.
    pub(crate) async fn run(self, target: Arc<dyn Target<R>>) {
        // Over last, also if this is dropped.
        let Self { source, over } = self;
        let watching = &over.0;
        if !watching.begin() {
            return;
        }
        tracing::info!(controller = watching.controller(), source = watching.name(), "starting source");
        if let Err(error) = drive(source, watching, target).await {
            tracing::error!(
                controller = watching.controller(),
                source = watching.name(),
                error = format!("{error:#}"),
                "a source has failed, and is not tried again"
            );
            watching.end(End::Failed(Arc::new(error)));
        }
    }
}

/// When this returns, or is dropped, nothing is left of the source and of what its handlers left for later.
async fn drive<R: Key>(
    source: Box<dyn DynSource<R>>,
    watching: &Arc<Watching>,
    target: Arc<dyn Target<R>>,
) -> anyhow::Result<()> {
    let laters = &watching.laters;
    let queue = Enqueue::new(target, laters.clone(), watching.cache.clone());
    let cx = SourceContext(watching.clone());
    let mut source = pin!(async move { source.run(queue, cx).await });
    let beside = async {
        let publish = async {
            watching.until_claimed().await;
            laters.attempted().await;
            watching.publish_synced();
            tracing::debug!(controller = watching.controller(), source = watching.name(), "source synced");
            pending::<Infallible>().await
        };
        select! {
            never = publish => never,
            never = laters.run(watching.controller(), watching.name()) => never,
        }
    };
    let mut beside = pin!(beside);
    let ended = select! {
        biased;
        () = watching.stop.cancelled() => match timeout(ENDING, caught(source)).await {
            Ok(ended) => ended,
            Err(_) => return Ok(()),
        },
        never = beside.as_mut() => match never {},
        ended = caught(source.as_mut()) => ended,
    };
    ended.unwrap_or_else(|panic| Err(anyhow::anyhow!("panicked: {panic}")))?;
    // Who has returned has told all: only first attempts are waited for.
    SourceContext(watching.clone()).synced();
    select! {
        biased;
        () = watching.stop.cancelled() => {}
        never = beside => match never {},
        () = laters.finished() => watching.publish_synced(),
    }
    Ok(())
}
