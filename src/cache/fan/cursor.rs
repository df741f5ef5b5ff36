//! The handler's end: what it is told next.
//!
//! A cursor tells, in this order: the snapshot it began with; what is in its backlog; what is in the log; and if there is
//! nothing of these, what is left of a resync. It takes a few events at a time, so that readers and the writer seldom meet at the lock.

use super::{
    beside::Beside,
    event::{Event, Item},
    hub::Shared,
    log::Pulled,
};
#[cfg(test)]
use crate::cache::HandlerStats;
use crate::{cache::store::Entry, object::ObjectKey};
use hashbrown::HashSet;
use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use tokio::task::coop;

/// Events taken from the log in one go.
pub(super) const BATCH: usize = 32;

type Entries<P> = Box<dyn Iterator<Item = Entry<P>> + Send>;

/// A handler's place in its informer's events. Dropping it removes the handler, and nothing is kept for it any more.
pub(crate) struct Cursor<P> {
    shared: Arc<Shared<P>>,
    number: usize,
    /// What is left of the snapshot it began with.
    replay: Option<Entries<P>>,
    resync: Option<Resync<P>>,
    /// Taken, and not handed over yet.
    items: VecDeque<Item<P>>,
    initial_done: bool,
    delivered: u64,
    /// How many those are: the replay, and the items that are events.
    beside: Beside,
}

struct Resync<P> {
    /// In the order in which they were asked for.
    left: Vec<(Duration, Entries<P>)>,
    /// Keys of the objects delivered since the snapshot, or about to be.
    ///
    /// Once there are more keys than objects, the resync is dropped: a handler that never catches
    /// up has received as many events, and the set would grow without bound.
    told: HashSet<ObjectKey>,
    objects: usize,
}

impl<P> Resync<P> {
    fn is_of(&self, of: Duration) -> bool {
        self.left.iter().any(|(other, _)| *other == of)
    }
}

enum Refilled {
    Something,
    Nothing,
    Ended,
}

impl<P> Cursor<P> {
    pub(super) fn new(shared: Arc<Shared<P>>, number: usize, beside: Beside, replay: Entries<P>) -> Self {
        Self {
            shared,
            number,
            replay: Some(replay),
            resync: None,
            items: VecDeque::new(),
            initial_done: false,
            delivered: 0,
            beside,
        }
    }

    /// What is next, as soon as there is something; `None` when the informer has ended. A future that is dropped has taken nothing.
    #[cfg(test)]
    pub(crate) async fn next(&mut self) -> Option<Item<P>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// What is next, if it is there.
    #[cfg(test)]
    pub(crate) fn try_next(&mut self) -> Option<Item<P>> {
        if self.items.is_empty() {
            self.refill(None);
        }
        self.take()
    }

    /// [`Item::InitialDone`] has been handed over.
    #[cfg(test)]
    pub(crate) fn is_initial_done(&self) -> bool {
        self.initial_done
    }

    /// Tell of every object in the `snapshot` again, as an update without a change, when nothing else is to be told. One that has changed since the snapshot,
    /// or whose change is still to be told, is left out. Until the beginning is done, and while a resync `of` the same is under way, this does nothing; one of something
    /// else comes after it. It is given up if more news come meanwhile than there are objects.
    pub(crate) fn resync<I>(&mut self, of: Duration, snapshot: impl FnOnce() -> (usize, I))
    where
        I: IntoIterator<Item = Entry<P>, IntoIter: Send + 'static>,
    {
        if !self.initial_done || self.resync.as_ref().is_some_and(|resync| resync.is_of(of)) {
            return;
        }
        // With the gate closed all that the snapshot shows is published: whatever is not told by then is found in the log.
        let gate = self.shared.gate.lock();
        let (objects, left) = snapshot();
        drop(gate);
        let begun = || Resync { left: Vec::new(), told: HashSet::new(), objects: 0 };
        let resync = self.resync.get_or_insert_with(begun);
        resync.left.push((of, Box::new(left.into_iter())));
        resync.told.extend(self.items.iter().filter_map(Item::key).cloned());
        resync.objects += objects;
    }

    #[cfg(test)]
    pub(crate) fn stats(&self) -> HandlerStats {
        let stats = self.shared.log.lock().stats_of_number(self.number);
        HandlerStats { delivered: self.delivered, ..stats }
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item<P>>> {
        // A handler that always finds something must let others run too.
        let progress = ready!(coop::poll_proceed(cx));
        if self.items.is_empty() {
            match self.refill(Some(cx.waker())) {
                Refilled::Something => {}
                Refilled::Nothing => return Poll::Pending,
                Refilled::Ended => {
                    progress.made_progress();
                    return Poll::Ready(None);
                }
            }
        }
        progress.made_progress();
        Poll::Ready(self.take())
    }

    fn take(&mut self) -> Option<Item<P>> {
        let item = self.items.pop_front()?;
        match item {
            Item::Event(_) => {
                self.delivered += 1;
                self.beside.told();
            }
            Item::InitialDone => self.initial_done = true,
        }
        Some(item)
    }

    /// Get something to hand over; if there is nothing, have `waker` woken when there is.
    fn refill(&mut self, waker: Option<&Waker>) -> Refilled {
        if let Some(replay) = &mut self.replay {
            let events = replay.take(BATCH).map(|object| Event::create(object, true));
            self.items.extend(events.map(Item::Event));
            if self.items.len() < BATCH {
                // Let go of the snapshot.
                self.replay = None;
                self.beside.set(self.items.len());
            }
            if !self.items.is_empty() {
                return Refilled::Something;
            }
        }
        loop {
            // Freed after the lock: declared before it.
            let (mut awake, mut replaced) = (None, None);
            let mut log = self.shared.log.lock();
            log.count(self.number, self.delivered);
            let pulled = log.pull(self.number, BATCH, &mut self.items, &mut awake);
            if let (Pulled::Nothing, None, Some(waker)) = (&pulled, &self.resync, waker) {
                let same = awake.take_if(|awake| awake.will_wake(waker));
                replaced = log.sleep(self.number, same.unwrap_or_else(|| waker.clone()));
            }
            drop(log);
            drop((awake, replaced));
            if let Some(resync) = &mut self.resync {
                resync.told.extend(self.items.iter().filter_map(Item::key).cloned());
                if matches!(pulled, Pulled::Something) && resync.told.len() > resync.objects + BATCH {
                    self.resync = None;
                }
            }
            match (pulled, &mut self.resync) {
                (Pulled::Something, _) => return Refilled::Something,
                (Pulled::Ended, _) => return Refilled::Ended,
                (Pulled::Nothing, None) => return Refilled::Nothing,
                (Pulled::Nothing, Some(Resync { left, told, .. })) => {
                    let left = left.iter_mut().flat_map(|(_, left)| left);
                    let fresh = left.filter(|entry| !told.contains(&entry.key)).take(BATCH);
                    let events = fresh.map(|new| Event::update(new.object.clone(), new));
                    self.items.extend(events.map(Item::Event));
                    self.beside.set(self.items.len());
                    if self.items.len() < BATCH {
                        self.resync = None;
                    }
                    if !self.items.is_empty() {
                        return Refilled::Something;
                    }
                }
            }
        }
    }
}

impl<P> Item<P> {
    fn key(&self) -> Option<&ObjectKey> {
        match self {
            Self::Event(event) => Some(event.key()),
            Self::InitialDone => None,
        }
    }
}

impl<P> Drop for Cursor<P> {
    fn drop(&mut self) {
        let mut trash = Vec::new();
        let reader = self.shared.log.lock().leave(self.number, &mut trash);
        drop((trash, reader));
    }
}
