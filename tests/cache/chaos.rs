//! A door to the embedded server through a bad network: what passes it is cut anywhere, told twice, told again when it is old, held back, or never comes.
//!
//! What holds: the lines of one watch come in order, but for those that are told again; a streamed list is told whole or not at all, and is not told what is old;
//! when the door is calm it changes nothing, and what it held back is let go.

use bytes::{Bytes, BytesMut};
use futures::stream;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube_client::{Client, client::Body};
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{
    collections::VecDeque,
    error::Error,
    future::{Future, pending},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};
use steersman_apiserver::ApiServer;
use tokio::{sync::watch, time::sleep};

type BoxError = Box<dyn Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// Errors inside a watch, as the real server tells them.
const ERRORS: [&str; 4] = [
    r#"{"kind":"Status","status":"Failure","message":"too old resource version","reason":"Expired","code":410}"#,
    r#"{"kind":"Status","status":"Failure","message":"etcd does not know","reason":"InternalError","code":500}"#,
    r#"{"kind":"Status","status":"Failure","message":"slower","reason":"TooManyRequests","details":{"retryAfterSeconds":7},"code":429}"#,
    r#"{"kind":"Status","status":"Failure","message":"Too large resource version","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]},"code":504}"#,
];

/// A handle; clones are the same door.
#[derive(Clone)]
pub(crate) struct Door(Arc<Shared>);

struct Shared {
    server: Mutex<ApiServer>,
    weather: watch::Sender<Weather>,
    seed: u64,
    requests: AtomicU64,
}

#[derive(Clone, Copy, PartialEq)]
struct Weather {
    calm: bool,
    restarts: u64,
}

pub(crate) struct Restarts {
    weather: watch::Receiver<Weather>,
    seen: u64,
}

impl Restarts {
    /// Never, if there is no door any more.
    pub(crate) async fn next(&mut self) {
        let restarts = self.weather.wait_for(|weather| weather.restarts != self.seen).await;
        match restarts.map(|weather| weather.restarts) {
            Ok(restarts) => self.seen = restarts,
            Err(_) => pending().await,
        }
    }
}

impl Door {
    pub(crate) fn new(server: ApiServer, seed: u64) -> Self {
        let weather = watch::Sender::new(Weather { calm: false, restarts: 0 });
        Self(Arc::new(Shared { server: Mutex::new(server), weather, seed, requests: AtomicU64::new(0) }))
    }

    /// What goes through the door.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// Who is in the house already.
    pub(crate) fn inside(&self) -> Client {
        Client::new(self.server().service(), "default")
    }

    pub(crate) fn server(&self) -> ApiServer {
        self.0.server.lock().clone()
    }

    /// Tells of each time that the server is [replaced](Self::replace).
    pub(crate) fn restarts(&self) -> Restarts {
        let weather = self.0.weather.subscribe();
        let seen = weather.borrow().restarts;
        Restarts { weather, seen }
    }

    /// Another server from now on, as after a restart: all that is under way breaks.
    pub(crate) fn replace(&self, server: ApiServer) {
        *self.0.server.lock() = server;
        self.0.weather.send_modify(|weather| weather.restarts += 1);
    }

    pub(crate) fn set_calm(&self, calm: bool) {
        self.0.weather.send_modify(|weather| weather.calm = calm);
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.0.weather.borrow().calm
    }

    /// An answer that is not a watch's: whole, or cut.
    async fn whole(&self, body: steersman_apiserver::Body, random: &mut StdRng) -> UnsyncBoxBody<Bytes, BoxError> {
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        if self.is_calm() || random.random_range(0..20) > 0 {
            return Full::new(body).map_err(|never| match never {}).boxed_unsync();
        }
        let part = Ok(Frame::data(body.slice(..random.random_range(0..=body.len()))));
        let cut = random.random_bool(0.5).then(|| Err(broken("the connection was cut")));
        StreamBody::new(stream::iter([part].into_iter().chain(cut))).boxed_unsync()
    }
}

