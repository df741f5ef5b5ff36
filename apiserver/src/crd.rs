//! CRDs: parsing and validation of a `CustomResourceDefinition`, and the resources that it defines.

mod check;
mod labels;
pub(crate) mod names;
pub(crate) mod status;
#[cfg(test)]
mod tests;
mod warnings;

pub(crate) use labels::label;
pub(crate) use warnings::warnings;

use crate::{
    http::priority,
    resource::{
        Cell, Column, Generation, NameRule, Resource, ResourceSchema, Scale, Selectable,
        StatusRule, Strategy,
    },
    schema::Schema,
    status::FieldErrors,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Verbs of custom resources, in the order of the real server's discovery.
const VERBS: &[&str] = &[
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

/// Description of the column that the real server adds if a CRD has none.
const AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is \
                   not guaranteed to be set in happens-before order across separate operations. Clients may not set \
                   this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. \
                   Read-only. Null for lists. More info: \
                   https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// Sets the fields of a CRD and of its status that the server sets.
pub(crate) fn prepare(crd: &mut Value, old: Option<&Value>) {
    Definition::prepare(crd);
    if old.is_none() {
        crd["status"] = status::initial(crd);
    } else if crd["status"].is_object() {
        let mut status = crd["status"].take();
        status::add_storage_version(&mut status, crd);
        crd["status"] = status;
    }
}

/// Validates a CRD that replaces `old`, if any.
pub(crate) fn validate(crd: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = if old.is_none() {
        check::name(crd)
    } else {
        FieldErrors::new()
    };
    errors.extend(Definition::parse(crd).err().into_iter().flatten());
    errors.extend(
        old.into_iter()
            .flat_map(|old| Definition::check_update(crd, old)),
    );
    errors
}

/// A valid `CustomResourceDefinition`.
#[derive(Debug)]
pub(crate) struct Definition {
    group: Arc<str>,
    kind: Arc<str>,
    list_kind: Arc<str>,
    plural: Arc<str>,
    singular: Arc<str>,
    short_names: Vec<Arc<str>>,
    categories: Vec<Arc<str>>,
    namespaced: bool,
    versions: Vec<CrdVersion>,
}

/// A version of a custom resource.
#[derive(Debug)]
pub(crate) struct CrdVersion {
    pub(crate) name: Arc<str>,
    pub(crate) served: bool,
    /// Objects are stored in this version.
    pub(crate) storage: bool,
    pub(crate) schema: Arc<Schema>,
    status: bool,
    deprecation: Option<Arc<str>>,
    scale: Option<Scale>,
    columns: Vec<Column>,
    selectable: Vec<Selectable>,
}

impl Definition {
    /// Sets the defaults that the real server sets before it validates.
    pub(crate) fn prepare(crd: &mut Value) {
        let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else {
            return;
        };
        if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut)
            && let Some(kind) = names.get("kind").and_then(Value::as_str).map(String::from)
        {
            let empty =
                |value: Option<&Value>| value.and_then(Value::as_str).is_none_or(str::is_empty);
            if empty(names.get("singular")) {
                names.insert("singular".into(), kind.to_lowercase().into());
            }
            if empty(names.get("listKind")) && !kind.is_empty() {
                names.insert("listKind".into(), format!("{kind}List").into());
            }
        }
        if spec.get("conversion").is_none_or(Value::is_null) {
            spec.insert("conversion".into(), json!({"strategy": "None"}));
        }
        for version in spec
            .get_mut("versions")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            omit_empty(version, &["deprecated"]);
            let columns = version
                .get_mut("additionalPrinterColumns")
                .and_then(Value::as_array_mut);
            for column in columns.into_iter().flatten() {
                omit_empty(column, &["priority", "format", "description"]);
            }
        }
    }

    /// Parses a prepared CRD. Reports all errors.
    pub(crate) fn parse(crd: &Value) -> Result<Self, FieldErrors> {
        let mut errors = check::definition(crd);
        let spec = &crd["spec"];
        let common = check::common_parts(spec);
        let mut versions = Vec::new();
        for (index, version) in list(&spec["versions"]).iter().enumerate() {
            match CrdVersion::parse(spec, &common, index, version) {
                Ok(version) => versions.push(version),
                Err(found) => {
                    // Versions can share a schema. Its errors are listed once.
                    let new: Vec<_> = found
                        .into_iter()
                        .filter(|error| !errors.contains(error))
                        .collect();
                    errors.extend(new);
                }
            }
        }
        check::stored_versions(crd, list(&spec["versions"]), &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        let names = &spec["names"];
        Ok(Self {
            group: text(&spec["group"]),
            kind: text(&names["kind"]),
            list_kind: text(&names["listKind"]),
            plural: text(&names["plural"]),
            singular: text(&names["singular"]),
            short_names: list(&names["shortNames"]).iter().map(text).collect(),
            categories: list(&names["categories"]).iter().map(text).collect(),
            namespaced: spec["scope"] == "Namespaced",
            versions,
        })
    }

    /// Validates the changes from `old` to `crd`.
    pub(crate) fn check_update(crd: &Value, old: &Value) -> FieldErrors {
        check::update(crd, old)
    }

    /// Returns the version in which objects are stored.
    pub(crate) fn storage(&self) -> Option<&CrdVersion> {
        self.versions.iter().find(|version| version.storage)
    }

    /// Returns all versions, served or not.
    pub(crate) fn versions(&self) -> &[CrdVersion] {
        &self.versions
    }

    /// Returns the plural name and the group.
    pub(crate) fn names(&self) -> (&str, &str) {
        (&self.plural, &self.group)
    }

    /// Returns the resource of a version.
    pub(crate) fn resource(&self, version: &CrdVersion) -> Resource {
        Resource {
            group: self.group.clone(),
            version: version.name.clone(),
            kind: self.kind.clone(),
            list_kind: self.list_kind.clone(),
            plural: self.plural.clone(),
            singular: self.singular.clone(),
            short_names: self.short_names.clone(),
            categories: self.categories.clone(),
            namespaced: self.namespaced,
            verbs: VERBS,
            strategy: Strategy {
                custom: true,
                generation: Generation::Spec,
                unconditional_update: false,
                create_on_update: false,
                returns_deleted: false,
                grace: None,
                status: version.status.then(StatusRule::default),
                scale: version.scale.clone(),
                name: NameRule::Subdomain,
                prepare: |_, _| {},
                validate: |_, _| FieldErrors::new(),
                validate_status: |_| FieldErrors::new(),
                dependencies: crate::builtin::Dependencies::Nothing,
                warn: |_| Vec::new(),
            },
            schema: ResourceSchema::Custom(version.schema.clone()),
            columns: version.columns.clone(),
            selectable: version.selectable.clone(),
            deprecation: version.deprecation.clone(),
            storage: self
                .storage()
                .map_or(&version.name, |storage| &storage.name)
                .clone(),
        }
    }
}

impl CrdVersion {
    fn parse(
        spec: &Value,
        common: &[&str],
        index: usize,
        version: &Value,
    ) -> Result<Self, FieldErrors> {
        let at = |key: &str, shared: &str| check::field_path(common, index, key, shared);
        let subresources = &version["subresources"];
        let status = subresources["status"].is_object();
        let mut errors = check::version(version, index, &at, status);
        let schema = &version["schema"]["openAPIV3Schema"];
        let path = format!("{}.openAPIV3Schema", at("schema", "validation"));
        let preserve = spec["preserveUnknownFields"] == true;
        let schema = if schema.is_object() {
            Schema::from_crd(schema, preserve, &path)
        } else {
            Ok(Schema::any())
        };
        let schema = schema.map_err(|found| errors.extend(found));
        errors.extend(check::version_parts(version, &at));
        match schema {
            Ok(schema) if errors.is_empty() => {
                let fields = list(&version["selectableFields"]);
                let errors =
                    check::selectable(fields, &schema, &at("selectableFields", "selectableFields"));
                if !errors.is_empty() {
                    return Err(errors);
                }
                Ok(Self {
                    name: text(&version["name"]),
                    served: version["served"] == true,
                    storage: version["storage"] == true,
                    schema: Arc::new(schema),
                    status,
                    deprecation: deprecation(spec, version),
                    scale: scale(&subresources["scale"]),
                    columns: columns(list(&version["additionalPrinterColumns"])),
                    selectable: fields
                        .iter()
                        .map(|field| selectable(&field["jsonPath"]))
                        .collect(),
                })
            }
            _ => Err(errors),
        }
    }
}

/// Removes fields that equal their absence.
fn omit_empty(object: &mut Value, fields: &[&str]) {
    let empty = [json!(false), json!(0), json!("")];
    if let Some(object) = object.as_object_mut() {
        object.retain(|field, value| !(fields.contains(&field.as_str()) && empty.contains(value)));
    }
}

/// Returns the warning about a deprecated version. The default one names the version to use.
fn deprecation(spec: &Value, version: &Value) -> Option<Arc<str>> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(warning) = version["deprecationWarning"].as_str() {
        return Some(warning.into());
    }
    let named = |name: &str| {
        format!(
            "{}/{name} {}",
            text(&spec["group"]),
            text(&spec["names"]["kind"])
        )
    };
    let name = text(&version["name"]);
    let newer = list(&spec["versions"])
        .iter()
        .filter(|other| other["served"] == true && other["deprecated"] != true);
    let newer = newer
        .filter_map(|other| other["name"].as_str())
        .filter(|other| priority(other) > priority(&name));
    let warning = format!("{} is deprecated", named(&name));
    Some(match newer.max_by_key(|other| priority(other)) {
        Some(best) => format!("{warning}; use {}", named(best)).into(),
        None => warning.into(),
    })
}

