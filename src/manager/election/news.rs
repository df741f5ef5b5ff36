//! The Lease as its watch tells of it, so that who waits need not ask.
//!
//! What holds: this only wakes. Whoever acts on it finds out from the server whether it was so; if the watch is forbidden or silent, asking now and
//! then does the same, only slower.

use super::{
    LeaderElection,
    lease::{Door, words},
    record::Lease,
};
use crate::client::Error;
use futures_util::{Stream, StreamExt, stream};
use kube_core::WatchEvent;
use serde_json::Value;
use std::{pin::Pin, time::Duration};
use tokio::time::sleep;

type Events = Pin<Box<dyn Stream<Item = Result<WatchEvent<Value>, kube_client::Error>> + Send>>;

/// Where the watch is.
struct Watch {
    events: Option<Events>,
    /// Before the next try, which grows while there is no success.
    pause: Duration,
}

/// The Lease whenever it has changed; `None` if it is gone. Never ends; begins again when the watch breaks.
pub(super) fn news<'a>(
    door: &'a Door,
    options: &'a LeaderElection,
    failed: impl Fn(String) + Send + Sync + 'a,
) -> impl Stream<Item = Option<Lease>> + Send + 'a {
    let least = options.retry_period / 10;
    let watch = Watch { events: None, pause: Duration::ZERO };
    stream::unfold((watch, failed), move |(mut watch, failed)| async move {
        loop {
            match watch.next(door).await {
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

impl Watch {
    async fn next(&mut self, door: &Door) -> Result<Option<Lease>, String> {
        let events = match &mut self.events {
            Some(events) => events,
            none => none.insert(Box::pin(door.watch().await.map_err(said)?)),
        };
        loop {
            match events.next().await {
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                    return Ok(Some(Lease::read(lease)));
                }
                Some(Ok(WatchEvent::Deleted(_))) => return Ok(None),
                Some(Ok(WatchEvent::Bookmark(_))) => {}
                Some(Ok(WatchEvent::Error(status))) => return Err(words(&status)),
                Some(Err(error)) => return Err(said(error.into())),
                None => return Err("the watch has ended".to_owned()),
            }
        }
    }
}

fn said(error: Error) -> String {
    error.status().map_or_else(|| error.describe(), words)
}
