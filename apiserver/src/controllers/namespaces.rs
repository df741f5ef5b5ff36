//! Namespaces that are deleted: everything in them goes, and then they do.

use super::{Seen, call, delete_all};
use crate::{
    catalog::NAMESPACES,
    object::Head,
    registry::{Input, Part, is_deleting},
    server::Core,
    status::Result,
    store::Range,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[derive(Default)]
pub(super) struct Namespaces {
    terminating: BTreeSet<String>,
    /// Those of them to look at.
    due: BTreeSet<String>,
}

impl Namespaces {
    pub(super) fn see(&mut self, seen: Seen<'_>) {
        let Some(object) = seen.object() else { return };
        if seen.table == NAMESPACES {
            let name = object.key.name();
            let terminating =
                seen.after.is_some_and(|namespace| is_deleting(&Value::Object(namespace.decode(&Head::bare()))));
            if terminating {
                self.terminating.insert(name.into());
                self.due.insert(name.into());
            } else {
                self.terminating.remove(name);
            }
        } else if seen.after.is_none() && self.terminating.contains(object.key.namespace()) {
            self.due.insert(object.key.namespace().into());
        }
    }

    pub(super) fn work(&mut self, core: &Core) {
        for namespace in std::mem::take(&mut self.due) {
            if self.terminating.contains(&namespace) && empty_and_finalize(core, &namespace).is_err() {
                self.due.insert(namespace);
            }
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.due.is_empty()
    }
}

/// Delete what is in a namespace; if nothing is left, let it go.
fn empty_and_finalize(core: &Core, namespace: &str) -> Result<()> {
    let mut empty = true;
    for stored in core.catalog().all_stored().filter(|stored| stored.resource.namespaced) {
        empty &= delete_all(core, &stored.table, Range { namespace, ..Range::default() })?;
    }
    if empty { finalize(core, namespace) } else { Ok(()) }
}

/// Let a namespace go.
fn finalize(core: &Core, namespace: &str) -> Result<()> {
    let catalog = core.catalog();
    let Some(served) = catalog.stored(NAMESPACES) else { return Ok(()) };
    let Some(object) = core.store.get(NAMESPACES, namespace) else { return Ok(()) };
    let mut object = served.decode(&object);
    let others = object["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    let others: Vec<_> = others.into_iter().filter(|finalizer| finalizer != "kubernetes").collect();
    object["spec"] = json!({"finalizers": others});
    call(core, served, "", Part::Finalize, |call| call.update(namespace, &Input::Replace(object))).map(drop)
}
