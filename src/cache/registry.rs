//! The cache: which informers there are, and their tasks.
//!
//! What holds: one informer for each kind and scope; a handle is given out only of one that is in the registry, under its lock, and one
//! is taken out of it only when it has no handle, under the same lock: so that no handle is ever left with an informer that is over while the cache runs.

use super::{
    CacheError, Informer, InformerState, InformerStats, Namespaces, Representation, Select,
    core::Core,
    erased::Informing,
    life::{Lease, Life, first},
    select::Scope,
    tend::Declared,
};
use crate::{
    client::Connection,
    object::{Compact, Decoder, KubeObject, MetadataOnly, StaticKind},
};
use hashbrown::HashMap;
use kube_client::Client;
use kube_core::{GroupVersionKind, TypeMeta};
use parking_lot::Mutex;
use std::{
    any::TypeId,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{runtime::Handle, sync::watch, task::JoinSet};

/// How long an informer outlives its last user, if nothing else is said.
const IDLE: Duration = Duration::from_secs(30);

/// Informers, and what runs them. A handle; clones share the informers. Nothing runs before [`Self::run_until`].
///
/// See [the module](crate::cache) for an example.
#[derive(Clone)]
pub struct Cache(Arc<Shared>);

/// Defaults for what a [`Select`] leaves unset.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Where objects are kept of; everywhere by default.
    pub namespaces: Namespaces,
    /// How long an informer outlives its last user; 30 s by default. Who comes back within that time finds it synced.
    pub idle: Duration,
    /// Whether a client's read of a kind that nobody has declared starts its informer, which then stays; false by default, and such a read an error. Such a
    /// read waits for the first list, at most 10 s.
    pub allow_lazy: bool,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { namespaces: Namespaces::All, idle: IDLE, allow_lazy: false }
    }
}

struct Shared {
    client: Client,
    options: CacheOptions,
    state: Mutex<State>,
    ended: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    informers: HashMap<Key, Arc<Declared>>,
    run: Run,
}

type Key = (GroupVersionKind, Scope);

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
    /// A cache of your own. Best from a `Config`: see [`Connection`]. With a ready client it never fails.
    ///
    /// # Panics
    /// If it is a configuration, and this is called outside of a tokio runtime.
    pub fn new(connection: impl Into<Connection>, options: CacheOptions) -> Result<Self, CacheError> {
        let client = connection.into().watching().map_err(CacheError::Connection)?;
        Ok(Self(Arc::new(Shared { client, options, state: Mutex::default(), ended: watch::Sender::new(false) })))
    }

    /// Declare a kind and hold on to its informer; it lives while somebody does. Starts at once in a running cache.
    pub fn informer<K: StaticKind>(&self) -> Result<Informer<K>, CacheError> {
        self.informer_of(Select::new())
    }

    /// [`Self::informer`] of a selection, or of a kind named at run time.
    ///
    /// The same kind and scope is the same informer. Who asks for a form that it cannot serve gets an error; one that is compact serves all.
    pub fn informer_of<K: KubeObject>(&self, select: Select<K>) -> Result<Informer<K>, CacheError> {
        let scope = select.scope(&self.0.options.namespaces)?;
        let mut state = self.0.state.lock();
        if matches!(state.run, Run::Ended) {
            return Err(CacheError::Ended);
        }
        let key = (select.gvk.clone(), scope.clone());
        if let Some(declared) = state.informers.get(&key) {
            declared.check_serves(&select)?;
            return Ok(Informer::new(declared.core.clone(), Lease::new(&declared.life)));
        }
        let declared = Arc::new(Declared {
            core: new_core(&select),
            life: Life::new(select.gvk.clone()),
            held: OnceLock::new(),
            representation: select.representation(),
            managed_fields: select.managed_fields,
            page_size: select.page_size,
            resource: select.resource,
            gvk: select.gvk,
            scope,
        });
        let informer = Informer::new(declared.core.clone(), Lease::new(&declared.life));
        state.informers.insert(key, declared.clone());
        self.0.start(&mut state, declared);
        Ok(informer)
    }

    /// Of a kind, in whichever version: an object has one resource version in all of them.
    pub(super) fn informers_of(&self, kind: &GroupVersionKind) -> Vec<Arc<Declared>> {
        let of_kind =
            |declared: &&Arc<Declared>| (&declared.gvk.group, &declared.gvk.kind) == (&kind.group, &kind.kind);
        self.0.state.lock().informers.values().filter(of_kind).cloned().collect()
    }

    pub(super) fn all_informers(&self) -> Vec<Arc<Declared>> {
        self.0.declared()
    }

    /// What [`Self::informer_of`] gives, if it was declared; it is not held. True if a read has declared it.
    pub(super) fn declared<K: KubeObject>(
        &self,
        select: &Select<K>,
        namespace: Option<&str>,
    ) -> Result<Option<(Informer<K>, bool)>, CacheError> {
        let scope = select.scope(&self.0.options.namespaces)?;
        let state = self.0.state.lock();
        let Some(declared) = state.informers.get(&(select.gvk.clone(), scope)) else { return Ok(None) };
        declared.check_serves(select)?;
        declared.check_keeps(namespace)?;
        let informer = Informer::new(declared.core.clone(), Lease::uncounted(&declared.life));
        Ok(Some((informer, declared.held.get().is_some())))
    }

    /// Declare it for good.
    pub(super) fn declare_lazily<K: KubeObject>(&self, select: Select<K>) -> Result<(), CacheError> {
        let key = (select.gvk.clone(), select.scope(&self.0.options.namespaces)?);
        let _until_held = self.informer_of(select)?;
        if let Some(declared) = self.0.state.lock().informers.get(&key) {
            declared.held.get_or_init(|| Lease::new(&declared.life));
        }
        Ok(())
    }

    pub(super) fn options(&self) -> &CacheOptions {
        &self.0.options
    }

    /// State and numbers of every informer, sorted by kind: for debug pages.
    pub fn informers(&self) -> Vec<(GroupVersionKind, InformerState, InformerStats)> {
        let mut informers = self.0.declared();
        informers.sort_by(|a, b| (&a.gvk.kind, &a.gvk.group).cmp(&(&b.gvk.kind, &b.gvk.group)));
        let line = |declared: &Arc<Declared>| {
            let state = InformerState::of(declared.core.condition());
            (declared.gvk.clone(), state, InformerStats::of(&*declared.core))
        };
        informers.iter().map(line).collect()
    }

    /// Until every informer declared so far is synced. As [`Informer::await_synced`] it waits for as long as the server refuses one.
    pub async fn await_synced(&self) -> Result<(), CacheError> {
        for declared in self.0.declared() {
            // One that was removed meanwhile is nobody's concern, unless all were.
            if !declared.core.clone().synced().await && *self.0.ended.borrow() {
                return Err(CacheError::Ended);
            }
        }
        Ok(())
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
            for (_, unused) in state.informers.extract_if(|_, declared| !declared.life.is_used()) {
                unused.core.end();
            }
            let declared: Vec<_> = state.informers.values().cloned().collect();
            for declared in declared {
                shared.start(&mut state, declared);
            }
        }
        let running = Running(shared);
        stop.await;
        let mut tasks = running.end();
        while tasks.join_next().await.is_some() {}
        Ok(())
    }
}

