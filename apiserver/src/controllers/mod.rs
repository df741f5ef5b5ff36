//! What runs beside the server: definitions are established and cleaned up, namespaces emptied, orphans collected.
//!
//! One task reads every change, in order, and shows it to each controller; a controller acts through the registry, as any client
//! would, and sees what it did itself when that comes round. What fails is tried again, later and later; otherwise nothing here waits for
//! a clock: what a controller waits for is a change.

mod definitions;
mod garbage;
mod namespaces;

pub(crate) use definitions::{install, register_all as register_definitions};

use crate::{
    activity::Reader,
    auth::Identity,
    catalog::{DEFINITIONS, NAMESPACES, Served},
    http::query::write::WriteOptions,
    object::Object,
    registry::{Call, DeleteOptions, Part, is_deleting},
    server::Core,
    status::{Failure, Result},
    store::{
        Change, Range, Store,
        feed::{Feed, News},
    },
    warnings::Warnings,
};
use definitions::Definitions;
use garbage::Garbage;
use namespaces::Namespaces;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};
use tokio::{task::JoinHandle, time::sleep};

/// The controllers of a server; they stop when this is dropped, and the store with them: they are the last who write to it.
pub(crate) struct Controllers {
    task: JoinHandle<()>,
    store: Store,
    all: bool,
}

impl Controllers {
    /// Start them, `all` or only those without which definitions would not be served.
    pub(crate) fn start(core: &Arc<Core>, all: bool) -> Self {
        let feed = core.store.feed();
        // From now on the server is not idle before they are.
        let reader = core.activity.reader_of_all();
        let crew = Crew { definitions: Definitions::default(), others: all.then(Default::default) };
        Self { task: tokio::spawn(run(core.clone(), feed, reader, crew)), store: core.store.clone(), all }
    }

    /// It is all of them.
    pub(crate) fn are_all(&self) -> bool {
        self.all
    }

    /// They ended, with the runtime that they were started in.
    pub(crate) fn have_ended(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.task.abort();
        // The task ends when it gets to it; who opens the same data next does not wait for that.
        self.store.close();
    }
}

struct Crew {
    definitions: Definitions,
    others: Option<(Namespaces, Garbage)>,
}

/// A change to an object of a table, as controllers see it.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) table: &'a str,
    pub(super) before: Option<&'a Arc<Object>>,
    pub(super) after: Option<&'a Arc<Object>>,
}

impl<'a> Seen<'a> {
    fn change(table: &'a str, change: &'a Change) -> Self {
        Self { table, before: change.before.as_ref(), after: change.after.as_ref() }
    }

    fn present(table: &'a str, object: &'a Arc<Object>) -> Self {
        Self { table, before: None, after: Some(object) }
    }

    fn object(self) -> Option<&'a Arc<Object>> {
        self.after.or(self.before)
    }
}

async fn run(core: Arc<Core>, mut feed: Feed, reader: Arc<Reader>, mut crew: Crew) {
    let mut wait = FIRST_RETRY;
    let mut busy = core.activity.begin();
    crew.look_at_everything(&core);
    loop {
        while let Some(news) = feed.try_next() {
            match news {
                News::Changes(changes) => {
                    for (table, change) in &changes {
                        crew.see(&core, Seen::change(table, change));
                    }
                }
                News::Lost => crew.look_at_everything(&core),
            }
            crew.work(&core);
            tokio::task::yield_now().await;
        }
        reader.has_seen(feed.seen());
        if crew.is_done() {
            drop(busy);
            feed.grown().await;
            busy = core.activity.begin();
            wait = FIRST_RETRY;
        } else {
            // Somebody was faster, or refuses: once more, later. Until then the server is not idle.
            tokio::select! {
                () = feed.grown() => {}
                () = sleep(wait) => wait = (wait * 2).min(LAST_RETRY),
            }
            crew.work(&core);
        }
    }
}

/// How long it takes until what failed is tried again; doubled with every failure.
const FIRST_RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = Duration::from_secs(10);

impl Crew {
    fn see(&mut self, core: &Core, seen: Seen<'_>) {
        self.definitions.see(seen);
        if let Some((namespaces, garbage)) = &mut self.others {
            namespaces.see(seen);
            garbage.see(core, seen);
        }
    }

    /// Nothing is left to do.
    fn is_done(&self) -> bool {
        self.definitions.is_done()
            && self.others.as_ref().is_none_or(|(namespaces, garbage)| namespaces.is_done() && garbage.is_done())
    }

    fn work(&mut self, core: &Core) {
        self.definitions.work(core);
        if let Some((namespaces, garbage)) = &mut self.others {
            garbage.work(core);
            namespaces.work(core);
        }
    }

    /// At the start, and after changes were missed.
    fn look_at_everything(&mut self, core: &Core) {
        if let Some((_, garbage)) = &mut self.others {
            *garbage = Garbage::default();
        }
        self.definitions.look_at_everything(core);
        for table in core.store.tables() {
            let Ok(scan) = core.store.scan(&table, Range::default(), None) else { continue };
            scan.objects.iter().for_each(|object| self.see(core, Seen::present(&table, object)));
        }
        self.work(core);
    }
}

/// What controllers have to see: definitions and namespaces, whatever goes, and whatever owns or is owned. Most changes are none of that.
pub(crate) fn is_notable(table: &str, before: Option<&Object>, after: Option<&Object>) -> bool {
    let owned = |object: &Object| object.mentions(b"\"ownerReferences\"");
    match after {
        _ if matches!(table, NAMESPACES | DEFINITIONS) => true,
        None => true,
        Some(after) => after.mentions(b"\"deletionTimestamp\"") || owned(after) || before.is_some_and(owned),
    }
}

/// Delete the objects of a table; true if none is left. What is held by its finalizers is left, and no failure.
pub(super) fn delete_all(core: &Core, table: &str, range: Range<'_>) -> Result<bool> {
    let catalog = core.catalog();
    let Some(stored) = catalog.stored(table) else { return Ok(true) };
    let objects = |range| core.store.scan(table, range, None).map(|scan| scan.objects).unwrap_or_default();
    let mut failure = None;
    for object in objects(range) {
        if is_deleting(&stored.decode(&object)) {
            continue;
        }
        let options = DeleteOptions::default();
        let deleted =
            call(core, stored, object.key.namespace(), Part::Whole, |call| call.delete(object.key.name(), &options));
        failure = deleted.err().filter(|failure| failure.code != 404).or(failure);
    }
    match failure {
        Some(failure) => Err(failure),
        None => Ok(objects(Range { limit: Some(1), ..range }).is_empty()),
    }
}

/// Do something as a controller would. A closure of the user's that panics is a failure: the other objects still want to be looked at.
pub(super) fn call<T>(
    core: &Core,
    served: &Served,
    namespace: &str,
    part: Part,
    act: impl FnOnce(&mut Call<'_>) -> Result<T>,
) -> Result<T> {
    let identity = Identity::new("system:kube-controller-manager", "", ["system:masters"]);
    let options = WriteOptions::default();
    let mut call =
        Call { core, served, namespace, part, identity: &identity, options: &options, warnings: Warnings::default() };
    catch_unwind(AssertUnwindSafe(|| act(&mut call))).unwrap_or_else(|_| Err(Failure::internal("admission panicked")))
}
