//! Body of the fuzz target `admin_paths`.

use super::pages::Pages;
use crate::manager::{Manager, Probe};
use axum::{Router, body::Body};
use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use kube_client::Client;
use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll},
};
use tokio::runtime::{self, Runtime};
use tower_service::Service;

thread_local! {
    /// Pages of a manager with a check of each kind, without and with the debug pages.
    static PAGES: (Runtime, [Router; 2]) = pages();
}

/// Requests any path and query of the admin server.
///
/// Invariant: only `/readyz` reports a failure, since the manager does not run.
pub fn admin_paths(data: &[u8]) {
    let Ok(uri) = Uri::try_from(data) else { return };
    if !uri.path().starts_with('/') {
        return;
    }
    PAGES.with(|(runtime, routers)| {
        for router in routers {
            let request = Request::get(uri.clone())
                .body(Body::empty())
                .expect("a request");
            runtime.block_on(async {
                let response = router
                    .clone()
                    .call(request)
                    .await
                    .unwrap_or_else(|never| match never {});
                let failed = response.status() == StatusCode::INTERNAL_SERVER_ERROR;
                assert!(!failed || uri.path().starts_with("/readyz"), "{uri}");
                response.into_body().collect().await.expect("a body");
            });
        }
    });
}

fn pages() -> (Runtime, [Router; 2]) {
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let routers = runtime.block_on(async {
        let manager = Manager::builder(Client::new(Unreachable, "default"))
            .build()
            .expect("a manager")
            .handle();
        manager.add_check(Probe::Health, "ping", || Ok(()));
        manager.add_check(Probe::Ready, "a/b c", || Ok(()));
        [false, true].map(|debug| {
            Pages {
                manager: manager.clone(),
                debug,
                shows_reason: debug,
            }
            .router(None)
        })
    });
    (runtime, routers)
}

/// API server that is never called: no task runs that sends a request.
#[derive(Clone)]
struct Unreachable;

impl<B> Service<Request<B>> for Unreachable {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        ready(Ok(response))
    }
}
