//! Connection whose watches are delayed or blocked.
//!
//! A cache lags as long as a test needs.

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture};
use http::{Request, Response};
use http_body_util::{BodyExt, BodyStream, StreamBody, combinators::UnsyncBoxBody};
use kube_client::client::Body;
use std::{
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// Maximum number of delayed frames.
const MAX_DELAYED_FRAMES: usize = 10_000;

/// Controls whether watches deliver, and their delay.
pub(crate) struct WatchGate {
    delay: Duration,
    open: watch::Sender<bool>,
}

impl WatchGate {
    pub(crate) fn new(delay: Duration) -> Self {
        Self {
            delay,
            open: watch::Sender::new(true),
        }
    }

    pub(crate) fn hold(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    pub(crate) fn wrap(&self, client: kube_client::Client) -> kube_client::Client {
        kube_client::Client::new(
            GatedService {
                client,
                delay: self.delay,
                open: self.open.subscribe(),
            },
            "default",
        )
    }
}

#[derive(Clone)]
struct GatedService {
    client: kube_client::Client,
    delay: Duration,
    open: watch::Receiver<bool>,
}

type GatedBody = UnsyncBoxBody<Bytes, kube_client::Error>;

impl tower_service::Service<Request<Body>> for GatedService {
    type Response = Response<GatedBody>;
    type Error = kube_client::Error;
    type Future = BoxFuture<'static, Result<Response<GatedBody>, kube_client::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube_client::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self {
            client,
            delay,
            open,
        } = self.clone();
        Box::pin(async move {
            let is_watch = request
                .uri()
                .query()
                .is_some_and(|query| query.contains("watch=true"));
            let response = client.send(request).await?;
            if !is_watch {
                return Ok(response.map(BodyExt::boxed_unsync));
            }
            Ok(response.map(|body| {
                let delayed = BodyStream::new(body).map(move |frame| {
                    let mut open = open.clone();
                    let due = Instant::now() + delay;
                    async move {
                        sleep_until(due).await;
                        // A dropped gate keeps its last state.
                        let _ = open.wait_for(|open| *open).await;
                        frame
                    }
                });
                StreamBody::new(delayed.buffered(MAX_DELAYED_FRAMES)).boxed_unsync()
            }))
        })
    }
}
