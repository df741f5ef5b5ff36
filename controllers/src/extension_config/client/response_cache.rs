//! Cache of responses, with keys that the caller computes.

use super::ttl_map::TtlMap;
use crate::extension_config::{catalog::Hook, registry::Registration};
use parking_lot::Mutex;
use std::{fmt, sync::Arc, time::Duration};

/// Default lifetime of a cached response.
const TTL: Duration = Duration::from_mins(10);

/// Default maximum number of cached responses.
const CAPACITY: usize = 1000;

/// Cache of successful responses of a hook. Clones share the responses.
///
/// Use it with [`CallOptions::cached`] for hooks whose response depends only on the request.
pub struct ResponseCache<H: Hook>(Arc<Mutex<TtlMap<String, H::Response>>>);

// Not derived, which would require that `H` is `Clone`.
impl<H: Hook> Clone for ResponseCache<H> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<H: Hook> Default for ResponseCache<H> {
    /// Creates a cache that keeps at most 1,000 responses, each for 10 minutes.
    fn default() -> Self {
        Self::new(TTL, CAPACITY)
    }
}

impl<H: Hook> ResponseCache<H> {
    /// Creates a cache that keeps at most `capacity` responses, each for the time `ttl`.
    pub fn new(ttl: Duration, capacity: usize) -> Self {
        Self(Arc::new(Mutex::new(TtlMap::new(ttl, capacity))))
    }

    /// Returns the number of responses that are not expired.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Returns whether all responses are expired or removed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all responses.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

impl<H: Hook> fmt::Debug for ResponseCache<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseCache")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

type KeyFn<H> = dyn Fn(&str, &str, &<H as Hook>::Request) -> String + Send + Sync;

/// Options of a call of one handler. Default: no cache.
pub struct CallOptions<H: Hook> {
    cache: Option<(ResponseCache<H>, Arc<KeyFn<H>>)>,
}

impl<H: Hook> Default for CallOptions<H> {
    fn default() -> Self {
        Self { cache: None }
    }
}

impl<H: Hook> Clone for CallOptions<H> {
    fn clone(&self) -> Self {
        Self {
            cache: self.cache.clone(),
        }
    }
}

impl<H: Hook> fmt::Debug for CallOptions<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cache = self.cache.as_ref().map(|(cache, _)| cache);
        f.debug_struct("CallOptions")
            .field("cache", &cache)
            .finish_non_exhaustive()
    }
}

impl<H: Hook> CallOptions<H> {
    /// Returns options with a cache.
    ///
    /// `key` computes the key of a call. Its arguments are the registered name of the handler, the
    /// resource version of its `ExtensionConfig`, and the request with all settings. The cache
    /// stores responses with the status `Success`, but not failures that the failure policy
    /// ignores.
    #[must_use]
    pub fn cached(
        cache: &ResponseCache<H>,
        key: impl Fn(&str, &str, &H::Request) -> String + Send + Sync + 'static,
    ) -> Self {
        Self {
            cache: Some((cache.clone(), Arc::new(key))),
        }
    }

    /// Returns the cache entry of a call, which can be empty; `None` without a cache.
    pub(super) fn lookup(
        &self,
        registration: &Registration,
        request: &H::Request,
    ) -> Option<CacheEntry<'_, H>> {
        let (cache, key) = self.cache.as_ref()?;
        let Registration {
            name,
            extension_config_resource_version: resource_version,
            ..
        } = registration;
        Some(CacheEntry {
            cache,
            key: key(name, resource_version, request),
        })
    }
}

/// Cache entry of one call. It is empty until a response is stored.
pub(super) struct CacheEntry<'a, H: Hook> {
    cache: &'a ResponseCache<H>,
    key: String,
}

impl<H: Hook> CacheEntry<'_, H> {
    pub(super) fn response(&self) -> Option<H::Response> {
        self.cache.0.lock().get(&self.key).cloned()
    }

    pub(super) fn store(self, response: &H::Response) {
        self.cache.0.lock().insert(self.key, response.clone());
    }
}
