//! Controllers that run inside of the server: CRDs, namespace deletion and garbage collection.
//!
//! One task reads all changes in order and passes them to each controller. A controller writes
//! through the registry, like a client, and observes its own writes as changes. Failed work is
//! retried with backoff. Nothing else depends on time: a controller waits for changes only.

mod crds;
mod garbage;
mod namespaces;

pub(crate) use crds::{install, register_all as register_definitions};

use crate::{
    activity::Reader,
    auth::Identity,
    catalog::{DEFINITIONS, NAMESPACES, Served},
    http::query::write::WriteOptions,
    object::Object,
    registry::{DeleteOptions, ResourceRequest, Subresource, is_deleting},
    server::Core,
    status::{Failure, Result},
    store::{
        Change, Range, Store,
        feed::{Feed, FeedEvent},
    },
    warnings::Warnings,
};
use crds::CrdController;
use garbage::GarbageCollector;
use namespaces::NamespaceController;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};
use tokio::{task::JoinHandle, time::sleep};

/// The controllers of a server. Dropping this stops them and closes the store, since they are its
/// last writers.
pub(crate) struct Controllers {
    task: JoinHandle<()>,
    store: Store,
    all: bool,
}

impl Controllers {
    /// Starts the controllers: `all`, or only the one that serves CRDs.
    pub(crate) fn start(core: &Arc<Core>, all: bool) -> Self {
        let feed = core.store.feed();
        // From here on the server is idle only if the controllers are.
        let reader = core.activity.reader_of_all_tables();
        let controllers = ControllerSet {
            crds: CrdController::default(),
            others: all.then(Default::default),
        };
        Self {
            task: tokio::spawn(run(core.clone(), feed, reader, controllers)),
            store: core.store.clone(),
            all,
        }
    }

    /// Reports whether all controllers were started.
    pub(crate) fn is_complete(&self) -> bool {
        self.all
    }

    /// Reports whether the controllers have stopped, which happens when their runtime shuts down.
    pub(crate) fn have_stopped(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.task.abort();
        // The task stops at its next await point. Closing the store here lets another server open
        // the same data before that.
        self.store.close();
    }
}

struct ControllerSet {
    crds: CrdController,
    others: Option<(NamespaceController, GarbageCollector)>,
}

/// A change to an object, as controllers observe it.
#[derive(Clone, Copy)]
pub(super) struct ObservedChange<'a> {
    pub(super) table: &'a str,
    pub(super) before: Option<&'a Arc<Object>>,
    pub(super) after: Option<&'a Arc<Object>>,
}

impl<'a> ObservedChange<'a> {
    fn from_change(table: &'a str, change: &'a Change) -> Self {
        Self {
            table,
            before: change.before.as_ref(),
            after: change.after.as_ref(),
        }
    }

    fn from_object(table: &'a str, object: &'a Arc<Object>) -> Self {
        Self {
            table,
            before: None,
            after: Some(object),
        }
    }

    fn object(self) -> Option<&'a Arc<Object>> {
        self.after.or(self.before)
    }
}

async fn run(core: Arc<Core>, mut feed: Feed, reader: Arc<Reader>, mut controllers: ControllerSet) {
    let mut wait = FIRST_RETRY;
    let mut busy = core.activity.begin();
    controllers.resync(&core);
    loop {
        while let Some(event) = feed.try_next() {
            match event {
                FeedEvent::Changes(changes) => {
                    for (table, change) in &changes {
                        controllers.observe(&core, ObservedChange::from_change(table, change));
                    }
                }
                FeedEvent::Expired => controllers.resync(&core),
            }
            controllers.process_due(&core);
            tokio::task::yield_now().await;
        }
        reader.record_seen(feed.seen());
        if controllers.is_idle() {
            drop(busy);
            feed.wait_for_changes().await;
            busy = core.activity.begin();
            wait = FIRST_RETRY;
        } else {
            // A write conflicted or was rejected. Retry later; the server is not idle until then.
            tokio::select! {
                () = feed.wait_for_changes() => {}
                () = sleep(wait) => wait = (wait * 2).min(MAX_RETRY),
            }
            controllers.process_due(&core);
        }
    }
}

