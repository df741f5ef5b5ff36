//! Runs work on a separate thread and runtime.
//!
//! Each test has its own runtime, maybe with a paused clock, which ends with the test. The work of
//! an environment must depend on neither.

use super::Error;
use std::thread;
use tokio::sync::oneshot;

/// Runs a future to completion on its own thread, even if the caller is dropped.
pub(super) async fn run_on_own_runtime<T, F>(
    make: impl FnOnce() -> F + Send + 'static,
) -> Result<T, Error>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>>,
{
    let (sender, receiver) = oneshot::channel();
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let result = runtime
            .map_err(Error::io("start a runtime"))
            .and_then(|runtime| runtime.block_on(make()));
        // If the caller is gone, the result is dropped, and with it what it owns.
        let _ = sender.send(result);
    };
    let thread = thread::Builder::new()
        .name("steersman-env".into())
        .spawn(work);
    thread.map_err(Error::io("start a thread"))?;
    receiver
        .await
        .expect("the work panicked; its message is above")
}
