//! Compact tables of types.
//!
//! The format is the schema format of Go's structured-merge-diff as JSON. client-go embeds such a
//! table of all built-in kinds.

use super::{Atom, Field, List, ListType, Map, Scalar, Schema, SchemaError, TypeRef};
use crate::MAX_DEPTH;
use serde::Deserialize;
use serde_json::Value;

impl Schema {
    /// Builds a schema from a table of types.
    ///
    /// ```
    /// use serde_json::json;
    /// use structured_merge::schema::Schema;
    ///
    /// Schema::from_table(&json!({"types": [{
    ///     "name": "Port",
    ///     "map": {"fields": [
    ///         {"name": "port", "type": {"scalar": "numeric"}},
    ///         {"name": "protocol", "type": {"scalar": "string"}, "default": "TCP"},
    ///     ]},
    /// }]}))?;
    /// # Ok::<(), structured_merge::schema::SchemaError>(())
    /// ```
    ///
    /// Errors: the table is malformed.
    pub fn from_table(table: &Value) -> Result<Self, SchemaError> {
        let table = Table::deserialize(table)
            .map_err(|error| SchemaError::new("table", error.to_string()))?;
        let mut types = Vec::with_capacity(table.types.len());
        for row in table.types {
            let atom = row.atom.convert(&row.name, 0)?;
            types.push((row.name, atom));
        }
        Ok(Self::new(types))
    }
}

#[derive(Deserialize)]
struct Table {
    types: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    #[serde(flatten)]
    atom: AtomRow,
}

#[derive(Deserialize)]
struct AtomRow {
    scalar: Option<ScalarRow>,
    list: Option<Box<ListRow>>,
    map: Option<Box<MapRow>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ScalarRow {
    Numeric,
    String,
    Boolean,
    Untyped,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Relationship {
    Associative,
    Atomic,
    Separable,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListRow {
    #[serde(default)]
    element_type: RefRow,
    element_relationship: Option<Relationship>,
    #[serde(default)]
    keys: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MapRow {
    #[serde(default)]
    fields: Vec<FieldRow>,
    #[serde(default)]
    element_type: RefRow,
    element_relationship: Option<Relationship>,
}

#[derive(Deserialize)]
struct FieldRow {
    name: String,
    #[serde(rename = "type", default)]
    type_ref: RefRow,
    default: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct RefRow {
    named_type: Option<String>,
    element_relationship: Option<Relationship>,
    scalar: Option<ScalarRow>,
    list: Option<Box<ListRow>>,
    map: Option<Box<MapRow>>,
}

impl AtomRow {
    fn convert(self, name: &str, depth: usize) -> Result<Atom, SchemaError> {
        if depth > MAX_DEPTH {
            let reason = format!("nested deeper than {MAX_DEPTH} levels");
            return Err(SchemaError::new(name, reason));
        }
        Ok(Atom {
            scalar: self.scalar.map(|scalar| match scalar {
                ScalarRow::Numeric => Scalar::Numeric,
                ScalarRow::String => Scalar::String,
                ScalarRow::Boolean => Scalar::Boolean,
                ScalarRow::Untyped => Scalar::Untyped,
            }),
            list: self
                .list
                .map(|list| list.convert(name, depth))
                .transpose()?,
            map: self.map.map(|map| map.convert(name, depth)).transpose()?,
        })
    }
}

impl ListRow {
    fn convert(self, name: &str, depth: usize) -> Result<List, SchemaError> {
        Ok(List {
            element: self.element_type.convert(name, depth)?,
            list_type: match self.element_relationship {
                Some(Relationship::Associative) if self.keys.is_empty() => ListType::Set,
                Some(Relationship::Associative) => ListType::Map(self.keys),
                _ => ListType::Atomic,
            },
        })
    }
}

impl MapRow {
    fn convert(self, name: &str, depth: usize) -> Result<Map, SchemaError> {
        let mut map = Map {
            fields: std::collections::BTreeMap::new(),
            element: self.element_type.convert(name, depth)?,
            atomic: self.element_relationship == Some(Relationship::Atomic),
        };
        for field in self.fields {
            let converted = Field {
                type_ref: field.type_ref.convert(name, depth)?,
                default: field.default,
            };
            map.fields.insert(field.name, converted);
        }
        Ok(map)
    }
}

impl RefRow {
    fn convert(self, name: &str, depth: usize) -> Result<TypeRef, SchemaError> {
        if let Some(named) = self.named_type {
            return Ok(TypeRef::Named {
                name: named.into(),
                atomic: self
                    .element_relationship
                    .map(|relationship| relationship == Relationship::Atomic),
            });
        }
        if self.scalar.is_none() && self.list.is_none() && self.map.is_none() {
            return Ok(TypeRef::Undeclared);
        }
        let row = AtomRow {
            scalar: self.scalar,
            list: self.list,
            map: self.map,
        };
        Ok(TypeRef::inline(row.convert(name, depth + 1)?))
    }
}
