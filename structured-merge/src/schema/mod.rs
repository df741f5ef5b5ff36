//! Schemas that decide how values merge.
//!
//! A [`Schema`] is a set of named types. Each [`Atom`] describes a scalar, a list, a map, or
//! several of them when a field accepts different types. Schemas come from one of three sources:
//!
//! - `crd`: the structural schema of a `CustomResourceDefinition`
//! - `openapi`: definitions of an `OpenAPI` document, such as those of built-in kinds
//! - `table`: a compact table of types, in the format that client-go embeds
//!
//! [`Type`] pairs a schema with one of its types.

mod crd;
mod openapi;
mod table;

pub use crd::CrdVersion;

use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, OnceLock},
};

/// Name of the type whose lists and maps are atomic.
pub(crate) const UNTYPED: &str = "__untyped_atomic_";
/// Name of the type whose maps merge by key and whose lists are atomic.
pub(crate) const DEDUCED: &str = "__untyped_deduced_";

/// Error of building a [`Schema`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot build the merge schema of {location}: {reason}")]
pub struct SchemaError {
    /// Type and field with the error.
    pub location: String,
    /// Reason of the error.
    pub reason: String,
}

impl SchemaError {
    fn new(location: &str, reason: impl Into<String>) -> Self {
        Self {
            location: location.to_owned(),
            reason: reason.into(),
        }
    }
}

/// Named types of one or more kinds.
#[derive(Clone, Debug)]
pub struct Schema {
    types: HashMap<Arc<str>, Atom>,
}

/// Accepted types of a value: scalar, list or map, or several of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Atom {
    /// Accepted scalars. `None`: the value cannot be a scalar.
    pub scalar: Option<Scalar>,
    /// Accepted lists. `None`: the value cannot be a list.
    pub list: Option<List>,
    /// Accepted maps. `None`: the value cannot be a map.
    pub map: Option<Map>,
}

/// Type of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// Integers and floats.
    Numeric,
    /// Strings.
    String,
    /// Booleans.
    Boolean,
    /// Any scalar.
    Untyped,
}

/// Merge strategy of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListType {
    /// Merges as one value.
    Atomic,
    /// Merges as a set of scalars.
    Set,
    /// Merges item by item. The named fields identify an item.
    Map(Vec<String>),
}

/// Type of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct List {
    /// Type of the items.
    pub element: TypeRef,
    /// Merge strategy.
    pub list_type: ListType,
}

/// Type of a map or object.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// Declared fields.
    pub fields: BTreeMap<String, Field>,
    /// Type of the entries that are not declared fields.
    pub element: TypeRef,
    /// Whether the map merges as one value.
    pub atomic: bool,
}

/// Declared field of a map.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Type of the field.
    pub type_ref: TypeRef,
    /// Value of this key field in a list item that does not set it.
    pub default: Option<Value>,
}

/// Reference to a type.
#[derive(Clone, Debug, PartialEq)]
pub enum TypeRef {
    /// No type. Entries of a map with this element type are rejected.
    Undeclared,
    /// Named type of the schema.
    Named {
        /// Name of the type.
        name: Arc<str>,
        /// Whether the referenced map or list merges as one value. `None` keeps its own setting.
        atomic: Option<bool>,
    },
    /// Type without a name.
    Inline(Arc<Atom>),
}

impl TypeRef {
    /// Creates a reference to a named type.
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self::Named {
            name: name.into(),
            atomic: None,
        }
    }

    /// Creates a type without a name.
    pub fn inline(atom: Atom) -> Self {
        Self::Inline(Arc::new(atom))
    }
}

impl From<Scalar> for TypeRef {
    fn from(scalar: Scalar) -> Self {
        Self::inline(scalar.into())
    }
}

impl From<Scalar> for Atom {
    fn from(scalar: Scalar) -> Self {
        Self {
            scalar: Some(scalar),
            ..Self::default()
        }
    }
}

impl From<List> for Atom {
    fn from(list: List) -> Self {
        Self {
            list: Some(list),
            ..Self::default()
        }
    }
}

impl From<Map> for Atom {
    fn from(map: Map) -> Self {
        Self {
            map: Some(map),
            ..Self::default()
        }
    }
}

impl Schema {
    /// Creates a schema of these types, and adds the types of values that no type declares.
    pub fn new(types: impl IntoIterator<Item = (String, Atom)>) -> Self {
        let mut types: HashMap<Arc<str>, Atom> = types
            .into_iter()
            .map(|(name, atom)| (name.into(), atom))
            .collect();
        types.insert(UNTYPED.into(), undeclared(UNTYPED, true));
        types.insert(DEDUCED.into(), undeclared(DEDUCED, false));
        Self { types }
    }

    /// Returns the type with a name, or `None` if the schema does not contain it.
    pub fn find(self: &Arc<Self>, name: &str) -> Option<Type> {
        let (name, _) = self.types.get_key_value(name)?;
        Some(Type {
            schema: Arc::clone(self),
            type_ref: TypeRef::named(Arc::clone(name)),
        })
    }

