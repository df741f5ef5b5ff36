//! Namespaces that are deleted: everything in them goes, and then they do.

use super::{Seen, call, delete_all};
use crate::{
    catalog::{NAMESPACES, Served},
    object::Head,
    patch::Patch,
    registry::{Input, Part, finalizers, is_deleting},
    server::Core,
    status::{Result, StrictErrors},
    store::Range,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

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
        } else if self.terminating.contains(object.key.namespace()) {
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

/// Delete what is in a namespace; if nothing is left, let it go. Its conditions tell who waits what for.
fn empty_and_finalize(core: &Core, namespace: &str) -> Result<()> {
    let mut left = Left::default();
    for stored in core.catalog().all_stored().filter(|stored| stored.resource.namespaced) {
        let range = Range { namespace, ..Range::default() };
        if !delete_all(core, &stored.table, range)? {
            left.count(core, stored, range);
        }
    }
    tell(core, namespace, &left)?;
    if left.resources.is_empty() { finalize(core, namespace) } else { Ok(()) }
}

/// What is still in a namespace.
#[derive(Default)]
struct Left {
    /// By resource, how many.
    resources: BTreeMap<String, usize>,
    /// By finalizer, how many it holds.
    finalizers: BTreeMap<String, usize>,
}

impl Left {
    fn count(&mut self, core: &Core, stored: &Served, range: Range<'_>) {
        let objects = core.store.scan(&stored.table, range, None).map(|scan| scan.objects).unwrap_or_default();
        for object in &objects {
            for finalizer in finalizers(&stored.decode(object)) {
                *self.finalizers.entry(finalizer.into()).or_default() += 1;
            }
        }
        // With a dot even if there is no group, as the real controller has it.
        let name = format!("{}.{}", stored.resource.plural, stored.resource.group);
        self.resources.insert(name, objects.len());
    }

    /// Type, whether it is so, reason, text: of all conditions, in the order in which they come.
    fn conditions(&self) -> [(&'static str, bool, &'static str, String); 5] {
        let list = |counts: &BTreeMap<String, usize>, word: &str| {
            let each: Vec<_> =
                counts.iter().map(|(name, count)| format!("{name} {word} {count} resource instances")).collect();
            each.join(", ")
        };
        let content = if self.resources.is_empty() {
            ("NamespaceContentRemaining", false, "ContentRemoved", "All content successfully removed".into())
        } else {
            let text = format!("Some resources are remaining: {}", list(&self.resources, "has"));
            ("NamespaceContentRemaining", true, "SomeResourcesRemain", text)
        };
        let held = if self.finalizers.is_empty() {
            let text = "All content-preserving finalizers finished";
            ("NamespaceFinalizersRemaining", false, "ContentHasNoFinalizers", text.into())
        } else {
            let counts = list(&self.finalizers, "in");
            let text = format!("Some content in the namespace has finalizers remaining: {counts}");
            ("NamespaceFinalizersRemaining", true, "SomeFinalizersRemain", text)
        };
        let discovered = "All resources successfully discovered".into();
        let parsed = "All legacy kube types successfully parsed".into();
        let deleted = "All content successfully deleted, may be waiting on finalization".into();
        [
            ("NamespaceDeletionDiscoveryFailure", false, "ResourcesDiscovered", discovered),
            ("NamespaceDeletionGroupVersionParsingFailure", false, "ParsedGroupVersions", parsed),
            ("NamespaceDeletionContentFailure", false, "ContentDeleted", deleted),
            content,
            held,
        ]
    }
}

/// Bring a namespace's conditions up to date.
fn tell(core: &Core, namespace: &str, left: &Left) -> Result<()> {
    let catalog = core.catalog();
    let Some(served) = catalog.stored(NAMESPACES) else { return Ok(()) };
    let Some(object) = core.store.get(NAMESPACES, namespace) else { return Ok(()) };
    let mut conditions = served.decode(&object)["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for (kind, holds, reason, message) in left.conditions() {
        let status = if holds { "True" } else { "False" };
        let now = core.clock.timestamp();
        let condition = json!({
            "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
        });
        match conditions.iter_mut().find(|condition| condition["type"] == kind) {
            Some(old) if ["status", "reason", "message"].iter().all(|field| old[field] == condition[field]) => {}
            Some(old) => *old = condition,
            None => conditions.push(condition),
        }
    }
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    let patch = Input::Patch(patch, StrictErrors::new());
    call(core, served, "", Part::Status, |call| call.update(namespace, &patch)).map(drop)
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
