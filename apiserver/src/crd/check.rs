//! What is wrong with a definition, in the real server's words.

use super::{keys, list};
use crate::{
    schema::{Kind, Schema},
    status::FieldError,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const MAX_SELECTABLE: usize = 8;

/// What the root of a schema may say where there is a status subresource, by the names that the message gives.
const ROOT_FIELDS: &[(&str, &str)] = &[
    ("Description", "description"),
    ("Type", "type"),
    ("Format", "format"),
    ("Title", "title"),
    ("Maximum", "maximum"),
    ("ExclusiveMaximum", "exclusiveMaximum"),
    ("Minimum", "minimum"),
    ("ExclusiveMinimum", "exclusiveMinimum"),
    ("MaxLength", "maxLength"),
    ("MinLength", "minLength"),
    ("Pattern", "pattern"),
    ("MaxItems", "maxItems"),
    ("MinItems", "minItems"),
    ("UniqueItems", "uniqueItems"),
    ("MultipleOf", "multipleOf"),
    ("Required", "required"),
    ("Items", "items"),
    ("Properties", "properties"),
    ("ExternalDocs", "externalDocs"),
    ("Example", "example"),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields"),
    ("XValidations", "x-kubernetes-validations"),
];

/// Everything outside of versions.
pub(super) fn definition(crd: &Value) -> Vec<FieldError> {
    let spec = &crd["spec"];
    let (names, versions) = (&spec["names"], list(&spec["versions"]));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&names["plural"]));
    let mut errors = Vec::new();
    if crd["metadata"]["name"] != json!(format!("{plural}.{group}")) {
        let name = json!(text(&crd["metadata"]["name"]));
        errors.push(FieldError::invalid("metadata.name", &name, r#"must be spec.names.plural+"."+spec.group"#));
    }
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if let Some(wrong) = subdomain(&group) {
        errors.push(FieldError::invalid("spec.group", &spec["group"], wrong));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", &spec["group"], "should be a domain with at least one dot"));
    }
    one_of("spec.scope", &spec["scope"], &["Cluster", "Namespaced"], &mut errors);
    if spec["preserveUnknownFields"] == true {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &json!(true), detail));
    }
    let distinct: BTreeSet<_> = versions.iter().map(|version| version["name"].as_str()).collect();
    if distinct.len() < versions.len() {
        let detail = "must contain unique version names";
        errors.push(FieldError::invalid("spec.versions", &spec["versions"], detail));
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &spec["versions"], detail));
    }
    stored(crd, versions, &mut errors);
    self::names(names, &mut errors);
    // Conversion by webhook is not served.
    one_of("spec.conversion.strategy", &spec["conversion"]["strategy"], &["None"], &mut errors);
    errors
}

/// The version that objects are stored in is among those that they may be stored in.
fn stored(crd: &Value, versions: &[Value], errors: &mut Vec<FieldError>) {
    let storage = || versions.iter().filter(|version| version["storage"] == true).map(|version| &version["name"]);
    let told = list(&crd["status"]["storedVersions"]);
    let stored: Vec<_> = if told.is_empty() { storage().take(1).collect() } else { told.iter().collect() };
    let at = "status.storedVersions";
    if stored.is_empty() {
        errors.push(FieldError::invalid(at, &Value::Null, "must have at least one stored version"));
        return;
    }
    for name in storage().filter(|name| !stored.contains(name)) {
        let detail = format!("must have the storage version {}", name.as_str().unwrap_or_default());
        errors.push(FieldError::invalid(at, &json!(stored), detail));
    }
}

fn names(names: &Value, errors: &mut Vec<FieldError>) {
    for key in ["plural", "singular", "kind", "listKind"] {
        let at = format!("spec.names.{key}");
        let name = names[key].as_str().unwrap_or_default();
        let mixed = key == "kind" || key == "listKind";
        let checked = if mixed { name.to_lowercase() } else { name.into() };
        match label(&checked) {
            _ if name.is_empty() => errors.push(FieldError::required(at, "")),
            Some(wrong) if mixed => {
                let detail = format!("may have mixed case, but should otherwise match: {wrong}");
                errors.push(FieldError::invalid(at, &names[key], detail));
            }
            Some(wrong) => errors.push(FieldError::invalid(at, &names[key], wrong)),
            None => {}
        }
    }
    if names["kind"].as_str().is_some_and(|kind| !kind.is_empty()) && names["kind"] == names["listKind"] {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid("spec.names.listKind", &names["listKind"], detail));
    }
    for key in ["shortNames", "categories"] {
        for (index, name) in list(&names[key]).iter().enumerate() {
            if let Some(wrong) = label(name.as_str().unwrap_or_default()) {
                errors.push(FieldError::invalid(format!("spec.names.{key}[{index}]"), name, wrong));
            }
        }
    }
}

