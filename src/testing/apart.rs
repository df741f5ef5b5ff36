//! Work apart from the caller's runtime. Tests have a runtime each, some with a paused clock, and end it when they end: what an
//! environment does, it does on a thread and a runtime of its own, so that neither the end nor the clock of a test's matters.

use super::Error;
use std::thread;
use tokio::sync::oneshot;

/// Run a future to its end on a thread of its own, even if nobody waits for it any more.
pub(super) async fn apart<T, F>(make: impl FnOnce() -> F + Send + 'static) -> Result<T, Error>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>>,
{
    let (tell, told) = oneshot::channel();
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let result = runtime.map_err(Error::io("start a runtime")).and_then(|runtime| runtime.block_on(make()));
        // Who asked may have gone; the result goes, too, and what it holds ends.
        let _ = tell.send(result);
    };
    let thread = thread::Builder::new().name("steersman-env".into()).spawn(work);
    thread.map_err(Error::io("start a thread"))?;
    told.await.expect("the work panicked; its message is above")
}
