//! Model test of [`pending`](crate::handler::pending).
//!
//! Mappings of one object succeed and fail in any order.

use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::{runtime, select, time::sleep};

/// Events that arrived and requests that were enqueued, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    /// The object changes to the state that maps to these targets.
    Event(String),
    Enqueued(char),
}

#[derive(Default)]
struct Log(Mutex<Vec<Entry>>);

impl Target<char> for Log {
    fn add(&self, target: char, _: Add) {
        self.0.lock().push(Entry::Enqueued(target));
    }
}

/// Result of one attempt.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    millis: u64,
    fails: bool,
}

/// Results of the attempts in the order in which they start. Further ones succeed.
#[derive(Default)]
struct Attempts {
    planned: Mutex<Vec<Attempt>>,
    next: AtomicUsize,
}

impl Attempts {
    fn next(&self) -> Attempt {
        let at = self.next.fetch_add(1, Relaxed);
        let planned = self.planned.lock();
        planned.get(at).copied().unwrap_or(Attempt {
            millis: 0,
            fails: false,
        })
    }
}

/// Returns the targets of a pod: the letters of its label.
fn targets(pod: &Object<Pod>) -> Vec<char> {
    let targets = pod.meta().labels().get("targets").map(str::to_owned);
    targets.unwrap_or_default().chars().collect()
}

fn state(targets: &str) -> Object<Pod> {
    let metadata = json!({"namespace": "shop", "name": "web", "labels": {"targets": targets}});
    Object::from(serde_json::from_value::<Pod>(json!({ "metadata": metadata })).expect("a pod"))
}

/// Way in which a handler maps an event.
#[derive(Clone, Copy, Debug)]
enum Mapping {
    Sync,
    Async,
    /// Two calls of [`Enqueue::add_async`], each for a part of the targets.
    Split,
}

impl Mapping {
    fn handler(self, attempts: Arc<Attempts>) -> Box<dyn Handler<Pod, char>> {
        let attempt = |attempt: Attempt, targets: Vec<char>| async move {
            sleep(Duration::from_millis(attempt.millis)).await;
            anyhow::ensure!(!attempt.fails, "the server is away");
            Ok(targets)
        };
        match self {
            Self::Sync => Box::new(map(move |pod: &Object<Pod>| {
                anyhow::ensure!(!attempts.next().fails, "the index is missing");
                Ok(targets(pod))
            })),
            Self::Async => Box::new(map_async(move |pod: Object<Pod>| {
                attempt(attempts.next(), targets(&pod))
            })),
            Self::Split => Box::new(from_fn(move |event: &Event<Pod>, queue: &Enqueue<char>| {
                for part in [['a', 'b'], ['c', 'd']] {
                    let (event, attempts) = (event.clone(), attempts.clone());
                    queue.add_async(move || {
                        let states = event.old().into_iter().chain([event.object()]);
                        let targets = states.flat_map(targets);
                        let targets = targets.filter(|target| part.contains(target));
                        attempt(attempts.next(), targets.collect())
                    });
                }
            })),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// The object changes to a state that maps to these targets; `None` deletes it.
    Change(Option<String>),
    Wait(u64),
}

/// Runs the steps, and returns the log when no mapping is pending.
fn run(mapping: Mapping, attempts: &[Attempt], steps: &[Step]) -> Vec<Entry> {
    let (log, retrier) = (Arc::new(Log::default()), Retrier::default());
    let planned = Attempts::default();
    planned.planned.lock().extend(attempts);
    let handler = mapping.handler(Arc::new(planned));
    let queue = Enqueue::new(log.clone(), retrier.clone(), None);
    let subject = Subject::new("Pod");
    let change = |old: Option<Object<Pod>>, new: Option<Object<Pod>>| {
        let event = match (old, new) {
            (None, None) => return,
            (None, Some(new)) => Event::create(new),
            (Some(old), Some(new)) => Event::update(old, new),
            (Some(old), None) => Event::delete(old),
        };
        handler.handle(&event, &queue.for_event(&subject, &event));
    };
    let changes = async {
        let mut current = None;
        for step in steps {
            match step {
                Step::Wait(millis) => sleep(Duration::from_millis(*millis)).await,
                Step::Change(targets) => {
                    let entry = Entry::Event(targets.clone().unwrap_or_default());
                    log.0.lock().push(entry);
                    let new = targets.as_deref().map(state);
                    change(current.take(), new.clone());
                    current = new;
                }
            }
        }
        retrier.drained().await;
    };
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        select! {
            () = changes => {}
            _ = retrier.run(None, "test") => {}
        }
    });
    retrier.close();
    std::mem::take(&mut *log.0.lock())
}

