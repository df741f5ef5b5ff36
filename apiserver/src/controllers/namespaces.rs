//! Namespace controller: deletes the objects in deleted namespaces, then the namespaces.

use super::{ObservedChange, call, delete_all};
use crate::{
    catalog::{NAMESPACES, Served},
    object::Head,
    patch::Patch,
    registry::{Input, Subresource, finalizers, is_deleting},
    server::Core,
    status::{Result, StrictErrors},
    store::Range,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(super) struct NamespaceController {
    terminating: BTreeSet<String>,
    /// Terminating namespaces to process.
    due: BTreeSet<String>,
}

impl NamespaceController {
    pub(super) fn observe(&mut self, change: ObservedChange<'_>) {
        let Some(object) = change.object() else {
            return;
        };
        if change.table == NAMESPACES {
            let name = object.key.name();
            let terminating = change.after.is_some_and(|namespace| {
                is_deleting(&Value::Object(namespace.decode(&Head::bare())))
            });
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

    pub(super) fn process_due(&mut self, core: &Core) {
        for namespace in std::mem::take(&mut self.due) {
            if self.terminating.contains(&namespace) && delete_content(core, &namespace).is_err() {
                self.due.insert(namespace);
            }
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.due.is_empty()
    }
}

/// Deletes the objects in a namespace and finalizes it if none is left. Its conditions report what
/// it waits for.
fn delete_content(core: &Core, namespace: &str) -> Result<()> {
    let mut remaining = Remaining::default();
    for stored in core
        .catalog()
        .all_stored()
        .filter(|stored| stored.resource.namespaced)
    {
        let range = Range {
            namespace,
            ..Range::default()
        };
        if !delete_all(core, &stored.table, range)? {
            remaining.count(core, stored, range);
        }
    }
    update_conditions(core, namespace, &remaining)?;
    if remaining.resources.is_empty() {
        finalize(core, namespace)
    } else {
        Ok(())
    }
}

/// Objects that are left in a namespace.
#[derive(Default)]
struct Remaining {
    /// Number of objects by resource.
    resources: BTreeMap<String, usize>,
    /// Number of objects by finalizer.
    finalizers: BTreeMap<String, usize>,
}

impl Remaining {
    fn count(&mut self, core: &Core, stored: &Served, range: Range<'_>) {
        let objects = core
            .store
            .scan(&stored.table, range, None)
            .map(|scan| scan.objects)
            .unwrap_or_default();
        for object in &objects {
            for finalizer in finalizers(&stored.decode(object)) {
                *self.finalizers.entry(finalizer.into()).or_default() += 1;
            }
        }
        // With a dot even for the core group, as in the real controller.
        let name = format!("{}.{}", stored.resource.plural, stored.resource.group);
        self.resources.insert(name, objects.len());
    }

    /// Returns the type, status, reason and message of all conditions, in their order.
    fn conditions(&self) -> [(&'static str, bool, &'static str, String); 5] {
        let list = |counts: &BTreeMap<String, usize>, word: &str| {
            let each: Vec<_> = counts
                .iter()
                .map(|(name, count)| format!("{name} {word} {count} resource instances"))
                .collect();
            each.join(", ")
        };
        let content = if self.resources.is_empty() {
            (
                "NamespaceContentRemaining",
                false,
                "ContentRemoved",
                "All content successfully removed".into(),
            )
        } else {
            let text = format!(
                "Some resources are remaining: {}",
                list(&self.resources, "has")
            );
            (
                "NamespaceContentRemaining",
                true,
                "SomeResourcesRemain",
                text,
            )
        };
        let finalizers = if self.finalizers.is_empty() {
            let text = "All content-preserving finalizers finished";
            (
                "NamespaceFinalizersRemaining",
                false,
                "ContentHasNoFinalizers",
                text.into(),
            )
        } else {
            let counts = list(&self.finalizers, "in");
            let text = format!("Some content in the namespace has finalizers remaining: {counts}");
            (
                "NamespaceFinalizersRemaining",
                true,
                "SomeFinalizersRemain",
                text,
            )
        };
        let discovered = "All resources successfully discovered".into();
        let parsed = "All legacy kube types successfully parsed".into();
        let deleted = "All content successfully deleted, may be waiting on finalization".into();
        [
            (
                "NamespaceDeletionDiscoveryFailure",
                false,
                "ResourcesDiscovered",
                discovered,
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                false,
                "ParsedGroupVersions",
                parsed,
            ),
            (
                "NamespaceDeletionContentFailure",
                false,
                "ContentDeleted",
                deleted,
            ),
            content,
            finalizers,
        ]
    }
}

/// Updates the conditions of a namespace.
fn update_conditions(core: &Core, namespace: &str, remaining: &Remaining) -> Result<()> {
    let catalog = core.catalog();
    let Some(served) = catalog.stored(NAMESPACES) else {
        return Ok(());
    };
    let Some(object) = core.store.get(NAMESPACES, namespace) else {
        return Ok(());
    };
    let mut conditions = served.decode(&object)["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for (kind, holds, reason, message) in remaining.conditions() {
        let status = if holds { "True" } else { "False" };
        let now = core.clock.timestamp();
        let condition = json!({
            "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
        });
        match conditions
            .iter_mut()
            .find(|condition| condition["type"] == kind)
        {
            Some(old)
                if ["status", "reason", "message"]
                    .iter()
                    .all(|field| old[field] == condition[field]) => {}
            Some(old) => *old = condition,
            None => conditions.push(condition),
        }
    }
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    let patch = Input::Patch(patch, StrictErrors::new());
    call(core, served, "", Subresource::Status, |call| {
        call.update(namespace, &patch)
    })
    .map(drop)
}

/// Removes the finalizer `kubernetes` from a namespace.
fn finalize(core: &Core, namespace: &str) -> Result<()> {
    let catalog = core.catalog();
    let Some(served) = catalog.stored(NAMESPACES) else {
        return Ok(());
    };
    let Some(object) = core.store.get(NAMESPACES, namespace) else {
        return Ok(());
    };
    let mut object = served.decode(&object);
    let kept = object["spec"]["finalizers"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let kept: Vec<_> = kept
        .into_iter()
        .filter(|finalizer| finalizer != "kubernetes")
        .collect();
    object["spec"] = json!({"finalizers": kept});
    call(core, served, "", Subresource::Finalize, |call| {
        call.update(namespace, &Input::Replace(object))
    })
    .map(drop)
}
