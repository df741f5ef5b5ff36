//! Access to `metadata` of objects.

use crate::managed::{DecodeError, Entry, ManagedFields};
use serde::Deserialize;
use serde_json::{Map, Value};

const MANAGED_FIELDS: &str = "managedFields";

pub(super) fn api_version(object: &Value) -> &str {
    object
        .get("apiVersion")
        .and_then(Value::as_str)
        .unwrap_or("")
}

/// Returns the string field `name` of `metadata`. Empty if it is absent.
pub(super) fn text<'o>(object: &'o Value, name: &str) -> &'o str {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get(name))
        .and_then(Value::as_str)
        .unwrap_or("")
}

/// Returns whether the API server has created the object.
pub(super) fn has_uid(object: &Value) -> bool {
    !text(object, "uid").is_empty()
}

/// Returns the entries of an object's managed fields.
///
/// Returns `None` if they are absent, or if an entry cannot be decoded.
pub(super) fn entries(object: &Value) -> Option<Vec<Entry>> {
    let entries = object.get("metadata")?.get(MANAGED_FIELDS)?;
    if entries.is_array() {
        Vec::deserialize(entries).ok()
    } else {
        None
    }
}

/// Decodes an object's managed fields. There are none if [`entries`] returns `None`.
pub(super) fn managed_fields(object: &Value) -> Result<ManagedFields, DecodeError> {
    ManagedFields::from_entries(entries(object).unwrap_or_default())
}

/// Returns whether a configuration sets managed fields, which only the API server may set.
pub(super) fn declares_managed_fields(config: &Value) -> bool {
    config
        .get("metadata")
        .and_then(|metadata| metadata.get(MANAGED_FIELDS))
        .is_some_and(Value::is_array)
}

/// Returns whether these managed fields of a request remove all managers.
pub(super) fn resets_managed_fields(entries: &[Entry]) -> bool {
    match entries {
        [] => true,
        [only] => *only == Entry::default(),
        _ => false,
    }
}

pub(super) fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove(MANAGED_FIELDS);
    }
}

pub(super) fn set_managed_fields(object: &mut Value, managed: &ManagedFields) {
    match managed.encode() {
        None => remove_managed_fields(object),
        Some(entries) => insert(object, entries),
    }
}

pub(super) fn copy_managed_fields(from: &Value, to: &mut Value) {
    match entries(from) {
        None => remove_managed_fields(to),
        Some(entries) => insert(to, entries.into_iter().map(Entry::into_value).collect()),
    }
}

fn insert(object: &mut Value, entries: Value) {
    if let Some(object) = object.as_object_mut() {
        let metadata = object
            .entry("metadata")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert(MANAGED_FIELDS.to_owned(), entries);
        }
    }
}
