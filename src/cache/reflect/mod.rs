//! Keeps a [`Sink`] up to what the server has: everything once, and then what happens, for as long as it is polled.
//!
//! What holds, whatever the server does:
//! * the sink is told of versions in the order the server gives them out; after a gap it is told everything anew;
//! * an object that cannot be decoded is reported and passed over, the others go on; a list says that it is there;
//! * who has heard nothing for long asks for everything: a server that was restored from a backup has not the version that a watch would begin at, and lets it wait;
//! * code of others that panics is a failure like another: nobody can say how far it came, so that everything is asked for anew;
//! * the server is never hammered: what ends at once or fails is tried again later and later (see [`pace`]);
//! * what the server says no with is reported in its own words;
//! * that there is no such kind it only says of a list: a watch that is told so is followed by one.
//!
//! Why not `kube_runtime::watcher`: that one swallows bookmarks, hides the version of its lists, cannot keep bodies as they came, retries a version that the
//! watch request itself was refused for (410, 504) for ever, and reconnects without a pause to a server that closes each watch at once.

mod failure;
mod lines;
mod listed;
mod pace;
mod place;
mod stream;
mod wire;

pub(crate) use self::{failure::Failure, pace::Pace, place::Place};
use self::{
    failure::{broken, silent},
    listed::Listed,
    stream::Stream,
    wire::{Line, Page, Refusal},
};
use crate::{
    cache::store::Entry,
    caught::caught,
    client::{Link, driving},
    object::{Decoder, ObjectKey, Payload, Undecodable},
};
use http::{Request, Response, header::RETRY_AFTER};
use kube_client::client::Body;
use rand::RngExt;
use serde_json::value::RawValue;
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long the server is asked to keep a watch open: at random between this and twice this, so that not all end at once.
const WATCH: Duration = Duration::from_mins(5);
/// After so long without a word from the server, a bookmark included, the version that was reached is not watched from any more. It sends one each minute.
const UNHEARD: Duration = Duration::from_mins(5);
/// A server that has said nothing for so long beyond the time of a watch is not there any more.
const SILENCE: Duration = Duration::from_secs(30);
/// How long an answer, or the next part of one, may take.
const ANSWER: Duration = Duration::from_mins(1);
/// A watch that ended sooner counts as a failure, unless something has happened: then the next one waits for as long.
const SHORT: Duration = Duration::from_secs(1);

/// Where objects go.
pub(crate) trait Sink: Send + Sync {
    type Payload: Payload;

    fn decoder(&self) -> &Decoder;
    /// These are all there are, at this revision. Those `unread` are there as well, but could not be read.
    fn all(&self, entries: Vec<Entry<Self::Payload>>, unread: Vec<ObjectKey>, revision: u64);
    /// It is there, and so is what [`deleted`](Self::deleted) says: handlers need not hear of either before [`tell`](Self::tell).
    fn put(&self, entry: Entry<Self::Payload>, revision: u64);
    /// Gone; as it was last, if that could be read.
    fn deleted(&self, key: &ObjectKey, last: Option<Self::Payload>, revision: u64);
    /// Handlers are to hear of what was put and deleted.
    fn tell(&self);
    /// Nothing else happened up to this revision.
    fn nothing_up_to(&self, revision: u64);
    fn undecodable(&self, what: Undecodable);
    /// The server watches.
    fn watching(&self);
    /// The server answers.
    fn well(&self);
    /// It does not, or not as it should.
    fn failed(&self, failure: &Failure);
}

/// What can be told of an object that cannot be decoded.
struct Unread {
    key: Option<ObjectKey>,
    revision: Option<u64>,
}

/// What to do next, and what went wrong before.
struct Next {
    /// Watch from this version; list if there is none.
    from: Option<String>,
    failure: Option<Failure>,
}

pub(crate) struct Reflector<S> {
    client: Link,
    place: Place,
    sink: S,
    page_size: u32,
    /// Whether the server has not refused streamed lists yet.
    streams: bool,
    /// When the server last told something.
    heard: Instant,
    /// Something has happened that handlers may not have been woken for.
    untold: bool,
}

impl<S: Sink> Reflector<S> {
    pub(crate) fn new(client: Link, place: Place, sink: S, page_size: u32) -> Self {
        Self { client, place, sink, page_size, streams: true, heard: Instant::now(), untold: false }
    }

    /// Until it is dropped, or a list is refused because there is no such kind: it gives the refusal.
    pub(crate) async fn run(self) -> Failure {
        driving(Box::pin(self.keep())).await
    }

    async fn keep(mut self) -> Failure {
        let mut pace = Pace::default();
        let mut from = None;
        loop {
            from = from.filter(|_| self.heard.elapsed() < UNHEARD);
            let lists = from.is_none();
            let next = caught(pin!(self.ask(from))).await;
            self.tell();
            let next = next.unwrap_or_else(|words| Next { from: None, failure: Some(Failure::Panicked(words)) });
            from = next.from;
            if let Some(failure) = next.failure {
                if lists && failure.is_absent() {
                    return failure;
                }
                let at_least = match &failure {
                    Failure::Refused(refusal) => refusal.retry_after(),
                    Failure::Broken(_) | Failure::EndedAtOnce | Failure::Panicked(_) => None,
                };
                self.sink.failed(&failure);
                sleep(pace.failed(at_least)).await;
            }
        }
    }

