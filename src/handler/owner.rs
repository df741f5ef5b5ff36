//! Handlers that map an object to its owner.

use super::{Deduped, Enqueue, Handler};
use crate::{
    event::Event,
    object::{Meta, ObjectKey, Owner as Reference, StaticKind},
    reconcile::Request,
};
use anyhow::Context;
use kube_core::GroupVersionKind;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Creates a handler that enqueues the controlling owner of kind `O`.
///
/// For an update, the owners of both objects are enqueued. [`Owner::any`] enqueues every owner of
/// the kind. Kinds are compared by group and kind, because references keep the version with which
/// they were written.
pub fn owner<O: StaticKind>() -> Owner {
    owner_in(O::static_gvk(), Some(O::NAMESPACED))
}

/// Creates a handler like [`owner`], for a kind that is named at run time.
///
/// The first event discovers whether the kind is namespaced. Events are retried until discovery
/// succeeds.
pub fn owner_of(kind: GroupVersionKind) -> Owner {
    owner_in(kind, None)
}

/// Creates a handler for a kind whose scope may be unknown.
pub(crate) fn owner_in(kind: GroupVersionKind, namespaced: Option<bool>) -> Owner {
    Owner {
        kind: Arc::new(kind),
        namespaced: Arc::new(OnceCell::new_with(namespaced)),
        any: false,
    }
}

/// Handler that enqueues owners, see [`owner`].
#[derive(Clone, Debug)]
pub struct Owner {
    kind: Arc<GroupVersionKind>,
    /// Set once discovered.
    namespaced: Arc<OnceCell<bool>>,
    any: bool,
}

impl Owner {
    /// Enqueues every owner of the kind, not only the controlling one.
    #[must_use]
    pub fn any(self) -> Self {
        Self { any: true, ..self }
    }

    /// Returns the names of matching owners. Skips invalid references.
    fn names<'a>(&self, meta: Meta<'a>) -> impl Iterator<Item = &'a str> {
        let (any, every) = (self.any, self.any.then(|| meta.owners()));
        let managing = if any { None } else { meta.controller() };
        let owners = every.into_iter().flatten().chain(managing);
        owners
            .filter(|owner| self.is_of_kind(owner))
            .map(|owner| owner.name)
    }

    fn is_of_kind(&self, owner: &Reference<'_>) -> bool {
        let group = owner
            .api_version
            .rsplit_once('/')
            .map_or("", |(group, _)| group);
        owner.kind == self.kind.kind && group == self.kind.group
    }
}

fn key(namespaced: bool, namespace: Option<&str>, name: &str) -> Request {
    ObjectKey::new(namespace.filter(|_| namespaced).unwrap_or_default(), name)
}

impl<K> Handler<K, Request> for Owner {
    fn handle(&self, event: &Event<K>, queue: &Enqueue<Request>) {
        let namespace = event.object().namespace();
        let objects = event.old().into_iter().chain([event.object()]);
        let names = objects.flat_map(|object| self.names(object.meta()));
        if let Some(&namespaced) = self.namespaced.get() {
            let mut owners = Deduped::default();
            names.for_each(|name| owners.add(key(namespaced, namespace, name)));
            owners.into_iter().for_each(|owner| queue.add(owner));
            return;
        }
        let names: Vec<_> = names.map(Into::<String>::into).collect();
        if names.is_empty() {
            return;
        }
        // Concurrent attempts share one discovery request.
        let context = Arc::new((
            names,
            event.object().key().clone(),
            self.clone(),
            queue.cache().cloned(),
        ));
        queue.add_async(move || {
            let context = context.clone();
            async move {
                let (names, dependent, this, cache) = &*context;
                let ask = async || {
                    let kind = format!("{}, {}", this.kind.api_version(), this.kind.kind);
                    let cache = cache.as_ref().with_context(|| {
                        format!(
                            "cannot determine the scope of {kind}: the controller has no cache; \
                             use `handler::owner`"
                        )
                    })?;
                    let found = cache.is_namespaced(&this.kind).await;
                    found.map_err(|error| {
                        anyhow::anyhow!("cannot determine the scope of {kind}: {error}")
                    })
                };
                let namespaced = *this.namespaced.get_or_try_init(ask).await?;
                let mut owners = Deduped::default();
                for name in names {
                    owners.add(key(namespaced, dependent.namespace(), name));
                }
                anyhow::Ok(owners)
            }
        });
    }
}
