//! Events of what is owned, as requests for the owner.

use super::{Enqueue, Handler, Unique};
use crate::{
    event::Event,
    object::{Meta, ObjectKey, Owner as Reference, StaticKind},
    reconcile::Request,
};
use anyhow::Context;
use kube_core::GroupVersionKind;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// The owner of kind `O` that manages the object, of both objects of an update. [`Owner::any`] takes every owner of the kind.
///
/// Kinds are matched by group and kind: references keep the version that they were written with.
pub fn owner<O: StaticKind>() -> Owner {
    owner_in(O::static_gvk(), Some(O::NAMESPACED))
}

/// [`owner`] for a kind that is named at run time. Whether it is namespaced is asked of the server that the events come from, and remembered; until it answers, events
/// wait.
pub fn owner_of(kind: GroupVersionKind) -> Owner {
    owner_in(kind, None)
}

/// [`owner_of`] a kind of which it may be known whether it has namespaces.
pub(crate) fn owner_in(kind: GroupVersionKind, namespaced: Option<bool>) -> Owner {
    Owner { kind: Arc::new(kind), namespaced: Arc::new(OnceCell::new_with(namespaced)), any: false }
}

/// See [`owner`].
#[derive(Clone, Debug)]
pub struct Owner {
    kind: Arc<GroupVersionKind>,
    /// Once it is known.
    namespaced: Arc<OnceCell<bool>>,
    any: bool,
}

impl Owner {
    /// Every owner of the kind, not only the one that manages the object.
    #[must_use]
    pub fn any(self) -> Self {
        Self { any: true, ..self }
    }

    /// The names of those that count. A reference that is none costs nobody else.
    fn names<'a>(&self, meta: Meta<'a>) -> impl Iterator<Item = &'a str> {
        let (any, every) = (self.any, self.any.then(|| meta.owners()));
        let managing = if any { None } else { meta.controller() };
        let owners = every.into_iter().flatten().chain(managing);
        owners.filter(|owner| self.is_of_kind(owner)).map(|owner| owner.name)
    }

    fn is_of_kind(&self, owner: &Reference<'_>) -> bool {
        let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
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
            let mut owners = Unique::default();
            names.for_each(|name| owners.add(key(namespaced, namespace, name)));
            owners.into_iter().for_each(|owner| queue.add(owner));
            return;
        }
        let names: Vec<_> = names.map(Into::<String>::into).collect();
        if names.is_empty() {
            return;
        }
        // Asked for in one attempt, whoever else waits.
        let asked = Arc::new((names, event.object().key().clone(), self.clone(), queue.cache().cloned()));
        queue.later(move || {
            let asked = asked.clone();
            async move {
                let (names, dependent, this, cache) = &*asked;
                let ask = async || {
                    let kind = format!("{}, {}", this.kind.api_version(), this.kind.kind);
                    let cache = cache.as_ref().with_context(|| {
                        format!("whether {kind} has namespaces is not known, and there is no cache to ask: use `handler::owner`")
                    })?;
                    let found = cache.is_namespaced(&this.kind).await;
                    found.map_err(|words| anyhow::anyhow!("whether {kind} has namespaces is not known: {words}"))
                };
                let namespaced = *this.namespaced.get_or_try_init(ask).await?;
                let mut owners = Unique::default();
                for name in names {
                    owners.add(key(namespaced, dependent.namespace(), name));
                }
                anyhow::Ok(owners)
            }
        });
    }
}
