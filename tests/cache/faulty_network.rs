//! Faulty network in front of the embedded server.
//!
//! It cuts, duplicates, replays, delays and withholds data.
//!
//! Invariant: the lines of a watch stay in order, except for replayed ones. A streamed list is
//! passed completely or not at all, without replays. When the network is reliable, it passes
//! everything unchanged and releases what it withheld.

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

/// Errors inside a watch, in the format of kube-apiserver.
const ERRORS: [&str; 4] = [
    r#"{"kind":"Status","status":"Failure","message":"too old resource version","reason":"Expired","code":410}"#,
    r#"{"kind":"Status","status":"Failure","message":"etcd does not know","reason":"InternalError","code":500}"#,
    r#"{"kind":"Status","status":"Failure","message":"slower","reason":"TooManyRequests","details":{"retryAfterSeconds":7},"code":429}"#,
    r#"{"kind":"Status","status":"Failure","message":"Too large resource version","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]},"code":504}"#,
];

/// Handle of the faulty network. Clones share it.
#[derive(Clone)]
pub(crate) struct FaultyNetwork(Arc<Shared>);

struct Shared {
    server: Mutex<ApiServer>,
    state: watch::Sender<NetworkState>,
    seed: u64,
    requests: AtomicU64,
}

#[derive(Clone, Copy, PartialEq)]
struct NetworkState {
    reliable: bool,
    restarts: u64,
}

pub(crate) struct Restarts {
    state: watch::Receiver<NetworkState>,
    seen: u64,
}

impl Restarts {
    /// Waits for the next restart. Never returns if the network is dropped.
    pub(crate) async fn next(&mut self) {
        let restarts = self
            .state
            .wait_for(|state| state.restarts != self.seen)
            .await;
        match restarts.map(|state| state.restarts) {
            Ok(restarts) => self.seen = restarts,
            Err(_) => pending().await,
        }
    }
}

impl FaultyNetwork {
    pub(crate) fn new(server: ApiServer, seed: u64) -> Self {
        let state = watch::Sender::new(NetworkState {
            reliable: false,
            restarts: 0,
        });
        Self(Arc::new(Shared {
            server: Mutex::new(server),
            state,
            seed,
            requests: AtomicU64::new(0),
        }))
    }

    /// Creates a client whose requests pass the faulty network.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// Creates a client that bypasses the faulty network.
    pub(crate) fn direct_client(&self) -> Client {
        Client::new(self.server().service(), "default")
    }

    pub(crate) fn server(&self) -> ApiServer {
        self.0.server.lock().clone()
    }

    /// Subscribes to [replacements](Self::replace) of the server.
    pub(crate) fn restarts(&self) -> Restarts {
        let state = self.0.state.subscribe();
        let seen = state.borrow().restarts;
        Restarts { state, seen }
    }

    /// Replaces the server, as after a restart. All open requests break.
    pub(crate) fn replace(&self, server: ApiServer) {
        *self.0.server.lock() = server;
        self.0.state.send_modify(|state| state.restarts += 1);
    }

    pub(crate) fn set_reliable(&self, reliable: bool) {
        self.0.state.send_modify(|state| state.reliable = reliable);
    }

    pub(crate) fn is_reliable(&self) -> bool {
        self.0.state.borrow().reliable
    }

    /// Passes the body of a response other than a watch, complete or cut.
    async fn pass_response(
        &self,
        body: steersman_apiserver::Body,
        random: &mut StdRng,
    ) -> UnsyncBoxBody<Bytes, BoxError> {
        let body = body
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        if self.is_reliable() || random.random_range(0..20) > 0 {
            return Full::new(body)
                .map_err(|never| match never {})
                .boxed_unsync();
        }
        let part = Ok(Frame::data(
            body.slice(..random.random_range(0..=body.len())),
        ));
        let cut = random
            .random_bool(0.5)
            .then(|| Err(broken_connection("the connection was cut")));
        StreamBody::new(stream::iter([part].into_iter().chain(cut))).boxed_unsync()
    }
}

