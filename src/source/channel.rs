//! Source of events from outside the cluster.
//!
//! Invariant: sending never waits, and destinations do not wait for each other: each has its own
//! buffer. A full buffer keeps the latest event of each object, so no object is lost, and memory is
//! bounded by the number of objects.

use super::{SelfContained, Source, SourceContext, deliver::Pipeline};
use crate::{
    event::Event,
    handler::{Enqueue, Handler},
    object::{AnyKind, Object, ObjectId},
    predicate::Predicate,
    workqueue::Key,
};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::{any::TypeId, any::type_name, collections::VecDeque, fmt, sync::Arc};
use tokio::{select, sync::Notify};

/// Channel of [generic](Event::Generic) events to any number of controllers.
///
/// Use it for events from outside the cluster. Clones share one channel, which closes when the last
/// one is dropped. The name of an object is sufficient, see [`Object::named`]. For an origin that
/// must be polled, use [`from_fn`](super::from_fn).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> anyhow::Result<()> {
/// use steersman::{prelude::*, source::Channel};
///
/// let (calls, queue) = (Channel::new(1024), WorkQueue::default());
/// calls.send(Object::named(ObjectKey::new("shop", "front"))); // for example from a webhook
/// calls.source(handler::object()).start(&queue)?; // or let a controller watch it
/// assert_eq!(queue.get().await.unwrap().name(), "front");
/// # Ok(())
/// # }
/// ```
pub struct Channel<K = AnyKind>(Arc<Sending<K>>);

/// Closes the channel when the last sender is dropped.
struct Sending<K>(Arc<Shared<K>>);

struct Shared<K> {
    buffer: usize,
    state: Mutex<State<K>>,
}

struct State<K> {
    closed: bool,
    /// Events that were sent while there was no destination.
    early: Buffer<K>,
    /// Destinations by number.
    destinations: HashMap<u64, (Buffer<K>, Arc<Notify>)>,
    numbers: u64,
}

impl<K: 'static> Channel<K> {
    /// Creates a channel with a buffer of `buffer` events for each destination.
    ///
    /// A full buffer keeps the latest event of each object.
    pub fn new(buffer: usize) -> Self {
        let state = State {
            closed: false,
            early: Buffer::default(),
            destinations: HashMap::new(),
            numbers: 0,
        };
        Self(Arc::new(Sending(Arc::new(Shared {
            buffer,
            state: Mutex::new(state),
        }))))
    }

    /// Sends an event to all destinations without waiting.
    ///
    /// Events that are sent without a destination, or left over by the last one, are kept for the
    /// next one. Events after closing are dropped.
    pub fn send(&self, object: impl Into<Object<K>>) {
        let (object, shared) = (object.into(), &*self.0.0);
        let mut state = shared.state.lock();
        if state.closed {
            return;
        }
        if state.destinations.is_empty() {
            state.early.push(object, shared.buffer);
            return;
        }
        for (buffer, notify) in state.destinations.values_mut() {
            buffer.push(object.clone(), shared.buffer);
            notify.notify_one();
        }
    }

    /// Closes the channel. Destinations handle their buffered events, and end.
    pub fn close(&self) {
        self.0.0.close();
    }

    /// Creates a destination, to be watched by one controller.
    ///
    /// It receives all events from now on, also before it runs, until it is stopped or dropped.
    pub fn source<R: Key>(&self, handler: impl Handler<K, R>) -> ChannelSource<K, R> {
        let (shared, notify) = (self.0.0.clone(), Arc::new(Notify::new()));
        let mut state = shared.state.lock();
        let buffer = std::mem::take(&mut state.early);
        let number = state.numbers;
        state.numbers += 1;
        state.destinations.insert(number, (buffer, notify.clone()));
        drop(state);
        ChannelSource {
            destination: Destination {
                shared,
                number,
                notify,
            },
            pipeline: Pipeline::new(handler),
        }
    }
}

impl<K> Shared<K> {
    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state
            .destinations
            .values()
            .for_each(|(_, notify)| notify.notify_one());
    }
}

impl<K> Drop for Sending<K> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<K> Clone for Channel<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for Channel<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.0.state.lock();
        f.debug_struct("Channel")
            .field("destinations", &state.destinations.len())
            .field("closed", &state.closed)
            .finish_non_exhaustive()
    }
}

