//! Model of writes to config maps and widgets.

use crate::support::{CONFIG_MAPS, WIDGETS, config_map, rv, widget};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Kind, namespace and name of an object that may or may not exist.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    custom: bool,
    other_namespace: bool,
    name: &'static str,
}

impl Slot {
    fn collection(&self) -> String {
        let path = if self.custom { WIDGETS } else { CONFIG_MAPS };
        if self.other_namespace {
            path.replace("/default/", "/other/")
        } else {
            path.into()
        }
    }

    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    fn namespace(&self) -> &'static str {
        if self.other_namespace {
            "other"
        } else {
            "default"
        }
    }
}

/// Resource version that a write sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Version {
    None,
    Current,
    Stale,
}

#[derive(Clone, Debug)]
pub(super) enum Write {
    Create {
        content: &'static str,
        finalizer: bool,
    },
    Put {
        content: &'static str,
        version: Version,
    },
    Merge {
        content: &'static str,
        version: Version,
    },
    JsonPatch {
        content: &'static str,
    },
    Label(&'static str),
    Status {
        phase: &'static str,
        main: bool,
    },
    Finalizers(Vec<&'static str>),
    Delete(Option<&'static str>),
}

#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) slot: Slot,
    pub(super) write: Write,
    dry_run: bool,
}

impl Operation {
    pub(super) fn method(&self) -> &'static str {
        match self.write {
            Write::Create { .. } => "POST",
            Write::Put { .. } => "PUT",
            Write::Delete(_) => "DELETE",
            _ => "PATCH",
        }
    }

    pub(super) fn path(&self) -> String {
        let path = match self.write {
            Write::Create { .. } => self.slot.collection(),
            Write::Status { main: false, .. } => self.slot.path() + "/status",
            _ => self.slot.path(),
        };
        if self.dry_run {
            path + "?dryRun=All"
        } else {
            path
        }
    }
}

/// Expected response, and whether the operation writes.
pub(super) struct Expected {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) writes: bool,
}

/// Values of the modelled field. The last is not a valid color of a widget.
const CONTENTS: [&str; 4] = ["red", "green", "blue", "purple"];
const FINALIZERS: [&str; 2] = ["example.com/a", "example.com/b"];

pub(super) fn operation() -> impl Strategy<Value = Operation> {
    let slot = (
        any::<bool>(),
        any::<bool>(),
        prop::sample::select(&["a", "b", "c"]),
    )
        .prop_map(|(custom, other_namespace, name)| Slot {
            custom,
            other_namespace,
            name,
        });
    let content = || prop::sample::select(&CONTENTS);
    let version = || prop::sample::select(&[Version::None, Version::Current, Version::Stale]);
    let policies = [
        None,
        None,
        Some("Background"),
        Some("Foreground"),
        Some("Orphan"),
        Some("Sideways"),
    ];
    let write = prop_oneof![
        4 => (content(), any::<bool>()).prop_map(|(content, finalizer)| Write::Create { content, finalizer }),
        2 => (content(), version()).prop_map(|(content, version)| Write::Put { content, version }),
        2 => (content(), version()).prop_map(|(content, version)| Write::Merge { content, version }),
        1 => content().prop_map(|content| Write::JsonPatch { content }),
        1 => prop::sample::select(&["x", "y", "no label!"]).prop_map(Write::Label),
        2 => (prop::sample::select(&["Here", "There"]), any::<bool>())
            .prop_map(|(phase, main)| Write::Status { phase, main }),
        2 => prop::sample::subsequence(FINALIZERS.to_vec(), 0..=2).prop_map(Write::Finalizers),
        3 => prop::sample::select(policies.to_vec()).prop_map(Write::Delete),
    ];
    (slot, write, prop::bool::weighted(0.1)).prop_map(|(slot, write, dry_run)| Operation {
        slot,
        write,
        dry_run,
    })
}

