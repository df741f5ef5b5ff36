//! Removal or extraction of the fields of a value.

use super::{list_item, validate};
use crate::{
    path::PathElement,
    schema::{List, Map, Schema, Shape, Type, TypeRef},
    set::Set,
};
use serde_json::Value;

pub(super) fn remove(value: &Value, items: &Set, r#type: &Type) -> Value {
    walk(value, items, r#type, Keep::Others)
}

pub(super) fn extract(value: &Value, items: &Set, r#type: &Type) -> Value {
    walk(value, items, r#type, Keep::Items)
}

fn walk(value: &Value, items: &Set, r#type: &Type, keep: Keep) -> Value {
    let walk = Walk {
        schema: &r#type.schema,
        keep,
    };
    walk.value(&r#type.type_ref, value, items)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// Keeps the fields in the set.
    Items,
    /// Keeps the fields that are not in the set.
    Others,
}

struct Walk<'s> {
    schema: &'s Schema,
    keep: Keep,
}

impl<'s> Walk<'s> {
    /// Returns the kept part of a value. Null if nothing is kept.
    fn value(&self, type_ref: &'s TypeRef, value: &Value, items: &Set) -> Value {
        let shape = self
            .schema
            .resolve(type_ref)
            .and_then(|resolved| validate::shape(resolved, type_ref, Some(value)).ok());
        match (shape, value) {
            (Some(Shape::Scalar(_)), value) => value.clone(),
            (Some(Shape::List(list, atomic)), Value::Array(values)) => {
                if atomic || values.is_empty() {
                    self.whole(value)
                } else {
                    self.list(list, values, items)
                }
            }
            (Some(Shape::Map(map, atomic)), Value::Object(entries)) => {
                if atomic || entries.is_empty() {
                    self.whole(value)
                } else {
                    self.map(map, entries, items)
                }
            }
            _ => Value::Null,
        }
    }

    /// Returns a value that is in the set as a whole, if such values are kept; else null.
    fn whole(&self, value: &Value) -> Value {
        match self.keep {
            Keep::Items => value.clone(),
            Keep::Others => Value::Null,
        }
    }

    fn list(&self, list: &'s List, values: &[Value], items: &Set) -> Value {
        let mut kept = Vec::with_capacity(values.len());
        for value in values {
            let element = list_item::path_element(self.schema, list, value).ok();
            let node = element.and_then(|element| items.node(&element));
            let member = node.is_some_and(|node| node.member);
            let children = node
                .map(|node| &node.children)
                .filter(|children| !children.is_empty());
            match (self.keep, member, children) {
                (Keep::Others, true, _) | (Keep::Items, false, None) => {}
                (_, _, Some(children)) => kept.push(self.value(&list.element, value, children)),
                (_, _, None) => kept.push(value.clone()),
            }
        }
        if kept.is_empty() {
            Value::Null
        } else {
            Value::Array(kept)
        }
    }

    fn map(&self, map: &'s Map, entries: &serde_json::Map<String, Value>, items: &Set) -> Value {
        let mut kept = serde_json::Map::new();
        for (name, value) in entries {
            let type_ref = map.type_of(name);
            let node = items.node(&PathElement::field(name.as_str()));
            let member = node.is_some_and(|node| node.member);
            let children = node
                .map(|node| &node.children)
                .filter(|children| !children.is_empty());
            let value = match (self.keep, member, children) {
                (Keep::Others, true, _) | (Keep::Items, false, None) => continue,
                // The Go implementation continues with the set of the parent here.
                (Keep::Items, true, _) => self.value(type_ref, value, items),
                (_, false, Some(children)) => self.value(type_ref, value, children),
                (Keep::Others, false, None) => value.clone(),
            };
            kept.insert(name.clone(), value);
        }
        if kept.is_empty() {
            Value::Null
        } else {
            Value::Object(kept)
        }
    }
}
