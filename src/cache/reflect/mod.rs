//! Keeps a [`Sink`] up to what the server has: everything once, and then what happens, for as long as it is polled.
//!
//! What holds, whatever the server does:
//! * the sink is told of versions in the order the server gives them out; after a gap it is told everything anew;
//! * an object that does not decode is reported as such, and does not affect others;
//! * a list that fails in one way is asked for in the other (see [`way`]); one whose pages are gone before they were asked for, or do not end, is asked for at once as a
//!   whole, once (see [`pages`]);
//! * however long a list is, other tasks get their turn while it is read (see [`turn`]);
//! * a watch from a version that is gone (410) or yet to come (504 with that cause) is followed by a list; so is one that is refused with any 504 twice in a row:
//!   what times out may be the server, or what is in front of it, which does not say of what;
//! * a watch from no version, because the list had none, is followed by a list: nobody knows what it has missed;
//! * who has heard nothing for long asks for everything: a server that was restored from a backup has not the version that a watch would begin at, and lets it wait;
//! * code of others that panics is a failure like another: nobody can say how far it came, so that everything is asked for anew;
//! * a watch that ends at the requested time is reopened at once. A watch stream that lived for [`LIVED`] or delivered an event, and is cut, is reopened within a second, and
//!   the informer stays synced. A request that fails, and a stream that ends sooner, is retried with growing delays (see [`pace`]);
//! * what the server says no with is reported in its own words;
//! * that there is no such kind it only says of a list: a watch that is told so is followed by one. What that means is for others to say (see [`doubt`]).
//!
//! Why not `kube_runtime::watcher`: that one swallows bookmarks, hides the version of its lists, cannot keep bodies as they came, retries a version that the
//! watch request itself was refused for (410, 504) for ever, and reconnects without a pause to a server that closes each watch at once.

mod doubt;
mod failure;
#[cfg(feature = "bench-internals")]
mod fuzz;
mod lines;
mod listed;
mod objects;
mod pace;
mod page;
mod pages;
mod place;
mod sink;
mod stream;
mod turn;
mod way;
mod wire;

#[cfg(feature = "bench-internals")]
pub use self::fuzz::watch_lines;
pub(crate) use self::{
    doubt::{Doubt, Doubts},
    failure::Failure,
    pace::Pace,
    place::Place,
    sink::Sink,
};
use self::{
    failure::{broken, unanswered},
    listed::Listed,
    stream::Stream,
    way::Way,
    wire::{Line, Refusal},
};
use crate::{
    caught::caught,
    client::{Link, driving},
};
use http::{Request, Response, header::RETRY_AFTER, response::Parts};
use kube_client::client::Body;
use rand::RngExt;
use std::{mem, pin::pin, time::Duration};
use tokio::time::{Instant, sleep, timeout};

/// How long the server is asked to keep a watch open: at random between this and twice this, so that not all end at once.
const WATCH: Duration = Duration::from_mins(5);
/// After so long without a word from the server, a bookmark included, the version that was reached is not watched from any more. It sends one each minute.
const UNHEARD: Duration = Duration::from_mins(5);
/// A server that has said nothing for so long beyond the time of a watch is not there any more.
const SILENCE: Duration = Duration::from_secs(30);
/// The same of a watch that has brought a bookmark: the next ones come each minute. A connection that is open on this side alone is found by that.
const UNMARKED: Duration = Duration::from_mins(3);
/// How long the next part of a streamed list may take.
const ANSWER: Duration = Duration::from_mins(1);
/// Age at which a watch stream counts as a success, even if it delivered no event.
///
/// Proxies and load balancers cut idle streams after tens of seconds. A server that rejects watches by closing them does so at once.
const LIVED: Duration = Duration::from_secs(5);

/// Difference between the requested end of a watch and its end at which it counts as on time: the request takes time, and asks for whole seconds.
const ON_TIME: Duration = Duration::from_secs(2);

/// Result of one list or watch.
struct Next {
    /// Watch from this version; list if there is none.
    from: Option<String>,
    end: End,
}

/// End of a list or watch, which determines the delay before the next request.
enum End {
    /// A list is complete, or a watch ended at the requested time. The next request follows at once.
    Complete,
    /// A watch stream was cut after it had lived for [`LIVED`] or delivered an event.
    Closed,
    Failed(Failure),
}

impl Next {
    fn complete(from: Option<String>) -> Self {
        Self { from, end: End::Complete }
    }

    fn failed(from: Option<String>, failure: Failure) -> Self {
        Self { from, end: End::Failed(failure) }
    }
}

pub(crate) struct Reflector<S> {
    client: Link,
    place: Place,
    sink: S,
    page_size: u32,
    way: Way,
    /// Whether the last request for a watch was answered with 504.
    timed_out: bool,
    /// When the server last told something.
    heard: Instant,
    /// Something has happened that handlers may not have been woken for.
    untold: bool,
}

