//! Helpers of the controller tests: scripted reconcilers and sources.

use parking_lot::Mutex;
use std::{collections::VecDeque, ops::Deref, sync::Arc, time::Duration};
use steersman::{
    builder::{Builder, NoManager, NoPrimary},
    controller::WatchError,
    handler::Enqueue,
    prelude::*,
    reconcile::{Context, Result},
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

/// Builder without a manager and without a primary kind.
pub(crate) type BareBuilder<R> = Builder<R, NoPrimary, NoManager>;

/// Request type of most tests.
pub(crate) type Name = &'static str;

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Sleeps on paused time, so that all tasks due within `time` run.
pub(crate) async fn advance(time: Duration) {
    sleep(time).await;
}

/// Runs all ready tasks, and lets a millisecond pass.
pub(crate) async fn settle() {
    advance(ms(1)).await;
}

/// Returns the output. Fails the test after an hour instead of hanging.
#[track_caller]
pub(crate) fn with_timeout<F: IntoFuture>(future: F) -> impl Future<Output = F::Output> {
    let caller = std::panic::Location::caller();
    async move {
        tokio::select! {
            biased;
            output = future.into_future() => output,
            () = sleep(secs(3600)) => panic!("{caller}: timed out"),
        }
    }
}

/// Counts the tasks of this runtime that have not ended.
pub(crate) fn alive_tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Returns a builder whose backoff is exactly 5 ms, 10 ms, 20 ms.
pub(crate) fn builder<R: Key>() -> BareBuilder<R> {
    Controller::builder("test").limiter(Limiter::default())
}

/// Running controller.
pub(crate) struct TestController<R: Key = Name> {
    controller: Controller<R>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl<R: Key> TestController<R> {
    pub(crate) fn run(builder: BareBuilder<R>, reconciler: impl Reconciler<R>) -> Self {
        let (controller, task) = builder.build(reconciler).expect("a valid controller");
        Self {
            controller,
            task: tokio::spawn(task.run_until(std::future::pending())),
        }
    }

    /// Stops the controller and asserts that it ends without an error.
    pub(crate) async fn end(self) {
        with_timeout(self.controller.stop()).await;
        with_timeout(self.task)
            .await
            .expect("no panic")
            .expect("no error");
    }

    /// Returns the result of the controller.
    pub(crate) async fn ended(self) -> Result<anyhow::Result<()>, tokio::task::JoinError> {
        with_timeout(self.task).await
    }
}

impl<R: Key> Deref for TestController<R> {
    type Target = Controller<R>;

    fn deref(&self) -> &Controller<R> {
        &self.controller
    }
}

/// Reconciler that returns the scripted answers in order, and then `done`.
///
/// Clones share the script.
#[derive(Clone)]
pub(crate) struct Script(Arc<ScriptState>);

struct ScriptState {
    start: Instant,
    answers: Mutex<VecDeque<Answer>>,
    runs: Mutex<Vec<(Duration, u32, i32)>>,
}

type Answer = Box<dyn FnOnce() -> Result<Outcome> + Send>;

impl Script {
    pub(crate) fn new() -> Self {
        Self(Arc::new(ScriptState {
            start: Instant::now(),
            answers: Mutex::default(),
            runs: Mutex::default(),
        }))
    }

    pub(crate) fn answer_with(
        self,
        answer: impl FnOnce() -> Result<Outcome> + Send + 'static,
    ) -> Self {
        self.0.answers.lock().push_back(Box::new(answer));
        self
    }

    pub(crate) fn answer(self, answer: Result<Outcome>) -> Self {
        self.answer_with(move || answer)
    }

    pub(crate) fn fail(self) -> Self {
        self.answer_with(|| Err(anyhow::anyhow!("no luck")))
    }

    /// Returns start in milliseconds and attempt of each reconcile.
    pub(crate) fn runs(&self) -> Vec<(u128, u32)> {
        self.0
            .runs
            .lock()
            .iter()
            .map(|(at, attempt, _)| (at.as_millis(), *attempt))
            .collect()
    }

    /// Returns the priority of each reconcile.
    pub(crate) fn priorities(&self) -> Vec<i32> {
        self.0
            .runs
            .lock()
            .iter()
            .map(|(_, _, priority)| *priority)
            .collect()
    }
}

impl<R: Key> Reconciler<R> for Script {
    async fn reconcile(&self, _: R, cx: &Context) -> Result<Outcome> {
        self.0
            .runs
            .lock()
            .push((self.0.start.elapsed(), cx.attempt(), cx.priority().0));
        let answer = self.0.answers.lock().pop_front();
        answer.map_or(Ok(Outcome::done()), |answer| answer())
    }
}

/// Reconcile that runs until the test ends it.
pub(crate) struct RunningReconcile<R = Name> {
    pub(crate) request: R,
    pub(crate) cx: Context,
    answer: oneshot::Sender<Result<Outcome>>,
}

impl<R> RunningReconcile<R> {
    pub(crate) fn answer(self, answer: Result<Outcome>) {
        assert!(
            self.answer.send(answer).is_ok(),
            "the reconcile was dropped"
        );
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

/// Reconciles of [`manual_reconciler`].
pub(crate) struct StartedReconciles<R = Name>(mpsc::UnboundedReceiver<RunningReconcile<R>>);

impl<R: Key> StartedReconciles<R> {
    /// Waits for the next reconcile to start.
    #[track_caller]
    pub(crate) fn next(&mut self) -> impl Future<Output = RunningReconcile<R>> {
        let next = with_timeout(self.0.recv());
        async move { next.await.expect("the reconciler exists") }
    }

    /// Returns the reconciles that started since the last call.
    pub(crate) fn started(&mut self) -> Vec<RunningReconcile<R>> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

/// Creates a reconciler whose calls the test ends.
///
/// Dropping a [`Held`] fails its reconcile.
pub(crate) fn manual_reconciler<R: Key>() -> (impl Reconciler<R>, StartedReconciles<R>) {
    let (started, runs) = mpsc::unbounded_channel();
    let reconciler = reconcile::from_fn(move |request: R, cx| {
        let (answer, answered) = oneshot::channel();
        let _ = started.send(RunningReconcile {
            request,
            cx,
            answer,
        });
        async { answered.await? }
    });
    (reconciler, StartedReconciles(runs))
}

/// Creates a source that adds nothing and is synced immediately.
pub(crate) fn idle_source(name: &str) -> impl Source<Name> + use<> {
    source_synced_after(name, Duration::ZERO)
}

/// Creates a source that is synced after `time`.
pub(crate) fn source_synced_after(name: &str, time: Duration) -> impl Source<Name> + use<> {
    source::from_fn(
        name,
        move |_: Enqueue<Name>, cx: SourceContext| async move {
            sleep(time).await;
            cx.synced();
            cx.stopped().await;
            Ok(())
        },
    )
}

/// Creates a source that adds `request` when it is synced.
pub(crate) fn source_that_adds(name: &str, request: Name) -> impl Source<Name> + use<> {
    source::from_fn(
        name,
        move |queue: Enqueue<Name>, cx: SourceContext| async move {
            queue.add(request);
            cx.synced();
            cx.stopped().await;
            Ok(())
        },
    )
}

/// Creates a source that never reports a sync.
pub(crate) fn unsynced_source(name: &str) -> impl Source<Name> + use<> {
    source::from_fn(name, |_: Enqueue<Name>, cx: SourceContext| async move {
        cx.stopped().await;
        Ok(())
    })
}

/// Creates a source that fails after a delay.
pub(crate) fn failing_source(
    name: &str,
    after: Duration,
    text: &'static str,
) -> impl Source<Name> + use<> {
    source::from_fn(name, move |_: Enqueue<Name>, _: SourceContext| async move {
        sleep(after).await;
        Err(anyhow::anyhow!(text))
    })
}

/// Returns the watch error from the result of [`TestController::ended`].
#[track_caller]
pub(crate) fn watch_error(ended: Result<anyhow::Result<()>, tokio::task::JoinError>) -> WatchError {
    let error = ended.expect("no panic").expect_err("the start fails");
    error.downcast::<WatchError>().expect("a watch error")
}
