//! Garbage collector: deletes objects whose owners do not exist any more.
//!
//! An owner exists if the object that an owner reference names has the uid of the reference. A
//! dependent with at least one existing owner stays and loses its references to the others; one
//! without is deleted. An owner in foreground deletion keeps its finalizer until its blocking
//! dependents are deleted. An owner that orphans its dependents keeps its finalizer until their
//! references to it are removed.

use super::{ObservedChange, call};
use crate::{
    catalog::DEFINITIONS,
    object::{Head, Key, Object},
    patch::Patch,
    registry::{
        DeleteOptions, FOREGROUND, Input, ORPHAN, Subresource, finalizers, is_deleting, meta_text,
    },
    server::Core,
    status::{Result, StrictErrors},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

/// Table and key of an object.
type ObjectRef = (Arc<str>, Key);

#[derive(Default)]
pub(super) struct GarbageCollector {
    /// Objects that refer to an owner, by the owner's uid.
    dependents: HashMap<String, BTreeSet<ObjectRef>>,
    /// Uids of an object's owners and whether it blocks their deletion, by object.
    owners: HashMap<ObjectRef, Vec<(String, bool)>>,
    /// Uids of deleted owners that dependents still refer to. Kept because the owner's kind can be
    /// removed, too.
    deleted_owners: HashSet<String>,
    /// Dependents with an owner of a kind that is not served. They are left alone until a CRD
    /// changes.
    unresolved: BTreeSet<ObjectRef>,
    /// Objects to process.
    due: BTreeSet<ObjectRef>,
}

/// Owners that one dependent names. A dependent can name the same object in thousands of references,
/// so each object is decoded once.
type KnownOwners = HashMap<ObjectRef, Option<Owner>>;

/// Metadata of an owner.
struct Owner {
    uid: String,
    /// Whether it is in foreground deletion.
    waits: bool,
}

/// State of the owner that a reference names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnerState {
    Present,
    NotFound,
    /// The owner is in foreground deletion and waits for this dependent.
    Waiting,
    /// The owner's kind is not served.
    Unknown,
}

impl GarbageCollector {
    pub(super) fn observe(&mut self, core: &Core, change: ObservedChange<'_>) {
        let Some(object) = change.object() else {
            return;
        };
        if change.table == DEFINITIONS {
            self.due.append(&mut self.unresolved);
        }
        let object_ref = (Arc::from(change.table), object.key.clone());
        let owners_before = self.owners.get(&object_ref).cloned();
        self.index(&object_ref, change.after);
        if let Some(before) = change
            .before
            .filter(|_| owners_before.as_ref() != self.owners.get(&object_ref))
        {
            // An owner can be waiting for this object or for the removal of its reference.
            self.enqueue_owners(core, before);
        }
        if change.after.is_none() {
            let uid = object_uid(object);
            if let Some(dependents) = self.dependents.get(&uid) {
                self.due.extend(dependents.iter().cloned());
                self.deleted_owners.insert(uid);
            }
        } else if self.owners.contains_key(&object_ref) || object.mentions(b"\"deletionTimestamp\"")
        {
            self.due.insert(object_ref);
        }
    }

