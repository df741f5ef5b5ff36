//! Extraction of the configuration that a manager applied.

use super::metadata;
use crate::{
    managed::{DecodeError, ManagerKey},
    schema::Type,
    typed::{Duplicates, TypedValue, ValidationErrors},
};
use serde_json::Value;
use std::borrow::Cow;

/// Error of [`extract`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// The object does not fit its type.
    #[error("cannot extract an applied configuration: the object does not fit its type")]
    Invalid(#[from] ValidationErrors),
    /// The managed fields of the object are malformed.
    #[error("cannot extract an applied configuration: the managed fields are malformed")]
    ManagedFields(#[from] DecodeError),
}

/// Returns the fields of `object` that `manager` applied, with `apiVersion` and `kind`.
///
/// Returns `None` if the manager owns no fields. Use it to change and apply a configuration again
/// without keeping a copy.
pub fn extract(
    object: &Value,
    r#type: &Type,
    manager: &str,
    subresource: &str,
) -> Result<Option<Value>, ExtractError> {
    let typed = TypedValue::new(Cow::Borrowed(object), r#type, Duplicates::Rejected)?;
    let managed = metadata::managed_fields(object)?;
    let key = ManagerKey::apply(manager, subresource);
    let Some(owned) = managed.managers.get(&key) else {
        return Ok(None);
    };
    let mut extracted = typed.extract_items(&owned.set.leaves()).into_value();
    if let Some(fields) = extracted.as_object_mut() {
        for name in ["apiVersion", "kind"] {
            if let Some(value) = object.get(name) {
                fields.entry(name).or_insert_with(|| value.clone());
            }
        }
    }
    Ok(Some(extracted))
}
