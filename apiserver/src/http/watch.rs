//! A watch: a table's changes as lines of JSON, from a revision on, for as long as the client stays.
//!
//! Selectors are asked of the state before a change and the one after it: an object that leaves the selection is deleted for this
//! watcher, one that enters is added.

use super::{body::Body, show::Show};
use crate::{
    activity::Reader,
    catalog::Served,
    http::query::ListOptions,
    object::Object,
    registry::{Call, Filter},
    status::{Failure, Result},
    store::{Change, Cursor, Expired, Next, Range},
};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::json;
use std::{sync::Arc, time::Duration, vec};
use tokio::time::{Instant, sleep_until};

/// Bookmarks come this often, and once more shortly before the end.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// A deadline this far away is none: no client is there for it, and the clock cannot count as far as a query can.
const NEVER: Duration = Duration::from_hours(24 * 365 * 100);
/// Changes looked at at once: enough to be fast, few enough for a slow client's memory.
const BATCH: usize = 128;
/// Size of the lines from which on no more are added before they are sent. One object may exceed it.
const MAX_READY: usize = 1 << 20;

struct Watch {
    served: Arc<Served>,
    show: Show,
    filter: Filter,
    cursor: Cursor,
    reader: Arc<Reader>,
    /// What the watch begins with, as far as it was not told yet.
    initial: Option<Initial>,
    /// Lines that are ready to go.
    ready: BytesMut,
    deadline: Option<Instant>,
    next_bookmark: Option<Instant>,
    ended: bool,
}

/// The objects that were there when a watch began.
struct Initial {
    objects: vec::IntoIter<Arc<Object>>,
    /// The revision of the bookmark that says that these were all, if one is wanted.
    bookmark: Option<u64>,
}

/// Start a watch.
pub(crate) async fn watch(call: &Call<'_>, served: &Arc<Served>, options: &ListOptions, show: Show) -> Result<Body> {
    let filter = Filter::new(served, call.namespace, options)?;
    let now = Instant::now();
    let store = &call.core.store;
    let gone = Failure::no_resource;
    let from = options.resource_version.unwrap_or(0);
    let initial = options.send_initial_events.unwrap_or(from == 0);
    let (scan, cursor) = if initial {
        if let Err(failure) = call.core.reach(Some(from)).await {
            return Ok(failed(&failure));
        }
        let range = Range { namespace: call.namespace, ..Range::default() };
        let (scan, cursor) = store.scan_and_watch(&served.table, range).ok_or_else(gone)?;
        (Some(scan), cursor)
    } else {
        let from = if from == 0 { store.revision() } else { from };
        match store.watch(&served.table, from).ok_or_else(gone)? {
            Ok(cursor) => (None, cursor),
            Err(Expired { floor }) => return Ok(failed(&Failure::expired(from, floor))),
        }
    };
    let deadline = options.timeout.filter(|timeout| *timeout < NEVER).map(|timeout| now + timeout);
    let reader = call.core.activity.reader(cursor.tail());
    let initial = scan.map(|scan| Initial {
        objects: scan.objects.into_iter(),
        bookmark: (options.send_initial_events == Some(true) && options.bookmarks).then_some(scan.revision),
    });
    let mut watch = Watch {
        served: served.clone(),
        show,
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
    // A watch that begins with nothing has told it.
    watch.tell_initial();
    if watch.ready.is_empty() && watch.initial.is_none() {
        watch.reader.has_seen(watch.cursor.seen());
    }
    let lines = stream::unfold(watch, |mut watch| async move {
        let lines = watch.next().await?;
        Some((lines, watch))
    });
    Ok(body(lines))
}

/// A stream of lines as a body.
fn body(lines: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    Body::stream(StreamBody::new(lines.map(|lines| Ok(Frame::data(lines)))))
}

/// What goes wrong after the request was understood is told inside the stream.
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
    /// The next lines; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Before changes are: they may never pause.
            self.look_at_clock();
            if !self.ready.is_empty() {
                return Some(self.ready.split().freeze());
            }
            // Not only when there is nothing to tell: there may always be something.
            if self.ended || self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return None;
            }
            if self.initial.is_some() {
                self.tell_initial();
                continue;
            }
            match self.cursor.try_next(BATCH, MAX_READY) {
                Some(Next::Changes(changes)) => changes.iter().for_each(|change| self.tell(change)),
                Some(Next::Expired(Expired { floor })) => {
                    error_line(&mut self.ready, &Failure::expired(self.cursor.seen(), floor));
                    self.ended = true;
                }
                Some(Next::End) => self.ended = true,
                None => {
                    self.reader.has_seen(self.cursor.seen());
                    self.wait().await;
                }
            }
        }
    }

    /// Wait for changes, the time of a bookmark, or the end.
    async fn wait(&mut self) {
        let wake = self.deadline.into_iter().chain(self.next_bookmark).min();
        tokio::select! {
            biased;
            () = self.cursor.grown() => {}
            () = async { match wake { Some(at) => sleep_until(at).await, None => std::future::pending().await } } => {}
        }
    }

    fn look_at_clock(&mut self) {
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.ended = true;
        } else if self.initial.is_none() && self.next_bookmark.is_some_and(|at| now >= at) {
            // Changes may have come that were not looked at: what was seen before them is still true.
            if !self.cursor.is_ahead() {
                self.bookmark(self.cursor.seen(), false);
            }
            self.next_bookmark = Some(self.bookmark_after(now));
        }
    }

    fn bookmark_after(&self, now: Instant) -> Instant {
        let regular = now + BOOKMARK_INTERVAL;
        let last = self.deadline.and_then(|deadline| deadline.checked_sub(LAST_BOOKMARK)).filter(|last| *last > now);
        last.map_or(regular, |last| last.min(regular))
    }

    /// Some of what the watch begins with: all at once it might be more than there is room for.
    fn tell_initial(&mut self) {
        let Some(mut initial) = self.initial.take() else { return };
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

    fn tell(&mut self, change: &Change) {
        let selected = |object: &Option<Arc<Object>>| {
            object.as_ref().filter(|object| self.filter.matches(&self.served, object)).cloned()
        };
        match (selected(&change.before), selected(&change.after)) {
            (None, None) => {}
            (None, Some(object)) => self.line("ADDED", &object, change.revision),
            (Some(_), Some(object)) => self.line("MODIFIED", &object, change.revision),
            // The last that was seen of it, with the revision at which it went.
            (Some(object), None) => self.line("DELETED", &object, change.revision),
        }
    }

    fn line(&mut self, kind: &str, object: &Object, revision: u64) {
        self.ready.put_slice(br#"{"type":""#);
        self.ready.put_slice(kind.as_bytes());
        self.ready.put_slice(br#"","object":"#);
        self.show.write(&mut self.ready, &self.served, object, revision);
        self.ready.put_slice(b"}\n");
    }

    fn bookmark(&mut self, revision: u64, initial_events_end: bool) {
        let mut meta = json!({"resourceVersion": revision.to_string()});
        if initial_events_end {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = self.show.bookmark(&self.served, meta);
        self.ready.put_slice(br#"{"type":"BOOKMARK","object":"#);
        self.ready.put_slice(object.to_string().as_bytes());
        self.ready.put_slice(b"}\n");
    }
}
