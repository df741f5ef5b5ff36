//! Migration of objects from the client-side to the server-side apply of kubectl.
//!
//! `kubectl apply` without `--server-side` records its configuration in an annotation. An apply by
//! the manager `kubectl` takes over fields that still have the values in the annotation, without
//! conflicts. It also updates the annotation.

use super::{FieldManager, Versions, error::Step, metadata};
use crate::{conflict::Conflicts, go_text, set::Set, typed::Duplicates};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Manager of `kubectl apply --server-side`.
pub(super) const KUBECTL: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Largest total size of an object's annotations, in bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;

fn annotations(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata")?.get("annotations")?.as_object()
}

fn annotation(object: &Value) -> Option<&str> {
    annotations(object)?
        .get(ANNOTATION)?
        .as_str()
        .filter(|text| !text.is_empty())
}

impl<V: Versions> FieldManager<V> {
    /// Returns the fields of the last client-side apply whose values have not changed since.
    pub(super) fn fields_of_last_applied(&self, live: &Value) -> Option<Set> {
        let last_applied = configuration(live)?;
        if metadata::api_version(&last_applied) != self.kind.api_version() {
            return None;
        }
        let live = self.versioned(live, Step::ConvertLive).ok()?;
        let live = self
            .typed(live, Duplicates::Rejected, Step::TypeLive)
            .ok()?;
        let last_applied = Cow::Owned(last_applied);
        let last_applied = self
            .typed(last_applied, Duplicates::Rejected, Step::TypePatch)
            .ok()?;
        let comparison = last_applied.compare(&live).ok()?;
        let fields = last_applied.field_set().ok()?;
        Some(
            fields
                .difference(&comparison.modified)
                .difference(&comparison.added)
                .difference(&comparison.removed),
        )
    }
}

/// Returns the configuration of the last client-side apply.
fn configuration(live: &Value) -> Option<Value> {
    serde_json::from_str(annotation(live)?).ok()
}

/// Returns the conflicts in fields outside of `allowed`.
pub(super) fn remaining_conflicts(conflicts: &Conflicts, allowed: &Set) -> Option<Conflicts> {
    let remaining = conflicts.as_slice().iter();
    let remaining = remaining.filter(|conflict| !allowed.contains(&conflict.path.0));
    Conflicts::new(remaining.cloned().collect())
}

/// Writes the applied configuration to the annotation, if the object has it.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = annotations_mut(&mut config) {
        annotations.remove(ANNOTATION);
    }
    let mut text = String::new();
    go_text::json(&mut text, &config);
    text.push('\n');
    if let Some(annotations) = annotations_mut(object) {
        annotations.insert(ANNOTATION.to_owned(), Value::String(text));
        let size: usize = annotations
            .iter()
            .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
            .sum();
        if size > MAX_ANNOTATIONS {
            annotations.remove(ANNOTATION);
        }
    }
}

fn annotations_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object
        .get_mut("metadata")?
        .get_mut("annotations")?
        .as_object_mut()
}
