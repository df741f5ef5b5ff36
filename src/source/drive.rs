//! Runs one source: from being watched until no call of its handler can begin any more.

use super::{
    Source, SourceContext, WatchError, WatchHandle,
    context::{End, Watching},
};
use crate::{
    cache::Cache,
    handler::{Enqueue, Laters, Target},
    workqueue::Key,
};
use std::{pin::Pin, pin::pin, sync::Arc, time::Duration};
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

    pub(crate) fn handle(&self) -> WatchHandle {
        WatchHandle(self.over.0.clone())
    }

    /// Until it ends, or is stopped.
    pub(crate) async fn run(self, target: Arc<dyn Target<R>>) {
        let Self { source, over } = self;
        let watching = over.0.clone();
        if !watching.begin() {
            return;
        }
        let laters = Laters::default();
        let cx = SourceContext(watching.clone());
        let queue = Enqueue::new(target, laters.clone(), watching.cache.clone());
        let run = source.run(queue, cx);
        let _ = (ENDING, run);
        unreachable!("written next")
    }
}
