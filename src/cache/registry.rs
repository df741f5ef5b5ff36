//! The cache: its informers, and their tasks.
//!
//! What holds: one informer for each kind and scope (see [`roster`](super::roster)); a handle is given out only of one that is in the registry, under its lock, and one
//! is taken out of it only when it has no handle, under the same lock: so that no handle is ever left with an informer that is over while the cache runs.
//! The exception is one that is removed by name: its handles say so.

use super::{
    CacheError, CacheOptions, Informer, InformerReport, InformerState, Select,
    arrivals::Arrivals,
    erased::Informing,
    life::{Lease, Life, Need, first},
    metrics::Row,
    plan::Plan,
    roster::Roster,
    select::Said,
    tend::Declared,
};
use crate::{
    client::{Connection, Link, Requests},
    object::{KubeObject, StaticKind},
};
use kube_core::GroupVersionKind;
use parking_lot::Mutex;
use std::{
    fmt, ptr,
    sync::{Arc, OnceLock, Weak},
};
use tokio::{runtime::Handle, sync::watch, task::JoinSet};

/// Informers, and what runs them. A handle; clones share the informers. Nothing runs before [`Self::run_until`].
///
/// See [the module](crate::cache) for an example.
#[derive(Clone)]
pub struct Cache(Arc<Shared>);

struct Shared {
    client: Link,
    options: CacheOptions,
    state: Mutex<State>,
    /// Of kinds that are not there; runs with the cache.
    arrivals: Arrivals,
    ended: watch::Sender<bool>,
    of_added_cluster: bool,
}

#[derive(Default)]
struct State {
    informers: Roster,
    run: Run,
}

