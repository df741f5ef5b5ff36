//! Reflector: keeps a [`Sink`] up to date with the API server by list and watch.
//!
//! The sink receives all objects once and then every change, in the order of resource versions.
//! After a gap it receives all objects again. An object that does not decode is reported as such,
//! and does not affect others.
//!
//! # Lists
//!
//! A list that fails in one way, streamed or paged, is requested in the other (see
//! [`list_strategy`]). If the continue token of a page has expired, or the pages do not end, the
//! list is requested once without paging (see [`paged_list`]). Reading a list yields to other tasks
//! (see [`yield_budget`]).
//!
//! The reflector lists again after a watch request that is rejected because its resource version is
//! gone (410) or too large (504 with that cause), after two watch requests in a row that fail with
//! any 504, after a watch of a list that had no resource version, after a panic, and after
//! [`RELIST_AFTER_SILENCE`] without a message. The last case covers a server that was restored from
//! a backup: it does not have the resource version yet, and does not answer.
//!
//! # Retries
//!
//! A watch that ends at the requested time is reopened at once. A watch stream that lived for
//! [`MIN_STREAM_LIFE`] or delivered an event, and is cut or ends with an error or an invalid line,
//! is reopened within a second, and the informer stays synced. If the error asks for a longer
//! delay, the informer is degraded meanwhile. A failed request, and a stream that ends sooner, is
//! retried with backoff (see [`backoff`]). A panic in called code is a failure like others.
//!
//! A watch that fails with 404 is followed by a list. Only a list that fails with 404 may mean that
//! the kind is missing, which discovery decides (see [`kind_missing`]).
//!
//! # Why not `kube_runtime::watcher`
//!
//! It drops bookmarks, hides the resource version of lists, cannot keep undecoded bodies, retries a
//! resource version forever for which the watch request itself was rejected (410, 504), and
//! reconnects without a delay to a server that closes each watch at once.

// Requests, and the choice between streamed and paged lists.
mod backoff;
mod failure;
mod kind_missing;
mod list_strategy;
mod list_watch;

// From the bytes of a response to objects.
mod lines;
mod objects;
mod page_parser;
mod paged_list;
mod partial_list;
mod stream;
mod wire;
mod yield_budget;

// Receiver of the objects.
mod sink;

#[cfg(feature = "__internals")]
mod fuzz;

#[cfg(feature = "__internals")]
pub use self::fuzz::watch_lines;
pub(crate) use self::{
    backoff::Backoff,
    failure::Failure,
    kind_missing::{KindCheck, KindChecks},
    list_watch::ListWatch,
    sink::Sink,
};
use self::{
    failure::{broken, request_failed},
    list_strategy::ListStrategy,
    partial_list::PartialList,
    stream::LineStream,
    wire::{ErrorResponse, Line},
};
use crate::{
    client::{CountedClient, with_inline_connections},
    jitter,
    panic_message::panic_message,
};
use futures::FutureExt;
use http::{Request, Response, header::RETRY_AFTER, response::Parts};
use kube_client::client::Body;
use std::{mem, panic::AssertUnwindSafe, time::Duration};
use tokio::time::{Instant, sleep, timeout};

/// Minimum requested duration of a watch. The maximum is twice this, at random, so that not all
/// watches end at once.
const MIN_WATCH_TIME: Duration = Duration::from_mins(5);
/// Time without a message after which the reflector lists instead of watching. API servers send a
/// bookmark every minute.
const RELIST_AFTER_SILENCE: Duration = Duration::from_mins(5);
/// Time without data beyond the requested duration after which a watch is dead.
const WATCH_GRACE: Duration = Duration::from_secs(30);
/// Time without data after which a watch that sends bookmarks is dead.
///
/// Bookmarks arrive every minute. This detects half-open connections.
const BOOKMARK_TIMEOUT: Duration = Duration::from_mins(3);
/// Time without data after which a streamed list is dead.
const STREAMED_LIST_TIMEOUT: Duration = Duration::from_mins(1);
/// Age at which a watch stream counts as a success, even if it delivered no event.
///
/// Proxies and load balancers cut idle streams after tens of seconds. A server that rejects watches
/// by closing them does so at once.
const MIN_STREAM_LIFE: Duration = Duration::from_secs(5);

/// Tolerance for a watch to end on time. Timeouts are in whole seconds.
const END_TOLERANCE: Duration = Duration::from_secs(2);

/// Result of one list or watch.
struct RequestResult {
    /// Resource version to watch from. `None` to list.
    from: Option<String>,
    end: End,
}

