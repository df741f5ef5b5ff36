//! Interceptors that record calls or run code before them.

use std::sync::{Arc, Mutex};
use steersman::client::{Answer, Call, Interceptor, Next, Result, Verb};

/// Calls of a client, such as `Patch Order shop/web status`.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    /// Returns the calls since the last time.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("not poisoned"))
    }

    pub(crate) fn push(&self, call: String) {
        self.0.lock().expect("not poisoned").push(call);
    }
}

impl Interceptor for Calls {
    async fn intercept(&self, call: &Call<'_>, next: Next<'_>) -> Result<Answer> {
        self.push(call.to_string());
        next.run().await
    }
}

/// Runs code of the test before each call.
pub(crate) struct RunBefore<F>(pub(crate) F);

impl<F, D> Interceptor for RunBefore<F>
where
    F: Fn(Verb) -> D + Send + Sync + 'static,
    D: Future<Output = Result<()>> + Send,
{
    async fn intercept(&self, call: &Call<'_>, next: Next<'_>) -> Result<Answer> {
        self.0(call.verb).await?;
        next.run().await
    }
}
