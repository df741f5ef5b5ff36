//! Reads from the cache if the client has one, else from the API server.
//!
//! Invariant: a cached read sends no request, except for the first discovery of a dynamic kind. It
//! reports an object as missing only if the cache knows that: not before the first list, not for
//! objects outside of the cache, and, if it includes own writes, not after the cache has stopped.
//! Cached and live reads reject the same invalid keys.

use super::{
    Client, Discovered, Error, Result, Verb,
    live_list::{LiveList, Next},
    settings::is_part_of_a_path,
    wire::{ApiRequest, decode, path_segment},
};
use crate::{
    cache::{Cache, Informer, InformerState, ListParams, Query, Select},
    object::{KubeObject, ObjectKey, StaticKind},
};
use std::{pin::pin, sync::Arc};

/// Objects per page of a live list, as in client-go.
const PAGE: usize = 500;

impl Client {
    /// Returns an object; `None` if it does not exist.
    ///
    /// An object from the cache is shared. Clone it to change it.
    pub async fn get<K: StaticKind>(&self, key: &ObjectKey) -> Result<Option<Arc<K>>> {
        let Some(cache) = self.cache() else {
            return self.get_live(&static_kind::<K>(), key).await;
        };
        let key = self.0.settings.named(&K::kind(&()), K::NAMESPACED, key)?;
        let read = pin!(async { Ok(self.informer(cache, Select::new(), &key).await?.get(&key)?) });
        self.intercept_get(static_kind::<K>, &key, read).await
    }

    /// Returns the state of the informer that serves reads of `K`.
    ///
    /// `None` if the client reads from the API server, or if no informer is declared that serves
    /// `K`. Use it to read live what the cache does not have, or to tell a missing object from a
    /// missing kind: an informer whose state is not
    /// [`Synced`](crate::cache::InformerState::Synced) may not have an object that exists.
    pub fn informer_state<K: StaticKind>(&self) -> Option<InformerState> {
        self.cache()?.state_for_reads(&Select::<K>::new())
    }

    /// Lists the objects that `query` matches, as a consistent snapshot.
    ///
    /// A live list is read in pages of 500 objects. It does not support indexes.
    ///
    /// From the cache, an object whose current version does not decode does not fail the list, see
    /// [`Informer::list`](crate::cache::Informer::list). From the server, it does.
    pub async fn list<K: StaticKind>(&self, query: &Query<K>) -> Result<Vec<Arc<K>>> {
        let Some(cache) = self.cache() else {
            return self.list_live(&static_kind::<K>(), query).await;
        };
        let all = self.0.settings.collection(
            &K::kind(&()),
            K::NAMESPACED,
            query.list_params().namespace,
        )?;
        let read = pin!(self.list_cached(cache, Select::new(), query, &all));
        self.intercept_call(Verb::List, static_kind::<K>, &all, None, read)
            .await
    }

    /// Returns the cache, if reads of this client use it.
    pub(super) fn cache(&self) -> Option<&Cache> {
        let settings = &self.0.settings;
        self.0
            .cache
            .as_ref()
            .filter(|_| !settings.live && settings.subresource.is_none())
    }

    /// Returns the informer of a read, after it has observed the own writes.
    ///
    /// `key` is an object, or without a name a namespace or the whole kind.
    pub(super) async fn informer<K: KubeObject>(
        &self,
        cache: &Cache,
        select: Select<K>,
        key: &ObjectKey,
    ) -> Result<Informer<K>> {
        let informer = cache.informer_for_reads(select, key.namespace()).await?;
        self.show_own_writes(cache, &informer, key).await?;
        Ok(informer)
    }

    pub(super) async fn list_cached<K: KubeObject>(
        &self,
        cache: &Cache,
        select: Select<K>,
        query: &Query<K>,
        all: &ObjectKey,
    ) -> Result<Vec<Arc<K>>> {
        let informer = self.informer(cache, select, all).await?;
        if all.namespace() == query.list_params().namespace {
            return Ok(informer.list(query)?);
        }
        Ok(informer.list(&query.clone().namespace(all.namespace()))?)
    }

