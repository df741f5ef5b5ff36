//! Service in front of the embedded server that replaces selected responses.

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
type Choose = dyn Fn(&Request<Body>) -> ResponseAction + Send + Sync;
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// Treatment of a response.
pub(crate) enum ResponseAction {
    Pass,
    /// Sends this text instead, and ends cleanly.
    Replace(String),
    /// Panics when the body is read.
    Panic,
    /// Sends the body in ten parts, with this delay before each.
    TenChunks(Duration),
    /// Sends headers, and never any data.
    NoData,
    /// Sends no response headers.
    NoResponse,
    /// Sends these texts instead, each after its delay, then stays open.
    ReplaceTimed(Vec<(Duration, String)>),
    /// Waits for this long, sends this text, and then breaks the connection.
    Break(Duration, String),
    /// Passes the response, and breaks the connection after this long without data.
    CutIdle(Duration),
}

#[derive(Clone)]
struct ResponseProxy {
    server: Service,
    choose_action: Arc<Choose>,
}

/// Creates a client of the server that treats each response as `choose_action` returns.
pub(crate) fn proxy_client(
    server: &ApiServer,
    choose_action: impl Fn(&Request<Body>) -> ResponseAction + Send + Sync + 'static,
) -> Client {
    Client::new(
        ResponseProxy {
            server: server.service(),
            choose_action: Arc::new(choose_action),
        },
        "default",
    )
}

/// Returns whether the request is for `resource` and its query contains `query`.
pub(crate) fn is_request_for(request: &Request<Body>, resource: &str, query: &str) -> bool {
    let uri = request.uri();
    uri.path().ends_with(&format!("/{resource}"))
        && uri.query().is_some_and(|all| all.contains(query))
}

impl tower_service::Service<Request<Body>> for ResponseProxy {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let action = (self.choose_action)(&request);
        let response = self.server.call(request);
        Box::pin(async move {
            let (parts, body) = response.await?.into_parts();
            let body = match action {
                ResponseAction::Pass => body.map_err(Into::into).boxed_unsync(),
                // Yields first, so that the client's waiting tasks are asleep.
                ResponseAction::Replace(text) => {
                    return Ok(Response::new(body_of(stream::once(
                        yield_now().map(|()| text.into()),
                    ))));
                }
                ResponseAction::Panic => body_of(stream::poll_fn(|_| panic!("a body that panics"))),
                ResponseAction::NoData => body_of(stream::pending()),
                ResponseAction::NoResponse => return pending().await,
                ResponseAction::ReplaceTimed(text) => {
                    return Ok(Response::new(body_of(
                        timed_chunks(text).chain(stream::pending()),
                    )));
                }
                ResponseAction::Break(time, text) => {
                    let body = timed_chunks(vec![(time, text)]).map(|part| Ok(Frame::data(part)));
                    let body = body.chain(stream::once(async {
                        Err(BoxError::from("connection reset"))
                    }));
                    return Ok(Response::new(StreamBody::new(body).boxed_unsync()));
                }
                ResponseAction::CutIdle(time) => {
                    cut_idle(body.map_err(Into::into).boxed_unsync(), time)
                }
                ResponseAction::TenChunks(time) => {
                    let whole = body.collect().await?.to_bytes();
                    let size = whole.len().div_ceil(10).max(1);
                    let parts: Vec<_> = whole.chunks(size).map(Bytes::copy_from_slice).collect();
                    body_of(stream::iter(parts).then(move |part| async move {
                        sleep(time).await;
                        part
                    }))
                }
            };
            Ok(Response::from_parts(parts, body))
        })
    }
}

fn timed_chunks(text: Vec<(Duration, String)>) -> impl Stream<Item = Bytes> + Send {
    stream::iter(text).then(|(time, text)| async move {
        sleep(time).await;
        text.into()
    })
}

fn cut_idle(
    body: UnsyncBoxBody<Bytes, BoxError>,
    time: Duration,
) -> UnsyncBoxBody<Bytes, BoxError> {
    let frames = stream::unfold(Some(body), move |body| async move {
        let mut body = body?;
        match timeout(time, body.frame()).await {
            Ok(frame) => Some((frame?, Some(body))),
            Err(_) => Some((Err("connection reset".into()), None)),
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

fn body_of(parts: impl Stream<Item = Bytes> + Send + 'static) -> UnsyncBoxBody<Bytes, BoxError> {
    StreamBody::new(parts.map(|part| Ok(Frame::data(part)))).boxed_unsync()
}