/// Objects that the server should have, as JSON.
#[derive(Default)]
pub(super) struct Model(BTreeMap<Slot, Value>);

fn set_content(object: &mut Value, custom: bool, content: &str) {
    if custom {
        object["spec"]["color"] = content.into();
    } else {
        object["data"]["k"] = content.into();
    }
}

fn finalizers(object: &Value) -> Vec<String> {
    serde_json::from_value(object["metadata"]["finalizers"].clone()).unwrap_or_default()
}

fn set_finalizers(object: &mut Value, all: &[String]) {
    let meta = object["metadata"]
        .as_object_mut()
        .expect("an object has metadata");
    meta.remove("finalizers");
    if !all.is_empty() {
        meta.insert("finalizers".into(), json!(all));
    }
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

type ApiError = (u16, &'static str);
const INVALID: ApiError = (422, "Invalid");
const CONFLICT: ApiError = (409, "Conflict");
const NOT_FOUND: ApiError = (404, "NotFound");

impl Model {
    pub(super) fn get(&self, slot: &Slot) -> Option<&Value> {
        self.0.get(slot)
    }

    /// Returns all objects of the kind at `path`.
    pub(super) fn all(&self, path: &str) -> impl Iterator<Item = &Value> {
        let custom = path.contains("widgets");
        self.0
            .iter()
            .filter(move |(slot, _)| slot.custom == custom)
            .map(|(_, object)| object)
    }

    /// Returns the request body of an operation.
    pub(super) fn body(&self, operation: &Operation) -> Value {
        let Operation { slot, write, .. } = operation;
        let fresh = if slot.custom {
            widget(slot.name)
        } else {
            config_map(slot.name)
        };
        let current = self.get(slot).unwrap_or(&fresh);
        let revision = |version| match version {
            Version::None => Value::Null,
            Version::Current => rv(current).max(1).to_string().into(),
            Version::Stale => "2".into(),
        };
        match write {
            Write::Create { content, finalizer } => {
                let mut object = fresh.clone();
                set_content(&mut object, slot.custom, content);
                if *finalizer {
                    object["metadata"]["finalizers"] = json!(["example.com/a"]);
                }
                object
            }
            Write::Put { content, version } => {
                let mut object = current.clone();
                set_content(&mut object, slot.custom, content);
                object["metadata"]["resourceVersion"] = revision(*version);
                // The server ignores these fields.
                object["metadata"]["generation"] = 77.into();
                object["status"] = json!({"phase": "Forged"});
                object
            }
            Write::Merge { content, version } => {
                let mut patch = json!({});
                set_content(&mut patch, slot.custom, content);
                if *version != Version::None {
                    patch["metadata"]["resourceVersion"] = revision(*version);
                }
                patch
            }
            Write::JsonPatch { content } => {
                let path = if slot.custom {
                    "/spec/color"
                } else {
                    "/data/k"
                };
                json!([{"op": "replace", "path": path, "value": content}])
            }
            Write::Label(label) => json!({"metadata": {"labels": {"label": label}}}),
            Write::Status { phase, .. } => json!({"status": {"phase": phase}}),
            Write::Finalizers(all) => json!({"metadata": {"finalizers": all}}),
            // With a body, the server ignores the query.
            Write::Delete(policy) => {
                let dry_run: &[&str] = if operation.dry_run { &["All"] } else { &[] };
                json!({"propagationPolicy": policy, "dryRun": dry_run})
            }
        }
    }

    /// Applies an operation to the model. `next` is the revision of the next write.
    pub(super) fn apply(&mut self, operation: &Operation, next: u64) -> Expected {
        match self.outcome(operation) {
            Err((code, reason)) => Expected {
                code,
                reason,
                writes: false,
            },
            Ok(new) => {
                let code = if matches!(operation.write, Write::Create { .. }) {
                    201
                } else {
                    200
                };
                let writes = !operation.dry_run && new.as_ref() != self.get(&operation.slot);
                if writes {
                    match new {
                        Some(mut object) => {
                            object["metadata"]["resourceVersion"] = next.to_string().into();
                            self.0.insert(operation.slot.clone(), object);
                        }
                        None => drop(self.0.remove(&operation.slot)),
                    }
                }
                Expected {
                    code,
                    reason: "",
                    writes,
                }
            }
        }
    }

    /// Returns the object after an operation, `None` if it is deleted.
    fn outcome(&self, operation: &Operation) -> Result<Option<Value>, ApiError> {
        let Operation { slot, write, .. } = operation;
        match write {
            Write::Delete(Some("Sideways")) => return Err(INVALID),
            Write::Status { main: false, .. } if !slot.custom => return Err(NOT_FOUND),
            Write::Create { content, .. } => {
                let mut object = self.body(operation);
                object["metadata"]["namespace"] = slot.namespace().into();
                if slot.custom {
                    object["metadata"]["generation"] = 1.into();
                }
                return match self.get(slot) {
                    _ if slot.custom && *content == "purple" => Err(INVALID),
                    Some(_) => Err((409, "AlreadyExists")),
                    None => Ok(Some(object)),
                };
            }
            _ => {}
        }
        let old = self.get(slot).ok_or(NOT_FOUND)?;
        match write {
            Write::Put {
                version: Version::None,
                ..
            } if slot.custom => return Err(INVALID),
            Write::Put {
                version: Version::Stale,
                ..
            }
            | Write::Merge {
                version: Version::Stale,
                ..
            } => return Err(CONFLICT),
            Write::Delete(policy) => return Ok(deleted(old, *policy)),
            _ => {}
        }
        let mut new = old.clone();
        match write {
            Write::Put { content, .. }
            | Write::Merge { content, .. }
            | Write::JsonPatch { content } => {
                set_content(&mut new, slot.custom, content);
                if slot.custom && *content == "purple" {
                    return Err(INVALID);
                }
                if new != *old {
                    increment_generation(&mut new);
                }
            }
            Write::Label("no label!") => return Err(INVALID),
            Write::Label(label) => new["metadata"]["labels"] = json!({"label": label}),
            Write::Status {
                phase, main: false, ..
            } => new["status"] = json!({"phase": phase}),
            Write::Finalizers(all) => {
                let before = finalizers(old);
                if is_deleting(old) && all.iter().any(|name| !before.iter().any(|old| old == name))
                {
                    return Err(INVALID);
                }
                set_finalizers(
                    &mut new,
                    &all.iter()
                        .map(|name| (*name).to_owned())
                        .collect::<Vec<_>>(),
                );
            }
            Write::Status { .. } | Write::Create { .. } | Write::Delete(_) => {}
        }
        Ok(Some(new).filter(|new| !is_deleting(new) || !finalizers(new).is_empty()))
    }
}

fn increment_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_u64() {
        object["metadata"]["generation"] = (generation + 1).into();
    }
}

/// Returns an object after a DELETE request, `None` if it is removed.
///
/// The policy adds its finalizer and removes that of the other policy, also on an object that is
/// already being deleted.
fn deleted(old: &Value, policy: Option<&str>) -> Option<Value> {
    let mut new = old.clone();
    if let Some(policy) = policy {
        let mut kept = finalizers(old);
        for (finalizer, wanted) in [
            ("orphan", policy == "Orphan"),
            ("foregroundDeletion", policy == "Foreground"),
        ] {
            let at = kept.iter().position(|name| name == finalizer);
            match at {
                Some(at) if !wanted => drop(kept.remove(at)),
                None if wanted => kept.push(finalizer.into()),
                _ => {}
            }
        }
        set_finalizers(&mut new, &kept);
    }
    if !is_deleting(old) {
        new["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
        increment_generation(&mut new);
    }
    Some(new).filter(|new| !finalizers(new).is_empty())
}
