//! What runs beside the server: definitions are established and cleaned up, namespaces emptied, orphans collected.
//!
//! One task reads every change, in order, and shows it to each controller; a controller acts through the registry, as any client
//! would, and sees what it did itself when that comes round. Nothing here waits for a clock: what a controller waits for is a
//! change.

mod definitions;
mod garbage;
mod namespaces;

pub(crate) use definitions::{install, register_all as register_definitions};

use crate::{
    activity::Reader,
    auth::Identity,
    catalog::Served,
    http::query::write::WriteOptions,
    object::Object,
    registry::{Call, Part},
    server::Core,
    status::{Failure, Result},
    store::{
        Change, Store,
        feed::{Feed, News},
    },
};
use definitions::Definitions;
use garbage::Garbage;
use namespaces::Namespaces;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};
use tokio::task::JoinHandle;

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

    pub(crate) fn are_running(&self) -> bool {
        self.all
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
    let busy = core.activity.begin();
    crew.look_at_everything(&core);
    drop(busy);
    loop {
        let busy = core.activity.begin();
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
        drop(busy);
        feed.grown().await;
    }
}

impl Crew {
    fn see(&mut self, core: &Core, seen: Seen<'_>) {
        self.definitions.see(seen);
        if let Some((namespaces, garbage)) = &mut self.others {
            namespaces.see(seen);
            garbage.see(core, seen);
        }
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
            let Ok(scan) = core.store.scan(&table, crate::store::Range::default(), None) else { continue };
            scan.objects.iter().for_each(|object| self.see(core, Seen::present(&table, object)));
        }
        self.work(core);
    }
}

/// What controllers have to see: definitions and namespaces, whatever goes, and whatever owns or is owned. Most changes are none of that.
pub(crate) fn is_notable(table: &str, before: Option<&Object>, after: Option<&Object>) -> bool {
    let owned = |object: &Object| object.mentions(b"\"ownerReferences\"");
    match after {
        _ if matches!(table, "namespaces" | definitions::TABLE) => true,
        None => true,
        Some(after) => after.mentions(b"\"deletionTimestamp\"") || owned(after) || before.is_some_and(owned),
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
    let mut call = Call { core, served, namespace, part, identity: &identity, options: &options, warnings: Vec::new() };
    catch_unwind(AssertUnwindSafe(|| act(&mut call))).unwrap_or_else(|_| Err(Failure::internal("admission panicked")))
}
