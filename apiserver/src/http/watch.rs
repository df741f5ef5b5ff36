//! Watches: the changes of a table as lines of JSON, until the client disconnects.
//!
//! Selectors are evaluated before and after a change. An object that no longer matches is reported
//! as deleted, one that starts to match as added.

use super::{body::Body, object_encoder::ObjectEncoder};
use crate::{
    activity::Reader,
    catalog::{Catalog, Served},
    http::query::ListOptions,
    object::Object,
    registry::{Filter, ResourceRequest},
    status::{Failure, Result},
    store::{Change, Cursor, Expired, Next, Range},
};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::json;
use std::{sync::Arc, time::Duration, vec};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// Interval of bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);
/// Time before the end of a watch at which a last bookmark is sent.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// Longer timeouts are treated as none, because the clock cannot represent every timeout of a
/// query.
const MAX_TIMEOUT: Duration = Duration::from_hours(24 * 365 * 100);
/// Maximum number of changes that are encoded at once, which limits the memory for a slow client.
const BATCH: usize = 128;
/// Size of the encoded lines at which they are sent. A single object may exceed it.
const MAX_READY: usize = 1 << 20;

struct Watch {
    served: Arc<Served>,
    catalog: watch::Receiver<Arc<Catalog>>,
    /// Whether the CRD does not serve the version any more. The watch ends after it has sent the
    /// changes so far.
    unserved: bool,
    encoder: ObjectEncoder,
    filter: Filter,
    cursor: Cursor,
    reader: Arc<Reader>,
    /// Initial objects that were not sent yet.
    initial: Option<Initial>,
    /// Encoded lines to send.
    ready: BytesMut,
    deadline: Option<Instant>,
    next_bookmark: Option<Instant>,
    ended: bool,
}

/// Objects that existed when the watch started.
struct Initial {
    objects: vec::IntoIter<Arc<Object>>,
    /// Revision of the bookmark after the objects, if one is requested.
    bookmark: Option<u64>,
}

/// Starts a watch.
pub(crate) async fn watch(
    call: &ResourceRequest<'_>,
    served: &Arc<Served>,
    options: &ListOptions,
    encoder: ObjectEncoder,
) -> Result<Body> {
    let filter = Filter::new(served, call.namespace, options)?;
    let now = Instant::now();
    let store = &call.core.store;
    let no_table = Failure::no_resource;
    let from = options.resource_version.unwrap_or(0);
    let initial = options.send_initial_events.unwrap_or(from == 0);
    let (scan, cursor) = if initial {
        if let Err(failure) = call.core.wait_for_revision(Some(from)).await {
            return Ok(failed(&failure));
        }
        let range = Range {
            namespace: call.namespace,
            ..Range::default()
        };
        let (scan, cursor) = store
            .scan_and_watch(&served.table, range)
            .ok_or_else(no_table)?;
        (Some(scan), cursor)
    } else {
        let from = if from == 0 { store.revision() } else { from };
        match store.watch(&served.table, from).ok_or_else(no_table)? {
            Ok(cursor) => (None, cursor),
            Err(Expired { floor }) => return Ok(failed(&Failure::expired(from, floor))),
        }
    };
    let deadline = options
        .timeout
        .filter(|timeout| *timeout < MAX_TIMEOUT)
        .map(|timeout| now + timeout);
    let reader = call.core.activity.reader(cursor.table_ref());
    let initial = scan.map(|scan| Initial {
        objects: scan.objects.into_iter(),
        bookmark: (options.send_initial_events == Some(true) && options.bookmarks)
            .then_some(scan.revision),
    });
    let mut watch = Watch {
        served: served.clone(),
        catalog: call.core.catalogs(),
        unserved: false,
        encoder,
        filter,
        reader,
        initial,
        ready: BytesMut::new(),
        deadline,
        next_bookmark: None,
        ended: false,
        cursor,
    };
    if options.bookmarks {
        watch.next_bookmark = Some(watch.bookmark_after(now));
    }
    // A watch without initial objects is up to date.
    watch.encode_initial();
    if watch.ready.is_empty() && watch.initial.is_none() {
        watch.reader.record_seen(watch.cursor.seen());
    }
    let lines = stream::unfold(watch, |mut watch| async move {
        let lines = watch.next().await?;
        Some((lines, watch))
    });
    Ok(body(lines))
}

/// Returns a body that streams lines.
fn body(lines: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    Body::stream(StreamBody::new(lines.map(|lines| Ok(Frame::data(lines)))))
}

/// Returns a body with one error event. After the request was accepted, errors are part of the
/// stream.
fn failed(failure: &Failure) -> Body {
    let mut line = BytesMut::new();
    error_line(&mut line, failure);
    body(stream::iter([line.freeze()]))
}

