//! Events as users have them.

use super::{
    Informer,
    erased::{Fed, Feed},
    resync::Resync,
};
use crate::event::Event;
use std::{fmt, future::poll_fn};

/// What is in an informer, and then what happens to it: made by [`Informer::events`]. Dropping it ends it.
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
/// With a [resync](super::Select::resync) every object is told again once in a period, that of its namespace if there is one, as an update whose `old` is its `new`.
pub struct Events<K> {
    feed: Box<dyn Feed>,
    resync: Resync,
    informer: Informer<K>,
}

/// What [`Events`] tell.
#[derive(Debug)]
pub enum Notice<K> {
    /// Something happened to an object.
    Event(Event<K>),
    /// Once: the informer has synced, and all that was there in the beginning has been told.
    InitialDone,
}

impl<K> Events<K> {
    pub(super) fn new(informer: Informer<K>) -> Self {
        let resync = Resync::every(informer.resync.clone());
        Self { feed: informer.core.clone().subscribe(), resync, informer }
    }

    /// What is next, as soon as there is something; `None` when the cache has ended, or the informer was removed. It can be dropped at any time, and nothing is lost.
    pub async fn next(&mut self) -> Option<Notice<K>> {
        let next = poll_fn(|cx| {
            let periods = self.resync.periods.clone();
            for period in self.resync.poll_rung(cx) {
                self.feed.resync(period, &periods);
            }
            self.feed.poll_next(cx)
        });
        next.await.map(|fed| match fed {
            Fed::InitialDone => Notice::InitialDone,
            Fed::Event(event) => Notice::Event(event.assume()),
        })
    }
}

impl<K> fmt::Debug for Events<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("informer", &self.informer).finish_non_exhaustive()
    }
}
