//! What handlers could not do at once: attempts that wait or fail, made beside the events until they succeed.
//!
//! What holds: nothing is given up that was not attempted. Attempts that wait for their first turn are bounded by whoever waits for [`Laters::room`] before
//! it calls a handler; those that failed by number, see [`Failing`]. None takes a turn for longer than [`LONGEST_ATTEMPT`]. All of it is in the future that [`Laters::run`] is, and goes with it.

use crate::{
    caught::caught,
    object::{DecodeError, ObjectKey},
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use hashbrown::{HashMap, hash_map::EntryRef};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    convert::Infallible,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    select,
    sync::{Semaphore, mpsc, watch},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

/// How many attempts are going on at once.
const AT_ONCE: usize = 64;

/// How many may wait for their first attempt before handlers are not called any more.
const FRESH: usize = 1024;

/// How many failing ones of one object are tried again: the oldest, which knows what was told last, and the newest ones.
const FAILING: usize = 8;

/// The same for all that are about no object.
const FAILING_AT_LARGE: usize = 1024;

/// And for all together: objects that are gone are not told from others.
const FAILING_AT_ALL: usize = 4096;

/// After this long an attempt has failed: what hangs takes nobody's turn for ever.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(30);

const FIRST_DELAY: Duration = Duration::from_millis(10);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

pub(super) type Attempted = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// The attempts of one source. A clone shares them.
#[derive(Clone)]
pub(crate) struct Laters(Arc<Shared>);

struct Shared {
    arrivals: mpsc::UnboundedSender<Later>,
    /// Until somebody runs them.
    arrived: Mutex<Option<mpsc::UnboundedReceiver<Later>>>,
    load: watch::Sender<Load>,
    failures: AtomicU64,
    given_up: AtomicU64,
}

/// How many there are.
#[derive(Default)]
struct Load {
    pending: usize,
    /// Of them, not attempted yet.
    fresh: usize,
    /// Of the fresh ones, those that a sync waits for.
    awaited: usize,
    /// No more are awaited.
    sealed: bool,
}

struct Later {
    about: Option<ObjectKey>,
    attempt: Box<dyn Fn() -> Attempted + Send + Sync>,
    counted: Counted,
    span: Span,
}

/// One of the [`Load`].
struct Counted {
    shared: Arc<Shared>,
    fresh: bool,
    awaited: bool,
}

impl Counted {
    fn attempted(&mut self) {
        if std::mem::take(&mut self.fresh) {
            self.shared.load.send_modify(|load| {
                load.fresh -= 1;
                load.awaited -= usize::from(self.awaited);
            });
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.attempted();
        self.shared.load.send_modify(|load| load.pending -= 1);
    }
}

impl Default for Laters {
    fn default() -> Self {
        let (arrivals, arrived) = mpsc::unbounded_channel();
        Self(Arc::new(Shared {
            arrivals,
            arrived: Mutex::new(Some(arrived)),
            load: watch::Sender::default(),
            failures: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
        }))
    }
}

impl Laters {
    pub(super) fn push(&self, about: Option<ObjectKey>, attempt: impl Fn() -> Attempted + Send + Sync + 'static) {
        let shared = self.0.clone();
        let mut awaited = false;
        // More of them is nothing that anybody waits for.
        shared.load.send_if_modified(|load| {
            awaited = !load.sealed;
            load.pending += 1;
            load.fresh += 1;
            load.awaited += usize::from(awaited);
            false
        });
        let counted = Counted { shared, fresh: true, awaited };
        // When the source is over, so is what it left.
        drop(self.0.arrivals.send(Later { about, attempt: Box::new(attempt), counted, span: Span::current() }));
    }

    /// Makes the attempts of a source, for as long as it is polled. Once.
    pub(crate) async fn run(&self, controller: Option<&str>, source: &str) -> Infallible {
        let arrived = self.0.arrived.lock().take();
        let mut arrived = arrived.expect("they are run once");
        let (turns, failing) = (Semaphore::new(AT_ONCE), Failing::default());
        let mut tended = FuturesUnordered::new();
        loop {
            select! {
                Some(later) = arrived.recv() => {
                    let span = later.span.clone();
                    tended.push(self.tend((controller, source), later, &turns, &failing).instrument(span));
                }
                Some(()) = tended.next(), if !tended.is_empty() => {}
            }
        }
    }

    /// One, until it succeeds or is given up.
    async fn tend(
        &self,
        (controller, source): (Option<&str>, &str),
        mut later: Later,
        turns: &Semaphore,
        failing: &Failing,
    ) {
        let (mut delay, mut place) = (FIRST_DELAY, None);
        loop {
            let attempted = {
                let _turn = turns.acquire().await;
                later.attempt().await
            };
            later.counted.attempted();
            let Err(error) = attempted else { return };
            self.0.failures.fetch_add(1, Relaxed);
            let permanent = is_permanent(&error);
            let (object, error) = (later.about.as_ref().map(tracing::field::display), format!("{error:#}"));
            if permanent {
                self.0.given_up.fetch_add(1, Relaxed);
                tracing::warn!(controller, source, object, error, "mapping event to requests failed, not retrying");
                return;
            }
            if place.is_none() {
                tracing::warn!(
                    controller,
                    source,
                    object,
                    error,
                    "what an event is about is not known yet, and looked for again"
                );
            } else {
                tracing::debug!(controller, source, object, error, "what an event is about is still not known");
            }
            let place = place.get_or_insert_with(|| failing.enter(later.about.as_ref()));
            select! {
                () = sleep(delay) => delay = (delay * 2).min(LONGEST_DELAY),
                () = place.given_up.cancelled() => {
                    self.0.given_up.fetch_add(1, Relaxed);
                    tracing::warn!(controller, source, object, error, "too much has failed: what an event is about is not looked for any more");
                    return;
                }
            }
        }
    }

    /// Until each that was pushed by now was attempted once. Once.
    pub(crate) async fn attempted(&self) {
        self.0.load.send_if_modified(|load| !std::mem::replace(&mut load.sealed, true));
        self.until(|load| load.awaited == 0).await;
    }

    /// Until none is left.
    pub(crate) async fn finished(&self) {
        self.until(|load| load.pending == 0).await;
    }

    /// Until another event may be handled.
    pub(crate) async fn room(&self) {
        if self.0.load.borrow().fresh >= FRESH {
            self.until(|load| load.fresh < FRESH).await;
        }
    }

    async fn until(&self, holds: impl FnMut(&Load) -> bool) {
        // The sender is here, so that it cannot be gone.
        drop(self.0.load.subscribe().wait_for(holds).await);
    }

    /// Each once, also what they leave: for whoever does not run them.
    pub(super) async fn attempt_all(&self) -> anyhow::Result<()> {
        let mut arrived = self.0.arrived.lock().take();
        while let Some(later) = arrived.as_mut().and_then(|arrived| arrived.try_recv().ok()) {
            later.attempt().await?;
        }
        Ok(())
    }

    /// Nobody will run them any more.
    pub(crate) fn close(&self) {
        // They know this, and must not keep it alive.
        drop(self.0.arrived.lock().take());
    }

    /// Attempts that failed.
    pub(crate) fn failures(&self) -> u64 {
        self.0.failures.load(Relaxed)
    }

    /// Those that are not tried any more.
    pub(crate) fn given_up(&self) -> u64 {
        self.0.given_up.load(Relaxed)
    }
}

/// Returns whether no further attempt can succeed, because the body of the event's object was dropped.
pub(super) fn is_permanent(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(DecodeError::BodyDropped { .. })))
}

