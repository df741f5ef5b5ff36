//! Handlers from closures.

use super::{Enqueue, Handler};
use crate::{
    event::{CreateEvent, DeleteEvent, Event},
    object::Object,
    workqueue::Key,
};
use std::fmt;

/// Creates a handler from a closure over the event.
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

/// Handler with a closure for each type of event.
///
/// Events without a closure are ignored. Several closures for one type are all called.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use k8s_openapi::api::core::v1::Pod;
/// use steersman::{handler::{self, Funcs}, prelude::*};
///
/// let gone = Funcs::<Pod, String>::new().delete(|event, queue| queue.add(event.object.name().to_owned()));
/// let mut pod = Pod::default();
/// pod.metadata.name = Some("web".into());
/// assert_eq!(handler::requests(&gone, Event::delete(pod.clone())).await, ["web"]);
/// assert!(handler::requests(&gone, Event::create(pod)).await.is_empty());
/// # }
/// ```
#[must_use = "pass it to a source"]
pub struct Funcs<K, R>(Vec<Box<dyn Handler<K, R>>>);

impl<K: 'static, R: Key> Funcs<K, R> {
    /// Creates a handler without closures.
    #[expect(clippy::new_without_default, reason = "a default would say nothing")]
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a closure for create events, including those of the initial list.
    pub fn create(
        self,
        handle: impl Fn(CreateEvent<'_, K>, &Enqueue<R>) + Send + Sync + 'static,
    ) -> Self {
        self.with(move |event, queue| {
            if let &Event::Create {
                ref object,
                initial,
            } = event
            {
                handle(CreateEvent { object, initial }, queue);
            }
        })
    }

    /// Adds a closure for update events, called with the old and the new object.
    pub fn update(
        self,
        handle: impl Fn(&Object<K>, &Object<K>, &Enqueue<R>) + Send + Sync + 'static,
    ) -> Self {
        self.with(move |event, queue| {
            if let Event::Update { old, new } = event {
                handle(old, new, queue);
            }
        })
    }

    /// Adds a closure for delete events.
    pub fn delete(
        self,
        handle: impl Fn(DeleteEvent<'_, K>, &Enqueue<R>) + Send + Sync + 'static,
    ) -> Self {
        self.with(move |event, queue| {
            if let &Event::Delete {
                ref object,
                state_unknown,
            } = event
            {
                handle(
                    DeleteEvent {
                        object,
                        state_unknown,
                    },
                    queue,
                );
            }
        })
    }

    /// Adds a closure for generic events.
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
        self.0
            .iter()
            .for_each(|handler| handler.handle(event, queue));
    }
}

impl<K, R> fmt::Debug for Funcs<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Funcs").field(&self.0.len()).finish()
    }
}
