//! The cache: its declared informers and their tasks.
//!
//! Invariant: there is one informer for each kind and scope (see [`declared`](super::declared)). A
//! handle is created only while its informer is in the registry, and an unused informer is removed
//! only while it has no handle. Both happen under the same lock. So no handle refers to a stopped
//! informer while the cache runs, except after [`Cache::remove`], which such a handle reports.

use super::{
    CacheError, CacheOptions, Informer, InformerReport, InformerState, Select,
    crd_watch::CrdWatch,
    declared::DeclaredInformers,
    erased::ErasedCore,
    informer_task::DeclaredInformer,
    metrics::Row,
    plan::Plan,
    refcount::{InformerRef, RefCount, Requirement, race},
    select::Declaration,
};
use crate::{
    client::{Connection, CountedClient, Requests},
    object::{KubeObject, StaticKind},
};
use kube_core::GroupVersionKind;
use parking_lot::Mutex;
use std::{
    fmt, ptr,
    sync::{Arc, OnceLock, Weak},
};
use tokio::{runtime::Handle, sync::watch, task::JoinSet};

/// Shared informers of one cluster. Nothing runs before [`Self::run_until`].
///
/// A clone is another handle of the same cache. See [the module](crate::cache) for an example.
#[derive(Clone)]
pub struct Cache(Arc<Shared>);

struct Shared {
    client: CountedClient,
    options: CacheOptions,
    state: Mutex<State>,
    /// Watch of CRDs, for informers whose kind is missing. Runs with the cache.
    crd_watch: CrdWatch,
    ended: watch::Sender<bool>,
    of_added_cluster: bool,
}

#[derive(Default)]
struct State {
    informers: DeclaredInformers,
    run: Run,
}

impl State {
    /// Removes the matching informers and signals them to stop.
    fn remove(&mut self, are: impl Fn(&DeclaredInformer) -> bool) -> Vec<Arc<DeclaredInformer>> {
        let removed = self.informers.take(are);
        for declared in &removed {
            declared.refs.remove();
            if !matches!(self.run, Run::Running { .. }) {
                // No task runs that would close the core.
                declared.core.close();
            }
        }
        removed
    }
}

#[derive(Default)]
enum Run {
    #[default]
    NotYet,
    Running {
        runtime: Handle,
        tasks: JoinSet<()>,
    },
    Ended,
}

impl Cache {
    /// Creates a cache. Prefer a `Config` over a client as the connection: see [`Connection`].
    ///
    /// Errors: invalid options, such as an invalid selector or namespace name, or namespaces of a
    /// cluster-scoped kind in [`kinds`](CacheOptions::kinds); and a configuration from which no
    /// client can be created.
    ///
    /// # Panics
    /// If the connection is a configuration, and there is no current tokio runtime.
    pub fn new(
        connection: impl Into<Connection>,
        options: CacheOptions,
    ) -> Result<Self, CacheError> {
        Self::build(connection.into(), options, false)
    }

    /// Creates the cache of a cluster that a manager runs beside its own.
    ///
    /// A controller starts without its watches if they do not sync in time.
    pub(crate) fn for_added_cluster(
        connection: Connection,
        options: CacheOptions,
    ) -> Result<Self, CacheError> {
        Self::build(connection, options, true)
    }

    fn build(
        connection: Connection,
        options: CacheOptions,
        of_added_cluster: bool,
    ) -> Result<Self, CacheError> {
        Plan::check(&options)?;
        let client = connection
            .informer_client()
            .map_err(CacheError::Connection)?;
        let (state, crd_watch) = (Mutex::default(), CrdWatch::default());
        let ended = watch::Sender::new(false);
        Ok(Self(Arc::new(Shared {
            client,
            options,
            state,
            crd_watch,
            ended,
            of_added_cluster,
        })))
    }

    pub(crate) fn is_of_added_cluster(&self) -> bool {
        self.0.of_added_cluster
    }

    /// Declares an informer of all objects of a kind, and returns a handle.
    ///
    /// The informer runs as long as it has handles. In a running cache it starts at once.
    pub fn informer<K: StaticKind>(&self) -> Result<Informer<K>, CacheError> {
        self.informer_of(Select::new())
    }