/// Where a version's part is said to stand: the real server moves what all versions have in common up to the spec.
pub(super) fn place(spec: &Value, index: usize, key: &str, shared: &str) -> String {
    let versions = list(&spec["versions"]);
    let common = versions.iter().all(|version| !version[key].is_null() && version[key] == versions[0][key]);
    if common { format!("spec.{shared}") } else { format!("spec.versions[{index}].{key}") }
}

/// Everything of a version but what is inside its schema.
pub(super) fn version(
    version: &Value,
    index: usize,
    at: &dyn Fn(&str, &str) -> String,
    has_status: bool,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(wrong) = label(version["name"].as_str().unwrap_or_default()) {
        let name = json!(version["name"].as_str().unwrap_or_default());
        errors.push(FieldError::invalid(format!("spec.versions[{index}].name"), &name, wrong));
    }
    if version["deprecated"] != true && !version["deprecationWarning"].is_null() {
        let at = format!("spec.versions[{index}].deprecationWarning");
        let detail = "can only be set for deprecated versions";
        errors.push(FieldError::invalid(at, &version["deprecationWarning"], detail));
    }
    let schema = &version["schema"]["openAPIV3Schema"];
    if !schema.is_object() {
        errors.push(FieldError::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
    }
    if has_status && schema["type"].as_str().is_some_and(|kind| !kind.is_empty() && kind != "object") {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is \
                      enabled";
        let at = format!("{}.openAPIV3Schema.type", at("schema", "validation"));
        errors.push(FieldError::invalid(at, &schema["type"], detail));
    }
    let allowed = |key: &String| ROOT_FIELDS.iter().any(|(_, field)| field == key);
    if has_status && schema.as_object().is_some_and(|schema| !schema.keys().all(allowed)) {
        let fields: Vec<_> = ROOT_FIELDS.iter().map(|(name, _)| *name).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            fields.join(" ")
        );
        let at = format!("{}.openAPIV3Schema", at("schema", "validation"));
        errors.push(FieldError::invalid(at, schema, detail));
    }
    let subresources = at("subresources", "subresources");
    scale(&version["subresources"]["scale"], &format!("{subresources}.scale"), &mut errors);
    let columns = at("additionalPrinterColumns", "additionalPrinterColumns");
    for (index, column) in list(&version["additionalPrinterColumns"]).iter().enumerate() {
        self::column(column, &format!("{columns}[{index}]"), &mut errors);
    }
    errors
}

fn scale(scale: &Value, at: &str, errors: &mut Vec<FieldError>) {
    if !scale.is_object() {
        return;
    }
    for (key, roots, under) in [
        ("specReplicasPath", &[".spec."][..], ".spec"),
        ("statusReplicasPath", &[".status."], ".status"),
        ("labelSelectorPath", &[".spec.", ".status."], "either .spec or .status"),
    ] {
        let at = format!("{at}.{key}");
        match scale[key].as_str().unwrap_or_default() {
            "" if key == "labelSelectorPath" => {}
            "" => errors.push(FieldError::required(at, "")),
            path if !path.starts_with('.') => {
                errors.push(FieldError::invalid(at, &scale[key], "must be a simple json path starting with ."));
            }
            path if !roots.iter().any(|root| path.starts_with(root)) => {
                errors.push(FieldError::invalid(at, &scale[key], format!("should be a json path under {under}")));
            }
            _ => {}
        }
    }
}

fn column(column: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let field = |key: &str| column[key].as_str().unwrap_or_default();
    if field("name").is_empty() {
        errors.push(FieldError::required(format!("{at}.name"), ""));
    }
    let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
    match field("type") {
        "" => errors.push(FieldError::required(format!("{at}.type"), detail)),
        kind if !COLUMN_TYPES.contains(&kind) => {
            errors.push(FieldError::invalid(format!("{at}.type"), &column["type"], detail));
        }
        _ => {}
    }
    if !field("format").is_empty() && !COLUMN_FORMATS.contains(&field("format")) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.push(FieldError::invalid(format!("{at}.format"), &column["format"], detail));
    }
    match field("jsonPath") {
        "" => errors.push(FieldError::required(format!("{at}.JSONPath"), "")),
        path if !path.starts_with('.') => {
            let detail = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(format!("{at}.JSONPath"), &column["jsonPath"], detail));
        }
        _ => {}
    }
}