    /// Updates the indexes of owners and dependents.
    fn index(&mut self, object_ref: &ObjectRef, object: Option<&Arc<Object>>) {
        let before = self.owners.remove(object_ref).unwrap_or_default();
        for (uid, _) in &before {
            if let Some(dependents) = self.dependents.get_mut(uid) {
                dependents.remove(object_ref);
                if dependents.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
        let owners = object.map(|object| owners(object)).unwrap_or_default();
        for (uid, _) in &owners {
            self.dependents
                .entry(uid.clone())
                .or_default()
                .insert(object_ref.clone());
        }
        for (uid, _) in before
            .iter()
            .filter(|(uid, _)| !self.dependents.contains_key(uid))
        {
            self.deleted_owners.remove(uid);
        }
        if !owners.is_empty() {
            self.owners.insert(object_ref.clone(), owners);
        }
    }

    fn enqueue_owners(&mut self, core: &Core, object: &Object) {
        if !object.mentions(b"\"ownerReferences\"") {
            return;
        }
        let namespace = object.key.namespace();
        let object = Value::Object(object.decode(&Head::bare()));
        let owners =
            references(&object).filter_map(|reference| resolve_owner(core, reference, namespace));
        self.due.extend(owners);
    }

    pub(super) fn process_due(&mut self, core: &Core) {
        let mut failed = BTreeSet::new();
        while let Some(object_ref) = self.due.pop_first() {
            // An object that was deleted in the meantime is not an error.
            if self
                .process(core, &object_ref)
                .is_err_and(|failure| failure.code != 404)
            {
                failed.insert(object_ref);
            }
        }
        self.due = failed;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.due.is_empty()
    }

    fn process(&mut self, core: &Core, object_ref: &ObjectRef) -> Result<()> {
        let (table, key) = object_ref;
        let Some(object) = core.store.get(table, key.as_str()) else {
            return Ok(());
        };
        let catalog = core.catalog();
        let Some(served) = catalog.stored(table) else {
            return Ok(());
        };
        let decoded = served.decode(&object);
        let has = |finalizer| finalizers(&decoded).any(|name| name == finalizer);
        if is_deleting(&decoded) {
            if has(ORPHAN) {
                self.orphan_dependents(core, &decoded)?;
                return drop_finalizer(core, object_ref, &decoded, ORPHAN);
            }
            if has(FOREGROUND) && !self.enqueue_dependents(core, &decoded) {
                return drop_finalizer(core, object_ref, &decoded, FOREGROUND);
            }
            return Ok(());
        }
        let mut known = KnownOwners::new();
        let owners: Vec<(&Value, OwnerState)> = references(&decoded)
            .map(|reference| {
                (
                    reference,
                    self.owner_state(core, reference, key.namespace(), &mut known),
                )
            })
            .collect();
        let count = |kind| owners.iter().filter(|(_, owner)| *owner == kind).count();
        if count(OwnerState::Unknown) > 0 {
            self.unresolved.insert(object_ref.clone());
        }
        let kept = owners
            .iter()
            .filter(|(_, owner)| matches!(owner, OwnerState::Present | OwnerState::Unknown));
        let kept: Vec<_> = kept.map(|(reference, _)| *reference).collect();
        if kept.len() == owners.len() {
            return Ok(());
        }
        if !kept.is_empty() {
            return patch(core, object_ref, &decoded, json!({"ownerReferences": kept}));
        }
        let own_dependents = self.dependents.get(meta_text(&decoded, "uid"));
        if count(OwnerState::Waiting) > 0
            && own_dependents.is_some_and(|all| {
                all.iter().any(|(table, key)| {
                    core.store.get(table, key.as_str()).is_some_and(|object| {
                        is_in_foreground_deletion(&Value::Object(object.decode(&Head::bare())))
                    })
                })
            })
        {
            // A cycle: the owner waits for this object, which would wait for its owner.
            let unblocked: Vec<_> = references(&decoded)
                .map(|reference| without_block(reference.clone()))
                .collect();
            patch(
                core,
                object_ref,
                &decoded,
                json!({"ownerReferences": unblocked}),
            )?;
        }
        let own_dependents = own_dependents.is_some();
        let policy = if has(ORPHAN) {
            "Orphan"
        } else if has(FOREGROUND) || (count(OwnerState::Waiting) > 0 && own_dependents) {
            "Foreground"
        } else {
            "Background"
        };
        let options = json!({"propagationPolicy": policy, "preconditions": {"uid": meta_text(&decoded, "uid")}});
        let options = DeleteOptions::parse(Some(&options), &crate::http::query::Query::default())?;
        call(core, served, key.namespace(), Subresource::None, |call| {
            call.delete(key.name(), &options)
        })
        .map(drop)
    }

    /// Enqueues the dependents of an owner in foreground deletion. Returns whether one that blocks
    /// the deletion exists.
    fn enqueue_dependents(&mut self, core: &Core, owner: &Value) -> bool {
        let uid = meta_text(owner, "uid");
        let dependents = self.dependents.get(uid).cloned().unwrap_or_default();
        let blocking = dependents.iter().any(|(table, key)| {
            core.store.get(table, key.as_str()).is_some_and(|object| {
                let object = Value::Object(object.decode(&Head::bare()));
                references(&object)
                    .any(|reference| text(reference, "uid") == uid && blocks(reference))
            })
        });
        for dependent in dependents {
            let deleting = core
                .store
                .get(&dependent.0, dependent.1.as_str())
                .is_none_or(|object| is_being_deleted(&object));
            if !deleting {
                self.due.insert(dependent);
            }
        }
        blocking
    }

    fn orphan_dependents(&self, core: &Core, owner: &Value) -> Result<()> {
        let uid = meta_text(owner, "uid");
        for object_ref in self.dependents.get(uid).into_iter().flatten() {
            let Some(object) = core.store.get(&object_ref.0, object_ref.1.as_str()) else {
                continue;
            };
            let object = Value::Object(object.decode(&Head::bare()));
            let kept: Vec<_> = references(&object)
                .filter(|reference| text(reference, "uid") != uid)
                .cloned()
                .collect();
            patch(core, object_ref, &object, json!({"ownerReferences": kept}))?;
        }
        Ok(())
    }

    fn owner_state(
        &self,
        core: &Core,
        reference: &Value,
        namespace: &str,
        known: &mut KnownOwners,
    ) -> OwnerState {
        if self.deleted_owners.contains(text(reference, "uid")) {
            return OwnerState::NotFound;
        }
        let Some(object_ref) = resolve_owner(core, reference, namespace) else {
            return OwnerState::Unknown;
        };
        let owner = known.entry(object_ref).or_insert_with_key(|(table, key)| {
            let object = core.store.get(table, key.as_str())?;
            let object = Value::Object(object.decode(&Head::bare()));
            Some(Owner {
                uid: meta_text(&object, "uid").to_owned(),
                waits: is_in_foreground_deletion(&object),
            })
        });
        match owner {
            Some(owner) if owner.uid == text(reference, "uid") => {
                if owner.waits && blocks(reference) {
                    OwnerState::Waiting
                } else {
                    OwnerState::Present
                }
            }
            _ => OwnerState::NotFound,
        }
    }
}

fn drop_finalizer(
    core: &Core,
    object_ref: &ObjectRef,
    object: &Value,
    finalizer: &str,
) -> Result<()> {
    let kept: Vec<_> = finalizers(object)
        .filter(|name| *name != finalizer)
        .collect();
    patch(core, object_ref, object, json!({"finalizers": kept}))
}

fn is_being_deleted(object: &Object) -> bool {
    is_deleting(&Value::Object(object.decode(&Head::bare())))
}

/// Reports whether an object is in foreground deletion.
fn is_in_foreground_deletion(object: &Value) -> bool {
    is_deleting(object) && finalizers(object).any(|finalizer| finalizer == FOREGROUND)
}

fn without_block(mut reference: Value) -> Value {
    reference["blockOwnerDeletion"] = false.into();
    reference
}

/// Merges `meta` into an object's metadata, provided that its resource version has not changed.
fn patch(core: &Core, (table, key): &ObjectRef, object: &Value, meta: Value) -> Result<()> {
    let catalog = core.catalog();
    let Some(served) = catalog.stored(table) else {
        return Ok(());
    };
    let mut meta = meta;
    meta["resourceVersion"] = meta_text(object, "resourceVersion").into();
    let patch = Input::Patch(Patch::Merge(json!({"metadata": meta})), StrictErrors::new());
    call(core, served, key.namespace(), Subresource::None, |call| {
        call.update(key.name(), &patch)
    })
    .map(drop)
}

/// Resolves an owner reference to an object. Returns `None` if the kind is not served, or if it is
/// namespaced and the dependent is not.
fn resolve_owner(core: &Core, reference: &Value, namespace: &str) -> Option<ObjectRef> {
    let api_version = text(reference, "apiVersion");
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let catalog = core.catalog();
    let served = catalog.find_kind(group, text(reference, "kind"))?;
    let namespace = match (served.resource.namespaced, namespace) {
        (true, "") => return None,
        (true, namespace) => namespace,
        (false, _) => "",
    };
    Some((
        served.table.clone(),
        Key::new(namespace, text(reference, "name")),
    ))
}

/// Returns the uids of an object's owners and whether it blocks their deletion.
fn owners(object: &Object) -> Vec<(String, bool)> {
    if !object.mentions(b"\"ownerReferences\"") {
        return Vec::new();
    }
    let object = Value::Object(object.decode(&Head::bare()));
    references(&object)
        .map(|reference| (text(reference, "uid").to_owned(), blocks(reference)))
        .collect()
}

/// Reports whether the owner's foreground deletion waits for the dependent.
fn blocks(reference: &Value) -> bool {
    reference["blockOwnerDeletion"] == true
}

fn references(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn object_uid(object: &Object) -> String {
    meta_text(&Value::Object(object.decode(&Head::bare())), "uid").into()
}