fn error_line(out: &mut BytesMut, failure: &Failure) {
    out.put_slice(br#"{"type":"ERROR","object":"#);
    out.put_slice(&failure.to_json());
    out.put_slice(b"}\n");
}

impl Watch {
    /// Returns the next lines, `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Before changes, because there may always be more of them.
            self.check_clock();
            if !self.ready.is_empty() {
                return Some(self.ready.split().freeze());
            }
            // Also checked here, because there may always be more changes.
            if self.ended
                || self
                    .deadline
                    .is_some_and(|deadline| Instant::now() >= deadline)
            {
                return None;
            }
            if self.initial.is_some() {
                self.encode_initial();
                continue;
            }
            match self.cursor.try_next(BATCH, MAX_READY) {
                Some(Next::Changes(changes)) => {
                    for change in &changes {
                        self.encode(change);
                    }
                }
                Some(Next::Expired(Expired { floor })) => {
                    error_line(
                        &mut self.ready,
                        &Failure::expired(self.cursor.seen(), floor),
                    );
                    self.ended = true;
                }
                Some(Next::End) => self.ended = true,
                None if self.unserved => self.ended = true,
                None => {
                    self.reader.record_seen(self.cursor.seen());
                    self.wait().await;
                }
            }
        }
    }

    /// Waits for changes, the next bookmark or the deadline, or until the version is not served.
    async fn wait(&mut self) {
        let wake = self.deadline.into_iter().chain(self.next_bookmark).min();
        let Self {
            served, catalog, ..
        } = self;
        let unserved = async {
            if catalog
                .wait_for(|catalog| !catalog.serves(served))
                .await
                .is_err()
            {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = self.cursor.wait_for_changes() => {}
            () = unserved => self.unserved = true,
            () = async { match wake { Some(at) => sleep_until(at).await, None => std::future::pending().await } } => {}
        }
    }

    fn check_clock(&mut self) {
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.ended = true;
        } else if self.initial.is_none() && self.next_bookmark.is_some_and(|at| now >= at) {
            // Correct even if there are unread changes, because they come after this revision.
            if !self.cursor.is_ahead() {
                self.bookmark(self.cursor.seen(), false);
            }
            self.next_bookmark = Some(self.bookmark_after(now));
        }
    }

    fn bookmark_after(&self, now: Instant) -> Instant {
        let regular = now + BOOKMARK_INTERVAL;
        let last = self
            .deadline
            .and_then(|deadline| deadline.checked_sub(LAST_BOOKMARK))
            .filter(|last| *last > now);
        last.map_or(regular, |last| last.min(regular))
    }

    /// Encodes a batch of the initial objects, since all of them may need too much memory.
    fn encode_initial(&mut self) {
        let Some(mut initial) = self.initial.take() else {
            return;
        };
        for object in initial.objects.by_ref().take(BATCH) {
            if self.filter.matches(&self.served, &object) {
                self.line("ADDED", &object, object.revision);
            }
            if self.ready.len() >= MAX_READY {
                break;
            }
        }
        if initial.objects.len() > 0 {
            self.initial = Some(initial);
        } else if let Some(revision) = initial.bookmark {
            self.bookmark(revision, true);
        }
    }

    fn encode(&mut self, change: &Change) {
        let selected = |object: &Option<Arc<Object>>| {
            object
                .as_ref()
                .filter(|object| self.filter.matches(&self.served, object))
                .cloned()
        };
        match (selected(&change.before), selected(&change.after)) {
            (None, None) => {}
            (None, Some(object)) => self.line("ADDED", &object, change.revision),
            (Some(_), Some(object)) => self.line("MODIFIED", &object, change.revision),
            // The last state that matched, with the revision of the change.
            (Some(object), None) => self.line("DELETED", &object, change.revision),
        }
    }

    fn line(&mut self, kind: &str, object: &Object, revision: u64) {
        self.ready.put_slice(br#"{"type":""#);
        self.ready.put_slice(kind.as_bytes());
        self.ready.put_slice(br#"","object":"#);
        self.encoder
            .write(&mut self.ready, &self.served, object, revision);
        self.ready.put_slice(b"}\n");
    }

    fn bookmark(&mut self, revision: u64, initial_events_end: bool) {
        let mut meta = json!({"resourceVersion": revision.to_string()});
        if initial_events_end {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = self.encoder.bookmark(&self.served, meta);
        self.ready.put_slice(br#"{"type":"BOOKMARK","object":"#);
        self.ready.put_slice(object.to_string().as_bytes());
        self.ready.put_slice(b"}\n");
    }
}
