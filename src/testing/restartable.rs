//! Connection to the embedded server that breaks on a restart.
//!
//! Responses that are being read end with an error, as on a socket.

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use std::{
    error::Error as StdError,
    fmt,
    future::pending,
    pin::Pin,
    task::{Context, Poll},
};
use steersman_apiserver::{Closed, Service};
use tokio::sync::watch;

type BoxError = Box<dyn StdError + Send + Sync>;

/// Service of the embedded server with a notification of restarts.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) service: Service,
    pub(super) restarts: watch::Receiver<()>,
}

/// Response body that ends with an error when the server restarts.
pub(super) struct InterruptibleBody<B> {
    body: Pin<Box<B>>,
    restarted: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// The server was restarted while a response was read.
#[derive(Debug)]
struct Restarted;

impl fmt::Display for Restarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("connection closed: the API server was restarted")
    }
}

impl StdError for Restarted {}

impl<B> tower_service::Service<Request<B>> for Connection
where
    B: Body<Error: Into<BoxError>> + Send + 'static,
    B::Data: Send,
{
    type Response = Response<InterruptibleBody<steersman_apiserver::Body>>;
    type Error = Closed;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Closed>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        tower_service::Service::<Request<B>>::poll_ready(&mut self.service, cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut restarts = self.restarts.clone();
        // Only restarts after this request matter.
        restarts.mark_unchanged();
        let answer = self.service.call(request);
        Box::pin(async move {
            let restarted = Box::pin(async move {
                if restarts.changed().await.is_err() {
                    // The server is gone and cannot restart.
                    pending::<()>().await;
                }
            });
            Ok(answer.await?.map(|body| InterruptibleBody {
                body: Box::pin(body),
                restarted,
            }))
        })
    }
}

impl<B: Body<Error: Into<BoxError>>> Body for InterruptibleBody<B> {
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        // Data that is available is read first, as from a socket's buffer.
        if let Poll::Ready(frame) = self.body.as_mut().poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        self.restarted
            .as_mut()
            .poll(cx)
            .map(|()| Some(Err(Restarted.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
