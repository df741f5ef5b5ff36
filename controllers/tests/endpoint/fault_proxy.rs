//! Proxy in front of the server that records every request and fails some.
//!
//! Invariant: only the named requests fail, each once and in the named way. Everything else passes
//! unchanged. A request is named by its kind and the number of such requests before it, so it is
//! the same in every run of a scenario.

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

/// Kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// 409, as after a concurrent write.
    Conflict,
    /// 429 with `Retry-After` of one second.
    TooMany,
    /// Status 500.
    Internal,
    /// No response until the client's timeout.
    ///
    /// The server does not receive the request.
    Timeout,
    /// Broken connection.
    ///
    /// A watch breaks after this many events, any other request before the server receives it.
    Dropped(usize),
    /// Stale data.
    ///
    /// A read returns the previous response or 404, a watch lags, a write conflicts with a
    /// concurrent change.
    Stale,
    /// The server executes the request, and the response is truncated.
    Lost,
}

/// Request, such as `patch clusters`, and the number of such requests before it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) request_kind: String,
    pub(crate) before: usize,
}

impl Call {
    pub(crate) fn is_write(&self) -> bool {
        ["create", "patch", "update", "delete"]
            .iter()
            .any(|verb| self.request_kind.starts_with(verb))
    }

    fn is_watch(&self) -> bool {
        self.request_kind.starts_with("watch") || self.request_kind.starts_with("stream")
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.request_kind, self.before + 1)
    }
}

/// Recorded request.
#[derive(Clone, Debug)]
pub(crate) struct RecordedCall {
    pub(crate) call: Call,
    /// Status of the server's response. `None` if the request was not sent.
    pub(crate) code: Option<u16>,
    /// Number of events that a watch delivered.
    pub(crate) events: usize,
}

/// Handle of the proxy. Clones share it.
#[derive(Clone)]
pub(crate) struct FaultProxy(Arc<State>);

struct State {
    server: Client,
    faults: Vec<(Call, FaultKind)>,
    /// Duration of a timeout, and delay of a lagging watch.
    delay: Duration,
    /// Resource version of the server before the scenario.
    start_version: String,
    record: Mutex<ProxyRecord>,
}

#[derive(Default)]
struct ProxyRecord {
    calls: Vec<RecordedCall>,
    /// Last response to each read.
    last_responses: HashMap<Uri, Bytes>,
}

impl FaultProxy {
    pub(crate) fn new(
        server: Client,
        start_version: &str,
        delay: Duration,
        faults: &[(Call, FaultKind)],
    ) -> Self {
        let (faults, start_version, record) =
            (faults.to_vec(), start_version.into(), Mutex::default());
        Self(Arc::new(State {
            server,
            faults,
            delay,
            start_version,
            record,
        }))
    }

    /// Creates a client whose requests pass the proxy.
    pub(crate) fn client(&self) -> Client {
        let proxy = self.clone();
        let pass = move |request| {
            let proxy = proxy.clone();
            async move { proxy.pass(request).await }
        };
        Client::new(tower::service_fn(pass), "default")
    }

    pub(crate) fn calls(&self) -> Vec<RecordedCall> {
        self.record().calls.clone()
    }