    /// From this version on, or everything.
    async fn ask(&mut self, from: Option<String>) -> Next {
        match from {
            Some(version) => self.watch(version).await,
            None if self.streams => self.stream().await,
            None => self.list().await,
        }
    }

    /// Everything, page by page.
    async fn list(&mut self) -> Next {
        match self.pages().await {
            Ok(version) => {
                self.heard = Instant::now();
                Next { from: Some(version), failure: None }
            }
            Err(failure) => Next { from: None, failure: Some(failure) },
        }
    }

    async fn pages(&self) -> Result<String, Failure> {
        let (mut listed, mut token, mut size) = (Listed::new(), String::new(), self.page_size);
        loop {
            let response = match self.answer(self.place.page(size, &token), Link::send).await {
                // A token lives as long as the server's history. If that was too short, all at once is the way that is left.
                Err(Failure::Refused(refusal)) if refusal.needs_a_list() && !token.is_empty() => {
                    (listed, token, size) = (Listed::new(), String::new(), 0);
                    continue;
                }
                response => response?,
            };
            let body = stream::whole(response.into_body(), ANSWER).await?;
            let page: Page<'_> = serde_json::from_slice(&body).map_err(broken)?;
            let items = page.items.unwrap_or_default();
            for item in items {
                self.list_one(item, &mut listed);
            }
            token = page.metadata.r#continue;
            if token.is_empty() {
                let version = page.metadata.resource_version;
                self.all(listed, &version);
                return Ok(version);
            }
        }
    }

    /// Everything, and then what happens, in one watch.
    async fn stream(&mut self) -> Next {
        let time = watch_time();
        let response = match self.answer(self.place.stream(time), Link::open).await {
            Ok(response) => response,
            Err(Failure::Refused(refusal)) if matches!(refusal.code, 400 | 406 | 415 | 422 | 501) => {
                // Older servers, and those in front of them, do not know it. A list says the same.
                self.streams = false;
                return Next { from: None, failure: None };
            }
            Err(failure) => return Next { from: None, failure: Some(failure) },
        };
        let mut stream = Stream::new(response.into_body(), ANSWER);
        let mut listed = Listed::new();
        loop {
            let line = match stream.next(|| ()).await {
                Ok(Some(line)) => line,
                Ok(None) => {
                    return Next { from: None, failure: Some(broken("the server ended the list before it was whole")) };
                }
                Err(failure) => return Next { from: None, failure: Some(failure) },
            };
            if let Some(entry) = self.at_once(&line) {
                listed.put(entry);
                continue;
            }
            match wire::line(&line) {
                Ok(Line::Put(object)) => self.list_one(object, &mut listed),
                Ok(Line::Deleted(object)) => match self.decode(object) {
                    Ok(Entry { key, .. }) | Err(Unread { key: Some(key), .. }) => listed.deleted(key),
                    Err(Unread { key: None, .. }) => {}
                },
                Ok(Line::Bookmark { version, initial: true }) => {
                    self.all(listed, &version);
                    self.sink.watching();
                    self.heard = Instant::now();
                    return self.follow(stream.quiet_for(time + SILENCE), version).await;
                }
                Ok(Line::Bookmark { .. }) => {}
                Ok(Line::Error(refusal)) => {
                    // So a server says it whose own store cannot tell how far it is.
                    self.streams = refusal.code != 500;
                    return Next { from: None, failure: Some(Failure::Refused(refusal)) };
                }
                Err(error) => return Next { from: None, failure: Some(broken(error)) },
            }
        }
    }

    async fn watch(&mut self, version: String) -> Next {
        let time = watch_time();
        match self.answer(self.place.watch(&version, time), Link::open).await {
            Ok(response) => {
                self.sink.watching();
                self.sink.well();
                self.follow(Stream::new(response.into_body(), time + SILENCE), version).await
            }
            Err(Failure::Refused(refusal)) if refusal.needs_a_list() || refusal.code == 404 => {
                Next { from: None, failure: Some(Failure::Refused(refusal)) }
            }
            Err(failure) => Next { from: Some(version), failure: Some(failure) },
        }
    }

