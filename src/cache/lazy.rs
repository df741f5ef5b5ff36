//! Reads by a client: of what was declared, or, if the cache is told so, of what the read itself declares.

use super::{Cache, CacheError, Informer, Select};
use crate::object::KubeObject;
use std::time::Duration;
use tokio::time::timeout;

/// How long a read waits for what a read has declared, while the server has said neither what there is nor no. Also in a cache that does not run: who spawns `run_until` and
/// reads in the same breath reads before it does.
const PATIENCE: Duration = Duration::from_secs(10);

impl Cache {
    /// The informer that [`informer_of`](Self::informer_of) would give for a selection that says nothing but its kind, for one read from a namespace or
    /// from all; it is synced. The read does not hold it.
    pub(crate) async fn reader<K: KubeObject>(
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
            api_version: select.said().gvk.api_version(),
            kind: select.said().gvk.kind.clone(),
        };
        let (informer, lazy) = found.ok_or_else(not_cached)?;
        if lazy && informer.check_synced().is_err() {
            let _ = timeout(PATIENCE, informer.await_answer()).await;
        }
        informer.check_synced()?;
        Ok(informer)
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

    /// A read that finds it waits for it only if it knows.
    #[tokio::test]
    async fn who_finds_what_a_read_declares_finds_that_a_read_has() {
        let server = ApiServer::new(Options::default()).expect("it starts");
        let client = Client::new(server.service(), "default");
        for _ in 0..1000 {
            let cache = Cache::new(client.clone(), CacheOptions::default()).expect("a ready client");
            let found = thread::scope(|threads| {
                let found = threads.spawn(|| {
                    loop {
                        if let Some((_, lazy)) =
                            cache.declared(&Select::<ConfigMap>::new(), None).expect("it is served")
                        {
                            return lazy;
                        }
                    }
                });
                cache.declare_lazily(&Select::<ConfigMap>::new()).expect("it is new");
                found.join().expect("it is found")
            });
            assert!(found);
        }
    }
}
