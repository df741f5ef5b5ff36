//! Watches of kinds that are known only at run time.
//!
//! `builder` collects the parts of an [`ObjectTracker`], `source` is the source of one kind, and
//! `paused` is the last predicate of every watch.

mod builder;
mod paused;
mod source;

pub use self::builder::{ObjectTrackerBuilder, TrackerError};

use self::{builder::Parts, paused::Unpaused, source::ExternalKind};
use super::{Failed, GroupKind, contract::CrdMetadata, group_kind::print_gvk};
use kube::core::{DynamicObject, GroupVersionKind};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};
use steersman::{
    cache::Informer,
    controller::{WatchHandle, WatchState},
    handler::Handler,
    predicate::{self, Predicate, Predicates},
    prelude::*,
    source::{Kind, WatchError},
    workqueue::Key,
};

/// Adds watches of external objects to a controller, one for each group and kind.
///
/// Call [`watch`](Self::watch) or [`track_for`](Self::track_for) in every reconcile, for the kinds
/// of the objects that the reconciled object refers to. The first call for a kind adds the watch,
/// whatever the version. Later calls return its handle, and ignore the version, the handler and the
/// predicates. Clones share the watches.
///
/// * Events pass the predicates of the call first. Then events of paused objects are dropped, see
///   [`ObjectTrackerBuilder::deletes_of_paused_objects`].
/// * The owners of [`track_for`](Self::track_for) are enqueued whenever the informer of the kind
///   becomes synced. No event reports an object that was deleted between the read of an owner and
///   the sync. Call the tracker before the read.
/// * A watch that cannot be added, has failed or was stopped is not tracked. The next call adds it
///   again.
/// * The watch of a kind that is not installed starts once its CRD is installed.
/// * If the watched version is not served any more and another one is, the tracker watches another
///   version: the one that implements the newest compatible contract, or else the preferred version
///   of the group.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> anyhow::Result<()> {
/// use kube::core::GroupVersionKind;
/// use steersman::{predicate::ResourceVersionChanged, prelude::*, testing::{Env, TestServer}};
/// use steersman_controllers::{cluster_api::Cluster, external::ObjectTracker};
///
/// let manager = Manager::builder(Env::embedded()?.client()?).build()?;
/// let controller = manager.controller("cluster").reconcile(reconcile::from_fn(
///     async |_: Request, _cx| Ok(Outcome::done()),
/// ))?;
///
/// let tracker = ObjectTracker::builder()
///     .controller(&controller)
///     .cache(&manager.cache())
///     .resolver(&manager.client())
///     .span(tracing::info_span!("external"))
///     .build()?;
/// let kind = GroupVersionKind::gvk("infrastructure.cluster.x-k8s.io", "v1beta2", "DockerCluster");
/// let owners = handler::owner::<Cluster>().any();
/// tracker.watch(&kind, owners, (ResourceVersionChanged,))?;
/// assert_eq!(tracker.tracked().len(), 1);
/// # Ok(())
/// # }
/// ```
pub struct ObjectTracker<R: Key = Request>(Arc<Shared<R>>);

struct Shared<R: Key> {
    parts: Parts<R>,
    /// Keeps the metadata of CRDs in the cache, for contract lookups and replaced versions.
    crds: Informer<CrdMetadata>,
    /// Also locked while a watch is added, so that concurrent calls add one.
    kinds: Mutex<HashMap<GroupKind, Tracked<R>>>,
}

/// State of one group and kind.
struct Tracked<R: Key> {
    /// Watched version.
    version: String,
    handle: WatchHandle,
    route: Route<R>,
    referrers: Referrers<R>,
}

/// Users of a watch.
struct Referrers<R> {
    owners: HashSet<R>,
    /// Whether the watch stays without owners.
    is_permanent: bool,
}

impl<R> Default for Referrers<R> {
    fn default() -> Self {
        Self {
            owners: HashSet::new(),
            is_permanent: false,
        }
    }
}

/// Predicates and handler of the events of a watch.
struct Route<R> {
    predicates: Arc<dyn Predicate<DynamicObject>>,
    handler: Arc<dyn Handler<DynamicObject, R>>,
}

impl<R> Clone for Route<R> {
    fn clone(&self) -> Self {
        Self {
            predicates: self.predicates.clone(),
            handler: self.handler.clone(),
        }
    }
}

impl<R: Key> ObjectTracker<R> {
    /// Returns a builder. All of its four parts must be set.
    pub fn builder() -> ObjectTrackerBuilder<R> {
        ObjectTrackerBuilder::default()
    }

    /// Watches a kind as long as the controller runs, and returns the handle of its watch.
    ///
    /// # Errors
    /// The controller does not accept the watch. Later failures are in the state of the handle.
    pub fn watch(
        &self,
        kind: &GroupVersionKind,
        handler: impl Handler<DynamicObject, R>,
        predicates: impl Predicates<DynamicObject>,
    ) -> Result<WatchHandle, TrackerError> {
        self.add_referrer(kind, handler, predicates, |referrers| {
            referrers.is_permanent = true;
        })
    }

    /// Watches a kind for an owner, and returns the handle of the watch.
    ///
    /// The owner is the request of the object that refers to objects of the kind. The watch ends
    /// when the last owner is [released](Self::release), unless [`watch`](Self::watch) was called
    /// for the kind. Repeated calls for an owner count once.
    ///
    /// # Errors
    /// The controller does not accept the watch. Later failures are in the state of the handle.
    pub fn track_for(
        &self,
        owner: &R,
        kind: &GroupVersionKind,
        handler: impl Handler<DynamicObject, R>,
        predicates: impl Predicates<DynamicObject>,
    ) -> Result<WatchHandle, TrackerError> {
        self.add_referrer(kind, handler, predicates, |referrers| {
            referrers.owners.insert(owner.clone());
        })
    }

