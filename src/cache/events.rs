//! The public stream of an informer's events.

use super::{
    Informer,
    erased::{ErasedSubscription, SubscriptionItem},
    resync::Resync,
};
use crate::event::Event;
use futures::Stream;
use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};

/// Stream of an informer's objects, and then of their changes.
///
/// Created by [`Informer::events`]. Dropping it ends the subscription.
///
/// A slow reader of events does not slow down others. Once thousands of events wait, the changes of
/// one object are combined, and the last state is always delivered. Memory is bounded by the
/// objects in the cache plus the deletions that are not delivered yet.
/// [`Event`](Event#slow-handlers) describes what is combined, and which objects cannot be decoded.
///
/// A version of an object that does not decode is reported once, as an [`Event::Generic`] with its
/// metadata. An informer that starts, and a new [`Events`], reports the objects that do not decode
/// at that time. Other events of such an object have the last state that decoded, if there was one.
///
/// With a [resync](super::Select::resync), every object is reported again once per period, as an
/// update whose `old` equals its `new`. The period of the object's namespace has priority.
pub struct Events<K> {
    subscription: Box<dyn ErasedSubscription>,
    resync: Resync,
    informer: Informer<K>,
}

/// Item of [`Events`].
#[derive(Debug)]
pub enum InformerEvent<K> {
    /// An event of an object.
    Event(Event<K>),
    /// The informer has synced, and its initial objects were delivered. Delivered once.
    Synced,
}

impl<K> Events<K> {
    pub(super) fn new(informer: Informer<K>) -> Self {
        let resync = Resync::new(informer.resync.clone());
        Self {
            subscription: informer.core.clone().subscribe(),
            resync,
            informer,
        }
    }

    /// Waits for the next event, like `StreamExt::next`. Returns `None` when the cache is closed or
    /// the informer was removed.
    ///
    /// Cancel safety: a dropped call loses no event.
    pub async fn next(&mut self) -> Option<InformerEvent<K>> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<InformerEvent<K>>> {
        let periods = self.resync.periods.clone();
        for period in self.resync.poll_elapsed(cx) {
            self.subscription.resync(period, &periods);
        }
        self.subscription.poll_next(cx).map(|next| {
            next.map(|item| match item {
                SubscriptionItem::InitialDone => InformerEvent::Synced,
                SubscriptionItem::Event(event) => InformerEvent::Event(event.assume()),
            })
        })
    }
}

/// Ends when the cache is closed or the informer was removed.
impl<K> Stream for Events<K> {
    type Item = InformerEvent<K>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<InformerEvent<K>>> {
        self.get_mut().poll(cx)
    }
}

impl<K> fmt::Debug for Events<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("informer", &self.informer)
            .finish_non_exhaustive()
    }
}