/// Source of a [`Channel`], see [`Channel::source`].
#[must_use = "let a controller watch it, or start it"]
pub struct ChannelSource<K, R> {
    destination: Destination<K>,
    pipeline: Pipeline<K, R>,
}

impl<K: 'static, R: Key> ChannelSource<K, R> {
    /// Adds a predicate. The first predicate that rejects an event drops it.
    pub fn filter(mut self, predicate: impl Predicate<K>) -> Self {
        self.pipeline.predicates.push(Box::new(predicate));
        self
    }
}

impl<K, R> SelfContained for ChannelSource<K, R> {}

impl<K: 'static, R: Key> Source<R> for ChannelSource<K, R> {
    fn name(&self) -> String {
        kind::<K>().map_or_else(
            || "channel source".to_owned(),
            |kind| format!("channel source: {kind}"),
        )
    }

    async fn run(self, queue: Enqueue<R>, cx: SourceContext) -> anyhow::Result<()> {
        let Self {
            destination,
            pipeline,
        } = self;
        let delivery = pipeline.connect(kind::<K>().unwrap_or("channel"), queue, cx.clone());
        // A channel has no initial list.
        cx.synced();
        while delivery.wait_for_capacity().await {
            match destination.next() {
                Next::Event(object) => delivery.deliver(&Event::Generic { object }),
                Next::Wait => select! {
                    () = cx.stopped() => break,
                    () = destination.notify.notified() => {}
                },
                Next::Closed => break,
            }
        }
        Ok(())
    }
}

impl<K, R> fmt::Debug for ChannelSource<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelSource")
            .field("number", &self.destination.number)
            .finish_non_exhaustive()
    }
}

/// Returns the name of the type, unless it stands for any kind.
fn kind<K: 'static>() -> Option<&'static str> {
    let name = type_name::<K>();
    (TypeId::of::<K>() != TypeId::of::<AnyKind>()).then(|| name.rsplit("::").next().unwrap_or(name))
}

/// Buffer of one source, removed when this is dropped.
struct Destination<K> {
    shared: Arc<Shared<K>>,
    number: u64,
    notify: Arc<Notify>,
}

enum Next<K> {
    Event(Object<K>),
    Wait,
    Closed,
}

impl<K: 'static> Destination<K> {
    fn next(&self) -> Next<K> {
        let mut state = self.shared.state.lock();
        let event = state
            .destinations
            .get_mut(&self.number)
            .and_then(|(buffer, _)| buffer.pop());
        match event {
            Some(event) => Next::Event(event),
            None if state.closed => Next::Closed,
            None => Next::Wait,
        }
    }
}

impl<K> Drop for Destination<K> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let mut gone = state.destinations.remove(&self.number);
        if state.destinations.is_empty()
            && !state.closed
            && let Some((left, _)) = &mut gone
        {
            std::mem::swap(&mut state.early, left);
        }
        drop(state);
        // Objects may be large, so drop them without the lock.
        drop(gone);
    }
}

/// Events in order, and the position of the latest event of each object.
struct Buffer<K> {
    events: VecDeque<Object<K>>,
    /// Number of the first event; the others follow.
    first: u64,
    latest: HashMap<ObjectId, u64>,
}

impl<K> Default for Buffer<K> {
    fn default() -> Self {
        Self {
            events: VecDeque::new(),
            first: 0,
            latest: HashMap::new(),
        }
    }
}

impl<K: 'static> Buffer<K> {
    /// Adds an event. If the buffer is full, it replaces the latest of the same object.
    fn push(&mut self, object: Object<K>, full: usize) {
        let (next, id) = (self.first + self.events.len() as u64, object.id());
        if self.events.len() >= full
            && let Some(number) = self.latest.get(&id)
        {
            self.events[(number - self.first) as usize] = object;
            return;
        }
        self.latest.insert(id, next);
        self.events.push_back(object);
    }

    fn pop(&mut self) -> Option<Object<K>> {
        let object = self.events.pop_front()?;
        let id = object.id();
        if self.latest.get(&id) == Some(&self.first) {
            self.latest.remove(&id);
        }
        self.first += 1;
        Some(object)
    }
}