fn scale(scale: &Value) -> Option<Scale> {
    let selector = scale["labelSelectorPath"]
        .as_str()
        .filter(|path| !path.is_empty());
    scale.is_object().then(|| Scale {
        spec_replicas: keys(&text(&scale["specReplicasPath"])),
        status_replicas: keys(&text(&scale["statusReplicasPath"])),
        selector: selector.map(keys),
    })
}

fn columns(columns: &[Value]) -> Vec<Column> {
    if columns.is_empty() {
        let path = ".metadata.creationTimestamp".to_owned();
        return vec![Column {
            name: "Age".into(),
            kind: "date".into(),
            format: String::new(),
            description: AGE.into(),
            priority: 0,
            cell: Cell::Path(path),
        }];
    }
    let column = |column: &Value| {
        let field = |key: &str| column[key].as_str().unwrap_or_default().to_owned();
        let path = field("jsonPath");
        let default_description =
            format!("Custom resource definition column (in JSONPath format): {path}");
        Column {
            name: field("name"),
            kind: field("type"),
            format: field("format"),
            description: Some(field("description"))
                .filter(|text| !text.is_empty())
                .unwrap_or(default_description),
            priority: column["priority"]
                .as_i64()
                .and_then(|priority| priority.try_into().ok())
                .unwrap_or(0),
            cell: Cell::Path(path),
        }
    };
    columns.iter().map(column).collect()
}

fn selectable(path: &Value) -> Selectable {
    let path = text(path);
    Selectable {
        name: path.trim_start_matches('.').into(),
        path: keys(&path),
    }
}

/// Splits a path such as `.spec.replicas` into its keys.
fn keys(path: &str) -> Vec<String> {
    path.trim_start_matches('.')
        .split('.')
        .map(String::from)
        .collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> Arc<str> {
    value.as_str().unwrap_or_default().into()
}
