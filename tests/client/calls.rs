//! Calls of a client: noted, or answered by a test.

use std::sync::{Arc, Mutex};
use steersman::client::{Answer, Call, Interceptor, Next, Result, Verb};

/// Every call of a client, as in `Patch Order shop/web status`.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    /// Those since the last time.
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

/// Lets a test do something before a call.
pub(crate) struct Before<F>(pub(crate) F);

impl<F, D> Interceptor for Before<F>
where
    F: Fn(Verb) -> D + Send + Sync + 'static,
    D: Future<Output = Result<()>> + Send,
{
    async fn intercept(&self, call: &Call<'_>, next: Next<'_>) -> Result<Answer> {
        self.0(call.verb).await?;
        next.run().await
    }
}
