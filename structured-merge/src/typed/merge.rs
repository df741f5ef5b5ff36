//! Merge of two values.

use super::{
    Duplicates,
    error::{Errors, ValidationErrors},
    list_item, validate,
};
use crate::{
    path::PathElement,
    schema::{List, Map, Schema, Shape, Type, TypeRef},
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn merge(
    base: &Value,
    over: &Value,
    over_duplicates: Duplicates,
    r#type: &Type,
) -> Result<Value, ValidationErrors> {
    let mut walk = Walk {
        schema: &r#type.schema,
        over_duplicates,
        errors: Errors::default(),
    };
    let merged = walk.value(&r#type.type_ref, Some(base), Some(over));
    walk.errors.into_result(merged.unwrap_or(Value::Null))
}

struct Walk<'s> {
    schema: &'s Schema,
    /// Whether `over` may have duplicates. If so, the merge looks for them and rejects them.
    over_duplicates: Duplicates,
    errors: Errors,
}

impl<'s> Walk<'s> {
    fn value(
        &mut self,
        type_ref: &'s TypeRef,
        base: Option<&Value>,
        over: Option<&Value>,
    ) -> Option<Value> {
        let over = match (base, over) {
            // Only one of the values exists, and it is validated.
            (base, None) => return base.cloned(),
            (None, Some(over)) if self.over_duplicates == Duplicates::Rejected => {
                return Some(over.clone());
            }
            (_, Some(over)) => over,
        };
        let resolved = match validate::resolve(self.schema, type_ref) {
            Ok(resolved) => resolved,
            Err(message) => {
                self.errors.push(message);
                return None;
            }
        };
        match validate::shape(resolved, type_ref, Some(over)) {
            Err(message) => {
                self.errors.push(message);
                None
            }
            Ok(Shape::Scalar(_)) => Some(over.clone()),
            Ok(Shape::List(list, atomic)) => {
                let base_items = base
                    .and_then(Value::as_array)
                    .map_or(&[][..], Vec::as_slice);
                let over_items = over.as_array().map_or(&[][..], Vec::as_slice);
                if atomic || (base_items.is_empty() && over_items.is_empty()) {
                    return Some(over.clone());
                }
                self.list(list, base_items, over_items)
            }
            Ok(Shape::Map(map, atomic)) => {
                let empty = serde_json::Map::new();
                let base_entries = base.and_then(Value::as_object).unwrap_or(&empty);
                let over_entries = over.as_object().unwrap_or(&empty);
                if atomic || (base_entries.is_empty() && over_entries.is_empty()) {
                    return Some(over.clone());
                }
                self.map(map, base_entries, over_entries)
            }
        }
    }

    fn map(
        &mut self,
        map: &'s Map,
        base: &serde_json::Map<String, Value>,
        over: &serde_json::Map<String, Value>,
    ) -> Option<Value> {
        let mut merged = serde_json::Map::new();
        for (name, base) in base {
            let mark = self.errors.mark();
            let value = self.value(map.type_of(name), Some(base), over.get(name));
            self.errors.prefix_field(mark, name);
            if let Some(value) = value {
                merged.insert(name.clone(), value);
            }
        }
        for (name, over) in over {
            if base.contains_key(name) {
                continue;
            }
            let mark = self.errors.mark();
            let value = self.value(map.type_of(name), None, Some(over));
            self.errors.prefix_field(mark, name);
            if let Some(value) = value {
                merged.insert(name.clone(), value);
            }
        }
        (!merged.is_empty()).then_some(Value::Object(merged))
    }

    fn list(&mut self, list: &'s List, base: &[Value], over: &[Value]) -> Option<Value> {
        let mark = self.errors.mark();
        let over = self.index(list, over, Repeated::Rejected);
        let base = self.index(list, base, Repeated::Cleared);
        if self.errors.mark() > mark {
            return None;
        }
        let merged = self.merge_items(list, &base, &over);
        (!merged.is_empty()).then_some(Value::Array(merged))
    }

    /// Merges the items of both lists. Shared items have the order of `over`.
    ///
    /// Items that only `base` has keep their position relative to the shared items around them.
    fn merge_items(&mut self, list: &'s List, base: &Items<'_>, over: &Items<'_>) -> Vec<Value> {
        let mut merged = Vec::with_capacity(base.order.len().max(over.order.len()));
        let mut done = BTreeSet::new();
        let mut shared = over
            .order
            .iter()
            .map(|(element, _)| element)
            .filter(|element| base.by_element.contains_key(*element));
        let mut next_shared = shared.next();
        let mut base_index = 0;
        let mut over_index = 0;
        while base_index < base.order.len() || over_index < over.order.len() {
            let base_item = base.order.get(base_index);
            let over_item = over.order.get(over_index);
            if let (Some((element, _)), Some((over_element, _))) = (base_item, over_item) {
                if element == over_element {
                    done.insert(element);
                    merged.extend(self.item(list, element, base, over));
                    base_index += 1;
                    over_index += 1;
                    next_shared = shared.next();
                    continue;
                }
                let in_both = over.by_element.contains_key(element);
                if in_both && next_shared.is_some_and(|next| next != element) {
                    // The merge adds this item at its later position in `over`.
                    base_index += 1;
                    continue;
                }
            }
            if let Some((element, item)) = base_item {
                if !over.by_element.contains_key(element) {
                    merged.push((*item).clone());
                    base_index += 1;
                    continue;
                }
                if done.contains(element) {
                    base_index += 1;
                }
            }
            if let Some((element, _)) = over_item {
                done.insert(element);
                merged.extend(self.item(list, element, base, over));
                over_index += 1;
                if next_shared == Some(element) {
                    next_shared = shared.next();
                }
            }
        }
        merged
    }

    fn item(
        &mut self,
        list: &'s List,
        element: &PathElement,
        base: &Items<'_>,
        over: &Items<'_>,
    ) -> Option<Value> {
        let base = base.by_element.get(element).copied();
        let over = over.by_element.get(element).copied();
        // The Go implementation drops errors inside of items. Validated values have none.
        let mut inside = Self {
            schema: self.schema,
            over_duplicates: self.over_duplicates,
            errors: Errors::default(),
        };
        inside.value(&list.element, base, over)
    }

    fn index<'v>(&mut self, list: &List, items: &'v [Value], repeated: Repeated) -> Items<'v> {
        static CLEARED: Value = Value::Null;
        let mut indexed = Items::default();
        for (index, item) in items.iter().enumerate() {
            let element = match list_item::path_element(self.schema, list, item) {
                Ok(element) => element,
                Err(message) => {
                    self.errors.push(format!("element {index}: {message}"));
                    continue;
                }
            };
            if !indexed.by_element.contains_key(&element) {
                indexed.by_element.insert(element.clone(), item);
            } else if repeated == Repeated::Rejected {
                let message = format!("duplicate entries for key {element}");
                self.errors.push(message);
                continue;
            } else {
                indexed.by_element.insert(element.clone(), &CLEARED);
            }
            indexed.order.push((element, item));
        }
        indexed
    }
}

/// Treatment of an item whose path element occurred before in the list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeated {
    Rejected,
    /// Nothing is merged into the item.
    Cleared,
}

/// Items of a list by their path elements.
#[derive(Default)]
struct Items<'v> {
    order: Vec<(PathElement, &'v Value)>,
    by_element: BTreeMap<PathElement, &'v Value>,
}
