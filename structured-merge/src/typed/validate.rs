//! Validation of values.

use super::{
    Duplicates,
    error::{Errors, ValidationErrors},
    list_item,
};
use crate::{
    MAX_DEPTH, go_text,
    path::PathElement,
    schema::{List, Map, Resolved, Scalar, Schema, Shape, Type, TypeRef},
};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn validate(
    value: &Value,
    r#type: &Type,
    duplicates: Duplicates,
) -> Result<(), ValidationErrors> {
    let mut walk = Walk {
        schema: &r#type.schema,
        duplicates,
        errors: Errors::default(),
    };
    walk.value(&r#type.type_ref, value, 0);
    walk.errors.into_result(())
}

struct Walk<'s> {
    schema: &'s Schema,
    duplicates: Duplicates,
    errors: Errors,
}

impl<'s> Walk<'s> {
    fn value(&mut self, type_ref: &'s TypeRef, value: &Value, depth: usize) {
        if depth > MAX_DEPTH {
            let message = format!("nested deeper than {MAX_DEPTH} levels");
            return self.errors.push(message);
        }
        let resolved = match resolve(self.schema, type_ref) {
            Ok(resolved) => resolved,
            Err(message) => return self.errors.push(message),
        };
        match shape(resolved, type_ref, Some(value)) {
            Err(message) => self.errors.push(message),
            Ok(Shape::Scalar(scalar)) => {
                if let Some(message) = scalar_error(scalar, Some(value)) {
                    self.errors.push(message);
                }
            }
            Ok(Shape::List(list, _)) => match value {
                Value::Array(items) => self.list(list, items, depth),
                Value::Null => {}
                other => {
                    let message = format!("expected list, got &{{{}}}", go_text::plain(other));
                    self.errors.push(message);
                }
            },
            Ok(Shape::Map(map, _)) => match value {
                Value::Object(entries) => self.map(map, entries, depth),
                Value::Null => {}
                other => {
                    let message = format!("expected map, got &{{{}}}", go_text::plain(other));
                    self.errors.push(message);
                }
            },
        }
    }

    fn list(&mut self, list: &'s List, items: &[Value], depth: usize) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let element = if list.list_type == crate::schema::ListType::Atomic {
                PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX))
            } else {
                match list_item::path_element(self.schema, list, item) {
                    Ok(element) => element,
                    Err(message) => {
                        return self.errors.push(format!("element {index}: {message}"));
                    }
                }
            };
            if self.duplicates == Duplicates::Rejected && seen.contains(&element) {
                let message = format!("duplicate entries for key {element}");
                self.errors.push(message);
            }
            let mark = self.errors.mark();
            self.value(&list.element, item, depth + 1);
            self.errors.prefix(mark, &element);
            if self.duplicates == Duplicates::Rejected
                && list.list_type != crate::schema::ListType::Atomic
            {
                seen.insert(element);
            }
        }
    }

    fn map(&mut self, map: &'s Map, entries: &serde_json::Map<String, Value>, depth: usize) {
        for (name, value) in entries {
            let mark = self.errors.mark();
            let type_ref = map.type_of(name);
            let declared = *type_ref != TypeRef::Undeclared || map.fields.contains_key(name);
            if declared {
                self.value(type_ref, value, depth + 1);
            } else {
                self.errors.push("field not declared in schema");
            }
            self.errors.prefix_field(mark, name);
            if !declared {
                return;
            }
        }
    }
}

/// Resolves a type.
///
/// Errors: the API server's message, if there is no such type.
pub(super) fn resolve<'s>(
    schema: &'s Schema,
    type_ref: &'s TypeRef,
) -> Result<Resolved<'s>, String> {
    schema.resolve(type_ref).ok_or_else(|| match type_ref {
        TypeRef::Named { name, .. } => format!("schema error: no type found matching: {name}"),
        TypeRef::Undeclared | TypeRef::Inline(_) => {
            "schema error: invalid atom: inlined".to_owned()
        }
    })
}

/// Returns the shape of the type that applies to `value`.
///
/// Errors: the API server's message, if no type applies.
pub(super) fn shape<'s>(
    resolved: Resolved<'s>,
    type_ref: &TypeRef,
    value: Option<&Value>,
) -> Result<Shape<'s>, String> {
    chosen_shape(resolved, type_ref, resolved.choose(value))
}

pub(super) fn chosen_shape<'s>(
    resolved: Resolved<'s>,
    type_ref: &TypeRef,
    choice: crate::schema::Choice,
) -> Result<Shape<'s>, String> {
    resolved.shape(choice).ok_or_else(|| match type_ref {
        TypeRef::Named { name, .. } => format!("schema error: invalid atom: named type: {name}"),
        TypeRef::Undeclared | TypeRef::Inline(_) => {
            "schema error: invalid atom: inlined".to_owned()
        }
    })
}

/// Returns the API server's message if the value is not a scalar of this type.
///
/// Absent values and null are valid.
pub(super) fn scalar_error(scalar: Scalar, value: Option<&Value>) -> Option<String> {
    match (scalar, value?) {
        (_, Value::Null)
        | (Scalar::Numeric, Value::Number(_))
        | (Scalar::String, Value::String(_))
        | (Scalar::Boolean, Value::Bool(_))
        | (Scalar::Untyped, Value::Number(_) | Value::String(_) | Value::Bool(_)) => None,
        (Scalar::Numeric, other) => Some(format!(
            "expected numeric (int or float), got {}",
            go_text::type_name(other)
        )),
        (Scalar::String, other) => Some(format!(
            "expected string, got &value.valueUnstructured{{Value:{}}}",
            go_text::syntax(other)
        )),
        (Scalar::Boolean, other) => Some(format!(
            "expected boolean, got &{{{}}}",
            go_text::plain(other)
        )),
        (Scalar::Untyped, other) => Some(format!(
            "expected any scalar, got &{{{}}}",
            go_text::plain(other)
        )),
    }
}
