//! Paths of all fields of a value.

use super::{
    error::{ValidationErrors, single},
    list_item, validate,
};
use crate::{
    path::PathElement,
    schema::{List, Map, Schema, Shape, Type, TypeRef},
    set::Set,
};
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) fn field_set(value: &Value, r#type: &Type) -> Result<Set, ValidationErrors> {
    let mut set = Set::new();
    let walk = Walk {
        schema: &r#type.schema,
    };
    walk.value(&r#type.type_ref, value, &mut set)
        .map_err(|message| single(&message))?;
    Ok(set)
}

struct Walk<'s> {
    schema: &'s Schema,
}

impl<'s> Walk<'s> {
    /// Adds the members below `value` to `below`, and returns whether the value itself is one.
    fn value(&self, type_ref: &'s TypeRef, value: &Value, below: &mut Set) -> Result<bool, String> {
        let resolved = validate::resolve(self.schema, type_ref)?;
        match validate::shape(resolved, type_ref, Some(value))? {
            Shape::Scalar(_) | Shape::List(_, true) | Shape::Map(_, true) => return Ok(true),
            Shape::List(list, false) => {
                if let Value::Array(items) = value {
                    self.list(list, items, below)?;
                }
            }
            Shape::Map(map, false) => {
                if let Value::Object(entries) = value {
                    self.map(map, entries, below)?;
                }
            }
        }
        Ok(false)
    }

    fn list(&self, list: &'s List, items: &[Value], below: &mut Set) -> Result<(), String> {
        let elements: Vec<Option<PathElement>> = items
            .iter()
            .map(|item| list_item::path_element(self.schema, list, item).ok())
            .collect();
        let mut counts: BTreeMap<&PathElement, usize> = BTreeMap::new();
        for element in elements.iter().flatten() {
            *counts.entry(element).or_default() += 1;
        }
        for (element, item) in elements.iter().zip(items) {
            let Some(element) = element else { continue };
            let mut children = Set::new();
            // Duplicates become one member, without the fields below it.
            if counts.get(element) == Some(&1) {
                self.value(&list.element, item, &mut children)?;
            }
            below.add(element, true, children);
        }
        Ok(())
    }

    fn map(
        &self,
        map: &'s Map,
        entries: &serde_json::Map<String, Value>,
        below: &mut Set,
    ) -> Result<(), String> {
        for (name, value) in entries {
            let mut children = Set::new();
            let leaf = self.value(map.type_of(name), value, &mut children)?;
            let empty = match value {
                Value::Null => true,
                Value::Object(entries) => entries.is_empty(),
                _ => false,
            };
            let member = leaf || empty || !map.fields.contains_key(name);
            below.add(&PathElement::field(name.as_str()), member, children);
        }
        Ok(())
    }
}