/// End of a list or watch, which determines the delay before the next request.
enum End {
    /// A list is complete, or a watch ended at the requested time. The next request follows at
    /// once.
    Complete,
    /// A watch stream ended early, after it had lived for [`MIN_STREAM_LIFE`] or delivered an
    /// event.
    Closed(Failure),
    Failed(Failure),
}

impl RequestResult {
    fn complete(from: Option<String>) -> Self {
        Self {
            from,
            end: End::Complete,
        }
    }

    fn failed(from: Option<String>, failure: Failure) -> Self {
        Self {
            from,
            end: End::Failed(failure),
        }
    }

    /// Returns the result of a watch stream that ended early. `worked` is whether it had lived for
    /// [`MIN_STREAM_LIFE`] or delivered an event.
    fn ended_early(from: String, failure: Failure, worked: bool) -> Self {
        let end = match failure {
            // A stream on which nothing came for too long may have been dead all that time.
            Failure::Timeout(_) => End::Failed(failure),
            failure if worked => End::Closed(failure),
            failure => End::Failed(failure),
        };
        Self {
            from: Some(from),
            end,
        }
    }
}

pub(crate) struct Reflector<S> {
    client: CountedClient,
    list_watch: ListWatch,
    sink: S,
    page_size: u32,
    list_strategy: ListStrategy,
    /// Whether the last request for a watch was answered with 504.
    timed_out: bool,
    /// Time of the last message of the API server.
    last_message: Instant,
    /// Whether there are changes since the last wake of the handlers.
    has_unwoken_changes: bool,
}

impl<S: Sink> Reflector<S> {
    pub(crate) fn new(
        client: CountedClient,
        list_watch: ListWatch,
        sink: S,
        page_size: u32,
    ) -> Self {
        let (list_strategy, last_message) = (ListStrategy::default(), Instant::now());
        Self {
            client,
            list_watch,
            sink,
            page_size,
            list_strategy,
            timed_out: false,
            last_message,
            has_unwoken_changes: false,
        }
    }

    /// Runs until it is dropped.
    ///
    /// Without a channel to confirm a missing kind in `list_watch`, returns the failure of a list
    /// that fails with 404.
    pub(crate) async fn run(self) -> Failure {
        with_inline_connections(Box::pin(self.run_with_retries())).await
    }

    async fn run_with_retries(mut self) -> Failure {
        let mut backoff = Backoff::default();
        let mut from = None;
        loop {
            from = from.filter(|_| self.last_message.elapsed() < RELIST_AFTER_SILENCE);
            let (lists, unversioned) = (from.is_none(), from.as_deref() == Some(""));
            let next = AssertUnwindSafe(self.list_or_watch(from))
                .catch_unwind()
                .await;
            self.wake_handlers();
            let next = next.unwrap_or_else(|panic| {
                RequestResult::failed(None, Failure::Panicked(panic_message(&*panic)))
            });
            let mut failure = match next.end {
                End::Failed(failure) => failure,
                // The events of the stream may have later versions than events that it has missed.
                End::Complete | End::Closed(_) if unversioned => Failure::Unversioned,
                End::Complete => {
                    from = next.from;
                    continue;
                }
                End::Closed(failure) => {
                    from = next.from;
                    self.reopen_after(backoff.reconnect_delay(), &failure).await;
                    continue;
                }
            };
            from = next.from.filter(|_| !unversioned);
            if lists && failure.is_not_found() {
                let Some(kind_checks) = &self.list_watch.kind_checks else {
                    return failure;
                };
                failure = kind_checks.confirm(failure).await;
            }
            let wait = match &failure {
                Failure::Unversioned => backoff.relist_delay(None),
                Failure::Rejected(rejection) if rejection.needs_relist() => {
                    backoff.relist_delay(rejection.retry_after())
                }
                Failure::Rejected(rejection) => backoff.next_delay(rejection.retry_after()),
                Failure::Broken(_)
                | Failure::Timeout(_)
                | Failure::ClosedAtOnce
                | Failure::Panicked(_) => backoff.next_delay(None),
            };
            if !wait.is_zero() {
                self.sink.failed(&failure);
                sleep(wait).await;
            }
        }
    }

