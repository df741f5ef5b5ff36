//! Asking a function that anybody has written: it may take long, hang or panic.
//!
//! What holds: at most one call of it runs at a time, whoever asks and however often. Who asks meanwhile shares its answer. A call that hangs takes one thread, and
//! nobody's time but its own.

use crate::caught::words;
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

/// How long a call may take before it counts as a failure.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

pub(super) type Answer = Result<(), String>;

/// A function, and the call of it that runs, if one does.
pub(super) struct Asking {
    ask: Box<dyn Fn() -> Answer + Send + Sync>,
    call: Mutex<Option<Call>>,
}

#[derive(Clone)]
struct Call {
    deadline: Instant,
    answer: watch::Receiver<Option<Answer>>,
}

impl Asking {
    pub(super) fn new(ask: impl Fn() -> Answer + Send + Sync + 'static) -> Self {
        Self { ask: Box::new(ask), call: Mutex::new(None) }
    }

    /// What it says, on a thread that may wait.
    pub(super) async fn ask(self: &Arc<Self>) -> Answer {
        let Call { deadline, mut answer } = self.call();
        match timeout_at(deadline, answer.wait_for(Option::is_some)).await {
            Ok(Ok(answer)) => answer.clone().unwrap_or(Ok(())),
            Ok(Err(_)) => Err("not asked: the runtime is ending".to_owned()),
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        }
    }

    /// The one that runs, or a new one.
    fn call(self: &Arc<Self>) -> Call {
        let mut call = self.call.lock();
        if let Some(call) = &*call {
            return call.clone();
        }
        let (tell, answer) = watch::channel(None);
        let calling = Calling { asking: self.clone(), said: None, tell };
        let made = call.insert(Call { deadline: Instant::now() + PATIENCE, answer }).clone();
        drop(call);
        // Not under the lock: in a runtime that is ending it is over at once.
        spawn_blocking(move || calling.run());
        made
    }
}

/// One call. Over when it is dropped, also if it was never begun.
struct Calling {
    asking: Arc<Asking>,
    said: Option<Answer>,
    tell: watch::Sender<Option<Answer>>,
}

impl Calling {
    fn run(mut self) {
        let said = catch_unwind(AssertUnwindSafe(|| (self.asking.ask)()));
        self.said = Some(said.unwrap_or_else(|panic| Err(format!("panicked: {}", words(&*panic)))));
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        // Before anybody knows the answer: who asks after that is told a new one.
        *self.asking.call.lock() = None;
        self.tell.send_replace(self.said.take());
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

    /// One that answers when it is told to, and how often it was asked.
    fn slow() -> (Arc<Asking>, mpsc::Sender<Answer>, Arc<AtomicUsize>) {
        let (tell, told) = mpsc::channel();
        let (told, asked) = (Mutex::new(told), Arc::new(AtomicUsize::new(0)));
        let counted = asked.clone();
        let asking = Asking::new(move || {
            counted.fetch_add(1, SeqCst);
            told.lock().recv().unwrap_or(Ok(()))
        });
        (Arc::new(asking), tell, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_while_a_call_runs_shares_its_answer() {
        let (asking, tell, asked) = slow();
        let answers = join_all((0..50).map(|_| asking.ask()));
        let tells = async { tell.send(Err("closed".into())).expect("it listens") };
        let (answers, ()) = tokio::join!(answers, tells);
        assert!(answers.iter().all(|answer| *answer == Err("closed".into())), "{answers:?}");
        assert_eq!(asked.load(SeqCst), 1);
        tell.send(Ok(())).expect("it listens");
        assert_eq!(asking.ask().await, Ok(()), "the next one is asked anew");
        assert_eq!(asked.load(SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_is_no_answer_and_no_second_one_begins_before_it_has_ended() {
        let (asking, tell, asked) = slow();
        let first = tokio::spawn({
            let asking = asking.clone();
            async move { asking.ask().await }
        });
        while asked.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        // Time stands still while a thread is at work.
        advance(PATIENCE).await;
        let late = Err("no answer within 5 s".to_owned());
        assert_eq!(first.await.expect("no panic"), late);
        let begun = Instant::now();
        for _ in 0..1000 {
            assert_eq!(asking.ask().await, late, "and those who come later need not wait");
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        tell.send(Ok(())).expect("it listens");
        while asking.call.lock().is_some() {
            tokio::task::yield_now().await;
        }
        assert_eq!(asked.load(SeqCst), 1);
        tell.send(Ok(())).expect("it listens");
        assert_eq!((asking.ask().await, asked.load(SeqCst)), (Ok(()), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_an_answer() {
        let asking = Arc::new(Asking::new(|| panic!("no luck")));
        assert_eq!(asking.ask().await, Err("panicked: no luck".into()));
        assert_eq!(asking.ask().await, Err("panicked: no luck".into()));
    }

    #[test]
    fn in_a_runtime_that_has_ended_nobody_is_asked_and_nobody_waits() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let handle = runtime.handle().clone();
        runtime.shutdown_background();
        let asking = Arc::new(Asking::new(|| Ok(())));
        assert_eq!(handle.block_on(asking.ask()), Err("not asked: the runtime is ending".into()));
    }
}