impl<S: Sink> Reflector<S> {
    pub(crate) fn new(client: Link, place: Place, sink: S, page_size: u32) -> Self {
        let (way, heard) = (Way::default(), Instant::now());
        Self { client, place, sink, page_size, way, timed_out: false, heard, untold: false }
    }

    /// Until it is dropped; or, if there is nobody to ask about that, until a list is refused because there is no such kind: it gives the refusal.
    pub(crate) async fn run(self) -> Failure {
        driving(Box::pin(self.keep())).await
    }

    async fn keep(mut self) -> Failure {
        let mut pace = Pace::default();
        let mut from = None;
        loop {
            from = from.filter(|_| self.heard.elapsed() < UNHEARD);
            let (lists, unversioned) = (from.is_none(), from.as_deref() == Some(""));
            let next = caught(pin!(self.ask(from))).await;
            self.tell();
            let next = next.unwrap_or_else(|words| Next::failed(None, Failure::Panicked(words)));
            let mut failure = match next.end {
                End::Failed(failure) => failure,
                // The events of the stream may have later versions than events that it has missed.
                End::Complete | End::Closed if unversioned => Failure::Unversioned,
                End::Complete => {
                    from = next.from;
                    continue;
                }
                End::Closed => {
                    from = next.from;
                    sleep(pace.succeeded()).await;
                    continue;
                }
            };
            from = next.from.filter(|_| !unversioned);
            if lists && failure.is_absent() {
                let Some(doubts) = &self.place.doubts else { return failure };
                failure = doubts.settled(failure).await;
            }
            let wait = match &failure {
                Failure::Unversioned => pace.forgotten(None),
                Failure::Refused(refusal) if refusal.needs_a_list() => pace.forgotten(refusal.retry_after()),
                Failure::Refused(refusal) => pace.failed(refusal.retry_after()),
                Failure::Broken(_) | Failure::Silent(_) | Failure::EndedAtOnce | Failure::Panicked(_) => {
                    pace.failed(None)
                }
            };
            if !wait.is_zero() {
                self.sink.failed(&failure);
                sleep(wait).await;
            }
        }
    }

    /// From this version on, or everything.
    async fn ask(&mut self, from: Option<String>) -> Next {
        match from {
            Some(version) => self.watch(version).await,
            None if self.way.streams() => self.stream().await,
            None => self.list().await,
        }
    }

    /// Everything, page by page.
    async fn list(&mut self) -> Next {
        match self.pages().await {
            Ok(version) => {
                self.way.paged();
                self.heard = Instant::now();
                Next::complete(Some(version))
            }
            Err(failure) => self.not_listed(failure),
        }
    }

    fn not_listed(&mut self, failure: Failure) -> Next {
        self.way.failed(&failure);
        Next::failed(None, failure)
    }

    /// Everything, and then what happens, in one watch.
    async fn stream(&mut self) -> Next {
        let time = watch_time();
        let due = Instant::now() + time;
        // By then the server was asked to end it: something may come all the time, and never the end.
        let listed = timeout(time, self.streamed(time)).await;
        match listed.unwrap_or_else(|_| Err(broken("the list did not become whole"))) {
            Ok((mut stream, version)) => {
                self.way.streamed();
                self.sink.watching();
                self.heard = Instant::now();
                stream.quiet_for(time + SILENCE);
                self.follow(stream, version, due).await
            }
            Err(Failure::Refused(refusal)) if matches!(refusal.code, 400 | 406 | 415 | 422 | 501) => {
                // Older servers, and those in front of them, do not know it. A list says the same.
                self.way.never_streams();
                Next::complete(None)
            }
            Err(failure) => self.not_listed(failure),
        }
    }

    /// Gives what is to be followed, and from where.
    async fn streamed(&mut self, time: Duration) -> Result<(Stream, String), Failure> {
        let response = self.open(self.place.stream(time)).await?;
        let mut stream = Stream::new(response.into_body(), ANSWER);
        let mut listed = Listed::new();
        loop {
            let Some(line) = stream.next(|| ()).await? else {
                return Err(broken("the server ended the list before it was whole"));
            };
            if let Some(entry) = self.at_once(&line) {
                listed.put(entry);
                continue;
            }
            match wire::line(&line).map_err(broken)? {
                Line::Put(object) => {
                    self.list_one(object, &mut listed);
                }
                Line::Deleted(object) => self.unlist(object, &mut listed),
                Line::Bookmark { version, initial: true } => {
                    self.all(listed, &version);
                    return Ok((stream, version));
                }
                // Whoever streams lists sends no other one before.
                Line::Bookmark { .. } => {
                    return Err(broken("the server watches, and does not say when its list is whole"));
                }
                Line::Error(refusal) => {
                    if refusal.code == 500 {
                        // So a server says it whose own store cannot tell how far it is.
                        self.way.never_streams();
                    }
                    return Err(Failure::Refused(refusal));
                }
            }
        }
    }