    fn record(&self) -> MutexGuard<'_, ProxyRecord> {
        self.0.record.lock().expect("not poisoned")
    }

    async fn pass(&self, request: Request<Body>) -> Result<Answer, BoxError> {
        let request_kind = request_kind(&request);
        let (number, call) = {
            let calls = &mut self.record().calls;
            let before = calls
                .iter()
                .filter(|recorded| recorded.call.request_kind == request_kind)
                .count();
            let call = Call {
                request_kind,
                before,
            };
            calls.push(RecordedCall {
                call: call.clone(),
                code: None,
                events: 0,
            });
            (calls.len() - 1, call)
        };
        match self
            .0
            .faults
            .iter()
            .find(|(bad, _)| *bad == call)
            .map(|(_, kind)| *kind)
        {
            None => self.send(number, request).await,
            Some(FaultKind::Conflict) => Ok(error_response(409, "Conflict")),
            Some(FaultKind::TooMany) => Ok(error_response(429, "TooManyRequests")),
            Some(FaultKind::Internal) => Ok(error_response(500, "InternalError")),
            Some(FaultKind::Timeout) => {
                sleep(self.0.delay).await;
                Err("no response".into())
            }
            Some(FaultKind::Dropped(events @ 1..)) => Ok(self
                .lines(number, request)
                .await?
                .map(|lines| cut_after(lines, events))),
            Some(FaultKind::Dropped(0)) => Err("the connection was cut".into()),
            Some(FaultKind::Stale) if call.is_write() => {
                self.write_concurrently(number, request.uri()).await?;
                self.send(number, request).await
            }
            Some(FaultKind::Stale) if call.is_watch() => self.lagging(number, request).await,
            Some(FaultKind::Stale) => Ok(self.previous_response(request.uri())),
            Some(FaultKind::Lost) if call.is_watch() => {
                Ok(self.lines(number, request).await?.map(truncate))
            }
            Some(FaultKind::Lost) => {
                let (parts, body) = self.send(number, request).await?.into_parts();
                let whole = body.collect().await?.to_bytes();
                Ok(Response::from_parts(
                    parts,
                    truncate(stream::iter([Ok(whole)]).boxed()),
                ))
            }
        }
    }

    /// Sends the request to the server and records the response.
    async fn send(&self, number: usize, request: Request<Body>) -> Result<Answer, BoxError> {
        let (uri, is_get) = (request.uri().clone(), request.method() == Method::GET);
        let is_watch = self.record().calls[number].call.is_watch();
        let (parts, body) = self.0.server.send(request).await?.into_parts();
        self.record().calls[number].code = Some(parts.status.as_u16());
        let body = if is_watch {
            let proxy = self.clone();
            let count = move |frame: Frame<Bytes>| {
                let events = frame
                    .data_ref()
                    .map_or(0, |data| data.split(|byte| *byte == b'\n').count() - 1);
                proxy.record().calls[number].events += events;
                frame
            };
            body.map_frame(count).map_err(Into::into).boxed_unsync()
        } else {
            let whole = body.collect().await?.to_bytes();
            if is_get && parts.status.is_success() {
                self.record().last_responses.insert(uri, whole.clone());
            }
            full(whole)
        };
        Ok(Response::from_parts(parts, body))
    }

    /// Sends a watch request and returns its lines.
    async fn lines(
        &self,
        number: usize,
        request: Request<Body>,
    ) -> Result<Response<Lines>, BoxError> {
        Ok(self.send(number, request).await?.map(lines))
    }

    /// Returns the watch of a lagging server.
    ///
    /// It starts empty, and each event is delayed.
    async fn lagging(&self, number: usize, mut request: Request<Body>) -> Result<Answer, BoxError> {
        let (delay, mut first) = (self.0.delay, None);
        if request.uri().to_string().contains("sendInitialEvents=true") {
            let version = &self.0.start_version;
            let uri = request
                .uri()
                .to_string()
                .replace(
                    "sendInitialEvents=true",
                    &format!("resourceVersion={version}"),
                )
                .replace("&resourceVersionMatch=NotOlderThan", "");
            *request.uri_mut() = uri.parse()?;
            let annotations = json!({"k8s.io/initial-events-end": "true"});
            let meta = json!({"resourceVersion": version, "annotations": annotations});
            let bookmark = json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "?", "metadata": meta}});
            first = Some(Ok(Bytes::from(format!("{bookmark}\n"))));
        }
        let delayed = move |line| async move {
            sleep(delay).await;
            line
        };
        let response = self.lines(number, request).await?;
        Ok(response.map(|lines| streamed(stream::iter(first).chain(lines.then(delayed)))))
    }

    /// Returns the previous response to this read, or 404 before the first.
    fn previous_response(&self, uri: &Uri) -> Answer {
        self.record().last_responses.get(uri).map_or_else(
            || error_response(404, "NotFound"),
            |last_responses| Response::new(full(last_responses.clone())),
        )
    }

    /// Sets an irrelevant annotation to a new value, as another client would.
    async fn write_concurrently(&self, number: usize, uri: &Uri) -> Result<(), BoxError> {
        let change =
            json!({"metadata": {"annotations": {"example.com/other": number.to_string()}}});
        let request = Request::patch(uri.path().trim_end_matches("/status"))
            .header(CONTENT_TYPE, "application/merge-patch+json")
            .body(Body::from(change.to_string().into_bytes()))?;
        let response = self.0.server.send(request).await?;
        let is_missing = response.status() == StatusCode::NOT_FOUND;
        assert!(
            response.status().is_success() || is_missing,
            "{uri}: {}",
            response.status()
        );
        Ok(())
    }
}

/// Returns the kind of a request, without the name of the object.
///
/// Examples: `patch captcontrolplanes/status`, `stream secrets`, `discover
/// /apis/tf.upbound.io/v1beta1`. A scenario has one object of each kind.
fn request_kind(request: &Request<Body>) -> String {
    let (path, query) = (
        request.uri().path(),
        request.uri().query().unwrap_or_default(),
    );
    // /api/v1 or /apis/group/v1
    let parts: Vec<_> = path
        .split('/')
        .skip(if path.starts_with("/api/") { 3 } else { 4 })
        .collect();
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

fn error_response(code: u16, reason: &str) -> Answer {
    let details = (code == 429).then(|| json!({"retryAfterSeconds": 1}));
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "metadata": {}, "code": code, "reason": reason,
        "message": format!("{reason}, injected"), "details": details,
    });
    let mut response = Response::new(full(status.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).expect("a status");
    response
}

fn full(body: impl Into<Bytes>) -> Content {
    Full::new(body.into())
        .map_err(|never| match never {})
        .boxed_unsync()
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

fn cut_after(lines: Lines, events: usize) -> Content {
    streamed(
        lines
            .take(events)
            .chain(stream::iter([Err("the connection was cut".into())])),
    )
}

/// Truncates the response in the middle of its first part.
fn truncate(lines: Lines) -> Content {
    let half = |line: Result<Bytes, BoxError>| line.map(|line| line.slice(..line.len() / 2));
    streamed(
        lines
            .take(1)
            .map(half)
            .chain(stream::iter([Err("the connection was cut".into())])),
    )
}
