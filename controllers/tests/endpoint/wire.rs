//! A wire between the controller and the server: every call is noted, and some go wrong.
//!
//! What holds: only the calls that are named go wrong, each once and in the way that is named; everything else passes as it is. A call is named by what it asks for and by how often
//! that was asked before, so that it is the same one in every run of a story.

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http::{Method, Request, Response, StatusCode, Uri, header::CONTENT_TYPE};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use serde_json::json;
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::time::sleep;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Content = UnsyncBoxBody<Bytes, BoxError>;
type Answer = Response<Content>;

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// 409: somebody else was faster, says the server.
    Conflict,
    /// 429, and to be left alone for a second.
    TooMany,
    /// 500
    Internal,
    /// Nothing comes for a while, and then it is given up. The server has not seen it.
    Timeout,
    /// The connection breaks: a watch's after so many events, any other's before the server has seen it.
    Dropped(usize),
    /// A read tells what was before: nothing, or what the read before it told; a watch lags. A write is made from what somebody else has changed meanwhile.
    Stale,
    /// The server has done it, and the answer breaks off.
    Lost,
}

/// One call: `patch clusters`, and how many such were before it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) what: String,
    pub(crate) before: usize,
}

impl Call {
    pub(crate) fn is_write(&self) -> bool {
        ["create", "patch", "update", "delete"].iter().any(|verb| self.what.starts_with(verb))
    }

    fn is_watch(&self) -> bool {
        self.what.starts_with("watch") || self.what.starts_with("stream")
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.what, self.before + 1)
    }
}

/// What became of a call.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    pub(crate) call: Call,
    /// What the server said to it, if it was asked.
    pub(crate) code: Option<u16>,
    /// How many events a watch has told.
    pub(crate) events: usize,
}

/// A handle; a clone is the same wire.
#[derive(Clone)]
pub(crate) struct Wire(Arc<Shared>);

struct Shared {
    server: Client,
    faults: Vec<(Call, Way)>,
    /// How long a timeout takes, and a watch lags.
    patience: Duration,
    /// The server's version when there was nothing yet.
    beginning: String,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    calls: Vec<Noted>,
    /// The last answer to each read.
    told: HashMap<Uri, Bytes>,
}

impl Wire {
    pub(crate) fn new(server: Client, beginning: &str, patience: Duration, faults: &[(Call, Way)]) -> Self {
        let (faults, beginning, book) = (faults.to_vec(), beginning.into(), Mutex::default());
        Self(Arc::new(Shared { server, faults, patience, beginning, book }))
    }

    /// What calls over the wire.
    pub(crate) fn client(&self) -> Client {
        let wire = self.clone();
        let pass = move |request| {
            let wire = wire.clone();
            async move { wire.pass(request).await }
        };
        Client::new(tower::service_fn(pass), "default")
    }

    pub(crate) fn calls(&self) -> Vec<Noted> {
        self.book().calls.clone()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().expect("nobody panics with it")
    }

    async fn pass(&self, request: Request<Body>) -> Result<Answer, BoxError> {
        let what = what(&request);
        let (number, call) = {
            let calls = &mut self.book().calls;
            let before = calls.iter().filter(|noted| noted.call.what == what).count();
            let call = Call { what, before };
            calls.push(Noted { call: call.clone(), code: None, events: 0 });
            (calls.len() - 1, call)
        };
        match self.0.faults.iter().find(|(bad, _)| *bad == call).map(|(_, way)| *way) {
            None => self.ask(number, request).await,
            Some(Way::Conflict) => Ok(refusal(409, "Conflict")),
            Some(Way::TooMany) => Ok(refusal(429, "TooManyRequests")),
            Some(Way::Internal) => Ok(refusal(500, "InternalError")),
            Some(Way::Timeout) => {
                sleep(self.0.patience).await;
                Err("the server does not answer".into())
            }
            Some(Way::Dropped(events @ 1..)) => Ok(self.lines(number, request).await?.map(|lines| cut(lines, events))),
            Some(Way::Dropped(0)) => Err("the connection was cut".into()),
            Some(Way::Stale) if call.is_write() => {
                self.somebody_writes(number, request.uri()).await?;
                self.ask(number, request).await
            }
            Some(Way::Stale) if call.is_watch() => self.lagging(number, request).await,
            Some(Way::Stale) => Ok(self.told_before(request.uri())),
            Some(Way::Lost) if call.is_watch() => Ok(self.lines(number, request).await?.map(cut_within)),
            Some(Way::Lost) => {
                let (parts, body) = self.ask(number, request).await?.into_parts();
                let whole = body.collect().await?.to_bytes();
                Ok(Response::from_parts(parts, cut_within(stream::iter([Ok(whole)]).boxed())))
            }
        }
    }

    /// The server itself, whose answer is noted.
    async fn ask(&self, number: usize, request: Request<Body>) -> Result<Answer, BoxError> {
        let (uri, is_get) = (request.uri().clone(), request.method() == Method::GET);
        let is_watch = self.book().calls[number].call.is_watch();
        let (parts, body) = self.0.server.send(request).await?.into_parts();
        self.book().calls[number].code = Some(parts.status.as_u16());
        let body = if is_watch {
            let wire = self.clone();
            let count = move |frame: Frame<Bytes>| {
                let events = frame.data_ref().map_or(0, |data| data.split(|byte| *byte == b'\n').count() - 1);
                wire.book().calls[number].events += events;
                frame
            };
            body.map_frame(count).map_err(Into::into).boxed_unsync()
        } else {
            let whole = body.collect().await?.to_bytes();
            if is_get && parts.status.is_success() {
                self.book().told.insert(uri, whole.clone());
            }
            full(whole)
        };
        Ok(Response::from_parts(parts, body))
    }