impl tower_service::Service<Request<Body>> for FaultyNetwork {
    type Response = Answer;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let number = self.0.requests.fetch_add(1, Relaxed);
        let mut random =
            StdRng::seed_from_u64(self.0.seed.wrapping_mul(1_000_003).wrapping_add(number));
        let query_contains = |what: &str| {
            request
                .uri()
                .query()
                .is_some_and(|query| query.contains(what))
        };
        let (is_watch, in_list) = (
            query_contains("watch=true"),
            query_contains("sendInitialEvents=true"),
        );
        let is_read = request.method() == Method::GET;
        // A restart breaks requests from before it, also if their responses arrive late.
        let state = self.0.state.subscribe();
        let restarts = state.borrow().restarts;
        let (network, answer) = (self.clone(), self.server().service().call(request));
        Box::pin(async move {
            let (parts, body) = answer.await?.into_parts();
            let body = match (is_watch && parts.status.is_success(), is_read) {
                (true, _) => Watch::new(body, in_list, random, state, restarts).into_body(),
                (false, true) => network.pass_response(body, &mut random).await,
                (false, false) => body.map_err(Into::into).boxed_unsync(),
            };
            Ok(Response::from_parts(parts, body))
        })
    }
}

/// A watch that passes the faulty network.
struct Watch {
    body: steersman_apiserver::Body,
    buffer: BytesMut,
    random: StdRng,
    state: watch::Receiver<NetworkState>,
    restarts: u64,
    /// Lines passed so far, which can be replayed.
    passed: Vec<Bytes>,
    /// Whether the watch is still in its streamed list, which ends with a bookmark.
    in_list: bool,
    out: VecDeque<Bytes>,
    end: Option<End>,
}

/// Ways in which a watch ends early.
enum End {
    Cleanly,
    Broken,
    /// Stays open without sending data.
    Silently,
}

impl Watch {
    fn new(
        body: steersman_apiserver::Body,
        in_list: bool,
        random: StdRng,
        state: watch::Receiver<NetworkState>,
        restarts: u64,
    ) -> Self {
        let (buffer, passed, out) = Default::default();
        Self {
            body,
            buffer,
            random,
            state,
            restarts,
            passed,
            in_list,
            out,
            end: None,
        }
    }

    fn into_body(self) -> UnsyncBoxBody<Bytes, BoxError> {
        let frames = stream::unfold(self, |mut watch| async {
            Some((watch.next().await?.map(Frame::data), watch))
        });
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
                Some(End::Broken) => return Some(Err(broken_connection("the connection was cut"))),
                Some(End::Silently) => {
                    let before = self.restarts;
                    let detected = self
                        .state
                        .wait_for(|state| state.reliable || state.restarts != before)
                        .await;
                    return Some(Err(broken_connection(if detected.is_ok() {
                        "a dead connection was detected"
                    } else {
                        "the network was dropped"
                    })));
                }
            }
            let restarted = async {
                if self
                    .state
                    .wait_for(|state| state.restarts != self.restarts)
                    .await
                    .is_err()
                {
                    pending::<()>().await;
                }
            };
            let frame = tokio::select! {
                biased;
                frame = self.body.frame() => frame?,
                () = restarted => return Some(Err(broken_connection("the server was restarted"))),
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

    /// Passes a line, or applies a random fault to it.
    async fn pass(&mut self, line: Bytes) {
        if self.end.is_some() {
            return;
        }
        self.in_list &= !String::from_utf8_lossy(&line).contains("initial-events-end");
        self.passed.push(line.clone());
        let number = if self.state.borrow().reliable {
            100
        } else {
            self.random.random_range(0..100)
        };
        match number {
            0..8 => self.out.extend([line.clone(), line]),
            8..16 if !self.in_list => {
                let old = self.passed[self.random.random_range(0..self.passed.len())].clone();
                self.out.extend([line, old]);
            }
            16..22 => {
                sleep(Duration::from_secs(self.random.random_range(1..40))).await;
                self.out.push_back(line);
            }
            22..26 => {
                self.out
                    .push_back(line.slice(..self.random.random_range(0..line.len())));
                self.end = Some(if self.random.random_bool(0.5) {
                    End::Cleanly
                } else {
                    End::Broken
                });
            }
            26..28 => self.end = Some(End::Silently),
            28..32 => {
                let error = ERRORS[self.random.random_range(0..ERRORS.len())];
                self.out
                    .push_back(format!("{{\"type\":\"ERROR\",\"object\":{error}}}\n").into());
                self.end = Some(End::Cleanly);
            }
            32..40 => {
                let middle = self.random.random_range(0..line.len());
                self.out
                    .extend([line.slice(..middle), line.slice(middle..)]);
            }
            _ => self.out.push_back(line),
        }
    }
}

fn broken_connection(what: &'static str) -> BoxError {
    what.into()
}
