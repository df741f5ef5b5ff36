//! Handlers from closures.

use super::{Enqueue, Handler};
use crate::{event::Event, object::Object, workqueue::Key};
use std::fmt;

/// One closure that looks at the whole event.
pub fn from_fn<K, R: Key, F>(handle: F) -> impl Handler<K, R> + use<K, R, F>
where
    F: Fn(&Event<K>, &Enqueue<R>) + Send + Sync + 'static,
{
    FromFn(handle)
}

struct FromFn<F>(F);

impl<K, R: Key, F: Fn(&Event<K>, &Enqueue<R>) + Send + Sync + 'static> Handler<K, R> for FromFn<F> {
    fn handle(&self, event: &Event<K>, queue: &Enqueue<R>) {
        (self.0)(event, queue);
    }
}

/// A closure for each kind of event; those left out do nothing, and of two for one kind both are called.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use k8s_openapi::api::core::v1::Pod;
/// use steersman::{handler::{self, Funcs}, prelude::*};
///
/// let gone = Funcs::<Pod, String>::new().delete(|pod, queue| queue.add(pod.name().to_owned()));
/// let mut pod = Pod::default();
/// pod.metadata.name = Some("web".into());
/// assert_eq!(handler::requests(&gone, Event::delete(pod.clone())).await, ["web"]);
/// assert!(handler::requests(&gone, Event::create(pod)).await.is_empty());
/// # }
/// ```
#[must_use = "give it to a source"]
pub struct Funcs<K, R>(Vec<Box<dyn Handler<K, R>>>);

impl<K: 'static, R: Key> Funcs<K, R> {
    /// One that does nothing yet.
    #[expect(clippy::new_without_default, reason = "a default would say nothing")]
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// Of what is there, was made, or is in the list in the beginning.
    pub fn create(self, handle: impl Fn(&Object<K>, &Enqueue<R>) + Send + Sync + 'static) -> Self {
        self.with(move |event, queue| {
            if let Event::Create { object, .. } = event {
                handle(object, queue);
            }
        })
    }

    /// Of changes: called with the old and the new object.
    pub fn update(self, handle: impl Fn(&Object<K>, &Object<K>, &Enqueue<R>) + Send + Sync + 'static) -> Self {
        self.with(move |event, queue| {
            if let Event::Update { old, new } = event {
                handle(old, new, queue);
            }
        })
    }

    /// Of what is gone.
    pub fn delete(self, handle: impl Fn(&Object<K>, &Enqueue<R>) + Send + Sync + 'static) -> Self {
        self.with(move |event, queue| {
            if let Event::Delete { object, .. } = event {
                handle(object, queue);
            }
        })
    }

    /// Of what comes from outside the cluster.
    pub fn generic(self, handle: impl Fn(&Object<K>, &Enqueue<R>) + Send + Sync + 'static) -> Self {
        self.with(move |event, queue| {
            if let Event::Generic { object } = event {
                handle(object, queue);
            }
        })
    }

    fn with(mut self, handle: impl Fn(&Event<K>, &Enqueue<R>) + Send + Sync + 'static) -> Self {
        self.0.push(Box::new(FromFn(handle)));
        self
    }
}

impl<K: 'static, R: Key> Handler<K, R> for Funcs<K, R> {
    fn handle(&self, event: &Event<K>, queue: &Enqueue<R>) {
        self.0.iter().for_each(|handler| handler.handle(event, queue));
    }
}

impl<K, R> fmt::Debug for Funcs<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Funcs").field(&self.0.len()).finish()
    }
}