    /// Waits before a watch that worked is reopened.
    ///
    /// The server may ask for a longer delay. The informer is not up to date during that one.
    async fn reopen_after(&self, wait: Duration, failure: &Failure) {
        let kind = self.sink.decoder().types().kind.as_str();
        tracing::debug!(kind, error = %failure, "watch stream ended early, reconnecting");
        let retry_after = match failure {
            Failure::Rejected(rejection) => rejection.retry_after().unwrap_or_default(),
            _ => Duration::ZERO,
        };
        if retry_after > backoff::MAX_RECONNECT_DELAY {
            self.sink.failed(failure);
        }
        sleep(wait.max(retry_after)).await;
    }

    /// Watches from a resource version, or lists.
    async fn list_or_watch(&mut self, from: Option<String>) -> RequestResult {
        match from {
            Some(version) => self.watch(version).await,
            None if self.list_strategy.streams() => self.list_and_watch().await,
            None => self.list().await,
        }
    }

    /// Lists page by page.
    async fn list(&mut self) -> RequestResult {
        match self.list_pages().await {
            Ok(version) => {
                self.list_strategy.paged();
                self.last_message = Instant::now();
                RequestResult::complete(Some(version))
            }
            Err(failure) => self.list_failed(failure),
        }
    }

    fn list_failed(&mut self, failure: Failure) -> RequestResult {
        self.list_strategy.failed(&failure);
        RequestResult::failed(None, failure)
    }

    /// Lists and watches in one streamed request.
    async fn list_and_watch(&mut self) -> RequestResult {
        let time = watch_time();
        let due = Instant::now() + time;
        // Without this limit a stream that sends data but never the final bookmark would not end.
        let listed = timeout(time, self.read_streamed_list(time)).await;
        match listed
            .unwrap_or_else(|_| Err(broken("the streamed list timed out before it was complete")))
        {
            Ok((mut stream, version)) => {
                self.list_strategy.streamed();
                self.sink.watch_opened();
                self.last_message = Instant::now();
                stream.set_timeout(time + WATCH_GRACE);
                self.follow_watch(stream, version, due).await
            }
            Err(Failure::Rejected(rejection))
                if matches!(rejection.code, 400 | 406 | 415 | 422 | 501) =>
            {
                // Older API servers and proxies do not support streamed lists. List by pages
                // instead.
                self.list_strategy.disable_streams();
                RequestResult::complete(None)
            }
            Err(failure) => self.list_failed(failure),
        }
    }

    /// Reads a streamed list. Returns the stream to watch, and its resource version.
    async fn read_streamed_list(
        &mut self,
        time: Duration,
    ) -> Result<(LineStream, String), Failure> {
        let response = self.open(self.list_watch.streamed_list(time)).await?;
        let mut stream = LineStream::new(response.into_body(), STREAMED_LIST_TIMEOUT);
        let mut listed = PartialList::new();
        loop {
            let Some(line) = stream.next(|| ()).await? else {
                return Err(broken(
                    "the API server closed the streamed list before it was complete",
                ));
            };
            if let Some(entry) = self.decode_put(&line) {
                listed.put(entry);
                continue;
            }
            match wire::parse_line(&line).map_err(broken)? {
                Line::Put(object) => {
                    self.add_to_list(object, &mut listed);
                }
                Line::Deleted(object) => self.remove_from_list(object, &mut listed),
                Line::Bookmark {
                    version,
                    initial: true,
                } => {
                    self.replace_all(listed, &version);
                    return Ok((stream, version));
                }
                // A server that streams lists sends no other bookmark before the final one.
                Line::Bookmark { .. } => {
                    return Err(broken(
                        "the API server streams a list without marking its end",
                    ));
                }
                Line::Error(rejection) => {
                    if rejection.code == 500 {
                        // The error of an API server whose etcd does not report progress.
                        self.list_strategy.disable_streams();
                    }
                    return Err(Failure::Rejected(rejection));
                }
            }
        }
    }

    async fn watch(&mut self, version: String) -> RequestResult {
        let time = watch_time();
        let due = Instant::now() + time;
        let response = self.open(self.list_watch.watch(&version, time)).await;
        let times_out =
            matches!(&response, Err(Failure::Rejected(rejection)) if rejection.code == 504);
        let second_timeout = mem::replace(&mut self.timed_out, times_out) && times_out;
        match response {
            Ok(response) => {
                self.sink.watch_opened();
                self.sink.succeeded();
                self.follow_watch(
                    LineStream::new(response.into_body(), time + WATCH_GRACE),
                    version,
                    due,
                )
                .await
            }
            Err(Failure::Rejected(rejection))
                if rejection.needs_relist() || rejection.code == 404 || second_timeout =>
            {
                self.timed_out = false;
                RequestResult::failed(None, Failure::Rejected(rejection))
            }
            Err(failure) => RequestResult::failed(Some(version), failure),
        }
    }

