//! Builder that assembles a controller from the kinds it watches.
//!
//! `manager.controller("website").for_::<Website>().owns::<Deployment>().reconcile(reconciler)`
//!
//! * [`for_`](Builder::for_) sets the kind to reconcile, [`owns`](Builder::owns) adds a kind that
//!   the reconciler creates, [`watches`](Builder::watches) any other kind, and
//!   [`watches_source`](Builder::watches_source) a source of another type.
//! * Each has a variant `…_with` that takes a [`Select`], to watch only some objects, to drop some
//!   events ([`Select::filter`]) or to cache a compact representation ([`Select::compact`]). The
//!   kind [`Metadata<K>`](crate::object::Metadata) caches metadata only.
//! * [`filter`](Builder::filter) adds a predicate to all watched kinds.
//!
//! `for_` and `owns` queue a [`Request`]. A controller with another type of request, such as
//! [`ClusterRequest`](crate::reconcile::ClusterRequest), calls `watches` with a handler of that
//! type: [`handler::in_cluster`] or [`handler::wrap`] around [`handler::object`] or
//! [`handler::owner`]. A source of another cluster's cache is added by
//! [`Kind::with_cache`](crate::source::Kind::with_cache).
//!
//! These mistakes do not compile: a second `for_`, `owns` without `for_`, a reconciler whose
//! request type differs, and `reconcile` without a manager.
//!
//! ```compile_fail
//! # use {steersman::prelude::*, k8s_openapi::api::core::v1::*};
//! let _ = Controller::builder("x").for_::<Pod>().for_::<Secret>();
//! ```
//! ```compile_fail
//! # use {steersman::prelude::*, k8s_openapi::api::core::v1::*};
//! let _ = Controller::<Request>::builder("x").owns::<Pod>();
//! ```
//! ```compile_fail
//! # use {steersman::{prelude::*, reconcile::ClusterRequest}, k8s_openapi::api::core::v1::*};
//! # fn f(reconciler: impl Reconciler<ClusterRequest>) {
//! let _ = Controller::builder("x").for_::<Pod>().build(reconciler);
//! # }
//! ```
//! ```compile_fail
//! # use {steersman::prelude::*, k8s_openapi::api::core::v1::*};
//! # fn f(reconciler: impl Reconciler) {
//! let _ = Controller::builder("x").for_::<Pod>().reconcile(reconciler); // no manager
//! # }
//! ```
//!
//! [`build`](Builder::build) returns all other mistakes as a [`BuildError`].

use crate::{
    cache::{Cache, Select},
    controller::{
        Controller, ControllerMetrics, ControllerTask, Defaults, GroupLimit, Options, Parts,
        PerGroup, Settings, WatchError,
    },
    handler::{self, Handler},
    manager::{ManagerError, ManagerHandle},
    object::{AnyKind, KubeObject, StaticKind},
    predicate::Predicate,
    reconcile::{Reconciler, Request},
    source::{Kind, Source, Watch},
    workqueue::{Key, Limiter, QueueOptions, WorkQueue},
};
use kube_core::GroupVersionKind;
use std::{fmt, hash::Hash, sync::Arc};

/// State of a builder without [`Builder::for_`].
#[derive(Debug)]
pub struct NoPrimary;

/// State of a builder with [`Builder::for_`].
#[derive(Debug)]
pub struct Primary {
    gvk: GroupVersionKind,
    namespaced: Option<bool>,
}

/// State of a builder without a manager.
#[derive(Debug)]
pub struct NoManager;

/// Builder of a controller.
///
/// [`ManagerHandle::controller`] and [`Controller::builder`] create one. The request type is
/// inferred from the handlers and the reconciler.
#[must_use = "finish with `reconcile` or `build`"]
pub struct Builder<R: Key, P = NoPrimary, M = ManagerHandle> {
    primary: P,
    manager: M,
    rest: BuilderState<R>,
}