    fn add_referrer(
        &self,
        kind: &GroupVersionKind,
        handler: impl Handler<DynamicObject, R>,
        predicates: impl Predicates<DynamicObject>,
        add: impl FnOnce(&mut Referrers<R>),
    ) -> Result<WatchHandle, TrackerError> {
        let mut kinds = self.0.kinds.lock();
        let key = GroupKind::from(kind);
        if let Some(tracked) = kinds.get_mut(&key).filter(|tracked| tracked.is_live()) {
            add(&mut tracked.referrers);
            return Ok(tracked.handle.clone());
        }
        let route = Route {
            predicates: Arc::new(predicate::all(predicates)),
            handler: Arc::new(handler),
        };
        let handle = self.add_watch(kind, &route).map_err(|error| {
            let kind = print_gvk(kind);
            let context = format!("failed to add watch on external object \"{kind}\"");
            TrackerError::Watch(Failed::new(context, error))
        })?;
        // Owners of a watch that has ended still add_referrer to the kind.
        let ended = kinds.remove(&key);
        let mut referrers = ended.map(|ended| ended.referrers).unwrap_or_default();
        add(&mut referrers);
        let tracked = Tracked {
            version: kind.version.clone(),
            handle: handle.clone(),
            route,
            referrers,
        };
        kinds.insert(key, tracked);
        Ok(handle)
    }

    fn add_watch(
        &self,
        kind: &GroupVersionKind,
        route: &Route<R>,
    ) -> Result<WatchHandle, WatchError> {
        let Parts {
            controller,
            cache,
            span,
            deletes_of_paused_objects,
            ..
        } = &self.0.parts;
        span.in_scope(|| {
            let (api_version, kind) = (kind.api_version(), &*kind.kind);
            tracing::info!(api_version, kind, "adding watch on external object");
        });
        let unpaused = Unpaused {
            span: span.clone(),
            passes_deletes: *deletes_of_paused_objects,
        };
        let watch = Select::dynamic(kind.clone())
            .optional()
            .filter(route.predicates.clone())
            .filter(unpaused);
        let source = Kind::with_cache(cache, watch, route.handler.clone());
        controller.watch(ExternalKind::new(self, kind, source))
    }

    /// Replaces the watch of a version that is not served any more.
    ///
    /// Does nothing if that version is not tracked any more.
    fn replace(&self, old: &GroupVersionKind, version: &str) -> Result<(), WatchError> {
        let mut kinds = self.0.kinds.lock();
        let key = GroupKind::from(old);
        let tracked = kinds.get_mut(&key);
        if let Some(tracked) = tracked.filter(|it| it.version == old.version && it.is_live()) {
            tracked.handle = self.add_watch(&key.with_version(version), &tracked.route)?;
            version.clone_into(&mut tracked.version);
        }
        Ok(())
    }

    /// Removes an owner from the referrers of all kinds.
    ///
    /// Call it when the owner is deleted. A watch whose last owner this was is stopped.
    pub fn release(&self, owner: &R) {
        self.retain(owner, &[]);
    }

    /// Removes an owner from the referrers of all kinds but `kinds`.
    ///
    /// Call it when the references of the owner may have changed. A watch whose last owner this was
    /// is stopped.
    pub fn retain(&self, owner: &R, kinds: &[GroupKind]) {
        let unused = {
            let mut all = self.0.kinds.lock();
            let is_unused = |kind: &GroupKind, tracked: &mut Tracked<R>| {
                let referrers = &mut tracked.referrers;
                let removed = !kinds.contains(kind) && referrers.owners.remove(owner);
                removed && referrers.owners.is_empty() && !referrers.is_permanent
            };
            all.extract_if(is_unused).collect::<Vec<_>>()
        };
        for (kind, tracked) in unused {
            let _entered = self.0.parts.span.enter();
            let kind = kind.to_string();
            tracing::info!(
                kind,
                "last referrer gone, removing watch on external object"
            );
            // Dropping the guard stops the watch without waiting.
            drop(tracked.handle.scoped());
        }
    }

    /// Returns the handle of the watch of a kind, if it is tracked.
    pub fn handle(&self, kind: &GroupKind) -> Option<WatchHandle> {
        let kinds = self.0.kinds.lock();
        let tracked = kinds.get(kind).filter(|tracked| tracked.is_live())?;
        Some(tracked.handle.clone())
    }

    /// Returns the tracked kinds, each in the version that is watched. They are not sorted.
    pub fn tracked(&self) -> Vec<GroupVersionKind> {
        let kinds = self.0.kinds.lock();
        let live = kinds.iter().filter(|(_, tracked)| tracked.is_live());
        live.map(|(kind, tracked)| kind.with_version(&tracked.version))
            .collect()
    }
}

impl<R: Key> Shared<R> {
    /// Returns the owners that refer to a kind.
    fn owners(&self, kind: &GroupVersionKind) -> Vec<R> {
        let kinds = self.kinds.lock();
        let tracked = kinds.get(&GroupKind::from(kind));
        let owners = tracked.map(|tracked| tracked.referrers.owners.iter().cloned());
        owners.into_iter().flatten().collect()
    }
}

impl<R: Key> Tracked<R> {
    fn is_live(&self) -> bool {
        let state = self.handle.state();
        !matches!(state, WatchState::Failed(_) | WatchState::Stopped)
    }
}

impl<R: Key> Clone for ObjectTracker<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Key> fmt::Debug for ObjectTracker<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectTracker")
            .field("controller", &self.0.parts.controller)
            .field("tracked", &self.tracked())
            .finish_non_exhaustive()
    }
}
