//! A connection whose watches tell late, or not before they may: so that a cache is behind for as long as a test wants it to be.

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

/// How much may be on its way at once.
const ON_ITS_WAY: usize = 10_000;

/// Says whether the watches may tell, and how late they do.
pub(crate) struct Gate {
    late: Duration,
    open: watch::Sender<bool>,
}

impl Gate {
    pub(crate) fn new(late: Duration) -> Self {
        Self { late, open: watch::Sender::new(true) }
    }

    pub(crate) fn hold(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    pub(crate) fn before(&self, client: kube_client::Client) -> kube_client::Client {
        kube_client::Client::new(Held { client, late: self.late, open: self.open.subscribe() }, "default")
    }
}

#[derive(Clone)]
struct Held {
    client: kube_client::Client,
    late: Duration,
    open: watch::Receiver<bool>,
}

type Late = UnsyncBoxBody<Bytes, kube_client::Error>;

impl tower_service::Service<Request<Body>> for Held {
    type Response = Response<Late>;
    type Error = kube_client::Error;
    type Future = BoxFuture<'static, Result<Response<Late>, kube_client::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube_client::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { client, late, open } = self.clone();
        Box::pin(async move {
            let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let response = client.send(request).await?;
            if !watches {
                return Ok(response.map(BodyExt::boxed_unsync));
            }
            Ok(response.map(|body| {
                let told = BodyStream::new(body).map(move |frame| {
                    let (mut open, due) = (open.clone(), Instant::now() + late);
                    async move {
                        sleep_until(due).await;
                        // A gate that is gone stays as it was.
                        let _ = open.wait_for(|open| *open).await;
                        frame
                    }
                });
                StreamBody::new(told.buffered(ON_ITS_WAY)).boxed_unsync()
            }))
        })
    }
}