    /// A watch, line by line.
    async fn lines(&self, number: usize, request: Request<Body>) -> Result<Response<Lines>, BoxError> {
        Ok(self.ask(number, request).await?.map(lines))
    }

    /// The watch of a server that is behind: what it begins with is nothing, and each event comes late.
    async fn lagging(&self, number: usize, mut request: Request<Body>) -> Result<Answer, BoxError> {
        let (patience, mut first) = (self.0.patience, None);
        if request.uri().to_string().contains("sendInitialEvents=true") {
            let version = &self.0.beginning;
            let from_there = request
                .uri()
                .to_string()
                .replace("sendInitialEvents=true", &format!("resourceVersion={version}"))
                .replace("&resourceVersionMatch=NotOlderThan", "");
            *request.uri_mut() = from_there.parse()?;
            let annotations = json!({"k8s.io/initial-events-end": "true"});
            let meta = json!({"resourceVersion": version, "annotations": annotations});
            let bookmark = json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "?", "metadata": meta}});
            first = Some(Ok(Bytes::from(format!("{bookmark}\n"))));
        }
        let late = move |line| async move {
            sleep(patience).await;
            line
        };
        let answer = self.lines(number, request).await?;
        Ok(answer.map(|lines| streamed(stream::iter(first).chain(lines.then(late)))))
    }

    /// What the last read of this told; it was not there before the first.
    fn told_before(&self, uri: &Uri) -> Answer {
        self.book().told.get(uri).map_or_else(|| refusal(404, "NotFound"), |told| Response::new(full(told.clone())))
    }

    /// A change that is nothing to us, and another one each time.
    async fn somebody_writes(&self, number: usize, uri: &Uri) -> Result<(), BoxError> {
        let change = json!({"metadata": {"annotations": {"example.com/somebody": number.to_string()}}});
        let request = Request::patch(uri.path().trim_end_matches("/status"))
            .header(CONTENT_TYPE, "application/merge-patch+json")
            .body(Body::from(change.to_string().into_bytes()))?;
        let answer = self.0.server.send(request).await?;
        let gone = answer.status() == StatusCode::NOT_FOUND;
        assert!(answer.status().is_success() || gone, "{uri}: {}", answer.status());
        Ok(())
    }
}

/// `patch captcontrolplanes/status`, `stream secrets`, `discover /apis/tf.upbound.io/v1beta1`. No names: in a story there is one of each kind.
fn what(request: &Request<Body>) -> String {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    // /api/v1 or /apis/group/v1
    let parts: Vec<_> = path.split('/').skip(if path.starts_with("/api/") { 3 } else { 4 }).collect();
    let parts = match &parts[..] {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    };
    let verb = match *request.method() {
        Method::GET if query.contains("sendInitialEvents=true") => "stream",
        Method::GET if query.contains("watch=true") => "watch",
        Method::GET if parts.len() == 1 => "list",
        Method::GET => "get",
        Method::POST => "create",
        Method::PATCH => "patch",
        Method::PUT => "update",
        _ => "delete",
    };
    match parts {
        [] => format!("discover {path}"),
        [resource, _, part] => format!("{verb} {resource}/{part}"),
        [resource, ..] => format!("{verb} {resource}"),
    }
}

fn refusal(code: u16, reason: &str) -> Answer {
    let details = (code == 429).then(|| json!({"retryAfterSeconds": 1}));
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "metadata": {}, "code": code, "reason": reason,
        "message": format!("{reason}, by the wire"), "details": details,
    });
    let mut answer = Response::new(full(status.to_string()));
    *answer.status_mut() = StatusCode::from_u16(code).expect("a status");
    answer
}

fn full(body: impl Into<Bytes>) -> Content {
    Full::new(body.into()).map_err(|never| match never {}).boxed_unsync()
}

type Lines = stream::BoxStream<'static, Result<Bytes, BoxError>>;

fn streamed(lines: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static) -> Content {
    StreamBody::new(lines.map(|line| line.map(Frame::data))).boxed_unsync()
}

fn lines(body: Content) -> Lines {
    let next = |(mut body, mut buffer): (Content, BytesMut)| async move {
        loop {
            if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(end + 1).freeze();
                return Some((Ok(line), (body, buffer)));
            }
            match body.frame().await?.map(Frame::into_data) {
                Ok(Ok(data)) => buffer.extend_from_slice(&data),
                Ok(Err(_)) => {}
                Err(error) => return Some((Err(error), (body, buffer))),
            }
        }
    };
    stream::unfold((body, BytesMut::new()), next).boxed()
}

fn cut(lines: Lines, events: usize) -> Content {
    streamed(lines.take(events).chain(stream::iter([Err("the connection was cut".into())])))
}

/// In the middle of the first part.
fn cut_within(lines: Lines) -> Content {
    let half = |line: Result<Bytes, BoxError>| line.map(|line| line.slice(..line.len() / 2));
    streamed(lines.take(1).map(half).chain(stream::iter([Err("the connection was cut".into())])))
}
