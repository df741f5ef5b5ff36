//! Conversion of handlers to other request types.

use super::{Enqueue, Handler};
use crate::{
    event::Event,
    reconcile::{ClusterRequest, Request},
    workqueue::Key,
};
use std::sync::Arc;

/// Converts the requests of a handler to the request type of the controller.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use k8s_openapi::api::core::v1::Pod;
/// use steersman::{handler, prelude::*};
///
/// // All pods share one request.
/// let all = handler::wrap(handler::object(), |_| ());
/// assert_eq!(handler::requests(&all, Event::<Pod>::create(Pod::default())).await, [()]);
/// # }
/// ```
pub fn wrap<K, R: Key, H, F>(handler: H, wrap: F) -> impl Handler<K, R> + use<K, R, H, F>
where
    H: Handler<K, Request>,
    F: Fn(Request) -> R + Send + Sync + 'static,
{
    Wrapped {
        handler,
        wrap: Arc::new(wrap),
    }
}

/// Converts requests to those of a controller over several clusters. See [`wrap`].
pub fn in_cluster<K, H: Handler<K, Request>>(
    cluster: &str,
    handler: H,
) -> impl Handler<K, ClusterRequest> + use<K, H> {
    let cluster: Arc<str> = cluster.into();
    wrap(handler, move |request| ClusterRequest {
        cluster: cluster.clone(),
        request,
    })
}

struct Wrapped<H, F> {
    handler: H,
    wrap: Arc<F>,
}

impl<K, R: Key, H: Handler<K, Request>, F> Handler<K, R> for Wrapped<H, F>
where
    F: Fn(Request) -> R + Send + Sync + 'static,
{
    fn handle(&self, event: &Event<K>, queue: &Enqueue<R>) {
        self.handler.handle(event, &queue.mapped(self.wrap.clone()));
    }
}
