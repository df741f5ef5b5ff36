//! Something between a client and the embedded server that answers some requests in its own way.

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use kube_client::{Client, client::Body};
use std::{
    error::Error,
    future::pending,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use steersman_apiserver::{ApiServer, Service};
use tokio::{
    task::yield_now,
    time::{sleep, timeout},
};

type BoxError = Box<dyn Error + Send + Sync>;
type Decide = dyn Fn(&Request<Body>) -> Turn + Send + Sync;
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// What becomes of an answer.
pub(crate) enum Turn {
    Pass,
    /// This instead, and then a clean end.
    Say(String),
    /// Who reads it panics.
    Panic,
    /// In ten parts, with so much time before each.
    TenParts(Duration),
    /// It begins, and nothing comes.
    Silence,
    /// No response headers.
    Never,
    /// These instead, with so much time before each; after the last one it stays open, and nothing comes.
    Tell(Vec<(Duration, String)>),
    /// Waits for this long, sends this text, and then breaks the connection.
    Break(Duration, String),
    /// Passes the answer, and breaks the connection when no data came for this long.
    CutIdle(Duration),
}

#[derive(Clone)]
struct Between {
    server: Service,
    turn: Arc<Decide>,
}

/// A client of the server, with something in between.
pub(crate) fn between(server: &ApiServer, turn: impl Fn(&Request<Body>) -> Turn + Send + Sync + 'static) -> Client {
    Client::new(Between { server: server.service(), turn: Arc::new(turn) }, "default")
}

/// Whether the request is for this resource, and has this in its query.
pub(crate) fn asks(request: &Request<Body>, resource: &str, what: &str) -> bool {
    let uri = request.uri();
    uri.path().ends_with(&format!("/{resource}")) && uri.query().is_some_and(|query| query.contains(what))
}

impl tower_service::Service<Request<Body>> for Between {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let turn = (self.turn)(&request);
        let answer = self.server.call(request);
        Box::pin(async move {
            let (parts, body) = answer.await?.into_parts();
            let body = match turn {
                Turn::Pass => body.map_err(Into::into).boxed_unsync(),
                // Not in the same moment: who waits for something has gone to sleep.
                Turn::Say(words) => return Ok(Response::new(of(stream::once(yield_now().map(|()| words.into()))))),
                Turn::Panic => of(stream::poll_fn(|_| panic!("a body that panics"))),
                Turn::Silence => of(stream::pending()),
                Turn::Never => return pending().await,
                Turn::Tell(words) => return Ok(Response::new(of(told(words).chain(stream::pending())))),
                Turn::Break(time, words) => {
                    let body = told(vec![(time, words)]).map(|part| Ok(Frame::data(part)));
                    let body = body.chain(stream::once(async { Err(BoxError::from("connection reset")) }));
                    return Ok(Response::new(StreamBody::new(body).boxed_unsync()));
                }
                Turn::CutIdle(time) => cut_idle(body.map_err(Into::into).boxed_unsync(), time),
                Turn::TenParts(time) => {
                    let whole = body.collect().await?.to_bytes();
                    let size = whole.len().div_ceil(10).max(1);
                    let parts: Vec<_> = whole.chunks(size).map(Bytes::copy_from_slice).collect();
                    of(stream::iter(parts).then(move |part| async move {
                        sleep(time).await;
                        part
                    }))
                }
            };
            Ok(Response::from_parts(parts, body))
        })
    }
}

fn told(words: Vec<(Duration, String)>) -> impl Stream<Item = Bytes> + Send {
    stream::iter(words).then(|(time, words)| async move {
        sleep(time).await;
        words.into()
    })
}

fn cut_idle(body: UnsyncBoxBody<Bytes, BoxError>, time: Duration) -> UnsyncBoxBody<Bytes, BoxError> {
    let frames = stream::unfold(Some(body), move |body| async move {
        let mut body = body?;
        match timeout(time, body.frame()).await {
            Ok(frame) => Some((frame?, Some(body))),
            Err(_) => Some((Err("connection reset".into()), None)),
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

fn of(parts: impl Stream<Item = Bytes> + Send + 'static) -> UnsyncBoxBody<Bytes, BoxError> {
    StreamBody::new(parts.map(|part| Ok(Frame::data(part)))).boxed_unsync()
}
