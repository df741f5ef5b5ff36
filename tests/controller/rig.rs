//! What the tests of controllers share: one that runs, reconcilers that the test speaks for, and sources.

use parking_lot::Mutex;
use std::{collections::VecDeque, ops::Deref, sync::Arc, time::Duration};
use steersman::{
    builder::{Builder, NoManager, NoPrimary},
    controller::WatchError,
    handler::Enqueue,
    prelude::*,
    source::SourceContext,
    workqueue::Key,
    workqueue::Limiter,
};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, sleep},
};

/// A builder that no manager made, and that is of no kind.
pub(crate) type Bare<R> = Builder<R, NoPrimary, NoManager>;

/// What most tests ask for.
pub(crate) type Name = &'static str;

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// On paused time: everything that can happen in so long happens.
pub(crate) async fn pass(time: Duration) {
    sleep(time).await;
}

/// Everything that can happen without time passing happens, and a millisecond passes.
pub(crate) async fn settle() {
    pass(ms(1)).await;
}

/// What comes within an hour. Otherwise the test fails, instead of hanging.
#[track_caller]
pub(crate) fn soon<F: IntoFuture>(future: F) -> impl Future<Output = F::Output> {
    let caller = std::panic::Location::caller();
    async move {
        tokio::select! {
            biased;
            output = future.into_future() => output,
            () = sleep(secs(3600)) => panic!("{caller}: it never comes"),
        }
    }
}

/// Tasks of this runtime that have not ended.
pub(crate) fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// A builder whose backoff is exactly 5 ms, 10 ms, 20 ms.
pub(crate) fn builder<R: Key>() -> Bare<R> {
    Controller::builder("test").limiter(Limiter::default())
}

/// A controller that runs.
pub(crate) struct Rig<R: Key = Name> {
    controller: Controller<R>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl<R: Key> Rig<R> {
    pub(crate) fn run(builder: Bare<R>, reconciler: impl Reconciler<R>) -> Self {
        let (controller, task) = builder.build(reconciler).expect("nothing is wrong with it");
        Self { controller, task: tokio::spawn(task.run_until(std::future::pending())) }
    }

    /// Stop it; it ends without an error.
    pub(crate) async fn end(self) {
        soon(self.controller.stop()).await;
        soon(self.task).await.expect("no panic").expect("no error");
    }

    /// How it ends.
    pub(crate) async fn ended(self) -> Result<anyhow::Result<()>, tokio::task::JoinError> {
        soon(self.task).await
    }
}

impl<R: Key> Deref for Rig<R> {
    type Target = Controller<R>;

    fn deref(&self) -> &Controller<R> {
        &self.controller
    }
}

/// A reconciler that answers as it was told, one answer after the other, and then that it is done. A clone is the same.
#[derive(Clone)]
pub(crate) struct Script(Arc<Lines>);

struct Lines {
    start: Instant,
    answers: Mutex<VecDeque<Answer>>,
    runs: Mutex<Vec<(Duration, u32, i32)>>,
}

type Answer = Box<dyn FnOnce() -> Result<Outcome> + Send>;

impl Script {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Lines { start: Instant::now(), answers: Mutex::default(), runs: Mutex::default() }))
    }

    pub(crate) fn say(self, answer: impl FnOnce() -> Result<Outcome> + Send + 'static) -> Self {
        self.0.answers.lock().push_back(Box::new(answer));
        self
    }

    pub(crate) fn answer(self, answer: Result<Outcome>) -> Self {
        self.say(move || answer)
    }

    pub(crate) fn fail(self) -> Self {
        self.say(|| Err(anyhow::anyhow!("no luck")))
    }

    /// When runs began, in milliseconds, and as which attempt.
    pub(crate) fn runs(&self) -> Vec<(u128, u32)> {
        self.0.runs.lock().iter().map(|(at, attempt, _)| (at.as_millis(), *attempt)).collect()
    }

    /// The priorities of the runs.
    pub(crate) fn priorities(&self) -> Vec<i32> {
        self.0.runs.lock().iter().map(|(_, _, priority)| *priority).collect()
    }
}

