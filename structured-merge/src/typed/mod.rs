//! Values with a type of a schema.
//!
//! [`TypedValue::new`] validates a value. All other operations take validated values, so their
//! recursion is bounded by [`MAX_DEPTH`](crate::MAX_DEPTH):
//!
//! - `field_set`: paths of all fields of a value
//! - `compare`: paths that differ between two values
//! - `merge`: merge of one value over another
//! - `remove`: removal or extraction of fields
//! - `reconcile`: adaptation of field sets to a changed schema

mod compare;
mod error;
mod field_set;
mod list_item;
mod merge;
mod reconcile;
mod remove;
mod validate;

pub use compare::Comparison;
pub use error::{ValidationError, ValidationErrors};

use crate::{
    path::{Path, PathElement},
    schema::Type,
    set::Set,
};
use error::single;
use serde_json::Value;
use std::borrow::Cow;

/// Whether a list may have two items with the same key, and a set the same value twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// Duplicates are errors, as in an applied configuration.
    Rejected,
    /// Duplicates are allowed, as in a stored object.
    Allowed,
}

/// Value that conforms to a [`Type`].
#[derive(Clone, Debug)]
pub struct TypedValue<'v> {
    value: Cow<'v, Value>,
    r#type: Type,
    duplicates: Duplicates,
}

impl<'v> TypedValue<'v> {
    /// Validates `value` against its type.
    pub fn new(
        value: Cow<'v, Value>,
        r#type: &Type,
        duplicates: Duplicates,
    ) -> Result<Self, ValidationErrors> {
        validate::validate(&value, r#type, duplicates)?;
        Ok(Self {
            value,
            r#type: r#type.clone(),
            duplicates,
        })
    }

    /// Returns the value without its type.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the value without its type. Clones it only if it is borrowed.
    pub fn into_value(self) -> Value {
        self.value.into_owned()
    }

    /// Returns the type of the value.
    pub fn r#type(&self) -> &Type {
        &self.r#type
    }

    /// Returns the paths of all fields, list items and set members of the value.
    pub fn field_set(&self) -> Result<Set, ValidationErrors> {
        field_set::field_set(&self.value, &self.r#type)
    }

    /// Merges `over` into this value.
    ///
    /// Fields of `over` replace fields of this value, and no field is removed. In merged lists,
    /// shared items have the order of `over`.
    ///
    /// Errors: the types differ, or a list of `over` has duplicates.
    pub fn merge(&self, over: &TypedValue<'_>) -> Result<TypedValue<'static>, ValidationErrors> {
        self.check_same_type(over)?;
        let value = merge::merge(&self.value, &over.value, over.duplicates, &self.r#type)?;
        Ok(self.with_value(value))
    }

    /// Compares this value as the old one with `new`.
    ///
    /// Errors: the types differ, or a value does not conform to its type.
    pub fn compare(&self, new: &TypedValue<'_>) -> Result<Comparison, ValidationErrors> {
        self.check_same_type(new)?;
        compare::compare(&self.value, &new.value, &self.r#type)
    }

    /// Returns the value without the fields and list items in `items`.
    #[must_use]
    pub fn remove_items(&self, items: &Set) -> TypedValue<'static> {
        self.with_value(remove::remove(&self.value, items, &self.r#type))
    }

    /// Returns the value with only the fields and list items in `items`.
    #[must_use]
    pub fn extract_items(&self, items: &Set) -> TypedValue<'static> {
        self.with_value(remove::extract(&self.value, items, &self.r#type))
    }

    /// Returns the value with only the fields and list items in `items`, and the items' key fields.
    #[must_use]
    pub fn extract_items_with_keys(&self, items: &Set) -> TypedValue<'static> {
        let present = self.field_set().unwrap_or_default();
        let mut keys = Set::new();
        items.for_each(|path| {
            if !present.contains(path) {
                return;
            }
            for (index, element) in path.iter().enumerate() {
                let PathElement::Key(fields) = element else {
                    continue;
                };
                for (name, _) in fields.iter() {
                    let mut key: Path = path[..=index].iter().cloned().collect();
                    key.0.push(PathElement::Field(name.clone()));
                    keys.insert(&key.0);
                }
            }
        });
        self.extract_items(&items.union(&keys))
    }

    /// Adapts a field set that was written with another schema of the same type.
    ///
    /// Replaces members inside of lists and maps that have become atomic by the list or map itself.
    /// Returns `None` if the set fits the schema.
    pub fn reconcile_field_set(&self, set: &Set) -> Result<Option<Set>, ValidationErrors> {
        reconcile::reconcile(set, &self.r#type)
    }

    pub(crate) fn into_static(self) -> TypedValue<'static> {
        TypedValue {
            value: Cow::Owned(self.value.into_owned()),
            r#type: self.r#type,
            duplicates: self.duplicates,
        }
    }

    fn check_same_type(&self, other: &TypedValue<'_>) -> Result<(), ValidationErrors> {
        if self.r#type.is(&other.r#type) {
            Ok(())
        } else {
            Err(single(
                "expected objects of the same type of the same schema",
            ))
        }
    }

    fn with_value(&self, value: Value) -> TypedValue<'static> {
        TypedValue {
            value: Cow::Owned(value),
            r#type: self.r#type.clone(),
            duplicates: self.duplicates,
        }
    }
}
