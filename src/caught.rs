//! A future whose panic is its answer.

use std::{
    any::Any,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::Poll,
};

/// What it gives, or what it panicked with. After that, whoever was at work in it must begin anew.
pub(crate) async fn catch<T>(mut work: Pin<&mut impl Future<Output = T>>) -> Result<T, Box<dyn Any + Send>> {
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

/// The same with the words of the panic.
pub(crate) async fn caught<T>(work: Pin<&mut impl Future<Output = T>>) -> Result<T, String> {
    catch(work).await.map_err(|panic| words(&*panic))
}

/// What a panic said.
pub(crate) fn words(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without words".to_owned())
}