    /// What happens, as long as it is told.
    async fn follow(&mut self, mut stream: Stream, mut version: String) -> Next {
        let (begun, mut happened) = (Instant::now(), false);
        loop {
            let line = match stream.next(|| self.tell()).await {
                Ok(Some(line)) => {
                    self.heard = Instant::now();
                    line
                }
                Ok(None) if happened => {
                    self.tell();
                    sleep_until(begun + SHORT).await;
                    return Next { from: Some(version), failure: None };
                }
                Ok(None) => {
                    let failure = (begun.elapsed() < SHORT).then_some(Failure::EndedAtOnce);
                    return Next { from: Some(version), failure };
                }
                Err(failure) => return Next { from: Some(version), failure: Some(failure) },
            };
            self.untold = true;
            if let Some(entry) = self.at_once(&line) {
                happened = true;
                version = later(version, self.put(Ok(entry)));
                continue;
            }
            let line = wire::line(&line);
            happened |= matches!(line, Ok(Line::Put(_) | Line::Deleted(_)));
            match line {
                Ok(Line::Put(object)) => version = later(version, self.put(self.decode(object))),
                Ok(Line::Deleted(object)) => version = later(version, self.deleted(object)),
                Ok(Line::Bookmark { version: reached, .. }) => {
                    self.sink.nothing_up_to(revision(&reached));
                    version = later(version, Some(reached));
                }
                Ok(Line::Error(refusal)) if refusal.needs_a_list() => {
                    // Normal for a watch that had nothing to tell for long; a server that only ever says so is paced.
                    let failure = (begun.elapsed() < SHORT).then_some(Failure::Refused(refusal));
                    return Next { from: None, failure };
                }
                Ok(Line::Error(refusal)) => {
                    return Next { from: Some(version), failure: Some(Failure::Refused(refusal)) };
                }
                Err(error) => return Next { from: Some(version), failure: Some(broken(error)) },
            }
        }
    }

    /// Of events that come in one go handlers are told in one go.
    fn tell(&mut self) {
        if std::mem::take(&mut self.untold) {
            self.sink.tell();
        }
    }

    fn all(&self, listed: Listed<S::Payload>, version: &str) {
        let (entries, unread) = listed.whole();
        self.sink.all(entries, unread, revision(version));
        self.sink.well();
    }

    fn list_one(&self, object: &RawValue, listed: &mut Listed<S::Payload>) {
        match self.decode(object) {
            Ok(entry) => listed.put(entry),
            Err(Unread { key: Some(key), .. }) => listed.unread(key),
            Err(Unread { key: None, .. }) => {}
        }
    }

    /// What is added or modified in a line that is as most are. Of any other, and of what cannot be decoded, nothing: that is looked at more closely.
    fn at_once(&self, line: &[u8]) -> Option<Entry<S::Payload>> {
        let object = wire::put(line)?;
        self.sink.decoder().decode(object).ok().map(|payload| self.entry(payload, object.len()))
    }

    /// Gives the version it is at.
    fn put(&self, decoded: Result<Entry<S::Payload>, Unread>) -> Option<String> {
        match decoded {
            Ok(entry) => {
                let version = entry.object.meta().resource_version()?.to_owned();
                self.sink.put(entry, revision(&version));
                Some(version)
            }
            // It happened, and is not to be told again.
            Err(unread) => {
                self.sink.nothing_up_to(unread.revision?);
                unread.revision.map(|revision| revision.to_string())
            }
        }
    }

    fn deleted(&self, object: &RawValue) -> Option<String> {
        match self.sink.decoder().decode::<S::Payload>(object.get().as_bytes()) {
            Ok(last) => {
                let version = last.meta().resource_version()?.to_owned();
                self.sink.deleted(&last.key(), Some(last), revision(&version));
                Some(version)
            }
            Err(what) => {
                let (key, at) = (what.key.clone(), what.revision);
                self.sink.undecodable(what);
                self.sink.deleted(&key?, None, at?);
                at.map(|revision| revision.to_string())
            }
        }
    }

    fn decode(&self, object: &RawValue) -> Result<Entry<S::Payload>, Unread> {
        match self.sink.decoder().decode::<S::Payload>(object.get().as_bytes()) {
            Ok(payload) => Ok(self.entry(payload, object.get().len())),
            Err(what) => {
                let unread = Unread { key: what.key.clone(), revision: what.revision };
                self.sink.undecodable(what);
                Err(unread)
            }
        }
    }

    /// Of an object whose JSON has this length.
    fn entry(&self, payload: S::Payload, json: usize) -> Entry<S::Payload> {
        let bytes = self.sink.decoder().weigh(&payload, json);
        Entry::new(payload.key(), Arc::new(payload), bytes)
    }

    async fn answer(
        &self,
        request: Result<Request<Body>, Failure>,
        ask: impl AsyncFnOnce(&Link, Request<Body>) -> Result<Response<Body>, kube_client::Error>,
    ) -> Result<Response<Body>, Failure> {
        let response = timeout(ANSWER, ask(&self.client, request?)).await.map_err(|_| silent(ANSWER))?;
        let response = response.map_err(broken)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let body = stream::whole(body, ANSWER).await?;
        let retry_after = parts.headers.get(RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.parse().ok());
        Err(Failure::Refused(Refusal::of(parts.status.as_u16(), retry_after, &body)))
    }
}

/// Versions are numbers on every known server. One that is not can be watched from, but not be compared.
fn revision(version: &str) -> u64 {
    version.parse().unwrap_or_default()
}

/// The second one, unless there is none or it is known to be older: a server may tell again what it has told.
fn later(version: String, next: Option<String>) -> String {
    let is_older = |next: &String| (1..revision(&version)).contains(&revision(next));
    next.filter(|next| !is_older(next)).unwrap_or(version)
}

fn watch_time() -> Duration {
    WATCH.mul_f64(rand::rng().random_range(1.0..2.0))
}