    pub(super) async fn get_live<K: KubeObject>(
        &self,
        kind: &Discovered,
        key: &ObjectKey,
    ) -> Result<Option<Arc<K>>> {
        let key = self
            .0
            .settings
            .named(&kind.resource.kind, kind.namespaced, key)?;
        let read = pin!(async {
            let request = ApiRequest::get(self.path(kind, &key)?, K::metadata_api());
            match self.classified(kind, self.send(request, false).await).await {
                Ok(response) => decode(kind, &key, &response).map(Some),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            }
        });
        self.intercept_get(|| kind.clone(), &key, read).await
    }

    pub(super) async fn list_live<K: KubeObject>(
        &self,
        kind: &Discovered,
        query: &Query<K>,
    ) -> Result<Vec<Arc<K>>> {
        let params = query.list_params();
        let all = self.selected(kind, &params)?;
        let read = pin!(self.pages(kind, &params, &all));
        self.intercept_call(Verb::List, || kind.clone(), &all, None, read)
            .await
    }

    /// Returns all pages of a list from the API server.
    ///
    /// A list that the API server cannot continue, or that does not end, is requested once more
    /// without pages. If that fails in the same way, the result is an error.
    async fn pages<K: KubeObject>(
        &self,
        kind: &Discovered,
        params: &ListParams<'_>,
        all: &ObjectKey,
    ) -> Result<Vec<Arc<K>>> {
        let path = kind.path(all.namespace().map(path_segment).as_deref());
        let limit = params.limit.unwrap_or(usize::MAX);
        let (mut list, mut page) = (LiveList::<K>::new(), Some(PAGE));
        while list.found.len() < limit {
            // Dropped before the request is awaited: the serializer is not `Send`.
            let query = {
                let mut parameters = params.selectors();
                let remaining = params.limit.map(|limit| limit - list.found.len());
                if let Some(size) = page.into_iter().chain(remaining).min() {
                    parameters.append_pair("limit", &size.to_string());
                }
                if !list.token.is_empty() {
                    parameters.append_pair("continue", &list.token);
                }
                parameters.finish()
            };
            let request = ApiRequest {
                query,
                ..ApiRequest::get(path.clone(), K::metadata_api())
            };
            let interrupted = match self.classified(kind, self.send(request, true).await).await {
                Ok(response) => match list.add(kind, all, &response)? {
                    Next::Page => continue,
                    Next::End => break,
                    Next::Endless(reason) => Error::EndlessList {
                        kind: kind.resource.kind.clone(),
                        reason,
                    },
                },
                // The continue token has expired.
                Err(error)
                    if !list.token.is_empty()
                        && error.status().is_some_and(|status| status.code == 410) =>
                {
                    error
                }
                Err(error) => return Err(error),
            };
            if page.is_none() {
                return Err(interrupted);
            }
            list = LiveList::new();
            page = None;
        }
        let mut found = list.found;
        if params.sorted {
            found.sort_by_cached_key(|object| ObjectKey::of(&**object));
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Returns the collection of a query as a key without a name.
    pub(super) fn selected(&self, kind: &Discovered, params: &ListParams<'_>) -> Result<ObjectKey> {
        let unsupported = |reason| {
            Err(Error::Unsupported {
                kind: kind.resource.kind.clone(),
                reason,
            })
        };
        if params.indexed {
            return unsupported(
                "only a cache lists by an index; list from the cache, or select by labels and \
                 fields",
            );
        }
        if self.0.settings.subresource.is_some() {
            return unsupported("subresources cannot be listed; get each one");
        }
        self.0
            .settings
            .collection(&kind.resource.kind, kind.namespaced, params.namespace)
    }

    /// Returns the path of an object or its subresource.
    pub(super) fn path(&self, kind: &Discovered, key: &ObjectKey) -> Result<String> {
        if key.name().is_empty() {
            return Err(Error::NoName {
                kind: kind.resource.kind.clone(),
            });
        }
        let mut path = format!(
            "{}/{}",
            kind.path(key.namespace().map(path_segment).as_deref()),
            path_segment(key.name())
        );
        if let Some(part) = &self.0.settings.subresource {
            if part.is_empty() || !is_part_of_a_path(part) {
                return Err(Error::BadSubresource {
                    kind: kind.resource.kind.clone(),
                    name: (&**part).into(),
                });
            }
            path += "/";
            path += &path_segment(part);
        }
        Ok(path)
    }
}

/// Returns the resource of a static type.
pub(super) fn static_kind<K: StaticKind>() -> Discovered {
    Discovered::typed(kube_core::ApiResource::erase::<K>(&()), K::NAMESPACED)
}
