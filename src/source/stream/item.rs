//! Items of the streams of kube-runtime.

use crate::{error_chain::ErrorChain, object::KubeObject};
use kube_runtime::watcher;
use std::sync::Arc;

/// Item of a stream that [`source::stream`](super::stream) accepts.
///
/// Implemented for all of them. Not meant to be implemented by users.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an item of a stream of kube-runtime",
    note = "`source::stream` accepts `Result<watcher::Event<K>, _>`, `watcher::Event<K>`, `Result<K, _>` and `Arc<K>`"
)]
pub trait StreamItem<K> {
    /// Whether the stream reports the end of the first list.
    #[doc(hidden)]
    const REPORTS_LISTS: bool;

    #[doc(hidden)]
    fn into_change(self) -> Result<Change<K>, String>;
}

/// Change that a stream reports.
#[doc(hidden)]
#[derive(Debug)]
pub enum Change<K> {
    Watcher(watcher::Event<K>),
    /// The object changed or was deleted.
    Touched(Arc<K>),
}

impl<K: KubeObject> StreamItem<K> for watcher::Event<K> {
    const REPORTS_LISTS: bool = true;

    fn into_change(self) -> Result<Change<K>, String> {
        Ok(Change::Watcher(self))
    }
}

impl<K: KubeObject> StreamItem<K> for Arc<K> {
    const REPORTS_LISTS: bool = false;

    fn into_change(self) -> Result<Change<K>, String> {
        Ok(Change::Touched(self))
    }
}

impl<K: KubeObject, E: Into<anyhow::Error>> StreamItem<K> for Result<watcher::Event<K>, E> {
    const REPORTS_LISTS: bool = true;

    fn into_change(self) -> Result<Change<K>, String> {
        self.map(Change::Watcher).map_err(text)
    }
}

impl<K: KubeObject, E: Into<anyhow::Error>> StreamItem<K> for Result<K, E> {
    const REPORTS_LISTS: bool = false;

    fn into_change(self) -> Result<Change<K>, String> {
        self.map(|object| Change::Touched(Arc::new(object)))
            .map_err(text)
    }
}

/// Returns an error with its causes. Those of kube print their causes themselves.
fn text(error: impl Into<anyhow::Error>) -> String {
    let error = error.into();
    ErrorChain(&*error).to_string()
}
