//! A minimal queue, as the lower bound of the workloads on this machine.
//!
//! It does what every queue of keys with many workers must do if it reports waiting times: it
//! hashes a key once and keeps a clone, reads the clock on add and on get, takes the lock as often,
//! and wakes a waiting getter. It has no deduplication, priorities, delays, backoff, shutdown or
//! introspection. A target below its values cannot be met.

use crate::{Setup, workloads::Queue};
use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    hash::BuildHasher,
    hint::black_box,
    sync::Arc,
    task::{Poll, Waker, ready},
};
use steersman::{object::ObjectKey, workqueue::stamp};
use tokio::task::coop;

#[derive(Clone, Default)]
pub(crate) struct Floor(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    hasher: DefaultHashBuilder,
}

#[derive(Default)]
struct State {
    ready: VecDeque<(ObjectKey, u64)>,
    waiters: Vec<Waker>,
}

pub(crate) struct Item {
    queue: Floor,
    keys: [ObjectKey; 2],
}

impl Floor {
    /// Returns the next key. Without one, stores `waker` for the next add.
    fn take(&self, waker: Option<&Waker>) -> Option<[ObjectKey; 2]> {
        let now = stamp();
        let mut state = self.0.state.lock();
        let Some((key, added)) = state.ready.pop_front() else {
            state.waiters.extend(waker.cloned());
            return None;
        };
        black_box(now.saturating_sub(added));
        Some([key.clone(), key])
    }
}

impl Queue for Floor {
    type Item = Item;

    fn new(_: &Setup) -> Self {
        Self::default()
    }

    fn add(&self, key: ObjectKey) {
        black_box(self.0.hasher.hash_one(&key));
        let mut state = self.0.state.lock();
        state.ready.push_back((key, stamp()));
        let waker = state.waiters.pop();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    fn try_get(&self) -> Option<Item> {
        self.take(None).map(|keys| Item {
            queue: self.clone(),
            keys,
        })
    }

    fn get(&self) -> impl Future<Output = Option<Item>> + Send {
        poll_fn(|cx| {
            let progress = ready!(coop::poll_proceed(cx));
            let Some(keys) = self.take(Some(cx.waker())) else {
                return Poll::Pending;
            };
            progress.made_progress();
            Poll::Ready(Some(Item {
                queue: self.clone(),
                keys,
            }))
        })
    }

    fn done_and_try_get(mut item: Item) -> Option<Item> {
        item.keys = item.queue.take(None)?;
        Some(item)
    }

    async fn done_and_get(mut item: Item) -> Option<Item> {
        item.keys = poll_fn(|cx| {
            let progress = ready!(coop::poll_proceed(cx));
            let Some(keys) = item.queue.take(Some(cx.waker())) else {
                return Poll::Pending;
            };
            progress.made_progress();
            Poll::Ready(keys)
        })
        .await;
        Some(item)
    }
}