/// Settings that do not depend on the state of the builder.
struct BuilderState<R: Key> {
    handle: Controller<R>,
    cache: Option<Cache>,
    sources: Vec<Box<DeclaredWatch<R>>>,
    filters: Predicates,
    options: Options,
    defaults: Defaults,
    limiter: Option<Limiter<R>>,
    share: Option<u32>,
    groups: Option<(usize, Box<dyn GroupLimit<R>>)>,
    metrics: Option<ControllerMetrics>,
}

type Predicates = Vec<Arc<dyn Predicate<AnyKind>>>;

/// Deferred call of [`Controller::watch`], made when all predicates are known.
type DeclaredWatch<R> = dyn FnOnce(&Controller<R>, &Predicates) -> Result<(), WatchError> + Send;

impl<R: Key> Controller<R> {
    /// Creates a builder for a controller that the caller runs, see [`Builder::build`].
    ///
    /// Metrics and logs identify the controller by `name`.
    pub fn builder(name: &str) -> Builder<R, NoPrimary, NoManager> {
        Builder {
            primary: NoPrimary,
            manager: NoManager,
            rest: BuilderState::new(name),
        }
    }
}

impl ManagerHandle {
    /// Creates a builder for a controller with the cache and defaults of this manager.
    ///
    /// Metrics and logs identify the controller by `name`, which must be unique in the manager.
    pub fn controller<R: Key>(&self, name: &str) -> Builder<R> {
        let builder = Builder {
            primary: NoPrimary,
            manager: self.clone(),
            rest: BuilderState::new(name),
        };
        builder
            .cache(&self.cache())
            .defaults(self.defaults())
            .metrics(self.controller_metrics())
    }
}

impl<R: Key> BuilderState<R> {
    fn new(name: &str) -> Self {
        Self {
            handle: Controller::unbuilt(name),
            cache: None,
            sources: Vec::new(),
            filters: Vec::new(),
            options: Options::default(),
            defaults: Defaults::default(),
            limiter: None,
            share: None,
            groups: None,
            metrics: None,
        }
    }
}

impl<M> Builder<Request, NoPrimary, M> {
    /// Sets the kind to reconcile. Each event enqueues a request for its object.
    pub fn for_<K: StaticKind>(self) -> Builder<Request, Primary, M> {
        self.for_with(Select::<K>::new())
    }

    /// Sets the kind to reconcile, with selectors, predicates or a dynamic kind.
    ///
    /// See [`Self::for_`].
    pub fn for_with<K: KubeObject>(
        self,
        watch: impl Into<Watch<K>>,
    ) -> Builder<Request, Primary, M> {
        let watch = watch.into();
        let primary = Primary {
            gvk: watch.gvk().clone(),
            namespaced: K::static_resource().map(|(_, namespaced)| namespaced),
        };
        let Self { rest, manager, .. } = self.watches_with(watch, handler::object());
        Builder {
            primary,
            manager,
            rest,
        }
    }
}

impl<M> Builder<Request, Primary, M> {
    /// Watches a kind that the reconciler creates with a controller reference.
    ///
    /// Each event enqueues a request for the primary object that the reference names.
    pub fn owns<K: StaticKind>(self) -> Self {
        self.owns_with(Select::<K>::new())
    }

    /// Watches an owned kind, with selectors and predicates.
    ///
    /// See [`Self::owns`]. To enqueue every owner instead of the controlling one, use
    /// [`Self::watches_with`] and [`handler::Owner::any`].
    pub fn owns_with<K: KubeObject>(self, watch: impl Into<Watch<K>>) -> Self {
        let owner = handler::owner_in(self.primary.gvk.clone(), self.primary.namespaced);
        self.watches_with(watch, owner)
    }
}

impl<R: Key, P: Kinded, M> Builder<R, P, M> {
    /// Watches a kind whose events `handler` maps to requests.
    pub fn watches<K: StaticKind>(self, handler: impl Handler<K, R>) -> Self {
        self.watches_with(Select::<K>::new(), handler)
    }

