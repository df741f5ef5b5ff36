//! Reads: from the cache if there is one, from the server otherwise.
//!
//! What holds: a cached read asks the server for nothing but where a kind that is named at run time is, and that once. It never says that there is nothing
//! where it does not know: not before the first list, not of what is not kept, and, if it is to show own writes, not after the cache has ended. A key
//! that is an error to the one is an error to the other.

use super::{
    Client, Discovered, Error, Result, Verb,
    live_list::{LiveList, Next},
    settings::is_part_of_a_path,
    wire::{Asking, decode, segment},
};
use crate::{
    cache::{Asked, Cache, Informer, Query, Select},
    object::{KubeObject, ObjectKey, StaticKind},
};
use std::{pin::pin, sync::Arc};

/// Objects in a page of a live list: client-go's.
const PAGE: usize = 500;

impl Client {
    /// One object; `None` if there is none.
    ///
    /// From the cache it is shared with everybody: clone it to change it.
    pub async fn get<K: StaticKind>(&self, key: &ObjectKey) -> Result<Option<Arc<K>>> {
        let Some(cache) = self.cache() else {
            return self.get_live(&statically::<K>(), key).await;
        };
        let key = self.0.settings.named(&K::kind(&()), K::NAMESPACED, key)?;
        let read = pin!(async { Ok(self.informer(cache, Select::new(), &key).await?.get(&key)?) });
        self.got(statically::<K>, &key, read).await
    }

    /// The objects that `query` is about, all as they were at one moment.
    ///
    /// From the server they come in pages of 500, those of one list; an index is of a cache, and an error then.
    pub async fn list<K: StaticKind>(&self, query: &Query<K>) -> Result<Vec<Arc<K>>> {
        let Some(cache) = self.cache() else {
            return self.list_live(&statically::<K>(), query).await;
        };
        let all = self.0.settings.collection(&K::kind(&()), K::NAMESPACED, query.asked().namespace)?;
        let read = pin!(self.list_cached(cache, Select::new(), query, &all));
        self.through(Verb::List, statically::<K>, &all, None, read).await
    }

    /// The cache, if this read is from it.
    pub(super) fn cache(&self) -> Option<&Cache> {
        let settings = &self.0.settings;
        self.0.cache.as_ref().filter(|_| !settings.live && settings.subresource.is_none())
    }

    /// What every read from the cache goes through: the informer to read an object from, or all of a namespace, or all.
    pub(super) async fn informer<K: KubeObject>(
        &self,
        cache: &Cache,
        select: Select<K>,
        key: &ObjectKey,
    ) -> Result<Informer<K>> {
        let informer = cache.reader(select, key.namespace()).await?;
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
        if all.namespace() == query.asked().namespace {
            return Ok(informer.list(query)?);
        }
        Ok(informer.list(&query.clone().namespace(all.namespace()))?)
    }

    pub(super) async fn get_live<K: KubeObject>(&self, kind: &Discovered, key: &ObjectKey) -> Result<Option<Arc<K>>> {
        let key = self.0.settings.named(&kind.resource.kind, kind.namespaced, key)?;
        let read = pin!(async {
            let asking = Asking::get(self.path(kind, &key)?, K::metadata_api());
            match self.judged(kind, self.send(asking, false).await).await {
                Ok(answer) => decode(kind, &key, &answer).map(Some),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            }
        });
        self.got(|| kind.clone(), &key, read).await
    }

    pub(super) async fn list_live<K: KubeObject>(&self, kind: &Discovered, query: &Query<K>) -> Result<Vec<Arc<K>>> {
        let asked = query.asked();
        let all = self.selected(kind, &asked)?;
        let read = pin!(self.pages(kind, &asked, &all));
        self.through(Verb::List, || kind.clone(), &all, None, read).await
    }

    /// Returns all pages of a list from the API server.
    ///
    /// A list that the API server cannot continue, or that does not end, is requested once more without
    /// pages. If that fails in the same way, it is an error.
    async fn pages<K: KubeObject>(&self, kind: &Discovered, asked: &Asked<'_>, all: &ObjectKey) -> Result<Vec<Arc<K>>> {
        let path = kind.path(all.namespace().map(segment).as_deref());
        let limit = asked.limit.unwrap_or(usize::MAX);
        let (mut list, mut page) = (LiveList::<K>::new(), Some(PAGE));
        while list.found.len() < limit {
            // Gone before the request is awaited: it is not `Send`, and a list must be.
            let query = {
                let mut parameters = asked.selectors();
                let remaining = asked.limit.map(|limit| limit - list.found.len());
                if let Some(size) = page.into_iter().chain(remaining).min() {
                    parameters.append_pair("limit", &size.to_string());
                }
                if !list.token.is_empty() {
                    parameters.append_pair("continue", &list.token);
                }
                parameters.finish()
            };
            let asking = Asking { query, ..Asking::get(path.clone(), K::metadata_api()) };
            let interrupted = match self.judged(kind, self.send(asking, true).await).await {
                Ok(answer) => match list.add(kind, all, &answer)? {
                    Next::Page => continue,
                    Next::End => break,
                    Next::Endless(reason) => Error::EndlessList { kind: kind.resource.kind.clone(), reason },
                },
                // The continue token has expired.
                Err(error) if !list.token.is_empty() && error.status().is_some_and(|status| status.code == 410) => {
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
        if asked.sorted {
            found.sort_by_cached_key(|object| ObjectKey::of(&**object));
        }
        found.truncate(limit);
        Ok(found)
    }

    /// The namespace of what a query asks the server for, or all, as a key without a name.
    pub(super) fn selected(&self, kind: &Discovered, asked: &Asked<'_>) -> Result<ObjectKey> {
        let unsupported = |what| Err(Error::Unsupported { kind: kind.resource.kind.clone(), what });
        if asked.indexed {
            return unsupported("an index is of a cache: list from it, or select by labels and fields");
        }
        if self.0.settings.subresource.is_some() {
            return unsupported("there is no list of a subresource: get each one");
        }
        self.0.settings.collection(&kind.resource.kind, kind.namespaced, asked.namespace)
    }

    /// Of an object, or of the part of it that is meant.
    pub(super) fn path(&self, kind: &Discovered, key: &ObjectKey) -> Result<String> {
        if key.name().is_empty() {
            return Err(Error::NoName { kind: kind.resource.kind.clone() });
        }
        let mut path = format!("{}/{}", kind.path(key.namespace().map(segment).as_deref()), segment(key.name()));
        if let Some(part) = &self.0.settings.subresource {
            if part.is_empty() || !is_part_of_a_path(part) {
                return Err(Error::BadSubresource { kind: kind.resource.kind.clone(), name: (&**part).into() });
            }
            path += "/";
            path += &segment(part);
        }
        Ok(path)
    }
}

/// Where a type says that it is.
pub(super) fn statically<K: StaticKind>() -> Discovered {
    Discovered::typed(kube_core::ApiResource::erase::<K>(&()), K::NAMESPACED)
}