    async fn watch(&mut self, version: String) -> Next {
        let time = watch_time();
        let due = Instant::now() + time;
        let answer = self.open(self.place.watch(&version, time)).await;
        let times_out = matches!(&answer, Err(Failure::Refused(refusal)) if refusal.code == 504);
        let again = mem::replace(&mut self.timed_out, times_out) && times_out;
        match answer {
            Ok(response) => {
                self.sink.watching();
                self.sink.well();
                self.follow(Stream::new(response.into_body(), time + SILENCE), version, due).await
            }
            Err(Failure::Refused(refusal)) if refusal.needs_a_list() || refusal.code == 404 || again => {
                self.timed_out = false;
                Next::failed(None, Failure::Refused(refusal))
            }
            Err(failure) => Next::failed(Some(version), failure),
        }
    }

    /// Passes the events of a watch stream to the sink until the stream ends. The server was asked to end it when it is `due`.
    async fn follow(&mut self, mut stream: Stream, mut version: String, due: Instant) -> Next {
        let (begun, mut happened) = (Instant::now(), false);
        loop {
            let line = match stream.next(|| self.tell()).await {
                Ok(Some(line)) => line,
                ended => {
                    // A stream on which nothing came for too long may have been dead all that time.
                    let is_silent = matches!(ended, Err(Failure::Silent(_)));
                    let worked = happened || begun.elapsed() >= LIVED;
                    let end = match ended {
                        Ok(_) if Instant::now() + ON_TIME >= due => End::Complete,
                        _ if worked && !is_silent => End::Closed,
                        Err(failure) => End::Failed(failure),
                        Ok(_) => End::Failed(Failure::EndedAtOnce),
                    };
                    return Next { from: Some(version), end };
                }
            };
            self.untold = true;
            if let Some(entry) = self.at_once(&line) {
                (self.heard, happened) = (Instant::now(), true);
                version = later(version, self.put(Ok(entry)));
                continue;
            }
            let line = wire::line(&line);
            if line.is_ok() {
                // What is no event says nothing: who hears nothing else for long asks for everything.
                self.heard = Instant::now();
            }
            happened |= matches!(line, Ok(Line::Put(_) | Line::Deleted(_)));
            match line {
                Ok(Line::Put(object)) => version = later(version, self.put(self.decode(object))),
                Ok(Line::Deleted(object)) => version = later(version, self.deleted(object)),
                Ok(Line::Bookmark { version: reached, .. }) => {
                    stream.quiet_for(UNMARKED);
                    self.sink.nothing_up_to(revision(&reached));
                    // Bookmarks come once in a while, and when there is time.
                    self.sink.decoder().sweep();
                    version = later(version, Some(reached));
                }
                Ok(Line::Error(refusal)) => {
                    let from = (!refusal.needs_a_list()).then_some(version);
                    return Next::failed(from, Failure::Refused(refusal));
                }
                Err(error) => return Next::failed(Some(version), broken(error)),
            }
        }
    }

    /// Of events that come in one go handlers are told in one go.
    fn tell(&mut self) {
        if mem::take(&mut self.untold) {
            self.sink.tell();
        }
    }

    fn all(&self, listed: Listed<S::Payload>, version: &str) {
        let (entries, undecoded) = listed.whole();
        self.sink.all(entries, undecoded, revision(version));
        self.sink.well();
    }

    /// Opens a watch.
    async fn open(&self, request: Result<Request<Body>, Failure>) -> Result<Response<Body>, Failure> {
        let response = self.client.open(request?).await.map_err(unanswered)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        Err(refused(&parts, &self.client.read(body).await.map_err(unanswered)?))
    }
}

/// The failure of a response whose status is not a success.
fn refused(parts: &Parts, body: &[u8]) -> Failure {
    let retry_after = parts.headers.get(RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.parse().ok());
    Failure::Refused(Refusal::of(parts.status.as_u16(), retry_after, body))
}

/// Versions are numbers on every known server. One that is not can be watched from, but not be compared.
fn revision(version: &str) -> u64 {
    version.parse().unwrap_or_default()
}

/// The second one, unless there is none, or an empty one, which would stand for any, or it is known to be older: a server may tell again what it has told.
fn later(version: String, next: Option<String>) -> String {
    let is_older = |next: &String| (1..revision(&version)).contains(&revision(next));
    next.filter(|next| !next.is_empty() && !is_older(next)).unwrap_or(version)
}

fn watch_time() -> Duration {
    WATCH.mul_f64(rand::rng().random_range(1.0..2.0))
}