impl State {
    /// Take those out that `are` to go, and tell them to end: all of them, before one is waited for.
    fn remove(&mut self, are: impl Fn(&Declared) -> bool) -> Vec<Arc<Declared>> {
        let removed = self.informers.take(are);
        for declared in &removed {
            declared.life.remove();
            if !matches!(self.run, Run::Running { .. }) {
                // No task does.
                declared.core.end();
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
    /// A cache of your own. Best from a `Config`: see [`Connection`]. With a ready client it only fails for options that cannot be: a selector that is none, a name
    /// that no namespace has, namespaces for a kind of [`kinds`](CacheOptions::kinds) that has none.
    ///
    /// # Panics
    /// If it is a configuration, and this is called outside of a tokio runtime.
    pub fn new(connection: impl Into<Connection>, options: CacheOptions) -> Result<Self, CacheError> {
        Self::build(connection.into(), options, false)
    }

    /// Creates the cache of a cluster that a manager runs beside its own.
    ///
    /// A controller starts without its watches if they do not sync in time.
    pub(crate) fn of_added_cluster(connection: Connection, options: CacheOptions) -> Result<Self, CacheError> {
        Self::build(connection, options, true)
    }

    fn build(connection: Connection, options: CacheOptions, of_added_cluster: bool) -> Result<Self, CacheError> {
        Plan::check(&options)?;
        let client = connection.informing().map_err(CacheError::Connection)?;
        let (state, arrivals) = (Mutex::default(), Arrivals::default());
        let ended = watch::Sender::new(false);
        Ok(Self(Arc::new(Shared { client, options, state, arrivals, ended, of_added_cluster })))
    }

    pub(crate) fn is_of_added_cluster(&self) -> bool {
        self.0.of_added_cluster
    }

    /// Declare a kind and hold on to its informer; it lives while somebody does. Starts at once in a running cache.
    pub fn informer<K: StaticKind>(&self) -> Result<Informer<K>, CacheError> {
        self.informer_of(Select::new())
    }

    /// [`Self::informer`] of a selection, or of a kind named at run time.
    ///
    /// The same kind and scope is the same informer. Who asks for a form that it cannot serve gets an error for as long as somebody uses it; one that is compact
    /// serves all.
    pub fn informer_of<K: KubeObject>(&self, select: Select<K>) -> Result<Informer<K>, CacheError> {
        let need = if select.said().optional { Need::May } else { Need::Must };
        let plan = Plan::new(select.said(), &self.0.options)?;
        let periods = plan.periods();
        let mut state = self.0.state.lock();
        let declared = self.0.declare(&mut state, select.said(), plan, need)?;
        Ok(self.0.handle(&declared, Lease::new(&declared.life, need)).resyncing(periods))
    }

    /// Of a kind, in whichever version: an object has one resource version in all of them.
    pub(super) fn informers_of(&self, kind: &GroupVersionKind) -> Vec<Arc<Declared>> {
        let of_kind =
            |declared: &&Arc<Declared>| (&declared.gvk.group, &declared.gvk.kind) == (&kind.group, &kind.kind);
        self.0.state.lock().informers.all().filter(of_kind).cloned().collect()
    }

    pub(super) fn all_informers(&self) -> Vec<Arc<Declared>> {
        self.0.declared()
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.0.ended.borrow()
    }

    /// What [`Self::informer_of`] gives for a selection that says nothing but its kind, if it was declared; it is not held. True if a read has declared it.
    pub(super) fn declared<K: KubeObject>(
        &self,
        plain: &Select<K>,
        namespace: Option<&str>,
    ) -> Result<Option<(Informer<K>, bool)>, CacheError> {
        let said = plain.said();
        let found = self.0.state.lock().informers.find_plain(said, &self.0.options)?;
        let Some(declared) = found else { return Ok(None) };
        let informer = self.0.handle(&declared, Lease::uncounted(&declared.life));
        match declared.plan.check_form(said) {
            // As for who declares it: what nobody uses is in nobody's way.
            Err(_) if !declared.life.is_used() => return Ok(None),
            served => served?,
        }
        informer.check_keeps(namespace)?;
        Ok(Some((informer, declared.held.get().is_some())))
    }

    /// Declare it for good.
    pub(super) fn declare_lazily<K: KubeObject>(&self, select: &Select<K>) -> Result<(), CacheError> {
        let plan = Plan::new(select.said(), &self.0.options)?;
        // Who finds it finds that a read has declared it.
        let mut state = self.0.state.lock();
        let declared = self.0.declare(&mut state, select.said(), plan, Need::Must)?;
        declared.held.get_or_init(|| Lease::new(&declared.life, Need::Must));
        Ok(())
    }

    /// What it has asked the server for.
    pub(crate) fn requests(&self) -> Requests {
        self.0.client.requests()
    }

    pub(super) fn client(&self) -> &Link {
        &self.0.client
    }

    pub(super) fn options(&self) -> &CacheOptions {
        &self.0.options
    }

    /// Stop every informer of a kind and forget it, whoever uses it: for kinds that come and go by configuration. Done when none of its watches is left.
    ///
    /// Handles serve what they had, and say [`Removed`](InformerState::Removed); their [`Events`](super::Events) end, and who waits for a sync is told.
    /// Who declares the kind again gets a new informer. Of a kind that nobody declared this does nothing. What is simply not used any more
    /// is removed by itself: drop the handles instead.
    pub async fn remove(&self, kind: &GroupVersionKind) {
        let removed = self.0.state.lock().remove(|declared| declared.gvk == *kind && !declared.plan.scope.own);
        for declared in removed {
            declared.core.clone().ended().await;
        }
    }

    /// State and numbers of every informer, sorted by kind: for debug pages, as JSON or as they are. As metrics: [`CacheMetrics`](super::CacheMetrics).
    pub fn informers(&self) -> Vec<InformerReport> {
        let report = |declared: &Arc<Declared>| InformerReport {
            gvk: declared.gvk.clone(),
            scope: declared.words(),
            representation: declared.plan.representation,
            state: InformerState::of(declared.core.condition()),
            stats: declared.core.stats(),
            largest: declared.core.largest(),
        };
        self.sorted().iter().map(report).collect()
    }

    /// The same for metrics.
    pub(super) fn rows(&self) -> Vec<Row> {
        let row = |declared: &Arc<Declared>| Row {
            cluster: String::new(),
            gvk: declared.gvk.clone(),
            scope: declared.words(),
            state: InformerState::of(declared.core.condition()),
            stats: declared.core.stats(),
            largest: declared.core.largest_bytes(),
        };
        self.sorted().iter().map(row).collect()
    }

    fn sorted(&self) -> Vec<Arc<Declared>> {
        let mut informers = self.0.declared();
        informers.sort_by_cached_key(|declared| {
            let GroupVersionKind { group, version, kind } = declared.gvk.clone();
            (kind, group, version, declared.words())
        });
        informers
    }

    /// For who must not keep it alive.
    pub(super) fn downgrade(&self) -> WeakCache {
        self.0.weak()
    }

    /// Run the informers, each in a task of its own on the runtime that this is called in, until `stop` resolves; then they all have ended. Once in a
    /// cache's life: reads serve afterwards what they had, and [`Events`](super::Events) end.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) -> Result<(), CacheError> {
        let shared = &self.0;
        {
            let mut state = shared.state.lock();
            if !matches!(state.run, Run::NotYet) {
                return Err(CacheError::AlreadyRun);
            }
            state.run = Run::Running { runtime: Handle::current(), tasks: JoinSet::new() };
            // Those nobody uses any more are over before they began; who waits for them is told.
            for unused in state.informers.take(|declared| !declared.life.is_used()) {
                unused.core.end();
            }
            let declared: Vec<_> = state.informers.all().cloned().collect();
            for declared in declared {
                shared.start(&mut state, declared);
            }
        }
        let running = Running(shared);
        first(stop, shared.arrivals.run(&shared.client)).await;
        let mut tasks = running.end();
        while tasks.join_next().await.is_some() {}
        Ok(())
    }
}

impl Shared {
    fn declared(&self) -> Vec<Arc<Declared>> {
        self.state.lock().informers.all().cloned().collect()
    }

    fn weak(self: &Arc<Self>) -> WeakCache {
        WeakCache(Arc::downgrade(self))
    }

    fn handle<K>(self: &Arc<Self>, declared: &Declared, lease: Lease) -> Informer<K> {
        Informer::new(declared.core.clone(), lease, self.weak())
    }

    /// The informer of this plan, made if there is none. Who holds the lock may take a lease.
    fn declare(
        self: &Arc<Self>,
        state: &mut State,
        said: &Said,
        plan: Plan,
        need: Need,
    ) -> Result<Arc<Declared>, CacheError> {
        if matches!(state.run, Run::Ended) {
            return Err(CacheError::Ended);
        }
        let serves = plan.check_serves(said, &plan);
        while let Some(declared) = state.informers.find(&said.gvk, &plan).cloned() {
            declared.check_namespaces(&plan)?;
            match declared.plan.check_serves(said, &plan) {
                Ok(()) => return Ok(declared),
                // It is kept for who comes back, and not against who wants it otherwise. Who holds the lock knows that nobody comes back meanwhile.
                Err(_) if serves.is_ok() && !declared.life.is_used() => {
                    state.remove(|other| ptr::eq(other, Arc::as_ptr(&declared)));
                }
                refused => refused?,
            }
        }
        serves?;
        let namespaces = match plan.of_namespaces() {
            Some((said, plan)) => {
                let set = self.declare(state, &said, plan, need)?;
                Some(self.handle(&set, Lease::new(&set.life, need)))
            }
            None => None,
        };
        let gvk = said.gvk.clone();
        let declared = Arc::new(Declared {
            core: plan.core(&gvk),
            life: Life::new(gvk.clone(), plan.scope.clone()),
            gvk,
            plan,
            namespaces,
            held: OnceLock::new(),
        });
        state.informers.add(declared.clone());
        self.start(state, declared.clone());
        Ok(declared)
    }

    /// In a cache that runs; in another it is started with it.
    fn start(self: &Arc<Self>, state: &mut State, declared: Arc<Declared>) {
        let Run::Running { runtime, tasks } = &mut state.run else { return };
        // Of those that nobody used any more.
        while tasks.try_join_next().is_some() {}
        let (shared, ends) = (self.clone(), Ends(declared.core.clone()));
        let tend = async move {
            let _ends = ends;
            let mut ended = shared.ended.subscribe();
            let ended = async { drop(ended.wait_for(|ended| *ended).await) };
            let unused = async {
                loop {
                    declared.life.unused_for(shared.options.idle).await;
                    if shared.remove_unused(&declared) {
                        return;
                    }
                }
            };
            let over = first(declared.life.removed(), first(ended, unused));
            // Large, and moved around before it is spawned.
            Box::pin(declared.tend(&shared.client, &shared.arrivals, over)).await;
        };
        tasks.spawn_on(tend, runtime);
    }

    /// False if somebody has come to use it.
    fn remove_unused(&self, declared: &Arc<Declared>) -> bool {
        let mut state = self.state.lock();
        let unused = !declared.life.is_used();
        if unused {
            // Not one that was declared after this one was removed.
            state.informers.take(|other| ptr::eq(other, Arc::as_ptr(declared)));
        }
        unused
    }
}

/// Of a cache that never ran no task ends the informers; who waits for them is told.
impl Drop for Shared {
    fn drop(&mut self) {
        for declared in self.state.get_mut().informers.all() {
            declared.core.end();
        }
    }
}

/// Ends an informer with its task, also if that is dropped before the time.
struct Ends(Arc<dyn Informing>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A cache that runs. Dropped, it has ended, also if what runs it was dropped before the time.
struct Running<'a>(&'a Shared);

impl Running<'_> {
    /// Tell everybody; gives what is still running.
    fn end(&self) -> JoinSet<()> {
        let run = std::mem::replace(&mut self.0.state.lock().run, Run::Ended);
        self.0.ended.send_replace(true);
        if let Run::Running { tasks, .. } = run { tasks } else { JoinSet::new() }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        drop(self.end());
        for declared in self.0.declared() {
            declared.core.end();
        }
    }
}

/// The same cache.
impl PartialEq for Cache {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for Cache {}

/// A cache that may be gone.
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
        f.debug_struct("Cache").field("informers", &self.0.state.lock().informers.all().count()).finish_non_exhaustive()
    }
}
