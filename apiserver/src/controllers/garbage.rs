//! The garbage collector: objects whose owners are gone go too.
//!
//! An owner is there if the object that a reference names has the uid that it names. A dependent with at least one owner that is there
//! stays, and loses its references to the others; one without any goes. An owner that waits for its dependents, because it was
//! deleted in the foreground, keeps its finalizer until those that block it are gone; one that lets them live, until
//! their references to it are gone.

use super::{Seen, call};
use crate::{
    catalog::DEFINITIONS,
    object::{Head, Key, Object},
    patch::Patch,
    registry::{DeleteOptions, FOREGROUND, Input, ORPHAN, Part, finalizers, is_deleting, meta_text},
    server::Core,
    status::{Result, StrictErrors},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

/// An object's place: table and key.
type Place = (Arc<str>, Key);

#[derive(Default)]
pub(super) struct Garbage {
    /// By the uid of an owner, the objects that refer to it.
    dependents: HashMap<String, BTreeSet<Place>>,
    /// By object, the uids of its owners, and whether it blocks their deletion.
    owners: HashMap<Place, Vec<(String, bool)>>,
    /// The uids of owners that are known to be gone, for as long as somebody refers to them: their kind may be gone too.
    gone: HashSet<String>,
    /// Those with an owner of a kind that is not served: nothing is done about them until it is.
    unknown: BTreeSet<Place>,
    /// Objects to look at.
    due: BTreeSet<Place>,
}

/// What a reference leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Present,
    Absent,
    /// It waits for this dependent to go.
    Waiting,
    /// Nobody can tell.
    Unknown,
}

impl Garbage {
    pub(super) fn see(&mut self, core: &Core, seen: Seen<'_>) {
        let Some(object) = seen.object() else { return };
        if seen.table == DEFINITIONS {
            self.due.append(&mut self.unknown);
        }
        let place = (Arc::from(seen.table), object.key.clone());
        let owners_before = self.owners.get(&place).cloned();
        self.index(&place, seen.after);
        if let Some(before) = seen.before.filter(|_| owners_before.as_ref() != self.owners.get(&place)) {
            // Those that wait for this one, or for it to let go of them.
            self.wake_owners(core, before);
        }
        if seen.after.is_none() {
            let uid = uid_of(object);
            if let Some(dependents) = self.dependents.get(&uid) {
                self.due.extend(dependents.iter().cloned());
                self.gone.insert(uid);
            }
        } else if self.owners.contains_key(&place) || object.mentions(b"\"deletionTimestamp\"") {
            self.due.insert(place);
        }
    }

