//! Definitions of custom resources: what a `CustomResourceDefinition` says, and the resources that it makes served.

mod check;
mod labels;
pub(crate) mod names;
pub(crate) mod status;
#[cfg(test)]
mod tests;

use crate::{
    http::priority,
    resource::{Cell, Column, Generation, NameRule, Resource, ResourceSchema, Scale, Selectable, StatusRule, Strategy},
    schema::Schema,
    status::FieldErrors,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// What can be done with custom resources, in the order that the real server tells it.
const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// What the real server says of the column that it adds where none are defined.
const AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is \
                   not guaranteed to be set in happens-before order across separate operations. Clients may not set \
                   this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. \
                   Read-only. Null for lists. More info: \
                   https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// What the server fills into a definition, and into its status.
pub(crate) fn prepare(crd: &mut Value, old: Option<&Value>) {
    Definition::prepare(crd);
    if old.is_none() {
        crd["status"] = status::initial(crd);
    } else if crd["status"].is_object() {
        let mut status = crd["status"].take();
        status::store(&mut status, crd);
        crd["status"] = status;
    }
}

/// What is wrong with a definition, given the one it replaces.
pub(crate) fn validate(crd: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = if old.is_none() { check::name(crd) } else { FieldErrors::new() };
    errors.extend(Definition::parse(crd).err().into_iter().flatten());
    errors.extend(old.into_iter().flat_map(|old| Definition::check_update(crd, old)));
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
    versions: Vec<Version>,
}

/// One version of a custom resource.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) name: Arc<str>,
    /// It can be asked for.
    pub(crate) served: bool,
    /// It is the one that objects are stored in.
    pub(crate) storage: bool,
    pub(crate) schema: Arc<Schema>,
    status: bool,
    deprecation: Option<Arc<str>>,
    scale: Option<Scale>,
    columns: Vec<Column>,
    selectable: Vec<Selectable>,
}

impl Definition {
    /// Fills in what the real server fills in before it validates.
    pub(crate) fn prepare(crd: &mut Value) {
        let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
        if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut)
            && let Some(kind) = names.get("kind").and_then(Value::as_str).map(String::from)
        {
            let empty = |value: Option<&Value>| value.and_then(Value::as_str).is_none_or(str::is_empty);
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
        for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
            omit_empty(version, &["deprecated"]);
            let columns = version.get_mut("additionalPrinterColumns").and_then(Value::as_array_mut);
            for column in columns.into_iter().flatten() {
                omit_empty(column, &["priority", "format", "description"]);
            }
        }
    }

    /// Reads a prepared definition. Everything that is wrong with it is told.
    pub(crate) fn parse(crd: &Value) -> Result<Self, FieldErrors> {
        let mut errors = check::definition(crd);
        let spec = &crd["spec"];
        let common = check::common_parts(spec);
        let mut versions = Vec::new();
        for (index, version) in list(&spec["versions"]).iter().enumerate() {
            match Version::parse(spec, &common, index, version) {
                Ok(version) => versions.push(version),
                Err(more) => {
                    // Versions may share a schema, whose errors are listed once.
                    let new: Vec<_> = more.into_iter().filter(|error| !errors.contains(error)).collect();
                    errors.extend(new);
                }
            }
        }
        check::stored(crd, list(&spec["versions"]), &mut errors);
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

    /// What may not have changed since `old` has changed, or is missing but still needed.
    pub(crate) fn check_update(crd: &Value, old: &Value) -> FieldErrors {
        check::update(crd, old)
    }

    /// The version that objects are stored in.
    pub(crate) fn storage(&self) -> Option<&Version> {
        self.versions.iter().find(|version| version.storage)
    }

    /// All versions, served or not.
    pub(crate) fn versions(&self) -> &[Version] {
        &self.versions
    }

    /// `plural` and `group`.
    pub(crate) fn names(&self) -> (&str, &str) {
        (&self.plural, &self.group)
    }

    /// The resource that a version is.
    pub(crate) fn resource(&self, version: &Version) -> Resource {
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
                needs: crate::builtin::Needs::Nothing,
                warn: |_| Vec::new(),
            },
            schema: ResourceSchema::Custom(version.schema.clone()),
            columns: version.columns.clone(),
            selectable: version.selectable.clone(),
            deprecation: version.deprecation.clone(),
            storage: self.storage().map_or(&version.name, |storage| &storage.name).clone(),
        }
    }
}

impl Version {
    fn parse(spec: &Value, common: &[&str], index: usize, version: &Value) -> Result<Self, FieldErrors> {
        let at = |key: &str, shared: &str| check::place(common, index, key, shared);
        let subresources = &version["subresources"];
        let status = subresources["status"].is_object();
        let mut errors = check::version(version, index, &at, status);
        let schema = &version["schema"]["openAPIV3Schema"];
        let path = format!("{}.openAPIV3Schema", at("schema", "validation"));
        let preserve = spec["preserveUnknownFields"] == true;
        let schema = if schema.is_object() { Schema::from_crd(schema, preserve, &path) } else { Ok(Schema::any()) };
        let schema = schema.map_err(|more| errors.extend(more));
        errors.extend(check::parts(version, &at));
        match schema {
            Ok(schema) if errors.is_empty() => {
                let fields = list(&version["selectableFields"]);
                let errors = check::selectable(fields, &schema, &at("selectableFields", "selectableFields"));
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
                    selectable: fields.iter().map(|field| selectable(&field["jsonPath"])).collect(),
                })
            }
            _ => Err(errors),
        }
    }
}

/// Fields that say no more than their absence would are not kept.
fn omit_empty(object: &mut Value, fields: &[&str]) {
    let empty = [json!(false), json!(0), json!("")];
    if let Some(object) = object.as_object_mut() {
        object.retain(|field, value| !(fields.contains(&field.as_str()) && empty.contains(value)));
    }
}

/// What users of a deprecated version are told: by default which one to use instead.
fn deprecation(spec: &Value, version: &Value) -> Option<Arc<str>> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(warning) = version["deprecationWarning"].as_str() {
        return Some(warning.into());
    }
    let named = |name: &str| format!("{}/{name} {}", text(&spec["group"]), text(&spec["names"]["kind"]));
    let name = text(&version["name"]);
    let better = list(&spec["versions"]).iter().filter(|other| other["served"] == true && other["deprecated"] != true);
    let better = better.filter_map(|other| other["name"].as_str()).filter(|other| priority(other) > priority(&name));
    let told = format!("{} is deprecated", named(&name));
    Some(match better.max_by_key(|other| priority(other)) {
        Some(best) => format!("{told}; use {}", named(best)).into(),
        None => told.into(),
    })
}

fn scale(scale: &Value) -> Option<Scale> {
    let selector = scale["labelSelectorPath"].as_str().filter(|path| !path.is_empty());
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
        let described = format!("Custom resource definition column (in JSONPath format): {path}");
        Column {
            name: field("name"),
            kind: field("type"),
            format: field("format"),
            description: Some(field("description")).filter(|text| !text.is_empty()).unwrap_or(described),
            priority: column["priority"].as_i64().and_then(|priority| priority.try_into().ok()).unwrap_or(0),
            cell: Cell::Path(path),
        }
    };
    columns.iter().map(column).collect()
}

fn selectable(path: &Value) -> Selectable {
    let path = text(path);
    Selectable { name: path.trim_start_matches('.').into(), path: keys(&path) }
}

/// `.spec.replicas` as its keys.
fn keys(path: &str) -> Vec<String> {
    path.trim_start_matches('.').split('.').map(String::from).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> Arc<str> {
    value.as_str().unwrap_or_default().into()
}