    /// Declares an informer of a selection, and returns a handle.
    ///
    /// Declarations of the same kind and scope share one informer. A declaration whose
    /// representation the informer cannot serve is an error while the informer is in use. A compact
    /// informer serves all types.
    pub fn informer_of<K: KubeObject>(&self, select: Select<K>) -> Result<Informer<K>, CacheError> {
        let requirement = if select.declaration().optional {
            Requirement::Optional
        } else {
            Requirement::Required
        };
        let plan = Plan::new(select.declaration(), &self.0.options)?;
        let periods = plan.resync_periods();
        let mut state = self.0.state.lock();
        let declared = self
            .0
            .declare(&mut state, select.declaration(), plan, requirement)?;
        Ok(self
            .0
            .handle(&declared, InformerRef::new(&declared.refs, requirement))
            .with_resync(periods))
    }

    /// Returns the informers of a kind in any API version.
    ///
    /// An object has the same resource version in all of them.
    pub(super) fn informers_of(&self, kind: &GroupVersionKind) -> Vec<Arc<DeclaredInformer>> {
        let of_kind = |declared: &&Arc<DeclaredInformer>| {
            (&declared.gvk.group, &declared.gvk.kind) == (&kind.group, &kind.kind)
        };
        self.0
            .state
            .lock()
            .informers
            .all()
            .filter(of_kind)
            .cloned()
            .collect()
    }

    pub(super) fn all_informers(&self) -> Vec<Arc<DeclaredInformer>> {
        self.0.declared()
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.0.ended.borrow()
    }

    /// Returns the informer of a plain selection of the kind, if it is declared.
    ///
    /// The handle does not keep the informer alive. The `bool` is set if a lazy read has declared
    /// it.
    pub(super) fn declared<K: KubeObject>(
        &self,
        plain: &Select<K>,
        namespace: Option<&str>,
    ) -> Result<Option<(Informer<K>, bool)>, CacheError> {
        let declaration = plain.declaration();
        let found = self
            .0
            .state
            .lock()
            .informers
            .find_plain(declaration, &self.0.options)?;
        let Some(declared) = found else {
            return Ok(None);
        };
        let informer = self
            .0
            .handle(&declared, InformerRef::uncounted(&declared.refs));
        match declared.plan.check_stored_type(declaration) {
            // An unused informer of another representation would be replaced by a declaration.
            Err(_) if !declared.refs.is_used() => return Ok(None),
            served => served?,
        }
        informer.check_namespace(namespace)?;
        Ok(Some((informer, declared.lazy_ref.get().is_some())))
    }

    /// Declares an informer that runs until the cache is closed.
    pub(super) fn declare_lazily<K: KubeObject>(
        &self,
        select: &Select<K>,
    ) -> Result<(), CacheError> {
        let plan = Plan::new(select.declaration(), &self.0.options)?;
        // Set `lazy_ref` under the lock, so that other reads see it with the informer.
        let mut state = self.0.state.lock();
        let declared = self.0.declare(
            &mut state,
            select.declaration(),
            plan,
            Requirement::Required,
        )?;
        declared
            .lazy_ref
            .get_or_init(|| InformerRef::new(&declared.refs, Requirement::Required));
        Ok(())
    }

    /// Returns the counters of requests to the API server.
    pub(crate) fn requests(&self) -> Requests {
        self.0.client.requests()
    }

    pub(super) fn client(&self) -> &CountedClient {
        &self.0.client
    }

    pub(super) fn options(&self) -> &CacheOptions {
        &self.0.options
    }

    /// Stops and removes all informers of a kind. Returns when none of their watches is left.
    ///
    /// Use it for kinds that are enabled and disabled by configuration. Unused informers stop
    /// without it when their handles are dropped. Does nothing if the kind is not declared.
    ///
    /// Existing handles serve the last known objects and report
    /// [`Removed`](InformerState::Removed). Their [`Events`](super::Events) end, and waits for a
    /// sync return an error. A new declaration of the kind creates a new informer.
    pub async fn remove(&self, kind: &GroupVersionKind) {
        let removed = self
            .0
            .state
            .lock()
            .remove(|declared| declared.gvk == *kind && !declared.plan.scope.internal);
        for declared in removed {
            declared.core.clone().closed().await;
        }
    }

