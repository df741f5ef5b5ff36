//! Namespaces that are deleted: everything in them goes, and then they do.

use super::{Seen, call};
use crate::{
    object::Head,
    registry::{DeleteOptions, Input, Part, is_deleting},
    server::Core,
    store::Range,
};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};

#[derive(Default)]
pub(super) struct Namespaces {
    terminating: BTreeSet<String>,
    /// Those of them to look at.
    due: BTreeSet<String>,
}

impl Namespaces {
    pub(super) fn see(&mut self, seen: Seen<'_>) {
        let Some(object) = seen.object() else { return };
        if seen.table == "namespaces" {
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
            if self.terminating.contains(&namespace) && empty(core, &namespace) {
                finalize(core, &namespace);
            }
        }
    }
}

/// Delete what is in a namespace; true if nothing is left.
fn empty(core: &Core, namespace: &str) -> bool {
    let catalog = core.catalog();
    // Each table once, whatever number of versions shows it.
    let tables: HashMap<_, _> =
        catalog.iter().filter(|served| served.resource.namespaced).map(|served| (&served.table, served)).collect();
    let range = Range { namespace, ..Range::default() };
    let mut left = 0;
    for (table, served) in tables {
        let Ok(scan) = core.store.scan(table, range, None) else { continue };
        for object in &scan.objects {
            let options = DeleteOptions::default();
            if !is_deleting(&served.decode(object)) {
                // What fails stays, and is counted below.
                _ = call(core, served, namespace, Part::Whole, |call| call.delete(object.key.name(), &options));
            }
        }
        left += core.store.scan(table, range, None).map_or(0, |scan| scan.objects.len());
    }
    left == 0
}

/// Let a namespace go.
fn finalize(core: &Core, namespace: &str) {
    let catalog = core.catalog();
    let Some(served) = catalog.find("", "v1", "namespaces") else { return };
    let Some(object) = core.store.get("namespaces", namespace) else { return };
    let mut object = served.decode(&object);
    let others = object["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    let others: Vec<_> = others.into_iter().filter(|finalizer| finalizer != "kubernetes").collect();
    object["spec"] = json!({"finalizers": others});
    // If somebody was faster, that change comes round.
    _ = call(core, served, "", Part::Finalize, |call| call.update(namespace, &Input::Replace(object)));
}
