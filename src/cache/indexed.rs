//! Indexes as users have them.

use super::{
    CacheError, Informer, Query, View,
    store::{Function, IndexId, Lookup},
};
use crate::object::{Body, KubeObject, ObjectKey};
use std::{fmt, hash::Hash, marker::PhantomData, sync::Arc};

/// Objects by what a function says of them. Made by [`Informer::index`], removed when its last clone, and the last query by it, is dropped. It holds
/// its informer.
///
/// What cannot be read as a `K`, or what the function panics on, is in no index: [`InformerStats`](super::InformerStats) count it, and say why.
///
/// The function runs while the informer's next change waits for it: be quick. It may read, its own informer too, which shows what was before; but it must
/// not ask that one for events or another index, nor drop one: that waits for the change, which waits for it.
///
/// Use it where a list would look at many objects to find few: what refers to a secret, what an owner has.
pub struct Index<K, V>(Arc<Held<K, V>>);

struct Held<K, V> {
    informer: Informer<K>,
    number: usize,
    value: PhantomData<fn(V)>,
}

impl<K, V> Drop for Held<K, V> {
    fn drop(&mut self) {
        self.informer.core.remove_index(self.number);
    }
}

impl<K: KubeObject, V: Hash + Eq + Send + Sync + 'static> Index<K, V> {
    pub(super) fn new(informer: Informer<K>, values: impl Fn(&K) -> Vec<V> + Send + Sync + 'static) -> Self {
        // What cannot be read as the kind cannot be found by what is in it.
        let values = move |body: &Body| match body.decode::<K>() {
            Ok(object) => Ok(values(&object)),
            Err(error) => Err(error.to_string()),
        };
        let number = informer.core.add_index(Arc::new(Function::new(values)));
        Self(Arc::new(Held { informer, number, value: PhantomData }))
    }

    /// Keys only, without decoding anything: for mapping functions. Empty before the first sync.
    pub fn keys(&self, value: &V) -> Vec<ObjectKey> {
        // Before, some namespaces may be there, and others not.
        self.view(value).map(|view| view.iter().map(|object| object.key().clone()).collect()).unwrap_or_default()
    }

    /// The objects. Together with a namespace or labels: [`Query::index`].
    pub fn get(&self, value: &V) -> Result<Vec<Arc<K>>, CacheError> {
        let informer = &self.0.informer;
        informer.counted(self.view(value)?.list(&Query::default(), informer.gvk()))
    }

    /// The objects, to be looked at where they are: see [`Informer::view`].
    pub fn view(&self, value: &V) -> Result<View<K>, CacheError> {
        self.0.informer.select(None, &[IndexId::new(self.0.number).of(value)])
    }
}

impl<K: 'static, V: Hash + Eq + Send + Sync + 'static> Index<K, V> {
    pub(super) fn narrowing(&self, value: V) -> Arc<dyn Narrowing<K>> {
        Arc::new(Narrowed { index: self.clone(), value })
    }
}

/// A value of an index, in a query: it holds the index.
pub(super) trait Narrowing<K>: Send + Sync {
    /// Refused if it is an index of another informer.
    fn lookup_in(&self, informer: &Informer<K>) -> Result<Lookup<'_>, CacheError>;
}

struct Narrowed<K, V> {
    index: Index<K, V>,
    value: V,
}

impl<K, V: Hash + Eq + Send + Sync + 'static> Narrowing<K> for Narrowed<K, V> {
    fn lookup_in(&self, informer: &Informer<K>) -> Result<Lookup<'_>, CacheError> {
        let Held { informer: own, number, .. } = &*self.index.0;
        if !Arc::ptr_eq(&own.core, &informer.core) {
            return Err(CacheError::OtherIndex { kind: informer.kind().to_owned() });
        }
        Ok(IndexId::new(*number).of(&self.value))
    }
}

impl<K, V> Clone for Index<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, V> fmt::Debug for Index<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("informer", &self.0.informer).finish_non_exhaustive()
    }
}
