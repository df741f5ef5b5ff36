//! Calls user-defined checks, which may block, hang or panic.
//!
//! Invariant: at most one call of a check runs at a time. Concurrent callers share its result. A
//! check that hangs occupies one blocking thread and delays only its own callers.

use crate::panic_message::panic_message;
use parking_lot::Mutex;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

/// Time after which a call counts as failed.
pub(super) const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) type CheckResult = Result<(), String>;

/// A check, and its running call.
pub(super) struct SharedCheck {
    check: Box<dyn Fn() -> CheckResult + Send + Sync>,
    call: Mutex<Option<RunningCall>>,
}

#[derive(Clone)]
struct RunningCall {
    deadline: Instant,
    result: watch::Receiver<Option<CheckResult>>,
}

impl SharedCheck {
    pub(super) fn new(ask: impl Fn() -> CheckResult + Send + Sync + 'static) -> Self {
        Self {
            check: Box::new(ask),
            call: Mutex::new(None),
        }
    }

    /// Returns the result of the check, which runs on a blocking thread.
    pub(super) async fn run(self: &Arc<Self>) -> CheckResult {
        let RunningCall {
            deadline,
            mut result,
        } = self.call();
        match timeout_at(deadline, result.wait_for(Option::is_some)).await {
            Ok(Ok(result)) => result.clone().unwrap_or(Ok(())),
            Ok(Err(_)) => Err("check did not run: the runtime is shutting down".to_owned()),
            Err(_) => Err(format!(
                "check timed out after {} s",
                CHECK_TIMEOUT.as_secs()
            )),
        }
    }

    /// Returns the running call, or starts one.
    fn call(self: &Arc<Self>) -> RunningCall {
        let mut call = self.call.lock();
        if let Some(call) = &*call {
            return call.clone();
        }
        let (sender, result) = watch::channel(None);
        let guard = CallGuard {
            check: self.clone(),
            result: None,
            sender,
        };
        let started = call
            .insert(RunningCall {
                deadline: Instant::now() + CHECK_TIMEOUT,
                result,
            })
            .clone();
        drop(call);
        // Outside of the lock: a runtime that is shutting down drops the closure at once.
        spawn_blocking(move || guard.run());
        started
    }
}

/// A running call. It ends when this is dropped, also if it never started.
struct CallGuard {
    check: Arc<SharedCheck>,
    result: Option<CheckResult>,
    sender: watch::Sender<Option<CheckResult>>,
}

impl CallGuard {
    fn run(mut self) {
        let result = catch_unwind(AssertUnwindSafe(|| (self.check.check)()));
        self.result = Some(
            result.unwrap_or_else(|panic| Err(format!("panicked: {}", panic_message(&*panic)))),
        );
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        // Removed before the result is sent: a later caller starts a new call.
        *self.check.call.lock() = None;
        self.sender.send_replace(self.result.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::sync::{
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    };
    use tokio::time::advance;

    /// Returns a check that waits for an answer from the channel and counts calls.
    fn slow() -> (
        Arc<SharedCheck>,
        mpsc::Sender<CheckResult>,
        Arc<AtomicUsize>,
    ) {
        let (sender, results) = mpsc::channel();
        let (results, calls) = (Mutex::new(results), Arc::new(AtomicUsize::new(0)));
        let counted = calls.clone();
        let check = SharedCheck::new(move || {
            counted.fetch_add(1, SeqCst);
            results.lock().recv().unwrap_or(Ok(()))
        });
        (Arc::new(check), sender, calls)
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_a_call() {
        let (check, sender, calls) = slow();
        let answers = join_all((0..50).map(|_| check.run()));
        let sends = async {
            sender
                .send(Err("closed".into()))
                .expect("the check receives");
        };
        let (answers, ()) = tokio::join!(answers, sends);
        assert!(
            answers.iter().all(|result| *result == Err("closed".into())),
            "{answers:?}"
        );
        assert_eq!(calls.load(SeqCst), 1);
        sender.send(Ok(())).expect("the check receives");
        assert_eq!(
            check.run().await,
            Ok(()),
            "the next run calls the check again"
        );
        assert_eq!(calls.load(SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_check_times_out_and_is_not_called_again() {
        let (check, sender, calls) = slow();
        let first = tokio::spawn({
            let check = check.clone();
            async move { check.run().await }
        });
        while calls.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        // Paused time does not advance while a blocking thread runs.
        advance(CHECK_TIMEOUT).await;
        let late = Err("check timed out after 5 s".to_owned());
        assert_eq!(first.await.expect("no panic"), late);
        let begun = Instant::now();
        for _ in 0..1000 {
            assert_eq!(check.run().await, late, "later runs do not wait");
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        sender.send(Ok(())).expect("the check receives");
        while check.call.lock().is_some() {
            tokio::task::yield_now().await;
        }
        assert_eq!(calls.load(SeqCst), 1);
        sender.send(Ok(())).expect("the check receives");
        assert_eq!((check.run().await, calls.load(SeqCst)), (Ok(()), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_a_failed_check() {
        let check = Arc::new(SharedCheck::new(|| panic!("no luck")));
        assert_eq!(check.run().await, Err("panicked: no luck".into()));
        assert_eq!(check.run().await, Err("panicked: no luck".into()));
    }

    #[test]
    fn a_check_on_a_stopped_runtime_fails_at_once() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let handle = runtime.handle().clone();
        runtime.shutdown_background();
        let check = Arc::new(SharedCheck::new(|| Ok(())));
        assert_eq!(
            handle.block_on(check.run()),
            Err("check did not run: the runtime is shutting down".into())
        );
    }
}
