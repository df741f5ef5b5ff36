//! Schemas from `OpenAPI` definitions.

use super::{
    Atom, DEDUCED, Field, List, ListType, Map, Scalar, Schema, SchemaError, TypeRef, UNTYPED,
};
use crate::MAX_DEPTH;
use serde_json::Value;
use std::collections::BTreeMap;

/// Definition of quantities, which are strings or numbers.
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
/// Definition of embedded objects of any type.
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

impl Schema {
    /// Builds a schema from `OpenAPI` v3 definitions (`components.schemas`) or v2 `definitions`.
    ///
    /// `preserve_unknown_fields` accepts fields that no definition declares.
    ///
    /// Errors: a list type, map type or type is unknown, or a list has no item type.
    pub fn from_openapi<'a>(
        definitions: impl IntoIterator<Item = (&'a String, &'a Value)>,
        preserve_unknown_fields: bool,
    ) -> Result<Self, SchemaError> {
        let mut types = Vec::new();
        for (name, definition) in definitions {
            if definition.get("$ref").is_some() {
                continue;
            }
            let atom = match name.as_str() {
                QUANTITY => Scalar::Untyped.into(),
                RAW_EXTENSION => super::undeclared(UNTYPED, true),
                _ => Converter::new(name, preserve_unknown_fields).atom(definition)?,
            };
            types.push((name.clone(), atom));
        }
        Ok(Self::new(types))
    }
}

/// Converts one definition. Each level of nesting uses a copy with its own depth.
#[derive(Clone, Copy)]
pub(super) struct Converter<'a> {
    /// Name of the definition, for errors.
    name: &'a str,
    preserve_unknown_fields: bool,
    depth: usize,
}

impl<'a> Converter<'a> {
    pub(super) fn new(name: &'a str, preserve_unknown_fields: bool) -> Self {
        Self {
            name,
            preserve_unknown_fields,
            depth: 0,
        }
    }

    fn error(&self, reason: impl Into<String>) -> SchemaError {
        SchemaError::new(self.name, reason)
    }

    /// Converts one schema. `x-kubernetes-preserve-unknown-fields` also applies to its descendants.
    pub(super) fn atom(mut self, schema: &Value) -> Result<Atom, SchemaError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.preserve_unknown_fields |= flag(schema, "x-kubernetes-preserve-unknown-fields");
        match schema_type(schema) {
            // An absent type accepts every value.
            "" => Ok(Atom {
                scalar: Some(Scalar::Untyped),
                list: Some(self.list(schema)?),
                map: Some(self.map(schema)?),
            }),
            "object" => Ok(self.map(schema)?.into()),
            "array" => Ok(self.list(schema)?.into()),
            "integer" | "number" => Ok(Scalar::Numeric.into()),
            "boolean" => Ok(Scalar::Boolean.into()),
            "string" => Ok(match text(schema, "format") {
                None | Some("" | "byte") => Scalar::String.into(),
                Some(_) => Scalar::Untyped.into(),
            }),
            other => Err(self.error(format!("unrecognized type: '{other}'"))),
        }
    }

    pub(super) fn reference(self, schema: &Value) -> Result<TypeRef, SchemaError> {
        let Some(name) = referenced_name(schema) else {
            return Ok(TypeRef::inline(self.atom(schema)?));
        };
        Ok(TypeRef::Named {
            name: name.into(),
            atomic: self.map_type(schema)?,
        })
    }

    pub(super) fn map(self, schema: &Value) -> Result<Map, SchemaError> {
        let mut fields = BTreeMap::new();
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                let field = Field {
                    type_ref: self.reference(property)?,
                    default: property.get("default").filter(|v| !v.is_null()).cloned(),
                };
                fields.insert(name.clone(), field);
            }
        }
        let element = match schema.get("additionalProperties") {
            None | Some(Value::Null) if self.preserve_unknown_fields || fields.is_empty() => {
                TypeRef::named(DEDUCED)
            }
            None | Some(Value::Null | Value::Bool(false)) => TypeRef::Undeclared,
            Some(Value::Bool(true)) => TypeRef::named(DEDUCED),
            Some(additional) => self.reference(additional)?,
        };
        Ok(Map {
            fields,
            element,
            atomic: self.map_type(schema)?.unwrap_or(false),
        })
    }

    fn map_type(&self, schema: &Value) -> Result<Option<bool>, SchemaError> {
        match schema.get("x-kubernetes-map-type") {
            None => Ok(None),
            Some(Value::String(name)) if name == "atomic" => Ok(Some(true)),
            Some(Value::String(name)) if name == "granular" => Ok(Some(false)),
            Some(other) => Err(self.error(format!("unknown map type {other}"))),
        }
    }

    fn list(self, schema: &Value) -> Result<List, SchemaError> {
        let element = match schema.get("items") {
            Some(items @ Value::Object(_)) => self.reference(items)?,
            Some(_) => {
                return Err(self.error("structural schema arrays must have one member subtype"));
            }
            None if schema_type(schema).is_empty() => TypeRef::named(UNTYPED),
            None => return Err(self.error("`items` must be specified on arrays")),
        };
        Ok(List {
            element,
            list_type: self.list_type(schema)?,
        })
    }

    fn list_type(&self, schema: &Value) -> Result<ListType, SchemaError> {
        if let Some(list_type) = schema.get("x-kubernetes-list-type") {
            return match list_type.as_str() {
                Some("atomic") => Ok(ListType::Atomic),
                Some("set") => Ok(ListType::Set),
                Some("map") => {
                    let keys = schema
                        .get("x-kubernetes-list-map-keys")
                        .and_then(Value::as_array)
                        .ok_or_else(|| self.error("missing map keys"))?;
                    let keys = keys.iter().filter_map(Value::as_str);
                    Ok(ListType::Map(keys.map(str::to_owned).collect()))
                }
                _ => Err(self.error(format!("unknown list type {list_type}"))),
            };
        }
        // Older definitions have only the extensions of strategic merge patches.
        match text(schema, "x-kubernetes-patch-strategy") {
            None | Some("retainKeys") => Ok(ListType::Atomic),
            Some("merge" | "merge,retainKeys") => {
                Ok(match text(schema, "x-kubernetes-patch-merge-key") {
                    Some(key) => ListType::Map(vec![key.to_owned()]),
                    None => ListType::Set,
                })
            }
            Some(other) => Err(self.error(format!("unknown patch strategy {other}"))),
        }
    }
}

/// Returns the type of a schema. `OpenAPI` 3.1 allows a list of types: the first one is used.
fn schema_type(schema: &Value) -> &str {
    match schema.get("type") {
        Some(Value::Array(types)) => types.first().and_then(Value::as_str).unwrap_or(""),
        other => other.and_then(Value::as_str).unwrap_or(""),
    }
}

/// Returns the name that a schema refers to, directly or in an `allOf` with one entry.
fn referenced_name(schema: &Value) -> Option<&str> {
    let reference =
        text(schema, "$ref").or_else(|| match schema.get("allOf")?.as_array()?.as_slice() {
            [only] => text(only, "$ref"),
            _ => None,
        })?;
    let name = reference.rsplit('/').next()?;
    (!name.is_empty()).then_some(name)
}

pub(super) fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn text<'v>(schema: &'v Value, name: &str) -> Option<&'v str> {
    schema.get(name).and_then(Value::as_str)
}
