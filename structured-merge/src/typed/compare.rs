//! Differences between two values.

use super::{
    error::{Errors, ValidationErrors},
    list_item, validate,
};
use crate::{
    filter::Filter,
    path::PathElement,
    schema::{List, Map, Schema, Shape, Type, TypeRef},
    set::Set,
    value,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Paths that differ between an old and a new value. Each path is in only one of the sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Paths that only the old value has.
    pub removed: Set,
    /// Paths whose values differ.
    pub modified: Set,
    /// Paths that only the new value has.
    pub added: Set,
}

impl Comparison {
    /// Returns whether the values are equal.
    pub fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// Returns the differences that pass the filter.
    #[must_use]
    pub fn filter(self, filter: &Filter) -> Self {
        Self {
            removed: filter.apply(self.removed),
            modified: filter.apply(self.modified),
            added: filter.apply(self.added),
        }
    }

    fn add(&mut self, element: &PathElement, own: Marks, children: Self) {
        self.removed.add(element, own.removed, children.removed);
        self.modified.add(element, own.modified, children.modified);
        self.added.add(element, own.added, children.added);
    }
}

pub(super) fn compare(
    old: &Value,
    new: &Value,
    r#type: &Type,
) -> Result<Comparison, ValidationErrors> {
    let mut walk = Walk {
        schema: &r#type.schema,
        errors: Errors::default(),
    };
    let mut comparison = Comparison::default();
    walk.value(&r#type.type_ref, Some(old), Some(new), &mut comparison);
    walk.errors.into_result(comparison)
}

/// Sets of a [`Comparison`] that contain the compared value itself.
#[derive(Clone, Copy, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "one for each set, and the leaf"
)]
struct Marks {
    removed: bool,
    modified: bool,
    added: bool,
    /// Whether the value was compared as a whole.
    leaf: bool,
}

struct Walk<'s> {
    schema: &'s Schema,
    errors: Errors,
}

impl<'s> Walk<'s> {
    /// Adds differences below the values to `below`, and returns those of the values themselves.
    fn value(
        &mut self,
        type_ref: &'s TypeRef,
        old: Option<&Value>,
        new: Option<&Value>,
        below: &mut Comparison,
    ) -> Marks {
        let mut marks = Marks::default();
        // Both values are validated, so equal ones have no differences and no errors.
        if let (Some(old), Some(new)) = (old, new)
            && value::equal(old, new)
        {
            return marks;
        }
        let resolved = match validate::resolve(self.schema, type_ref) {
            Ok(resolved) => resolved,
            Err(message) => {
                self.errors.push(message);
                return marks;
            }
        };
        let old_choice = resolved.choose(old);
        let new_choice = resolved.choose(new);
        // An absent value has the type of the other value.
        let choice = if new.is_none() {
            old_choice
        } else {
            new_choice
        };
        if old.is_some() && new.is_some() && old_choice != new_choice {
            // The value has changed its type: compare both values as each of the types.
            let mut own = Marks::default();
            match validate::chosen_shape(resolved, type_ref, old_choice) {
                Ok(shape) => self.shape(shape, old, new, below, &mut own),
                Err(message) => self.errors.push(message),
            }
            marks.removed |= own.removed;
            marks.modified |= own.modified;
            marks.added |= own.added;
        }
        match validate::chosen_shape(resolved, type_ref, choice) {
            Ok(shape) => self.shape(shape, old, new, below, &mut marks),
            Err(message) => self.errors.push(message),
        }
        if !marks.leaf {
            marks.added |= old.is_none();
            marks.removed |= new.is_none();
        }
        marks
    }