/// Fields to select by have to be there, and to have a plain type.
pub(super) fn selectable(fields: &[Value], schema: &Schema, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut distinct = BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        let at = format!("{at}[{index}].jsonPath");
        let path = &field["jsonPath"];
        let Some(text) = path.as_str().filter(|text| !text.is_empty()) else {
            errors.push(FieldError::required(at, ""));
            continue;
        };
        if !text.starts_with('.') {
            let first = text.split('.').next().unwrap_or_default();
            let detail = format!("is an invalid path: expected [ or . but got: {first}");
            errors.push(FieldError::invalid(at, path, detail));
            continue;
        }
        let keys = keys(text);
        let found = keys.iter().try_fold(schema.root(), |node, key| schema.field(node, key));
        let Some(node) = found else {
            let detail = "is an invalid path: does not refer to a valid field";
            errors.push(FieldError::invalid(at, path, detail));
            continue;
        };
        if keys[0] == "metadata" {
            errors.push(FieldError::invalid(&at, path, "must not point to fields in metadata"));
        }
        if !matches!(node.kind, Kind::String | Kind::Boolean | Kind::Integer) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                          with formats are allowed.";
            errors.push(FieldError::invalid(&at, path, detail));
        }
        if !distinct.insert(text) {
            errors.push(FieldError::duplicate(at, path));
        }
    }
    if distinct.len() > MAX_SELECTABLE {
        errors.push(FieldError::too_many(at, distinct.len(), MAX_SELECTABLE));
    }
    errors
}

/// What may not change: the group and plural never, the scope and kind once the resource is established. Versions
/// that objects may be stored in have to stay.
pub(super) fn update(crd: &Value, old: &Value) -> Vec<FieldError> {
    let always = ["/spec/group", "/spec/names/plural"];
    let established = ["/spec/scope", "/spec/names/kind"];
    let fixed = always.into_iter().chain(established.into_iter().filter(|_| super::status::is_established(old)));
    let changed = |at: &&str| crd.pointer(at) != old.pointer(at);
    let mut errors: Vec<_> = fixed
        .filter(changed)
        .map(|at| {
            let value = crd.pointer(at).unwrap_or(&Value::Null);
            FieldError::invalid(at[1..].replace('/', "."), value, "field is immutable")
        })
        .collect();
    let versions = list(&crd["spec"]["versions"]);
    for (index, stored) in list(&old["status"]["storedVersions"]).iter().enumerate() {
        if !versions.iter().any(|version| version["name"] == *stored) {
            let name = stored.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {name} and removes \
                 {name} from status.storedVersions"
            );
            errors.push(FieldError::invalid(format!("status.storedVersions[{index}]"), stored, detail));
        }
    }
    errors
}

fn one_of(at: &str, value: &Value, allowed: &[&str], errors: &mut Vec<FieldError>) {
    match value.as_str() {
        None | Some("") => errors.push(FieldError::required(at, "")),
        Some(found) if !allowed.contains(&found) => errors.push(FieldError::not_supported(at, value, allowed)),
        Some(_) => {}
    }
}

/// What is wrong with a DNS-1035 label.
fn label(text: &str) -> Option<String> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|byte| inner(byte) || byte == b'-')
        && text.bytes().last().is_some_and(inner);
    let shape = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                 character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                 validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    wrong(text.len() > 63, 63, fits, shape)
}

/// What is wrong with a DNS-1123 subdomain.
fn subdomain(text: &str) -> Option<String> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = text.split('.').all(|part| {
        part.bytes().all(|byte| inner(byte) || byte == b'-')
            && part.bytes().next().is_some_and(inner)
            && part.bytes().last().is_some_and(inner)
    });
    let shape = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                 must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    wrong(text.len() > 253, 253, fits, shape)
}

fn wrong(long: bool, max: usize, fits: bool, shape: &str) -> Option<String> {
    let length = long.then(|| format!("must be no more than {max} characters"));
    let all: Vec<_> = length.into_iter().chain((!fits).then(|| shape.to_owned())).collect();
    if all.is_empty() { None } else { Some(all.join(",")) }
}
