//! Adaptation of field sets to a changed schema.

use super::error::{ValidationErrors, single};
use crate::{
    path::PathElement,
    schema::{Choice, Map, Schema, Shape, Type, TypeRef},
    set::Set,
};

/// Returns the adapted set, or `None` if the set fits the schema.
pub(super) fn reconcile(set: &Set, r#type: &Type) -> Result<Option<Set>, ValidationErrors> {
    let mut walk = Walk {
        schema: &r#type.schema,
        path: Vec::new(),
        atomic: Set::new(),
    };
    walk.node(&r#type.type_ref, set, false)
        .map_err(|message| single(&message))?;
    if walk.atomic.is_empty() {
        return Ok(None);
    }
    let outside = set.recursive_difference(&walk.atomic);
    Ok(Some(outside.union(&walk.atomic)))
}

struct Walk<'s> {
    schema: &'s Schema,
    path: Vec<PathElement>,
    /// Lists and maps that have become atomic, and have members inside.
    atomic: Set,
}

impl<'s> Walk<'s> {
    /// `leaf`: the node is a member and has no members below it.
    fn node(&mut self, type_ref: &'s TypeRef, below: &Set, leaf: bool) -> Result<(), String> {
        let shape = self
            .schema
            .resolve(type_ref)
            .and_then(|resolved| resolved.shape(Choice::Any))
            .ok_or_else(|| {
                format!("errors reconciling field set with schema: could not resolve {type_ref:?}")
            })?;
        match shape {
            Shape::Scalar(_) => {}
            Shape::List(_, true) => {
                if !leaf {
                    self.atomic.insert(&self.path);
                }
            }
            Shape::List(list, false) => {
                for node in below.nodes() {
                    let leaf = node.member && node.children.is_empty();
                    self.path.push(node.element.clone());
                    self.node(&list.element, &node.children, leaf)?;
                    self.path.pop();
                }
            }
            Shape::Map(map, _) if map.is_deduced() => {}
            Shape::Map(_, true) => {
                if !leaf && !below.is_empty() {
                    self.atomic.insert(&self.path);
                }
            }
            Shape::Map(map, false) => {
                for node in below.nodes() {
                    let Some(type_ref) = type_of(map, &node.element) else {
                        continue;
                    };
                    let leaf = node.member && node.children.is_empty();
                    self.path.push(node.element.clone());
                    self.node(type_ref, &node.children, leaf)?;
                    self.path.pop();
                }
            }
        }
        Ok(())
    }
}

/// Returns the type of an element below a map, or `None` if the schema does not declare it.
fn type_of<'s>(map: &'s Map, element: &PathElement) -> Option<&'s TypeRef> {
    let type_ref = match element {
        PathElement::Field(name) => map.type_of(name),
        _ => &map.element,
    };
    (*type_ref != TypeRef::Undeclared).then_some(type_ref)
}
