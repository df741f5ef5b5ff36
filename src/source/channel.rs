//! News from outside the cluster.
//!
//! What holds: who sends never waits, and no destination waits for another: each has a buffer of its own. One that is full keeps the latest event of each object,
//! so that no object is lost, and memory is bounded by the number of objects.

use super::{SelfContained, Source, SourceContext, deliver::Route};
use crate::{
    event::Event,
    handler::{Enqueue, Handler},
    object::{AnyKind, Object, ObjectKey},
    predicate::Predicate,
    workqueue::Key,
};
use hashbrown::HashMap;
use kube_core::GroupVersionKind;
use parking_lot::Mutex;
use std::{any::TypeId, any::type_name, collections::VecDeque, fmt, sync::Arc};
use tokio::{select, sync::Notify};

/// [Generic](Event::Generic) events from outside the cluster, to any number of controllers. Clones share one channel; it closes when the last one is dropped.
///
/// A name is enough of an object, see [`Object::named`]. For what can be asked for only, such as a clock, use [`from_fn`](super::from_fn).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> anyhow::Result<()> {
/// use steersman::{prelude::*, source::Channel};
///
/// let (calls, queue) = (Channel::new(1024), WorkQueue::default());
/// calls.send(Object::named(ObjectKey::new("shop", "front"))); // from an HTTP server, say
/// calls.source(handler::object()).start(&queue)?; // or let a controller watch it
/// assert_eq!(queue.get().await.unwrap().name(), "front");
/// # Ok(())
/// # }
/// ```
pub struct Channel<K = AnyKind>(Arc<Sending<K>>);

/// Closes it when nobody can send any more.
struct Sending<K>(Arc<Shared<K>>);

struct Shared<K> {
    buffer: usize,
    state: Mutex<State<K>>,
}

struct State<K> {
    closed: bool,
    /// What was sent while there was no destination.
    early: Buffer<K>,
    /// By number.
    destinations: HashMap<u64, (Buffer<K>, Arc<Notify>)>,
    numbers: u64,
}

impl<K: 'static> Channel<K> {
    /// `buffer` events for each destination; beyond that, the latest of each object.
    pub fn new(buffer: usize) -> Self {
        let state = State { closed: false, early: Buffer::default(), destinations: HashMap::new(), numbers: 0 };
        Self(Arc::new(Sending(Arc::new(Shared { buffer, state: Mutex::new(state) }))))
    }

    /// Never waits. What is sent while there is no destination, or is left when the last one goes, is kept for the next one; what is sent after closing is not told.
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
        for (buffer, news) in state.destinations.values_mut() {
            buffer.push(object.clone(), shared.buffer);
            news.notify_one();
        }
    }

    /// Destinations handle what they have, and end.
    pub fn close(&self) {
        self.0.0.close();
    }

    /// A destination, to be watched by one controller: it is told everything that is sent from now on, also before it runs, until it is stopped or dropped.
    pub fn source<R: Key>(&self, handler: impl Handler<K, R>) -> ChannelSource<K, R> {
        let (shared, news) = (self.0.0.clone(), Arc::new(Notify::new()));
        let mut state = shared.state.lock();
        let buffer = std::mem::take(&mut state.early);
        let number = state.numbers;
        state.numbers += 1;
        state.destinations.insert(number, (buffer, news.clone()));
        drop(state);
        ChannelSource { destination: Destination { shared, number, news }, route: Route::to(handler) }
    }
}

impl<K> Shared<K> {
    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.destinations.values().for_each(|(_, news)| news.notify_one());
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

/// See [`Channel::source`].
#[must_use = "let a controller watch it, or start it"]
pub struct ChannelSource<K, R> {
    destination: Destination<K>,
    route: Route<K, R>,
}

impl<K: 'static, R: Key> ChannelSource<K, R> {
    /// Only events that this accepts as well.
    pub fn filter(mut self, predicate: impl Predicate<K>) -> Self {
        self.route.filters.push(Box::new(predicate));
        self
    }
}

impl<K, R> SelfContained for ChannelSource<K, R> {}

impl<K: 'static, R: Key> Source<R> for ChannelSource<K, R> {
    fn name(&self) -> String {
        kind::<K>().map_or_else(|| "channel source".to_owned(), |kind| format!("channel source: {kind}"))
    }

    async fn run(self, queue: Enqueue<R>, cx: SourceContext) -> anyhow::Result<()> {
        let Self { destination, route } = self;
        let delivery = route.open(kind::<K>().unwrap_or("channel"), queue, cx.clone());
        // There is nothing that all of it was told by.
        cx.synced();
        while delivery.goes_on().await {
            match destination.next() {
                Next::Event(object) => delivery.deliver(&Event::Generic { object }),
                Next::Wait => select! {
                    () = cx.stopped() => break,
                    () = destination.news.notified() => {}
                },
                Next::Closed => break,
            }
        }
        Ok(())
    }
}

impl<K, R> fmt::Debug for ChannelSource<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelSource").field("number", &self.destination.number).finish_non_exhaustive()
    }
}

/// What the type is called, if it is one.
fn kind<K: 'static>() -> Option<&'static str> {
    let name = type_name::<K>();
    (TypeId::of::<K>() != TypeId::of::<AnyKind>()).then(|| name.rsplit("::").next().unwrap_or(name))
}

/// One buffer, for as long as somebody reads it.
struct Destination<K> {
    shared: Arc<Shared<K>>,
    number: u64,
    news: Arc<Notify>,
}

enum Next<K> {
    Event(Object<K>),
    Wait,
    Closed,
}

impl<K: 'static> Destination<K> {
    fn next(&self) -> Next<K> {
        let mut state = self.shared.state.lock();
        let event = state.destinations.get_mut(&self.number).and_then(|(buffer, _)| buffer.pop());
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
        // Not under the lock: objects may be large.
        drop(gone);
    }
}

/// Which object: one whose type says nothing of its kind is named by that, too.
type Name = (Option<GroupVersionKind>, ObjectKey);

fn name<K: 'static>(object: &Object<K>) -> Name {
    let gvk = if TypeId::of::<K>() == TypeId::of::<AnyKind>() { object.gvk() } else { None };
    (gvk, object.key().clone())
}

/// Events in order. What is in `latest` is where the last event of an object is.
struct Buffer<K> {
    events: VecDeque<Object<K>>,
    /// The number of the first event; the others follow.
    first: u64,
    latest: HashMap<Name, u64>,
}

impl<K> Default for Buffer<K> {
    fn default() -> Self {
        Self { events: VecDeque::new(), first: 0, latest: HashMap::new() }
    }
}

impl<K: 'static> Buffer<K> {
    /// When there are so many, one of the same object takes the place of the last.
    fn push(&mut self, object: Object<K>, full: usize) {
        let (next, name) = (self.first + self.events.len() as u64, name(&object));
        if self.events.len() >= full
            && let Some(place) = self.latest.get(&name)
        {
            self.events[(place - self.first) as usize] = object;
            return;
        }
        self.latest.insert(name, next);
        self.events.push_back(object);
    }

    fn pop(&mut self) -> Option<Object<K>> {
        let object = self.events.pop_front()?;
        let name = name(&object);
        if self.latest.get(&name) == Some(&self.first) {
            self.latest.remove(&name);
        }
        self.first += 1;
        Some(object)
    }
}