    /// Watches a kind with selectors and predicates. See [`Self::watches`].
    pub fn watches_with<K: KubeObject>(
        mut self,
        watch: impl Into<Watch<K>>,
        handler: impl Handler<K, R>,
    ) -> Self {
        let kind = Kind::new(watch, handler);
        self.rest.sources.push(Box::new(move |controller, filters| {
            controller
                .watch(kind.controller_predicates(filters.clone()))
                .map(drop)
        }));
        self
    }

    /// Watches any source. [`Self::filter`] does not apply to it.
    pub fn watches_source(mut self, source: impl Source<R>) -> Self {
        self.rest.sources.push(Box::new(move |controller, _| {
            controller.watch(source).map(drop)
        }));
        self
    }

    /// Adds a predicate to every kind of this builder, added before or after this call.
    ///
    /// It is evaluated before the predicates of the kind. Sources that are passed to
    /// [`Controller::watch`] later are not affected.
    pub fn filter(mut self, predicate: impl Predicate<AnyKind>) -> Self {
        self.rest.filters.push(Arc::new(predicate));
        self
    }

    /// Sets the number of concurrent reconciles, see [`Options::max_concurrent`].
    pub fn max_concurrent(self, workers: usize) -> Self {
        self.options(Options {
            max_concurrent: Some(workers),
            ..Options::default()
        })
    }

    /// Sets the options that are `Some`, and keeps the others.
    pub fn options(mut self, options: Options) -> Self {
        self.rest.options = options.or(&self.rest.options);
        self
    }

    /// Sets the defaults of options that [`Self::options`] does not set.
    pub fn defaults(mut self, defaults: &Defaults) -> Self {
        self.rest.defaults = defaults.clone();
        self
    }

    /// Sets the limiter that delays the retries of failing requests.
    ///
    /// Default: 5 ms, doubled with each failure up to 1000 s, plus a random jitter of up to a
    /// tenth.
    pub fn limiter(mut self, limiter: Limiter<R>) -> Self {
        self.rest.limiter = Some(limiter);
        self
    }

    /// Sets how often the oldest request of a lower priority is served first.
    ///
    /// See [`QueueOptions::share`]. Default: 16, which is every 16th request.
    pub fn share(mut self, turns: u32) -> Self {
        self.rest.share = Some(turns);
        self
    }

    /// Limits the concurrent reconciles per group, such as a namespace or a tenant.
    ///
    /// Further requests of the group wait without occupying a worker. The one with the highest
    /// priority is the first to continue.
    ///
    /// `group` must always return the same group for the same request.
    pub fn max_per_group<G: Hash + Eq + Send + Sync + 'static>(
        mut self,
        n: usize,
        group: impl Fn(&R) -> G + Send + Sync + 'static,
    ) -> Self {
        self.rest.groups = Some((n, Box::new(PerGroup::new(n, group))));
        self
    }

    /// Sets the cache of the watched kinds.
    ///
    /// Without a cache, only sources that have their own or need none can be watched.
    pub fn cache(mut self, cache: &Cache) -> Self {
        self.rest.cache = Some(cache.clone());
        self
    }

    /// Exports the metrics of the controller and its queue to `metrics`.
    pub fn metrics(mut self, metrics: &ControllerMetrics) -> Self {
        self.rest.metrics = Some(metrics.clone());
        self
    }

    /// Returns a handle to the future controller, for a reconciler that adds watches.
    pub fn handle(&self) -> Controller<R> {
        self.rest.handle.clone()
    }

    /// Builds the controller. The caller runs the task, also if a manager made the builder.
    ///
    /// A controller without sources is valid. [`Controller::watch`] can add some later.
    pub fn build(
        self,
        reconciler: impl Reconciler<R>,
    ) -> Result<(Controller<R>, ControllerTask<R>), BuildError> {
        let BuilderState {
            handle,
            cache,
            sources,
            filters,
            options,
            defaults,
            limiter,
            share,
            groups,
            metrics,
        } = self.rest;
        let gvk = self.primary.gvk();
        let name = handle.name().to_owned();
        if name.is_empty() {
            return Err(BuildError::NoName);
        }
        let settings = Settings::from(defaults.under(options, gvk.as_ref()));
        if settings.max_concurrent == 0 {
            return Err(BuildError::NoWorkers(name));
        }
        for (option, time) in [
            ("reconcile_timeout", settings.reconcile_timeout),
            ("stuck_after", Some(settings.stuck_after)),
            ("sync_timeout", Some(settings.sync_timeout)),
        ] {
            if time.is_some_and(|time| time.is_zero()) {
                return Err(BuildError::NoTime { name, option });
            }
        }
        if groups.as_ref().is_some_and(|(n, _)| *n == 0) {
            return Err(BuildError::EmptyGroups(name));
        }
        let share = share.unwrap_or(QueueOptions::<R>::default().share);
        let groups = groups.map(|(_, mut groups)| {
            groups.set_share(share);
            groups
        });
        let queue = WorkQueue::new(QueueOptions {
            name,
            limiter: limiter.unwrap_or_else(default_limiter),
            share,
            metrics: metrics.as_ref().map(|_| ControllerMetrics::of_queue()),
        });
        handle.finish(Parts {
            queue,
            cache,
            gvk,
            settings,
            groups,
        });
        let task = ControllerTask::new(handle.clone(), Arc::new(reconciler));
        for source in sources {
            source(&handle, &filters)?;
        }
        if let Some(metrics) = metrics {
            metrics.watch(&handle);
        }
        Ok((handle, task))
    }
}