/// Panics if a target was not enqueued after the last state that maps to it.
fn check(log: &[Entry]) {
    let events: Vec<_> = log
        .iter()
        .enumerate()
        .filter_map(|(at, entry)| match entry {
            Entry::Event(targets) => Some((at, targets.as_str())),
            Entry::Enqueued(_) => None,
        })
        .collect();
    let is_enqueued = |target: char, entries: &[Entry]| entries.contains(&Entry::Enqueued(target));
    for (index, &(arrived, targets)) in events.iter().enumerate() {
        for target in targets.chars() {
            match events.get(index + 1) {
                Some(&(left, _)) => assert!(
                    !is_enqueued(target, &log[arrived..left]) || is_enqueued(target, &log[left..]),
                    "{target} saw `{targets}` at {arrived}, and not that it was left at {left}: {log:?}"
                ),
                None => assert!(
                    is_enqueued(target, &log[arrived..]),
                    "{target} does not know the last state: {log:?}"
                ),
            }
        }
    }
}

fn attempt() -> impl Strategy<Value = Attempt> {
    (0u64..40, proptest::bool::weighted(0.6)).prop_map(|(millis, fails)| Attempt { millis, fails })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => "[abcd]{0,2}".prop_map(|targets| Step::Change(Some(targets))),
        1 => Just(Step::Change(None)),
        3 => (1u64..30).prop_map(Step::Wait),
        1 => (100u64..2000).prop_map(Step::Wait),
    ]
}

steersman_testkit::properties! {
    #[test]
    fn a_request_is_enqueued_again_when_the_object_leaves_a_state_that_it_may_have_seen(
        mapping in prop_oneof![Just(Mapping::Sync), Just(Mapping::Async), Just(Mapping::Split)],
        attempts in proptest::collection::vec(attempt(), 0..200),
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        check(&run(mapping, &attempts, &steps));
    }
}

fn change(targets: &str) -> Step {
    Step::Change(Some(targets.into()))
}

/// Only the third, dropped event maps `b` after the object has left that state.
#[test]
fn a_dropped_event_re_enqueues_earlier_requests() {
    // Create of `a`; update from `a` to `b`, which maps both; the old states of the last two.
    let attempts = [true, false, false, true, true].map(|fails| Attempt { millis: 0, fails });
    let steps = ["a", "b", "c", "d"].map(|targets| [change(targets), Step::Wait(1)]);
    check(&run(Mapping::Async, &attempts, steps.as_flattened()));
}

/// Calls a handler for these events, and returns the targets of the last one.
async fn enqueued_after(handler: impl Handler<Pod, char>, events: &[Event<Pod>]) -> Vec<Entry> {
    let (log, retrier) = (Arc::new(Log::default()), Retrier::default());
    let queue = Enqueue::new(log.clone(), retrier.clone(), None);
    let handle = async {
        for event in events {
            log.0.lock().clear();
            handler.handle(event, &queue.for_event(&Subject::new("Pod"), event));
            sleep(Duration::from_millis(1)).await;
        }
        sleep(Duration::from_mins(5)).await;
    };
    select! {
        () = handle => {}
        _ = retrier.run(None, "test") => {}
    }
    retrier.close();
    std::mem::take(&mut *log.0.lock())
}

#[tokio::test(start_paused = true)]
async fn a_state_that_never_maps_does_not_delay_the_events_after_it() {
    let handler = map_async(|pod: Object<Pod>| {
        let targets = targets(&pod);
        async move {
            anyhow::ensure!(!targets.contains(&'x'), "`x` is not a valid target");
            Ok(targets)
        }
    });
    let events = [
        Event::create(state("x")),
        Event::update(state("x"), state("a")),
        Event::update(state("a"), state("b")),
    ];
    let enqueued = enqueued_after(handler, &events).await;
    assert_eq!(enqueued, ['a', 'b'].map(Entry::Enqueued));
}

#[tokio::test(start_paused = true)]
async fn an_event_without_the_old_body_re_enqueues_earlier_requests() {
    let handler = map_async(|pod: Object<Pod>| {
        let targets = targets(&pod);
        async move {
            anyhow::ensure!(!targets.contains(&'x'), "`x` is not a valid target");
            pod.decode().context("reading the pod")?;
            Ok(targets)
        }
    });
    let old = state("a").decode().expect("a pod");
    let key = ObjectKey::of(&*old);
    let old = Object::dropped(key.clone(), old.to_metadata(&Arc::default(), &key));
    let events = [
        Event::create(state("x")),
        Event::update(state("c"), state("a")),
        Event::update(old, state("b")),
    ];
    let enqueued = enqueued_after(handler, &events).await;
    assert!(enqueued.contains(&Entry::Enqueued('a')), "{enqueued:?}");
}
