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
/// Who is slow slows nobody down: once thousands of events are waiting, the changes of one object become one, so that memory is bounded by
/// the number of objects, and the last state is always told. Of an object that was changed and then deleted two are left, the last change and the deletion; of one that
/// came and went meanwhile, none.
///
/// An object that does not decode is an [`Event::Generic`] with its metadata, once for each version
/// that does not decode. An informer that starts, or a new [`Events`], reports those that there
/// are. Its last good state, if there was one, stays that of the other events.
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
