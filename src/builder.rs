//! From kinds to a controller: `manager.controller("website").for_::<Website>().owns::<Deployment>().reconcile(reconciler)`.
//!
//! * [`for_`](Builder::for_) is the kind that is reconciled, [`owns`](Builder::owns) what it creates, [`watches`](Builder::watches) what matters otherwise,
//!   [`watches_source`](Builder::watches_source) what comes from elsewhere.
//! * Each has a `_with` for a selection: only some objects ([`Select`]), only some events ([`Select::filter`]), packed ([`Select::compact`]); a kind named
//!   [`Metadata<K>`](crate::object::Metadata) is kept as metadata only.
//! * [`filter`](Builder::filter) is for all of them. The rest are settings.
//!
//! What cannot be meant does not compile: `for_` twice, `owns` without `for_`, either with requests of another type.
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
//! let _ = Controller::builder("x").for_::<Pod>().reconcile(reconciler); // by which manager?
//! # }
//! ```
//!
//! What can be known only then is an error of [`build`](Builder::build), which says what to do.

use crate::{
    cache::{Cache, Select},
    controller::{
        Controller, ControllerMetrics, ControllerTask, Defaults, GroupLimit, Options, Parts, PerGroup, Settings,
        WatchError,
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

/// State of a builder that no manager made.
#[derive(Debug)]
pub struct NoManager;

/// Made by [`ManagerHandle::controller`] or [`Controller::builder`]. The type of requests follows from what is watched and reconciled.
#[must_use = "finish with `reconcile` or `build`"]
pub struct Builder<R: Key, P = NoPrimary, M = ManagerHandle> {
    primary: P,
    manager: M,
    rest: Rest<R>,
}

/// What does not depend on whether there is a primary kind.
struct Rest<R: Key> {
    handle: Controller<R>,
    cache: Option<Cache>,
    sources: Vec<Box<Watched<R>>>,
    filters: Filters,
    options: Options,
    defaults: Defaults,
    limiter: Option<Limiter<R>>,
    share: Option<u32>,
    groups: Option<(usize, Box<dyn GroupLimit<R>>)>,
    metrics: Option<ControllerMetrics>,
}

type Filters = Vec<Arc<dyn Predicate<AnyKind>>>;

/// A source that is watched when all filters are known.
type Watched<R> = dyn FnOnce(&Controller<R>, &Filters) -> Result<(), WatchError> + Send;

impl<R: Key> Controller<R> {
    /// A controller that you run yourself, see [`Builder::build`]. The name is that of its metrics and logs.
    pub fn builder(name: &str) -> Builder<R, NoPrimary, NoManager> {
        Builder { primary: NoPrimary, manager: NoManager, rest: Rest::new(name) }
    }
}

impl ManagerHandle {
    /// A controller that this manager runs, on its cache and with its defaults. The name is that of its metrics and logs, and must be free in this manager.
    pub fn controller<R: Key>(&self, name: &str) -> Builder<R> {
        let builder = Builder { primary: NoPrimary, manager: self.clone(), rest: Rest::new(name) };
        builder.cache(&self.cache()).defaults(self.defaults()).metrics(self.controller_metrics())
    }
}

impl<R: Key> Rest<R> {
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
    /// The kind to reconcile: each event of an object is a request for it.
    pub fn for_<K: StaticKind>(self) -> Builder<Request, Primary, M> {
        self.for_with(Select::<K>::new())
    }

    /// [`Self::for_`] with a narrower selection, filters, another form, or a kind named at run time.
    pub fn for_with<K: KubeObject>(self, watch: impl Into<Watch<K>>) -> Builder<Request, Primary, M> {
        let watch = watch.into();
        let primary =
            Primary { gvk: watch.gvk().clone(), namespaced: K::static_resource().map(|(_, namespaced)| namespaced) };
        let Self { rest, manager, .. } = self.watches_with(watch, handler::object());
        Builder { primary, manager, rest }
    }
}

impl<M> Builder<Request, Primary, M> {
    /// A kind that the reconciler creates with a controller reference to the primary object: its events are requests for that.
    pub fn owns<K: StaticKind>(self) -> Self {
        self.owns_with(Select::<K>::new())
    }

    /// [`Self::owns`] with a selection. For every owner instead of the controlling one use [`Self::watches_with`] and [`handler::Owner::any`].
    pub fn owns_with<K: KubeObject>(self, watch: impl Into<Watch<K>>) -> Self {
        let owner = handler::owner_in(self.primary.gvk.clone(), self.primary.namespaced);
        self.watches_with(watch, owner)
    }
}

impl<R: Key, P: Kinded, M> Builder<R, P, M> {
    /// A kind that matters otherwise.
    pub fn watches<K: StaticKind>(self, handler: impl Handler<K, R>) -> Self {
        self.watches_with(Select::<K>::new(), handler)
    }

    /// [`Self::watches`] with a selection.
    pub fn watches_with<K: KubeObject>(mut self, watch: impl Into<Watch<K>>, handler: impl Handler<K, R>) -> Self {
        let kind = Kind::new(watch, handler);
        self.rest
            .sources
            .push(Box::new(move |controller, filters| controller.watch(kind.behind(filters.clone())).map(drop)));
        self
    }

    /// Any source. [`Self::filter`] is not for it.
    pub fn watches_source(mut self, source: impl Source<R>) -> Self {
        self.rest.sources.push(Box::new(move |controller, _| controller.watch(source).map(drop)));
        self
    }

    /// For every kind that this builder watches, whether it was named before or after this, before its own filters. What [`Controller::watch`] is given later has
    /// only its own.
    pub fn filter(mut self, predicate: impl Predicate<AnyKind>) -> Self {
        self.rest.filters.push(Arc::new(predicate));
        self
    }

    /// See [`Options::max_concurrent`].
    pub fn max_concurrent(self, workers: usize) -> Self {
        self.options(Options { max_concurrent: Some(workers), ..Options::default() })
    }

    /// Sets what is `Some`; the rest stays as it was.
    pub fn options(mut self, options: Options) -> Self {
        self.rest.options = options.or(&self.rest.options);
        self
    }

    /// What is inherited where [`Self::options`] say nothing.
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

    /// One turn in so many goes to the oldest request of a lower priority: see [`QueueOptions::share`]. 16 by default.
    pub fn share(mut self, turns: u32) -> Self {
        self.rest.share = Some(turns);
        self
    }

    /// At most `n` at once among requests of one group: of a namespace, or of a tenant. Others wait without taking a worker; of those the highest priority is first.
    ///
    /// `group` must say the same of the same request each time.
    pub fn max_per_group<G: Hash + Eq + Send + Sync + 'static>(
        mut self,
        n: usize,
        group: impl Fn(&R) -> G + Send + Sync + 'static,
    ) -> Self {
        self.rest.groups = Some((n, Box::new(PerGroup::new(n, group))));
        self
    }

    /// Where kinds are watched. Without one, only sources that bring their own cache, or need none, can be watched.
    pub fn cache(mut self, cache: &Cache) -> Self {
        self.rest.cache = Some(cache.clone());
        self
    }

    /// Where its numbers and its queue's are shown.
    pub fn metrics(mut self, metrics: &ControllerMetrics) -> Self {
        self.rest.metrics = Some(metrics.clone());
        self
    }

    /// The controller to be: for a reconciler that adds watches.
    pub fn handle(&self) -> Controller<R> {
        self.rest.handle.clone()
    }

    /// Finish; you run the task, also if a manager made this. Watching nothing yet is no error: [`Controller::watch`] may follow.
    pub fn build(self, reconciler: impl Reconciler<R>) -> Result<(Controller<R>, ControllerTask<R>), BuildError> {
        let Rest { handle, cache, sources, filters, options, defaults, limiter, share, groups, metrics } = self.rest;
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
        handle.finish(Parts { queue, cache, gvk, settings, groups });
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
    /// Finish; the manager runs it, at once if it is running. Watching nothing yet is no error: [`Controller::watch`] may follow.
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

/// Whether there is a primary kind. Never implement it.
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

/// Why there is no controller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Metrics and logs need one.
    #[error("a controller needs a name: give one to `Controller::builder`")]
    NoName,
    /// Nothing would ever run.
    #[error("controller {0}: max_concurrent is 0: set at least 1, or do not run it")]
    NoWorkers(String),
    /// Nothing would ever run.
    #[error("controller {0}: max_per_group is 0: set at least 1")]
    EmptyGroups(String),
    /// Nothing would ever succeed.
    #[error("controller {name}: {option} is 0: set a time, or leave it out")]
    NoTime {
        /// The controller's.
        name: String,
        /// Which one.
        option: &'static str,
    },
    /// One of its sources cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The manager does not take it.
    #[error(transparent)]
    Manager(#[from] ManagerError),
}
