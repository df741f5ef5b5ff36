//! Events to requests.

mod enqueue;
mod later;

pub use self::enqueue::Enqueue;
pub(crate) use self::{enqueue::Target, later::Laters};
use crate::{event::Event, workqueue::Key};
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