    /// Returns state and counters of every informer, sorted by kind, for debug pages.
    ///
    /// Use [`CacheMetrics`](super::CacheMetrics) for metrics.
    pub fn informers(&self) -> Vec<InformerReport> {
        let report = |declared: &Arc<DeclaredInformer>| InformerReport {
            gvk: declared.gvk.clone(),
            scope: declared.describe_scope(),
            representation: declared.plan.representation,
            state: InformerState::of(declared.core.condition()),
            stats: declared.core.stats(),
            largest: declared.core.largest(),
        };
        self.sorted().iter().map(report).collect()
    }

    /// Returns state and counters of every informer for metrics.
    pub(super) fn rows(&self) -> Vec<Row> {
        let row = |declared: &Arc<DeclaredInformer>| Row {
            cluster: String::new(),
            gvk: declared.gvk.clone(),
            scope: declared.describe_scope(),
            state: InformerState::of(declared.core.condition()),
            stats: declared.core.stats(),
            largest: declared.core.largest_bytes(),
        };
        self.sorted().iter().map(row).collect()
    }

    fn sorted(&self) -> Vec<Arc<DeclaredInformer>> {
        let mut informers = self.0.declared();
        informers.sort_by_cached_key(|declared| {
            let GroupVersionKind {
                group,
                version,
                kind,
            } = declared.gvk.clone();
            (kind, group, version, declared.describe_scope())
        });
        informers
    }

    /// Returns a weak reference to the cache.
    pub(super) fn downgrade(&self) -> WeakCache {
        self.0.weak()
    }

    /// Runs the informers until `stop` resolves. Returns when their tasks have ended.
    ///
    /// Each informer is a task on the current runtime. A cache runs once. After it is closed, reads
    /// return the last known objects, and [`Events`](super::Events) end.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) -> Result<(), CacheError> {
        let shared = &self.0;
        {
            let mut state = shared.state.lock();
            if !matches!(state.run, Run::NotYet) {
                return Err(CacheError::AlreadyRun);
            }
            state.run = Run::Running {
                runtime: Handle::current(),
                tasks: JoinSet::new(),
            };
            // Close unused informers, so that waiters return.
            for unused in state.informers.take(|declared| !declared.refs.is_used()) {
                unused.core.close();
            }
            let declared: Vec<_> = state.informers.all().cloned().collect();
            for declared in declared {
                shared.start(&mut state, declared);
            }
        }
        let running = RunGuard(shared);
        race(stop, shared.crd_watch.run(&shared.client)).await;
        let mut tasks = running.end();
        while tasks.join_next().await.is_some() {}
        Ok(())
    }
}

impl Shared {
    fn declared(&self) -> Vec<Arc<DeclaredInformer>> {
        self.state.lock().informers.all().cloned().collect()
    }

    fn weak(self: &Arc<Self>) -> WeakCache {
        WeakCache(Arc::downgrade(self))
    }

    fn handle<K>(
        self: &Arc<Self>,
        declared: &DeclaredInformer,
        informer_ref: InformerRef,
    ) -> Informer<K> {
        Informer::new(declared.core.clone(), informer_ref, self.weak())
    }