impl Shared {
    fn declared(&self) -> Vec<Arc<Declared>> {
        self.state.lock().informers.values().cloned().collect()
    }

    /// In a cache that runs; in another it is started with it.
    fn start(self: &Arc<Self>, state: &mut State, declared: Arc<Declared>) {
        let Run::Running { runtime, tasks } = &mut state.run else { return };
        // Of those that nobody used any more.
        while tasks.try_join_next().is_some() {}
        let shared = self.clone();
        let tend = async move {
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
            declared.tend(&shared.client, first(ended, unused)).await;
        };
        tasks.spawn_on(tend, runtime);
    }

    /// False if somebody has come to use it.
    fn remove_unused(&self, declared: &Declared) -> bool {
        let mut state = self.state.lock();
        let unused = !declared.life.is_used();
        if unused {
            state.informers.remove(&(declared.gvk.clone(), declared.scope.clone()));
        }
        unused
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

impl Declared {
    fn check_serves<K: KubeObject>(&self, select: &Select<K>) -> Result<(), CacheError> {
        let (have, want, kind) = (self.representation, select.representation(), || self.gvk.kind.clone());
        match (have, want) {
            (Representation::Typed, Representation::Typed) if self.core.payload_type() != TypeId::of::<K>() => {
                Err(CacheError::OtherType { kind: kind() })
            }
            _ if select.managed_fields && !self.managed_fields => Err(CacheError::ManagedFields { kind: kind() }),
            (Representation::Compact, _) | (Representation::Typed, Representation::Metadata) => Ok(()),
            _ if have == want => Ok(()),
            _ => Err(CacheError::Representation { kind: kind(), have, want }),
        }
    }

    /// Of a namespace that is not kept nothing is known, not even that there is nothing.
    fn check_keeps(&self, namespace: Option<&str>) -> Result<(), CacheError> {
        let kept = &self.scope.namespaces;
        match namespace {
            Some(namespace) if !kept.is_empty() && kept.iter().all(|kept| kept != namespace) => {
                Err(CacheError::NotKept { kind: self.gvk.kind.clone(), namespace: namespace.into() })
            }
            _ => Ok(()),
        }
    }
}

fn new_core<K: KubeObject>(select: &Select<K>) -> Arc<dyn Informing> {
    let types = TypeMeta { api_version: select.gvk.api_version(), kind: select.gvk.kind.clone() };
    let decoder = Decoder::new(types).managed_fields(select.managed_fields);
    match select.representation() {
        Representation::Typed => Arc::new(Core::<K>::new(decoder)),
        Representation::Compact => Arc::new(Core::<Compact>::new(decoder)),
        Representation::Metadata => Arc::new(Core::<MetadataOnly>::new(decoder)),
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("informers", &self.0.state.lock().informers.len()).finish_non_exhaustive()
    }
}
