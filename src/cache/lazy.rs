//! Reads by a client: of what was declared, or, if the cache is told so, of what the read itself declares.

use super::{Cache, CacheError, Informer, Select};
use crate::object::KubeObject;
use std::time::Duration;
use tokio::time::timeout;

/// How long a read waits for what a read has declared.
const PATIENCE: Duration = Duration::from_secs(10);

impl Cache {
    /// The informer that [`informer_of`](Self::informer_of) would give, for one read from a namespace or from all; it is synced. The read does not hold it.
    pub(crate) async fn reader<K: KubeObject>(
        &self,
        select: Select<K>,
        namespace: Option<&str>,
    ) -> Result<Informer<K>, CacheError> {
        let found = match self.declared(&select, namespace)? {
            None if self.options().allow_lazy => {
                self.declare_lazily(select.clone())?;
                self.declared(&select, namespace)?
            }
            found => found,
        };
        let not_cached =
            || CacheError::NotCached { api_version: select.gvk.api_version(), kind: select.gvk.kind.clone() };
        let (informer, lazy) = found.ok_or_else(not_cached)?;
        if lazy && informer.check_synced().is_err() {
            let _ = timeout(PATIENCE, informer.await_synced()).await;
        }
        informer.check_synced()?;
        Ok(informer)
    }
}