impl tower_service::Service<Request<Body>> for Door {
    type Response = Answer;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let number = self.0.requests.fetch_add(1, Relaxed);
        let mut random = StdRng::seed_from_u64(self.0.seed.wrapping_mul(1_000_003).wrapping_add(number));
        let asks = |what: &str| request.uri().query().is_some_and(|query| query.contains(what));
        let (is_watch, in_list) = (asks("watch=true"), asks("sendInitialEvents=true"));
        let is_read = request.method() == Method::GET;
        // Who was asked before a restart is gone after it, also if the answer comes late.
        let weather = self.0.weather.subscribe();
        let restarts = weather.borrow().restarts;
        let (door, answer) = (self.clone(), self.server().service().call(request));
        Box::pin(async move {
            let (parts, body) = answer.await?.into_parts();
            let body = match (is_watch && parts.status.is_success(), is_read) {
                (true, _) => Watch::new(body, in_list, random, weather, restarts).into_body(),
                (false, true) => door.whole(body, &mut random).await,
                (false, false) => body.map_err(Into::into).boxed_unsync(),
            };
            Ok(Response::from_parts(parts, body))
        })
    }
}

/// A watch on its way through the door.
struct Watch {
    body: steersman_apiserver::Body,
    buffer: BytesMut,
    random: StdRng,
    weather: watch::Receiver<Weather>,
    restarts: u64,
    /// The lines so far: what can be told again.
    told: Vec<Bytes>,
    /// A streamed list is told first, up to its bookmark.
    in_list: bool,
    out: VecDeque<Bytes>,
    end: Option<End>,
}

/// How it ends before its time.
enum End {
    Cleanly,
    Broken,
    /// It stays open, and nothing comes any more.
    Silently,
}

impl Watch {
    fn new(
        body: steersman_apiserver::Body,
        in_list: bool,
        random: StdRng,
        weather: watch::Receiver<Weather>,
        restarts: u64,
    ) -> Self {
        let (buffer, told, out) = Default::default();
        Self { body, buffer, random, weather, restarts, told, in_list, out, end: None }
    }

    fn into_body(self) -> UnsyncBoxBody<Bytes, BoxError> {
        let frames = stream::unfold(self, |mut watch| async { Some((watch.next().await?.map(Frame::data), watch)) });
        StreamBody::new(frames).boxed_unsync()
    }

    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            if let Some(bytes) = self.out.pop_front() {
                return Some(Ok(bytes));
            }
            match self.end {
                None => {}
                Some(End::Cleanly) => return None,
                Some(End::Broken) => return Some(Err(broken("the connection was cut"))),
                Some(End::Silently) => {
                    let before = self.restarts;
                    let over = self.weather.wait_for(|weather| weather.calm || weather.restarts != before).await;
                    return Some(Err(broken(if over.is_ok() { "it was found to be dead" } else { "it is over" })));
                }
            }
            let restarted = async {
                if self.weather.wait_for(|weather| weather.restarts != self.restarts).await.is_err() {
                    pending::<()>().await;
                }
            };
            let frame = tokio::select! {
                biased;
                frame = self.body.frame() => frame?,
                () = restarted => return Some(Err(broken("the server was restarted"))),
            };
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => self.buffer.extend_from_slice(&data),
                Ok(Err(_)) => {}
                Err(error) => return Some(Err(error)),
            }
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1).freeze();
                self.pass(line).await;
            }
        }
    }

    /// A line, and what becomes of it.
    async fn pass(&mut self, line: Bytes) {
        if self.end.is_some() {
            return;
        }
        self.in_list &= !String::from_utf8_lossy(&line).contains("initial-events-end");
        self.told.push(line.clone());
        let dice = if self.weather.borrow().calm { 100 } else { self.random.random_range(0..100) };
        match dice {
            0..8 => self.out.extend([line.clone(), line]),
            8..16 if !self.in_list => {
                let old = self.told[self.random.random_range(0..self.told.len())].clone();
                self.out.extend([line, old]);
            }
            16..22 => {
                sleep(Duration::from_secs(self.random.random_range(1..40))).await;
                self.out.push_back(line);
            }
            22..26 => {
                self.out.push_back(line.slice(..self.random.random_range(0..line.len())));
                self.end = Some(if self.random.random_bool(0.5) { End::Cleanly } else { End::Broken });
            }
            26..28 => self.end = Some(End::Silently),
            28..32 => {
                let error = ERRORS[self.random.random_range(0..ERRORS.len())];
                self.out.push_back(format!("{{\"type\":\"ERROR\",\"object\":{error}}}\n").into());
                self.end = Some(End::Cleanly);
            }
            32..40 => {
                let middle = self.random.random_range(0..line.len());
                self.out.extend([line.slice(..middle), line.slice(middle..)]);
            }
            _ => self.out.push_back(line),
        }
    }
}

fn broken(what: &'static str) -> BoxError {
    what.into()
}