impl<R: Key, P: Kinded> Builder<R, P> {
    /// Builds the controller and adds it to the manager.
    ///
    /// A manager that is running starts it at once. A controller without sources is valid.
    /// [`Controller::watch`] can add some later.
    pub fn reconcile(self, reconciler: impl Reconciler<R>) -> Result<Controller<R>, BuildError> {
        let (manager, name) = (self.manager.clone(), self.rest.handle.name().to_owned());
        manager.claim(&name)?;
        let built = self.build(reconciler).and_then(|(controller, task)| {
            manager.run(&controller, task)?;
            Ok(controller)
        });
        if built.is_err() {
            manager.unclaim(&name);
        }
        built
    }
}

fn default_limiter<R: Key>() -> Limiter<R> {
    Limiter::default().jitter(0.1)
}

/// Builder states, with or without a primary kind. Not meant to be implemented.
pub trait Kinded {
    #[doc(hidden)]
    fn gvk(&self) -> Option<GroupVersionKind>;
}

impl Kinded for NoPrimary {
    fn gvk(&self) -> Option<GroupVersionKind> {
        None
    }
}

impl Kinded for Primary {
    fn gvk(&self) -> Option<GroupVersionKind> {
        Some(self.gvk.clone())
    }
}

impl<R: Key, P: fmt::Debug, M> fmt::Debug for Builder<R, P, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.rest.handle.name())
            .field("primary", &self.primary)
            .finish_non_exhaustive()
    }
}

/// Error of building a controller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The name is empty.
    #[error("cannot build a controller: its name is empty; pass one to `Controller::builder`")]
    NoName,
    /// `max_concurrent` is 0, so no request would be reconciled.
    #[error("cannot build controller {0}: max_concurrent is 0; set at least 1, or do not run it")]
    NoWorkers(String),
    /// `max_per_group` is 0, so no request would be reconciled.
    #[error("cannot build controller {0}: max_per_group is 0; set at least 1")]
    EmptyGroups(String),
    /// A time limit is 0, so every reconcile or start would time out.
    #[error(
        "cannot build controller {name}: {option} is 0; set a longer time, or remove the option"
    )]
    NoTime {
        /// Name of the controller.
        name: String,
        /// Name of the option.
        option: &'static str,
    },
    /// The controller cannot watch one of its sources.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The manager rejects the controller.
    #[error(transparent)]
    Manager(#[from] ManagerError),
}
