//! Reconcilers that want the object, not its name.

use super::{Context, Outcome, Reconciler, Request, Result};
use crate::{client::Client, object::StaticKind};
use std::{marker::PhantomData, sync::Arc};

/// Brings the world closer to what an object asks for: a [`Reconciler`] for which the object was read. See [`by_object`].
pub trait ObjectReconciler<K>: Send + Sync + 'static {
    /// One run, with the object as the cache has it. One that is being deleted is still there.
    fn reconcile(&self, object: Arc<K>, cx: &Context) -> impl Future<Output = Result<Outcome>> + Send;
}

/// Read the object first, from the client's cache if it has one. An object that is gone is done with: use a finalizer for what is to be done before, or
/// a [`Reconciler`] for what is to be done after.
pub fn by_object<K: StaticKind, T: ObjectReconciler<K>>(client: Client, reconciler: T) -> impl Reconciler + use<K, T> {
    ByObject { client, reconciler, kind: PhantomData }
}

struct ByObject<K, T> {
    client: Client,
    reconciler: T,
    kind: PhantomData<fn() -> K>,
}

impl<K: StaticKind, T: ObjectReconciler<K>> Reconciler for ByObject<K, T> {
    async fn reconcile(&self, request: Request, cx: &Context) -> Result<Outcome> {
        match self.client.get::<K>(&request).await? {
            Some(object) => self.reconciler.reconcile(object, cx).await,
            None => Ok(Outcome::done()),
        }
    }
}