impl<R: Key> Reconciler<R> for Script {
    async fn reconcile(&self, _: R, cx: &Context) -> Result<Outcome> {
        self.0.runs.lock().push((self.0.start.elapsed(), cx.attempt(), cx.priority().0));
        let answer = self.0.answers.lock().pop_front();
        answer.map_or(Ok(Outcome::done()), |answer| answer())
    }
}

/// One run, which goes on until the test ends it.
pub(crate) struct Held<R = Name> {
    pub(crate) request: R,
    pub(crate) cx: Context,
    answer: oneshot::Sender<Result<Outcome>>,
}

impl<R> Held<R> {
    pub(crate) fn answer(self, answer: Result<Outcome>) {
        assert!(self.answer.send(answer).is_ok(), "it was dropped");
    }

    pub(crate) fn done(self) {
        self.answer(Ok(Outcome::done()));
    }

    pub(crate) fn fail(self) {
        self.answer(Err(anyhow::anyhow!("no luck")));
    }

    pub(crate) fn was_dropped(&self) -> bool {
        self.answer.is_closed()
    }
}

/// The runs of [`by_hand`].
pub(crate) struct Runs<R = Name>(mpsc::UnboundedReceiver<Held<R>>);

impl<R: Key> Runs<R> {
    /// The next one to begin.
    #[track_caller]
    pub(crate) fn next(&mut self) -> impl Future<Output = Held<R>> {
        let next = soon(self.0.recv());
        async move { next.await.expect("the reconciler is there") }
    }

    /// Those that have begun since.
    pub(crate) fn begun(&mut self) -> Vec<Held<R>> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

/// A reconciler whose runs the test ends. One whose [`Held`] is dropped fails.
pub(crate) fn by_hand<R: Key>() -> (impl Reconciler<R>, Runs<R>) {
    let (begun, runs) = mpsc::unbounded_channel();
    let reconciler = reconcile::from_fn(move |request: R, cx| {
        let (answer, answered) = oneshot::channel();
        let _ = begun.send(Held { request, cx, answer });
        async { answered.await? }
    });
    (reconciler, Runs(runs))
}

/// A source that adds nothing, and is synced at once.
pub(crate) fn quiet(name: &str) -> impl Source<Name> + use<> {
    synced_after(name, Duration::ZERO)
}

/// One that is synced after a time.
pub(crate) fn synced_after(name: &str, time: Duration) -> impl Source<Name> + use<> {
    source::from_fn(name, move |_: Enqueue<Name>, cx: SourceContext| async move {
        sleep(time).await;
        cx.synced();
        cx.stopped().await;
        Ok(())
    })
}

/// One that adds this when it is synced.
pub(crate) fn adding(name: &str, request: Name) -> impl Source<Name> + use<> {
    source::from_fn(name, move |queue: Enqueue<Name>, cx: SourceContext| async move {
        queue.add(request);
        cx.synced();
        cx.stopped().await;
        Ok(())
    })
}

/// One that never says that it is synced.
pub(crate) fn silent(name: &str) -> impl Source<Name> + use<> {
    source::from_fn(name, |_: Enqueue<Name>, cx: SourceContext| async move {
        cx.stopped().await;
        Ok(())
    })
}

/// One that fails after a time.
pub(crate) fn failing(name: &str, after: Duration, text: &'static str) -> impl Source<Name> + use<> {
    source::from_fn(name, move |_: Enqueue<Name>, _: SourceContext| async move {
        sleep(after).await;
        Err(anyhow::anyhow!(text))
    })
}

/// What an end of [`Rig::ended`] says.
#[track_caller]
pub(crate) fn watch_error(ended: Result<anyhow::Result<()>, tokio::task::JoinError>) -> WatchError {
    let error = ended.expect("no panic").expect_err("it does not start");
    error.downcast::<WatchError>().expect("that of a watch")
}