    pub(crate) fn resolve<'s>(&'s self, type_ref: &'s TypeRef) -> Option<Resolved<'s>> {
        match type_ref {
            TypeRef::Undeclared => None,
            TypeRef::Inline(atom) => Some(Resolved { atom, atomic: None }),
            TypeRef::Named { name, atomic } => {
                let atom = self.types.get(name)?;
                let overrides_nothing =
                    atomic.is_some() && atom.map.is_none() && atom.list.is_none();
                (!overrides_nothing).then_some(Resolved {
                    atom,
                    atomic: *atomic,
                })
            }
        }
    }
}

/// Returns the type of values that no type declares.
fn undeclared(name: &str, atomic: bool) -> Atom {
    Atom {
        scalar: Some(Scalar::Untyped),
        list: Some(List {
            element: TypeRef::named(UNTYPED),
            list_type: ListType::Atomic,
        }),
        map: Some(Map {
            fields: BTreeMap::new(),
            element: TypeRef::named(name),
            atomic,
        }),
    }
}

/// Type of one kind's objects.
#[derive(Clone, Debug)]
pub struct Type {
    pub(crate) schema: Arc<Schema>,
    pub(crate) type_ref: TypeRef,
}

impl Type {
    /// Returns the type of objects without a schema: maps merge by key, lists are atomic.
    pub fn deduced() -> Self {
        static SCHEMA: OnceLock<Arc<Schema>> = OnceLock::new();
        Self {
            schema: Arc::clone(SCHEMA.get_or_init(|| Arc::new(Schema::new([])))),
            type_ref: TypeRef::named(DEDUCED),
        }
    }

    /// Returns whether both are the same type of the same schema.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.schema, &other.schema) && self.type_ref == other.type_ref
    }
}

/// Type that a reference refers to, with the overrides of the reference.
#[derive(Clone, Copy)]
pub(crate) struct Resolved<'s> {
    atom: &'s Atom,
    atomic: Option<bool>,
}

/// Type of an atom that applies to a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The value does not select one of several types, for example because it is null.
    Any,
    Scalar,
    List,
    Map,
}

/// One of an atom's types.
#[derive(Clone, Copy)]
pub(crate) enum Shape<'s> {
    Scalar(Scalar),
    List(&'s List, Atomic),
    Map(&'s Map, Atomic),
}

/// Set if a list or map merges as one value.
pub(crate) type Atomic = bool;

impl<'s> Resolved<'s> {
    pub(crate) fn map(self) -> Option<&'s Map> {
        self.atom.map.as_ref()
    }

    pub(crate) fn list(self) -> Option<&'s List> {
        self.atom.list.as_ref()
    }

    /// Returns the type that applies to `value`: the only type, or else that of the value.
    pub(crate) fn choose(self, value: Option<&Value>) -> Choice {
        let Atom { scalar, list, map } = self.atom;
        match (scalar, list, map) {
            (Some(_), None, None) => return Choice::Scalar,
            (None, Some(_), None) => return Choice::List,
            (None, None, Some(_)) => return Choice::Map,
            _ => {}
        }
        match value {
            Some(Value::Array(_)) if list.is_some() => Choice::List,
            Some(Value::Object(_)) if map.is_some() => Choice::Map,
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) if scalar.is_some() => {
                Choice::Scalar
            }
            _ => Choice::Any,
        }
    }

    /// Returns the shape of the chosen type. `Any` prefers maps to scalars, and scalars to lists.
    pub(crate) fn shape(self, choice: Choice) -> Option<Shape<'s>> {
        let map = || {
            let map = self.atom.map.as_ref()?;
            Some(Shape::Map(map, self.atomic.unwrap_or(map.atomic)))
        };
        let list = || {
            let list = self.atom.list.as_ref()?;
            let own = list.list_type == ListType::Atomic;
            // If the atom has both a list and a map, an override applies only to the map.
            let atomic = self.atomic.filter(|_| self.atom.map.is_none());
            Some(Shape::List(list, atomic.unwrap_or(own)))
        };
        let scalar = || self.atom.scalar.map(Shape::Scalar);
        match choice {
            Choice::Any => map().or_else(scalar).or_else(list),
            Choice::Scalar => scalar(),
            Choice::List => list(),
            Choice::Map => map(),
        }
    }
}

impl Map {
    /// Returns the type of the entry `name`.
    pub(crate) fn type_of(&self, name: &str) -> &TypeRef {
        self.fields
            .get(name)
            .map_or(&self.element, |field| &field.type_ref)
    }

    /// Returns whether the map accepts all entries and deduces their types from the values.
    pub(crate) fn is_deduced(&self) -> bool {
        self.fields.is_empty()
            && match &self.element {
                TypeRef::Undeclared => false,
                TypeRef::Named { name, .. } => **name == *DEDUCED,
                TypeRef::Inline(atom) => atom.scalar == Some(Scalar::Untyped),
            }
    }
}
