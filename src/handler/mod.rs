//! Events to requests: for which objects something has to be done, because something happened to this one.
//!
//! | use | for |
//! |---|---|
//! | [`object`] | the kind that is reconciled |
//! | [`owner`], [`owner_of`] | what it has made, and owns |
//! | [`map`] | what it refers to, by a function; [`map_with_cache`] if that looks at other kinds, [`map_async`] if it has to wait |
//! | [`Funcs`], [`from_fn`] | everything else; what waits or may fail goes to [`Enqueue::later`] |
//! | [`wrap`], [`in_cluster`] | any of them in a controller whose requests are of another type |
//!
//! What comes from an initial list or from an update that changed nothing is queued at low priority. Each request has its reason, for logs and debug pages.
//!
//! Handlers are values, and [`requests`] says what one makes of an event:
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

mod cause;
mod enqueue;
mod failing;
mod funcs;
mod later;
mod map;
mod owner;
mod unique;
mod wrap;

use self::unique::Unique;
pub(crate) use self::{
    cause::{Subject, Verb},
    enqueue::Target,
    later::Laters,
    owner::owner_in,
};
pub use self::{
    enqueue::Enqueue,
    funcs::{Funcs, from_fn},
    map::{map, map_async, map_with_cache},
    owner::{Owner, owner, owner_of},
    wrap::{in_cluster, wrap},
};
use crate::{
    event::Event,
    reconcile::Request,
    workqueue::{Add, Key},
};
use parking_lot::Mutex;
use std::sync::Arc;

/// Turns one event into requests. Called in order, one event at a time; a panic costs that event, and is counted and reported.
///
/// It must not wait: hand what waits or may fail to [`Enqueue::later`].
pub trait Handler<K, R: Key>: Send + Sync + 'static {
    /// Add what the event is about.
    fn handle(&self, event: &Event<K>, queue: &Enqueue<R>);
}

/// Of several watches: `Arc<dyn Handler<K, R>>`.
impl<K: 'static, R: Key, H: Handler<K, R> + ?Sized> Handler<K, R> for Arc<H> {
    fn handle(&self, event: &Event<K>, queue: &Enqueue<R>) {
        (**self).handle(event, queue);
    }
}

/// The object itself.
pub fn object() -> ForObject {
    ForObject
}

/// See [`object`].
#[derive(Clone, Copy, Debug)]
pub struct ForObject;

impl<K> Handler<K, Request> for ForObject {
    fn handle(&self, event: &Event<K>, queue: &Enqueue<Request>) {
        queue.add_itself(event.object().key().clone());
    }
}

/// What a handler makes of an event, what it leaves for later included: for unit tests.
///
/// # Panics
/// If what is left for later fails, with the error.
pub async fn requests<K, R: Key>(handler: &impl Handler<K, R>, event: Event<K>) -> Vec<R> {
    struct Collected<R>(Mutex<Vec<R>>);
    impl<R: Key> Target<R> for Collected<R> {
        fn add(&self, request: R, _: Add) {
            self.0.lock().push(request);
        }
    }
    let (collected, laters) = (Arc::new(Collected(Mutex::default())), Laters::default());
    let queue = Enqueue::new(collected.clone(), laters.clone(), None);
    handler.handle(&event, &queue.because(&Subject::new("test"), &event));
    if let Err(error) = laters.attempt_all().await {
        panic!("{error:#}");
    }
    std::mem::take(&mut *collected.0.lock())
}

/// What a mapping may yield: a `Vec`, an array or an `Option` of requests, or a `Result` of one of these.
pub trait Requests<R>: Send {
    /// Add each, or say why there are none.
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
