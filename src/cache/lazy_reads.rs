//! Informers for reads by clients, declared lazily if the options allow it.

use super::{Cache, CacheError, Informer, InformerState, Select};
use crate::object::KubeObject;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum time that a read waits for a lazily declared informer.
///
/// Also applies before the cache runs, because a program may spawn `run_until` and read at once.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

impl Cache {
    /// Returns the synced informer that serves reads from `namespace`, or from all.
    ///
    /// This is the informer that [`informer_of`](Self::informer_of) returns for a selection without
    /// namespaces, selectors and settings. The returned handle does not keep it alive.
    pub(crate) async fn informer_for_reads<K: KubeObject>(
        &self,
        select: Select<K>,
        namespace: Option<&str>,
    ) -> Result<Informer<K>, CacheError> {
        let found = match self.declared(&select, namespace)? {
            None if self.options().allow_lazy => {
                self.declare_lazily(&select)?;
                self.declared(&select, namespace)?
            }
            found => found,
        };
        let not_cached = || CacheError::NotCached {
            api_version: select.declaration().gvk.api_version(),
            kind: select.declaration().gvk.kind.clone(),
        };
        let (informer, lazy) = found.ok_or_else(not_cached)?;
        if lazy && informer.check_synced().is_err() {
            let _ = timeout(SYNC_TIMEOUT, informer.await_synced_or_rejected()).await;
        }
        informer.check_synced()?;
        Ok(informer)
    }

    /// Returns the state of the informer that serves reads, if one is declared.
    pub(crate) fn state_for_reads<K: KubeObject>(
        &self,
        select: &Select<K>,
    ) -> Option<InformerState> {
        let (informer, _) = self.declared(select, None).ok()??;
        Some(informer.state())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::CacheOptions;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_client::Client;
    use std::thread;
    use steersman_apiserver::{ApiServer, Options};

    /// A read waits for an informer only if it sees that another read has declared it.
    #[tokio::test]
    async fn a_concurrent_read_sees_that_an_informer_is_lazy() {
        let server = ApiServer::new(Options::default()).expect("the server starts");
        let client = Client::new(server.service(), "default");
        for _ in 0..1000 {
            let cache =
                Cache::new(client.clone(), CacheOptions::default()).expect("a ready client");
            let found = thread::scope(|threads| {
                let found = threads.spawn(|| {
                    loop {
                        if let Some((_, lazy)) = cache
                            .declared(&Select::<ConfigMap>::new(), None)
                            .expect("the informer is declared")
                        {
                            return lazy;
                        }
                    }
                });
                cache
                    .declare_lazily(&Select::<ConfigMap>::new())
                    .expect("the kind is declared");
                found.join().expect("the informer is found")
            });
            assert!(found);
        }
    }
}