    /// Remember who refers to whom.
    fn index(&mut self, place: &Place, object: Option<&Arc<Object>>) {
        let before = self.owners.remove(place).unwrap_or_default();
        for (uid, _) in &before {
            if let Some(dependents) = self.dependents.get_mut(uid) {
                dependents.remove(place);
                if dependents.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
        let owners = object.map(|object| owners(object)).unwrap_or_default();
        for (uid, _) in &owners {
            self.dependents.entry(uid.clone()).or_default().insert(place.clone());
        }
        for (uid, _) in before.iter().filter(|(uid, _)| !self.dependents.contains_key(uid)) {
            self.gone.remove(uid);
        }
        if !owners.is_empty() {
            self.owners.insert(place.clone(), owners);
        }
    }

    fn wake_owners(&mut self, core: &Core, object: &Object) {
        if !object.mentions(b"\"ownerReferences\"") {
            return;
        }
        let namespace = object.key.namespace();
        let object = Value::Object(object.decode(&Head::bare()));
        let owners = references(&object).filter_map(|reference| place_of(core, reference, namespace));
        self.due.extend(owners);
    }

    pub(super) fn work(&mut self, core: &Core) {
        let mut failed = BTreeSet::new();
        while let Some(place) = self.due.pop_first() {
            // An object that is gone meanwhile is no failure.
            if self.look_at(core, &place).is_err_and(|failure| failure.code != 404) {
                failed.insert(place);
            }
        }
        self.due = failed;
    }

    pub(super) fn is_done(&self) -> bool {
        self.due.is_empty()
    }

    fn look_at(&mut self, core: &Core, place: &Place) -> Result<()> {
        let (table, key) = place;
        let Some(object) = core.store.get(table, key.as_str()) else { return Ok(()) };
        let catalog = core.catalog();
        let Some(served) = catalog.stored(table) else { return Ok(()) };
        let decoded = served.decode(&object);
        let has = |finalizer| finalizers(&decoded).any(|name| name == finalizer);
        if is_deleting(&decoded) {
            if has(ORPHAN) {
                self.orphan_dependents(core, &decoded)?;
                return drop_finalizer(core, place, &decoded, ORPHAN);
            }
            if has(FOREGROUND) && !self.push_dependents(core, &decoded) {
                return drop_finalizer(core, place, &decoded, FOREGROUND);
            }
            return Ok(());
        }
        let owners: Vec<(&Value, Owner)> =
            references(&decoded).map(|reference| (reference, self.owner(core, reference, key.namespace()))).collect();
        let count = |kind| owners.iter().filter(|(_, owner)| *owner == kind).count();
        if count(Owner::Unknown) > 0 {
            self.unknown.insert(place.clone());
        }
        let kept = owners.iter().filter(|(_, owner)| matches!(owner, Owner::Present | Owner::Unknown));
        let kept: Vec<_> = kept.map(|(reference, _)| *reference).collect();
        if kept.len() == owners.len() {
            return Ok(());
        }
        if !kept.is_empty() {
            return patch(core, place, &decoded, json!({"ownerReferences": kept}));
        }
        let own_dependents = self.dependents.get(meta_text(&decoded, "uid"));
        if count(Owner::Waiting) > 0 && own_dependents.is_some_and(|all| all.iter().any(|place| waits(core, place))) {
            // A circle: its owner waits for it, and it would wait for its owner.
            let freed: Vec<_> = references(&decoded).map(|reference| unblocked(reference.clone())).collect();
            patch(core, place, &decoded, json!({"ownerReferences": freed}))?;
        }
        let own_dependents = own_dependents.is_some();
        let policy = if has(ORPHAN) {
            "Orphan"
        } else if has(FOREGROUND) || (count(Owner::Waiting) > 0 && own_dependents) {
            "Foreground"
        } else {
            "Background"
        };
        let options = json!({"propagationPolicy": policy, "preconditions": {"uid": meta_text(&decoded, "uid")}});
        let options = DeleteOptions::parse(Some(&options), &crate::http::query::Query::default())?;
        call(core, served, key.namespace(), Part::Whole, |call| call.delete(key.name(), &options)).map(drop)
    }

    /// See to it that the dependents of an owner deleted in the foreground go; true if one that blocks it is still there.
    fn push_dependents(&mut self, core: &Core, owner: &Value) -> bool {
        let uid = meta_text(owner, "uid");
        let dependents = self.dependents.get(uid).cloned().unwrap_or_default();
        let blocking = dependents.iter().any(|(table, key)| {
            core.store.get(table, key.as_str()).is_some_and(|object| {
                let object = Value::Object(object.decode(&Head::bare()));
                references(&object).any(|reference| text(reference, "uid") == uid && blocks(reference))
            })
        });
        for dependent in dependents {
            let deleting = core.store.get(&dependent.0, dependent.1.as_str()).is_none_or(|object| is_going(&object));
            if !deleting {
                self.due.insert(dependent);
            }
        }
        blocking
    }

    fn orphan_dependents(&self, core: &Core, owner: &Value) -> Result<()> {
        let uid = meta_text(owner, "uid");
        for place in self.dependents.get(uid).into_iter().flatten() {
            let Some(object) = core.store.get(&place.0, place.1.as_str()) else { continue };
            let object = Value::Object(object.decode(&Head::bare()));
            let kept: Vec<_> = references(&object).filter(|reference| text(reference, "uid") != uid).cloned().collect();
            patch(core, place, &object, json!({"ownerReferences": kept}))?;
        }
        Ok(())
    }

    fn owner(&self, core: &Core, reference: &Value, namespace: &str) -> Owner {
        if self.gone.contains(text(reference, "uid")) {
            return Owner::Absent;
        }
        let Some((table, key)) = place_of(core, reference, namespace) else { return Owner::Unknown };
        let Some(object) = core.store.get(&table, key.as_str()) else { return Owner::Absent };
        let object = Value::Object(object.decode(&Head::bare()));
        if meta_text(&object, "uid") != text(reference, "uid") {
            return Owner::Absent;
        }
        let waiting = is_deleting(&object) && finalizers(&object).any(|finalizer| finalizer == FOREGROUND);
        if waiting && blocks(reference) { Owner::Waiting } else { Owner::Present }
    }
}

fn drop_finalizer(core: &Core, place: &Place, object: &Value, finalizer: &str) -> Result<()> {
    let kept: Vec<_> = finalizers(object).filter(|name| *name != finalizer).collect();
    patch(core, place, object, json!({"finalizers": kept}))
}

fn is_going(object: &Object) -> bool {
    is_deleting(&Value::Object(object.decode(&Head::bare())))
}

/// It is deleted in the foreground, and there.
fn waits(core: &Core, (table, key): &Place) -> bool {
    core.store.get(table, key.as_str()).is_some_and(|object| {
        let object = Value::Object(object.decode(&Head::bare()));
        is_deleting(&object) && finalizers(&object).any(|finalizer| finalizer == FOREGROUND)
    })
}

fn unblocked(mut reference: Value) -> Value {
    reference["blockOwnerDeletion"] = false.into();
    reference
}

/// Merge something into an object's metadata, if it is still at the revision that was looked at.
fn patch(core: &Core, (table, key): &Place, object: &Value, meta: Value) -> Result<()> {
    let catalog = core.catalog();
    let Some(served) = catalog.stored(table) else { return Ok(()) };
    let mut meta = meta;
    meta["resourceVersion"] = meta_text(object, "resourceVersion").into();
    let patch = Input::Patch(Patch::Merge(json!({"metadata": meta})), StrictErrors::new());
    call(core, served, key.namespace(), Part::Whole, |call| call.update(key.name(), &patch)).map(drop)
}

/// Where a reference leads; `None` if that cannot be told, because its kind is not served or lives in namespaces and the dependent
/// does not.
fn place_of(core: &Core, reference: &Value, namespace: &str) -> Option<Place> {
    let api_version = text(reference, "apiVersion");
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let catalog = core.catalog();
    let served = catalog.find_kind(group, text(reference, "kind"))?;
    let namespace = match (served.resource.namespaced, namespace) {
        (true, "") => return None,
        (true, namespace) => namespace,
        (false, _) => "",
    };
    Some((served.table.clone(), Key::new(namespace, text(reference, "name"))))
}

/// The uids of an object's owners, and whether it blocks their deletion.
fn owners(object: &Object) -> Vec<(String, bool)> {
    if !object.mentions(b"\"ownerReferences\"") {
        return Vec::new();
    }
    let object = Value::Object(object.decode(&Head::bare()));
    references(&object).map(|reference| (text(reference, "uid").to_owned(), blocks(reference))).collect()
}

/// The owner's deletion in the foreground waits for the dependent.
fn blocks(reference: &Value) -> bool {
    reference["blockOwnerDeletion"] == true
}

fn references(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn uid_of(object: &Object) -> String {
    meta_text(&Value::Object(object.decode(&Head::bare())), "uid").into()
}
