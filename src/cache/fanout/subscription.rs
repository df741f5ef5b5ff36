//! Subscription of a handler to an informer's events.
//!
//! A subscription delivers in this order: its initial snapshot, its backlog, the log, and if these
//! are empty, the rest of a resync. It takes several events under one lock, to reduce contention
//! with the writer.

use super::{
    event::{Event, Item},
    hub::Shared,
    log::Pulled,
    pending_count::PendingCount,
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

/// Maximum of events taken from the log under one lock.
pub(super) const BATCH: usize = 32;

type Entries<P> = Box<dyn Iterator<Item = Entry<P>> + Send>;

/// Subscription of a handler. Dropping it frees everything that is held for it.
pub(crate) struct Subscription<P> {
    shared: Arc<Shared<P>>,
    number: usize,
    /// Rest of the initial snapshot.
    replay: Option<Entries<P>>,
    resync: Option<Resync<P>>,
    /// Items taken from the log and not delivered yet.
    items: VecDeque<Item<P>>,
    initial_done: bool,
    delivered: u64,
    /// Number of events in `replay` and `items`.
    pending_count: PendingCount,
}

struct Resync<P> {
    /// Remaining objects by period, in the order of the calls.
    left: Vec<(Duration, Entries<P>)>,
    /// Keys of the objects delivered since the snapshot, or about to be.
    ///
    /// Once there are more keys than objects, the resync is dropped: a handler that never catches
    /// up has received as many events, and the set would grow without bound.
    delivered_keys: HashSet<ObjectKey>,
    objects: usize,
}

impl<P> Resync<P> {
    fn is_of(&self, period: Duration) -> bool {
        self.left.iter().any(|(other, _)| *other == period)
    }
}

enum Refilled {
    Something,
    Nothing,
    Ended,
}

impl<P> Subscription<P> {
    pub(super) fn new(
        shared: Arc<Shared<P>>,
        number: usize,
        pending_count: PendingCount,
        replay: Entries<P>,
    ) -> Self {
        Self {
            shared,
            number,
            replay: Some(replay),
            resync: None,
            items: VecDeque::new(),
            initial_done: false,
            delivered: 0,
            pending_count,
        }
    }

    /// Waits for the next item. Returns `None` when the informer is closed.
    ///
    /// Cancel safety: a dropped future has taken nothing.
    #[cfg(test)]
    pub(crate) async fn next(&mut self) -> Option<Item<P>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Returns the next item, if there is one.
    #[cfg(test)]
    pub(crate) fn try_next(&mut self) -> Option<Item<P>> {
        if self.items.is_empty() {
            self.refill(None);
        }
        self.take()
    }

    /// Returns whether [`Item::InitialDone`] was delivered.
    #[cfg(test)]
    pub(crate) fn is_initial_done(&self) -> bool {
        self.initial_done
    }

    /// Schedules an update without a change for every object of the `snapshot`.
    ///
    /// The updates are delivered when no other events are pending. Objects that change after the
    /// snapshot, or whose changes are pending, are skipped. Does nothing before
    /// [`Item::InitialDone`], or while a resync of the same `period` is in progress. A resync of
    /// another period follows it. A resync is dropped if more objects change meanwhile than it has.
    pub(crate) fn resync<I>(&mut self, period: Duration, snapshot: impl FnOnce() -> (usize, I))
    where
        I: IntoIterator<Item = Entry<P>, IntoIter: Send + 'static>,
    {
        if !self.initial_done
            || self
                .resync
                .as_ref()
                .is_some_and(|resync| resync.is_of(period))
        {
            return;
        }
        // Under the gate everything in the snapshot is published, so changes that are not delivered
        // yet are in the log.
        let gate = self.shared.gate.lock();
        let (objects, left) = snapshot();
        drop(gate);
        let new_resync = || Resync {
            left: Vec::new(),
            delivered_keys: HashSet::new(),
            objects: 0,
        };
        let resync = self.resync.get_or_insert_with(new_resync);
        resync.left.push((period, Box::new(left.into_iter())));
        resync
            .delivered_keys
            .extend(self.items.iter().filter_map(Item::key).cloned());
        resync.objects += objects;
    }

    #[cfg(test)]
    pub(crate) fn stats(&self) -> HandlerStats {
        let stats = self.shared.log.lock().stats_of_number(self.number);
        HandlerStats {
            delivered: self.delivered,
            ..stats
        }
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item<P>>> {
        // Yields to other tasks even if there are always events.
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
                self.pending_count.delivered();
            }
            Item::InitialDone => self.initial_done = true,
        }
        Some(item)
    }

    /// Takes items from the snapshot, the log or a resync. Registers `waker` if there are none.
    fn refill(&mut self, waker: Option<&Waker>) -> Refilled {
        if let Some(replay) = &mut self.replay {
            let events = replay.take(BATCH).map(|object| Event::create(object, true));
            self.items.extend(events.map(Item::Event));
            if self.items.len() < BATCH {
                // Free the snapshot.
                self.replay = None;
                self.pending_count.set(self.items.len());
            }
            if !self.items.is_empty() {
                return Refilled::Something;
            }
        }
        loop {
            // Declared before the lock, so that they are freed after it is released.
            let (mut awake, mut replaced) = (None, None);
            let mut log = self.shared.log.lock();
            log.set_delivered(self.number, self.delivered);
            let pulled = log.pull(self.number, BATCH, &mut self.items, &mut awake);
            if let (Pulled::Empty, None, Some(waker)) = (&pulled, &self.resync, waker) {
                let same = awake.take_if(|awake| awake.will_wake(waker));
                replaced = log.set_waker(self.number, same.unwrap_or_else(|| waker.clone()));
            }
            drop(log);
            drop((awake, replaced));
            if let Some(resync) = &mut self.resync {
                resync
                    .delivered_keys
                    .extend(self.items.iter().filter_map(Item::key).cloned());
                if matches!(pulled, Pulled::Items)
                    && resync.delivered_keys.len() > resync.objects + BATCH
                {
                    self.resync = None;
                }
            }
            match (pulled, &mut self.resync) {
                (Pulled::Items, _) => return Refilled::Something,
                (Pulled::Closed, _) => return Refilled::Ended,
                (Pulled::Empty, None) => return Refilled::Nothing,
                (
                    Pulled::Empty,
                    Some(Resync {
                        left,
                        delivered_keys,
                        ..
                    }),
                ) => {
                    let left = left.iter_mut().flat_map(|(_, left)| left);
                    let fresh = left
                        .filter(|entry| !delivered_keys.contains(&entry.key))
                        .take(BATCH);
                    let events = fresh.map(|new| Event::update(new.object.clone(), new));
                    self.items.extend(events.map(Item::Event));
                    self.pending_count.set(self.items.len());
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

impl<P> Drop for Subscription<P> {
    fn drop(&mut self) {
        let mut freed = Vec::new();
        let reader = self.shared.log.lock().unsubscribe(self.number, &mut freed);
        drop((freed, reader));
    }
}