/// Delay of the first retry. Doubles with every failure up to [`MAX_RETRY`].
const FIRST_RETRY: Duration = Duration::from_millis(5);
const MAX_RETRY: Duration = Duration::from_secs(10);

impl ControllerSet {
    fn observe(&mut self, core: &Core, change: ObservedChange<'_>) {
        self.crds.observe(change);
        if let Some((namespaces, garbage)) = &mut self.others {
            namespaces.observe(change);
            garbage.observe(core, change);
        }
    }

    /// Reports whether no work is pending.
    fn is_idle(&self) -> bool {
        self.crds.is_idle()
            && self
                .others
                .as_ref()
                .is_none_or(|(namespaces, garbage)| namespaces.is_idle() && garbage.is_idle())
    }

    fn process_due(&mut self, core: &Core) {
        self.crds.process_due(core);
        if let Some((namespaces, garbage)) = &mut self.others {
            garbage.process_due(core);
            namespaces.process_due(core);
        }
    }

    /// Observes all objects as new: at the start, and after changes were missed.
    fn resync(&mut self, core: &Core) {
        if let Some((_, garbage)) = &mut self.others {
            *garbage = GarbageCollector::default();
        }
        self.crds.resync(core);
        for table in core.store.tables() {
            let Ok(scan) = core.store.scan(&table, Range::default(), None) else {
                continue;
            };
            scan.objects
                .iter()
                .for_each(|object| self.observe(core, ObservedChange::from_object(&table, object)));
        }
        self.process_due(core);
    }
}

/// Reports whether controllers have to observe a change: those of CRDs and namespaces, deletions,
/// and changes of objects with owner references. Most changes are none of these.
pub(crate) fn concerns_controllers(
    table: &str,
    before: Option<&Object>,
    after: Option<&Object>,
) -> bool {
    let has_owners = |object: &Object| object.mentions(b"\"ownerReferences\"");
    match after {
        _ if matches!(table, NAMESPACES | DEFINITIONS) => true,
        None => true,
        Some(after) => {
            after.mentions(b"\"deletionTimestamp\"")
                || has_owners(after)
                || before.is_some_and(has_owners)
        }
    }
}

/// Deletes the objects of a table and returns whether none is left. Objects with finalizers are
/// left, which is not an error.
pub(super) fn delete_all(core: &Core, table: &str, range: Range<'_>) -> Result<bool> {
    let catalog = core.catalog();
    let Some(stored) = catalog.stored(table) else {
        return Ok(true);
    };
    let objects = |range| {
        core.store
            .scan(table, range, None)
            .map(|scan| scan.objects)
            .unwrap_or_default()
    };
    let mut failure = None;
    for object in objects(range) {
        if is_deleting(&stored.decode(&object)) {
            continue;
        }
        let options = DeleteOptions::default();
        let deleted = call(
            core,
            stored,
            object.key.namespace(),
            Subresource::None,
            |call| call.delete(object.key.name(), &options),
        );
        failure = deleted
            .err()
            .filter(|failure| failure.code != 404)
            .or(failure);
    }
    match failure {
        Some(failure) => Err(failure),
        None => Ok(objects(Range {
            limit: Some(1),
            ..range
        })
        .is_empty()),
    }
}

/// Calls the registry as a controller. A panic of an admission closure becomes an error, so that
/// the controller continues with other objects.
pub(super) fn call<T>(
    core: &Core,
    served: &Served,
    namespace: &str,
    subresource: Subresource,
    act: impl FnOnce(&mut ResourceRequest<'_>) -> Result<T>,
) -> Result<T> {
    let identity = Identity::new("system:kube-controller-manager", "", ["system:masters"]);
    let options = WriteOptions::default();
    let mut call = ResourceRequest {
        core,
        served,
        namespace,
        subresource,
        identity: &identity,
        options: &options,
        warnings: Warnings::default(),
    };
    catch_unwind(AssertUnwindSafe(|| act(&mut call)))
        .unwrap_or_else(|_| Err(Failure::internal("admission panicked")))
}