impl Later {
    async fn attempt(&self) -> anyhow::Result<()> {
        match timeout(LONGEST_ATTEMPT, caught(pin!(async { (self.attempt)().await }))).await {
            Ok(Ok(attempted)) => attempted,
            Ok(Err(panic)) => Err(anyhow::anyhow!("panicked: {panic}")),
            Err(_) => Err(anyhow::anyhow!("no answer within {} s", LONGEST_ATTEMPT.as_secs())),
        }
    }
}

/// The failing ones. Of one object there are at most [`FAILING`], of all at most [`FAILING_AT_ALL`]: whoever is too many is given up.
#[derive(Default)]
struct Failing(Mutex<Ranks>);

#[derive(Default)]
struct Ranks {
    /// In order of coming.
    all: BTreeMap<u64, CancellationToken>,
    /// By object or of none: oldest first.
    of: HashMap<Option<ObjectKey>, Vec<u64>>,
    numbers: u64,
}

impl Failing {
    fn enter(&self, key: Option<&ObjectKey>) -> Place<'_> {
        let (key, given_up) = (key.cloned(), CancellationToken::new());
        let most = if key.is_some() { FAILING } else { FAILING_AT_LARGE };
        let mut ranks = self.0.lock();
        ranks.numbers += 1;
        let number = ranks.numbers;
        ranks.all.insert(number, given_up.clone());
        let of_key = ranks.of.entry(key.clone()).or_default();
        of_key.push(number);
        let too_many = (of_key.len() > most).then(|| of_key.remove(1));
        if let Some(one) = too_many.and_then(|number| ranks.all.remove(&number)) {
            one.cancel();
        }
        if ranks.all.len() > FAILING_AT_ALL
            && let Some((_, oldest)) = ranks.all.pop_first()
        {
            oldest.cancel();
        }
        drop(ranks);
        Place { failing: self, key, number, given_up }
    }
}

/// Of one among them, until it is over.
struct Place<'a> {
    failing: &'a Failing,
    key: Option<ObjectKey>,
    number: u64,
    given_up: CancellationToken,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut ranks = self.failing.0.lock();
        ranks.all.remove(&self.number);
        if let EntryRef::Occupied(mut of_key) = ranks.of.entry_ref(&self.key) {
            of_key.get_mut().retain(|one| *one != self.number);
            if of_key.get().is_empty() {
                of_key.remove();
            }
        }
    }
}
