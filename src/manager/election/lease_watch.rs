//! Watch of the Lease, which wakes waiting candidates without polling.
//!
//! Invariant: an event is only a hint. A candidate verifies it with a conditional write. If the
//! watch is forbidden or silent, the candidate polls instead and takes over later.

use super::{
    LeaderElection,
    lease::{LeaseClient, describe_status},
    record::Lease,
};
use crate::client::Error;
use futures::{Stream, StreamExt, stream};
use kube_core::WatchEvent;
use serde_json::Value;
use std::{pin::Pin, time::Duration};
use tokio::time::sleep;

type Events = Pin<Box<dyn Stream<Item = Result<WatchEvent<Value>, kube_client::Error>> + Send>>;

/// State of the watch.
struct LeaseWatch {
    events: Option<Events>,
    /// Delay before the next attempt. It grows until an attempt succeeds.
    pause: Duration,
}

/// Returns a stream of the Lease after each change; `None` if it was deleted.
///
/// The stream never ends. It reconnects when the watch breaks.
pub(super) fn watch_lease<'a>(
    client: &'a LeaseClient,
    options: &'a LeaderElection,
    failed: impl Fn(String) + Send + Sync + 'a,
) -> impl Stream<Item = Option<Lease>> + Send + 'a {
    let least = options.retry_period / 10;
    let watch = LeaseWatch {
        events: None,
        pause: Duration::ZERO,
    };
    stream::unfold((watch, failed), move |(mut watch, failed)| async move {
        loop {
            match watch.next(client).await {
                Ok(lease) => {
                    watch.pause = least;
                    return Some((lease, (watch, failed)));
                }
                Err(error) => {
                    failed(error);
                    watch.events = None;
                    sleep(watch.pause.max(least)).await;
                    watch.pause = (watch.pause * 2).clamp(least, options.lease_duration);
                }
            }
        }
    })
}

impl LeaseWatch {
    async fn next(&mut self, client: &LeaseClient) -> Result<Option<Lease>, String> {
        let events = match &mut self.events {
            Some(events) => events,
            none => none.insert(Box::pin(client.watch().await.map_err(describe)?)),
        };
        loop {
            match events.next().await {
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                    return Ok(Some(Lease::read(lease)));
                }
                Some(Ok(WatchEvent::Deleted(_))) => return Ok(None),
                Some(Ok(WatchEvent::Bookmark(_))) => {}
                Some(Ok(WatchEvent::Error(status))) => return Err(describe_status(&status)),
                Some(Err(error)) => return Err(describe(error.into())),
                None => return Err("the API server closed the watch".to_owned()),
            }
        }
    }
}

fn describe(error: Error) -> String {
    error
        .status()
        .map_or_else(|| error.describe(), describe_status)
}