    /// Returns the informer of a plan, and creates it if it is missing.
    ///
    /// The caller holds the lock, and may create a handle before it releases it.
    fn declare(
        self: &Arc<Self>,
        state: &mut State,
        declaration: &Declaration,
        plan: Plan,
        requirement: Requirement,
    ) -> Result<Arc<DeclaredInformer>, CacheError> {
        if matches!(state.run, Run::Ended) {
            return Err(CacheError::Closed);
        }
        let serves = plan.check_serves(declaration, &plan);
        while let Some(declared) = state.informers.find(&declaration.gvk, &plan).cloned() {
            declared.check_namespaces(&plan)?;
            match declared.plan.check_serves(declaration, &plan) {
                Ok(()) => return Ok(declared),
                // An unused informer is replaced by one that serves the declaration. The lock
                // prevents new handles in between.
                Err(_) if serves.is_ok() && !declared.refs.is_used() => {
                    state.remove(|other| ptr::eq(other, Arc::as_ptr(&declared)));
                }
                mismatch => mismatch?,
            }
        }
        serves?;
        let namespaces = match plan.namespace_selection() {
            Some((declaration, plan)) => {
                let set = self.declare(state, &declaration, plan, requirement)?;
                Some(self.handle(&set, InformerRef::new(&set.refs, requirement)))
            }
            None => None,
        };
        let gvk = declaration.gvk.clone();
        let declared = Arc::new(DeclaredInformer {
            core: plan.core(&gvk),
            refs: RefCount::new(gvk.clone(), plan.scope.clone()),
            gvk,
            plan,
            namespaces,
            lazy_ref: OnceLock::new(),
        });
        state.informers.add(declared.clone());
        self.start(state, declared.clone());
        Ok(declared)
    }

    /// Spawns the informer's task if the cache runs. Otherwise `run_until` spawns it.
    fn start(self: &Arc<Self>, state: &mut State, declared: Arc<DeclaredInformer>) {
        let Run::Running { runtime, tasks } = &mut state.run else {
            return;
        };
        // Free the tasks of stopped informers.
        while tasks.try_join_next().is_some() {}
        let (shared, close_on_drop) = (self.clone(), CloseOnDrop(declared.core.clone()));
        let task = async move {
            let _guard = close_on_drop;
            let mut ended = shared.ended.subscribe();
            let ended = async { drop(ended.wait_for(|ended| *ended).await) };
            let unused = async {
                loop {
                    declared.refs.unused_for(shared.options.idle).await;
                    if shared.remove_unused(&declared) {
                        return;
                    }
                }
            };
            let stop = race(declared.refs.removed(), race(ended, unused));
            // Boxed because the future is large and is moved before it is spawned.
            Box::pin(declared.run(&shared.client, &shared.crd_watch, stop)).await;
        };
        tasks.spawn_on(task, runtime);
    }

    /// Removes an unused informer. Returns `false` if it is in use again.
    fn remove_unused(&self, declared: &Arc<DeclaredInformer>) -> bool {
        let mut state = self.state.lock();
        let unused = !declared.refs.is_used();
        if unused {
            // Compared by address: an informer of the same kind may have been declared since.
            state
                .informers
                .take(|other| ptr::eq(other, Arc::as_ptr(declared)));
        }
        unused
    }
}

/// Closes the informers of a cache that never ran, so that waiters return.
impl Drop for Shared {
    fn drop(&mut self) {
        for declared in self.state.get_mut().informers.all() {
            declared.core.close();
        }
    }
}

/// Closes an informer when its task ends or is dropped.
struct CloseOnDrop(Arc<dyn ErasedCore>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Closes the cache when `run_until` ends or is dropped.
struct RunGuard<'a>(&'a Shared);

impl RunGuard<'_> {
    /// Signals all tasks to stop, and returns them.
    fn end(&self) -> JoinSet<()> {
        let run = std::mem::replace(&mut self.0.state.lock().run, Run::Ended);
        self.0.ended.send_replace(true);
        if let Run::Running { tasks, .. } = run {
            tasks
        } else {
            JoinSet::new()
        }
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        drop(self.end());
        for declared in self.0.declared() {
            declared.core.close();
        }
    }
}

/// Compares by identity.
impl PartialEq for Cache {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for Cache {}

/// Reference to a cache that does not keep it alive.
#[derive(Clone, Default)]
pub(super) struct WeakCache(Weak<Shared>);

impl WeakCache {
    pub(super) fn upgrade(&self) -> Option<Cache> {
        self.0.upgrade().map(Cache)
    }
}

impl fmt::Debug for WeakCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakCache")
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("informers", &self.0.state.lock().informers.all().count())
            .finish_non_exhaustive()
    }
}
