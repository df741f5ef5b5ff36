//! Schemas of custom resources.

use super::{
    Atom, DEDUCED, Field, List, ListType, Map, Scalar, Schema, SchemaError, TypeRef,
    openapi::{Converter, flag},
};
use crate::MAX_DEPTH;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const OWNER_REFERENCE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference";

/// Version of a `CustomResourceDefinition`.
#[derive(Clone, Copy, Debug)]
pub struct CrdVersion<'a> {
    /// Name of the type in the returned [`Schema`], such as `v1`.
    pub name: &'a str,
    /// Structural schema: `schema.openAPIV3Schema` of the version.
    ///
    /// `None`: the types are deduced from values.
    pub schema: Option<&'a Value>,
}

impl Schema {
    /// Builds the schema of a `CustomResourceDefinition`, with one type for each version.
    ///
    /// The types declare `apiVersion`, `kind` and `metadata`, also in embedded resources.
    /// `preserve_unknown_fields` is `spec.preserveUnknownFields` of the CRD.
    ///
    /// Errors: a version's schema is not a valid structural schema.
    pub fn from_crd<'a>(
        versions: impl IntoIterator<Item = CrdVersion<'a>>,
        preserve_unknown_fields: bool,
    ) -> Result<Self, SchemaError> {
        let mut types = vec![
            (OBJECT_META.to_owned(), object_meta()),
            (OWNER_REFERENCE.to_owned(), owner_reference()),
        ];
        for version in versions {
            let atom = match version.schema {
                None => Map {
                    fields: BTreeMap::new(),
                    element: TypeRef::named(DEDUCED),
                    atomic: false,
                }
                .into(),
                Some(schema) => {
                    let mut schema = schema.clone();
                    declare_embedded(&mut schema, version.name, 0)?;
                    declare_object(&mut schema);
                    Converter::new(version.name, preserve_unknown_fields).atom(&schema)?
                }
            };
            types.push((version.name.to_owned(), atom));
        }
        Ok(Self::new(types))
    }
}

/// Declares the fields that every object has.
fn declare_object(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert("apiVersion".to_owned(), json!({"type": "string"}));
        properties.insert("kind".to_owned(), json!({"type": "string"}));
        let metadata = json!({"$ref": format!("#/components/schemas/{OBJECT_META}")});
        properties.insert("metadata".to_owned(), metadata);
    }
}

/// Declares the fields of embedded resources: objects with a kind inside of other objects.
fn declare_embedded(schema: &mut Value, name: &str, depth: usize) -> Result<(), SchemaError> {
    if depth > MAX_DEPTH {
        let reason = format!("nested deeper than {MAX_DEPTH} levels");
        return Err(SchemaError::new(name, reason));
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for property in properties.values_mut() {
            declare_embedded(property, name, depth + 1)?;
        }
    }
    for nested in ["items", "additionalProperties"] {
        if let Some(nested) = schema.get_mut(nested) {
            declare_embedded(nested, name, depth + 1)?;
        }
    }
    if flag(schema, "x-kubernetes-embedded-resource") {
        declare_object(schema);
    }
    Ok(())
}

fn object(fields: &[(&str, TypeRef)], atomic: bool) -> Atom {
    let fields = fields.iter().map(|(name, type_ref)| {
        let field = Field {
            type_ref: type_ref.clone(),
            default: None,
        };
        ((*name).to_owned(), field)
    });
    Map {
        fields: fields.collect(),
        element: TypeRef::Undeclared,
        atomic,
    }
    .into()
}

fn list(element: TypeRef, list_type: ListType) -> TypeRef {
    TypeRef::inline(List { element, list_type }.into())
}

fn object_meta() -> Atom {
    let strings = TypeRef::inline(
        Map {
            fields: BTreeMap::new(),
            element: Scalar::String.into(),
            atomic: false,
        }
        .into(),
    );
    let by_uid = ListType::Map(vec!["uid".to_owned()]);
    let owners = list(TypeRef::named(OWNER_REFERENCE), by_uid);
    let entries = TypeRef::inline(managed_fields_entry());
    object(
        &[
            ("annotations", strings.clone()),
            ("creationTimestamp", Scalar::Untyped.into()),
            ("deletionGracePeriodSeconds", Scalar::Numeric.into()),
            ("deletionTimestamp", Scalar::Untyped.into()),
            ("finalizers", list(Scalar::String.into(), ListType::Set)),
            ("generateName", Scalar::String.into()),
            ("generation", Scalar::Numeric.into()),
            ("labels", strings),
            ("managedFields", list(entries, ListType::Atomic)),
            ("name", Scalar::String.into()),
            ("namespace", Scalar::String.into()),
            ("ownerReferences", owners),
            ("resourceVersion", Scalar::String.into()),
            ("selfLink", Scalar::String.into()),
            ("uid", Scalar::String.into()),
        ],
        false,
    )
}

fn owner_reference() -> Atom {
    let mut atom = object(
        &[
            ("apiVersion", Scalar::String.into()),
            ("blockOwnerDeletion", Scalar::Boolean.into()),
            ("controller", Scalar::Boolean.into()),
            ("kind", Scalar::String.into()),
            ("name", Scalar::String.into()),
            ("uid", Scalar::String.into()),
        ],
        true,
    );
    // An item without a uid has the same key as an item with an empty uid.
    let uid = atom.map.as_mut().and_then(|map| map.fields.get_mut("uid"));
    if let Some(uid) = uid {
        uid.default = Some(json!(""));
    }
    atom
}

fn managed_fields_entry() -> Atom {
    object(
        &[
            ("apiVersion", Scalar::String.into()),
            ("fieldsType", Scalar::String.into()),
            ("fieldsV1", TypeRef::named(DEDUCED)),
            ("manager", Scalar::String.into()),
            ("operation", Scalar::String.into()),
            ("subresource", Scalar::String.into()),
            ("time", Scalar::Untyped.into()),
        ],
        false,
    )
}
