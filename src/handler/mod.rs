//! Event handlers: map events to the requests they affect.
//!
//! | handler | enqueues |
//! |---|---|
//! | [`object`] | the object of the event |
//! | [`owner`], [`owner_of`] | its owner |
//! | [`map`], [`map_with_cache`], [`map_async`] | the requests that a function returns |
//! | [`Funcs`], [`from_fn`] | requests that closures add |
//! | [`wrap`], [`in_cluster`] | the requests of another handler, converted to another type |
//!
//! Use [`Enqueue::add_async`] in closures for code that waits or can fail.
//!
//! Requests from an initial list or from an unchanged update are queued with low priority. Each
//! request has a reason for logs and debug pages.
//!
//! [`requests`] returns the requests of a handler in a unit test:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! use k8s_openapi::api::{apps::v1::{Deployment, ReplicaSet}, core::v1::Pod};
//! use steersman::{client::owner, handler, prelude::*, reconcile::Request};
//!
//! let web: ReplicaSet = serde_json::from_value(serde_json::json!({"metadata": {"namespace": "shop", "name": "web", "uid": "1"}}))?;
//! let mut pod = Pod::default();
//! pod.metadata.namespace = Some("shop".into());
//! owner::set_controller(&web, &mut pod)?;
//!
//! let event = Event::<Pod>::create(pod);
//! assert_eq!(handler::requests(&handler::owner::<ReplicaSet>(), event.clone()).await, [Request::new("shop", "web")]);
//! assert_eq!(handler::requests(&handler::owner::<Deployment>(), event).await, []);
//! # Ok(())
//! # }
//! ```

mod dedup;
mod enqueue;
mod funcs;
mod map;
mod owner;
mod pending;
mod retry;
mod trigger;
mod wrap;

use self::dedup::Deduped;
pub use self::{
    enqueue::Enqueue,
    funcs::{Funcs, from_fn},
    map::{map, map_async, map_with_cache},
    owner::{Owner, owner, owner_of},
    wrap::{in_cluster, wrap},
};
pub(crate) use self::{
    enqueue::Target,
    owner::owner_in,
    retry::Retrier,
    trigger::{EventKind, Subject},
};
use crate::{
    event::Event,
    reconcile::Request,
    workqueue::{Add, Key},
};
use parking_lot::Mutex;
use std::sync::Arc;

/// Maps one event to requests.
///
/// The source calls it for one event at a time, in order. If it panics, the event is dropped,
/// counted and logged.
///
/// It must not block. Use [`Enqueue::add_async`] for code that waits or can fail.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of events of `{K}`",
    label = "not a handler",
    note = "wrap a function that returns requests: `handler::map(f)`, or `handler::map_async(f)` if it waits",
    note = "wrap a function of the event and the queue: `handler::from_fn(f)`"
)]
pub trait Handler<K, R: Key>: Send + Sync + 'static {
    /// Adds the requests that the event affects to the queue.
    fn handle(&self, event: &Event<K>, queue: &Enqueue<R>);
}

/// Shares a handler between watches, also as `Arc<dyn Handler<K, R>>`.
impl<K: 'static, R: Key, H: Handler<K, R> + ?Sized> Handler<K, R> for Arc<H> {
    fn handle(&self, event: &Event<K>, queue: &Enqueue<R>) {
        (**self).handle(event, queue);
    }
}

/// Returns a handler that enqueues the object of the event.
pub fn object() -> ForObject {
    ForObject
}

/// Handler that enqueues the object of the event, see [`object`].
#[derive(Clone, Copy, Debug)]
pub struct ForObject;

impl<K> Handler<K, Request> for ForObject {
    fn handle(&self, event: &Event<K>, queue: &Enqueue<Request>) {
        queue.add_itself(event.object().key().clone());
    }
}

/// Returns the requests that a handler adds for an event, for unit tests.
///
/// Awaits the asynchronous mappings of the handler.
///
/// # Panics
/// If an asynchronous mapping fails.
pub async fn requests<K: 'static, R: Key>(handler: &impl Handler<K, R>, event: Event<K>) -> Vec<R> {
    struct Collected<R>(Mutex<Vec<R>>);
    impl<R: Key> Target<R> for Collected<R> {
        fn add(&self, request: R, _: Add) {
            self.0.lock().push(request);
        }
    }
    let (collected, retrier) = (Arc::new(Collected(Mutex::default())), Retrier::default());
    let queue = Enqueue::new(collected.clone(), retrier.clone(), None);
    handler.handle(&event, &queue.for_event(&Subject::new("test"), &event));
    let attempted = retrier.attempt_all().await;
    retrier.close();
    if let Err(error) = attempted {
        panic!("{error:#}");
    }
    std::mem::take(&mut *collected.0.lock())
}

/// Results of a mapping: a `Vec`, array or `Option` of requests, or a `Result` of those.
pub trait Requests<R>: Send {
    /// Calls `add` with each request, or returns the error of the mapping.
    fn each(self, add: &mut dyn FnMut(R)) -> anyhow::Result<()>;
}

impl<R: Send> Requests<R> for Vec<R> {
    fn each(self, add: &mut dyn FnMut(R)) -> anyhow::Result<()> {
        self.into_iter().for_each(add);
        Ok(())
    }
}

impl<R: Send> Requests<R> for Option<R> {
    fn each(self, add: &mut dyn FnMut(R)) -> anyhow::Result<()> {
        self.into_iter().for_each(add);
        Ok(())
    }
}

impl<R: Send, const N: usize> Requests<R> for [R; N] {
    fn each(self, add: &mut dyn FnMut(R)) -> anyhow::Result<()> {
        self.into_iter().for_each(add);
        Ok(())
    }
}

impl<R, I: Requests<R>, E: Into<anyhow::Error> + Send> Requests<R> for Result<I, E> {
    fn each(self, add: &mut dyn FnMut(R)) -> anyhow::Result<()> {
        self.map_err(Into::into)?.each(add)
    }
}

#[cfg(test)]
mod tests;