    fn shape(
        &mut self,
        shape: Shape<'s>,
        old: Option<&Value>,
        new: Option<&Value>,
        below: &mut Comparison,
        marks: &mut Marks,
    ) {
        match shape {
            Shape::Scalar(scalar) => {
                let old_error = validate::scalar_error(scalar, old);
                let new_error = validate::scalar_error(scalar, new);
                if let (Some(old), Some(new)) = (old_error, new_error) {
                    self.errors.push(format!("lhs: {old}"));
                    self.errors.push(format!("rhs: {new}"));
                    return;
                }
                leaf(old, new, marks);
            }
            Shape::List(list, atomic) => {
                let old_items = old.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                let new_items = new.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                if atomic || (old_items.is_empty() && new_items.is_empty()) {
                    leaf(old, new, marks);
                } else {
                    self.list(list, old_items, new_items, below);
                }
            }
            Shape::Map(map, atomic) => {
                let old_entries = old.and_then(Value::as_object);
                let new_entries = new.and_then(Value::as_object);
                let empty = |entries: Option<&serde_json::Map<_, _>>| {
                    entries.is_none_or(serde_json::Map::is_empty)
                };
                if atomic || (empty(old_entries) && empty(new_entries)) {
                    leaf(old, new, marks);
                } else {
                    self.map(map, old_entries, new_entries, below);
                }
            }
        }
    }

    fn map(
        &mut self,
        map: &'s Map,
        old: Option<&serde_json::Map<String, Value>>,
        new: Option<&serde_json::Map<String, Value>>,
        below: &mut Comparison,
    ) {
        for (name, old) in old.into_iter().flatten() {
            let new = new.and_then(|new| new.get(name));
            self.child(
                PathElement::field(name.as_str()),
                map.type_of(name),
                Some(old),
                new,
                below,
            );
        }
        for (name, new) in new.into_iter().flatten() {
            if old.is_none_or(|old| !old.contains_key(name)) {
                let element = PathElement::field(name.as_str());
                self.child(element, map.type_of(name), None, Some(new), below);
            }
        }
    }

    fn list(&mut self, list: &'s List, old: &[Value], new: &[Value], below: &mut Comparison) {
        let mut items: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for (index, item) in old.iter().enumerate() {
            if let Some(element) = self.element(list, index, item) {
                items.entry(element).or_default().0.push(item);
            }
        }
        for (index, item) in new.iter().enumerate() {
            if let Some(element) = self.element(list, index, item) {
                items.entry(element).or_default().1.push(item);
            }
        }
        for (element, (old, new)) in items {
            match (old.as_slice(), new.as_slice()) {
                ([] | [_], [] | [_]) => {
                    let (old, new) = (old.first().copied(), new.first().copied());
                    self.child(element, &list.element, old, new, below);
                }
                // Duplicates are compared as one value.
                ([_, _, ..], [_, _, ..]) => {
                    let equal = old.len() == new.len()
                        && old
                            .iter()
                            .zip(&new)
                            .all(|(old, new)| value::equal(old, new));
                    if !equal {
                        below.modified.add(&element, true, Set::new());
                    }
                }
                (_, rest) if old.len() >= 2 => {
                    if let Some(new) = rest.first() {
                        let new = Some(*new);
                        self.child(element.clone(), &list.element, None, new, below);
                    }
                    below.removed.add(&element, true, Set::new());
                }
                (rest, _) => {
                    if let Some(old) = rest.first() {
                        let old = Some(*old);
                        self.child(element.clone(), &list.element, old, None, below);
                    }
                    below.added.add(&element, true, Set::new());
                }
            }
        }
    }

    fn element(&mut self, list: &List, index: usize, item: &Value) -> Option<PathElement> {
        list_item::path_element(self.schema, list, item)
            .map_err(|message| self.errors.push(format!("element {index}: {message}")))
            .ok()
    }

    fn child(
        &mut self,
        element: PathElement,
        type_ref: &'s TypeRef,
        old: Option<&Value>,
        new: Option<&Value>,
        below: &mut Comparison,
    ) {
        let mark = self.errors.mark();
        let mut children = Comparison::default();
        let marks = self.value(type_ref, old, new, &mut children);
        below.add(&element, marks, children);
        self.errors.prefix(mark, &element);
    }
}

/// Compares two values as a whole.
fn leaf(old: Option<&Value>, new: Option<&Value>, marks: &mut Marks) {
    marks.leaf = true;
    match (old, new) {
        (None, _) => marks.added = true,
        (_, None) => marks.removed = true,
        (Some(old), Some(new)) => marks.modified |= !value::equal(old, new),
    }
}
