//! Reconcilers that receive the object instead of its key.

use super::{Context, Outcome, Reconciler, Request, Result};
use crate::{client::Client, object::StaticKind};
use std::{marker::PhantomData, sync::Arc};

/// Reconciler that receives the object of the request, see [`by_object`].
pub trait ObjectReconciler<K>: Send + Sync + 'static {
    /// Reconciles the current object, which may be in deletion.
    fn reconcile(
        &self,
        object: Arc<K>,
        cx: &Context,
    ) -> impl Future<Output = Result<Outcome>> + Send;
}

/// Creates a reconciler that reads the object first.
///
/// The object is read from the client's cache, if it has one. A request for an object that does not
/// exist is done. Use a finalizer for cleanup before the deletion, or a [`Reconciler`] for work
/// after it.
pub fn by_object<K: StaticKind, T: ObjectReconciler<K>>(
    client: Client,
    reconciler: T,
) -> impl Reconciler + use<K, T> {
    ByObject {
        client,
        reconciler,
        kind: PhantomData,
    }
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