    /// Passes the events of a watch stream to the sink until the stream ends.
    ///
    /// The API server was asked to end it at `due`.
    async fn follow_watch(
        &mut self,
        mut stream: LineStream,
        mut version: String,
        due: Instant,
    ) -> RequestResult {
        let (started, mut had_event) = (Instant::now(), false);
        loop {
            let line = stream.next(|| self.wake_handlers()).await;
            let lived = started.elapsed() >= MIN_STREAM_LIFE;
            let line = match line {
                Ok(Some(line)) => line,
                Ok(None) if Instant::now() + END_TOLERANCE >= due => {
                    return RequestResult::complete(Some(version));
                }
                ended => {
                    let worked = had_event || lived;
                    let failure = ended.err().unwrap_or_else(|| Failure::closed(worked));
                    return RequestResult::ended_early(version, failure, worked);
                }
            };
            self.has_unwoken_changes = true;
            if let Some(entry) = self.decode_put(&line) {
                (self.last_message, had_event) = (Instant::now(), true);
                version = later_version(version, self.put(Ok(entry)));
                continue;
            }
            let line = wire::parse_line(&line);
            if line.is_ok() {
                // Invalid lines do not count as messages, so that a stream of only these causes a
                // list.
                self.last_message = Instant::now();
            }
            had_event |= matches!(line, Ok(Line::Put(_) | Line::Deleted(_)));
            match line {
                Ok(Line::Put(object)) => {
                    version = later_version(version, self.put(self.decode(object)));
                }
                Ok(Line::Deleted(object)) => version = later_version(version, self.deleted(object)),
                Ok(Line::Bookmark {
                    version: reached, ..
                }) => {
                    stream.set_timeout(BOOKMARK_TIMEOUT);
                    self.sink.advance(revision(&reached));
                    // Bookmarks are infrequent, and arrive when there is time.
                    self.sink.decoder().sweep();
                    version = later_version(version, Some(reached));
                }
                Ok(Line::Error(rejection)) if rejection.needs_relist() => {
                    return RequestResult::failed(None, Failure::Rejected(rejection));
                }
                Ok(Line::Error(rejection)) => {
                    let failure = Failure::Rejected(rejection);
                    return RequestResult::ended_early(version, failure, had_event || lived);
                }
                Err(error) => {
                    return RequestResult::ended_early(version, broken(error), had_event || lived);
                }
            }
        }
    }

    /// Wakes the handlers once for all events of a burst.
    fn wake_handlers(&mut self) {
        if mem::take(&mut self.has_unwoken_changes) {
            self.sink.wake_handlers();
        }
    }

    fn replace_all(&self, listed: PartialList<S::Payload>, version: &str) {
        let (entries, undecoded) = listed.into_objects();
        self.sink.replace(entries, undecoded, revision(version));
        self.sink.succeeded();
    }

    /// Sends a watch request, and returns the response with its open body.
    async fn open(
        &self,
        request: Result<Request<Body>, Failure>,
    ) -> Result<Response<Body>, Failure> {
        let response = self
            .client
            .open_watch(request?)
            .await
            .map_err(request_failed)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        Err(rejected(
            &parts,
            &self.client.read_body(body).await.map_err(request_failed)?,
        ))
    }
}

/// Converts a response whose status is not a success to a failure.
fn rejected(parts: &Parts, body: &[u8]) -> Failure {
    let retry_after = parts
        .headers
        .get(RETRY_AFTER)
        .and_then(|seconds| seconds.to_str().ok()?.parse().ok());
    Failure::Rejected(ErrorResponse::of(parts.status.as_u16(), retry_after, body))
}

/// Parses a resource version. Returns 0 if it is not a number.
///
/// Such a resource version can be watched from, but not compared.
fn revision(version: &str) -> u64 {
    version.parse().unwrap_or_default()
}

/// Returns the later of two resource versions.
///
/// Ignores `next` if it is empty, which would mean any version, or known to be older: a server may
/// repeat events.
fn later_version(version: String, next: Option<String>) -> String {
    let is_older = |next: &String| (1..revision(&version)).contains(&revision(next));
    next.filter(|next| !next.is_empty() && !is_older(next))
        .unwrap_or(version)
}

fn watch_time() -> Duration {
    MIN_WATCH_TIME.mul_f64(jitter::factor(1.0..2.0))
}
