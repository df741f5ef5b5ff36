//! Validation of CRDs, with the errors of the real server.

use super::{
    keys,
    labels::{label, subdomain},
    list,
};
use crate::{
    schema::{Schema, ValueType},
    status::{FieldError, FieldErrors},
};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];
const MAX_SELECTABLE: usize = 8;

/// Keywords that the root of a schema can have if there is a status subresource, with their names
/// in the error.
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
    (
        "XPreserveUnknownFields",
        "x-kubernetes-preserve-unknown-fields",
    ),
    ("XValidations", "x-kubernetes-validations"),
];

/// Groups of Kubernetes, in which a CRD needs an approval annotation.
const PROTECTED: [&str; 2] = ["k8s.io", "kubernetes.io"];
const APPROVAL: &str = "api-approved.kubernetes.io";

/// Validates the metadata of a new CRD.
pub(super) fn name(crd: &Value) -> FieldErrors {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let group = text(&crd["spec"]["group"]);
    let plural = text(&crd["spec"]["names"]["plural"]);
    let mut errors = FieldErrors::new();
    let detail = "must be spec.names.plural+\".\"+spec.group";
    if crd["metadata"]["name"] != json!(format!("{plural}.{group}")) {
        errors.push(FieldError::invalid(
            "metadata.name",
            &json!(text(&crd["metadata"]["name"])),
            detail,
        ));
    }
    let is_in = |root: &&str| {
        group
            .strip_suffix(*root)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if PROTECTED.iter().any(is_in) {
        let approval = &crd["metadata"]["annotations"][APPROVAL];
        let at = format!("metadata.annotations[{APPROVAL}]");
        let reference = "see https://github.com/kubernetes/enhancements/pull/1111";
        match approval.as_str().unwrap_or_default() {
            "" => {
                let detail = format!(
                    "protected groups must have approval annotation \"{APPROVAL}\", {reference}"
                );
                errors.push(FieldError::required(at, detail));
            }
            given if given.starts_with("unapproved") || given.contains("://") => {}
            _ => {
                let detail = format!(
                    "protected groups must have approval annotation \"{APPROVAL}\" with either a URL or a reason \
                     starting with \"unapproved\", {reference}"
                );
                errors.push(FieldError::invalid(at, approval, detail));
            }
        }
    }
    errors
}

/// Validates a CRD, except for the content of its versions.
pub(super) fn definition(crd: &Value) -> FieldErrors {
    let spec = &crd["spec"];
    let names = &spec["names"];
    let versions = list(&spec["versions"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let group = text(&spec["group"]);
    let mut errors = FieldErrors::new();
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if let Some(problem) = subdomain(&group) {
        errors.push(FieldError::invalid("spec.group", &spec["group"], problem));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(
            "spec.group",
            &spec["group"],
            "should be a domain with at least one dot",
        ));
    }
    one_of(
        "spec.scope",
        &spec["scope"],
        &["Cluster", "Namespaced"],
        &mut errors,
    );
    if spec["preserveUnknownFields"] == true {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead";
        errors.push(FieldError::invalid(
            "spec.preserveUnknownFields",
            &json!(true),
            detail,
        ));
    }
    for (index, version) in versions.iter().enumerate() {
        version_name(version, index, &mut errors);
    }
    let unique: BTreeSet<_> = versions
        .iter()
        .map(|version| version["name"].as_str())
        .collect();
    if unique.len() < versions.len() {
        let detail = "must contain unique version names";
        errors.push(FieldError::invalid(
            "spec.versions",
            &spec["versions"],
            detail,
        ));
    }
    if versions
        .iter()
        .filter(|version| version["storage"] == true)
        .count()
        != 1
    {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid(
            "spec.versions",
            &spec["versions"],
            detail,
        ));
    }
    // The first version is also checked as the deprecated field `spec.version`.
    if let Some(problem) = versions
        .first()
        .and_then(|first| first["name"].as_str())
        .filter(|it| !it.is_empty())
        .and_then(label)
    {
        errors.push(FieldError::invalid(
            "spec.version",
            &versions[0]["name"],
            problem,
        ));
    }
    self::names(names, &mut errors);
    let strategy = &spec["conversion"]["strategy"];
    if strategy == "Webhook" {
        errors.push(FieldError::forbidden(
            "spec.conversion.strategy",
            "the embedded API server has no conversion webhooks; use the strategy None, or a real \
             kube-apiserver",
        ));
    }
    one_of(
        "spec.conversion.strategy",
        strategy,
        &["None", "Webhook"],
        &mut errors,
    );
    errors
}

/// Checks that the storage version is among the stored versions.
pub(super) fn stored_versions(crd: &Value, versions: &[Value], errors: &mut FieldErrors) {
    let storage = || {
        versions
            .iter()
            .filter(|version| version["storage"] == true)
            .map(|version| &version["name"])
    };
    let listed = list(&crd["status"]["storedVersions"]);
    let stored: Vec<_> = if listed.is_empty() {
        storage().take(1).collect()
    } else {
        listed.iter().collect()
    };
    let at = "status.storedVersions";
    if stored.is_empty() {
        errors.push(FieldError::invalid(
            at,
            &Value::Null,
            "must have at least one stored version",
        ));
        return;
    }
    let known: HashSet<_> = stored.iter().map(|name| name.as_str()).collect();
    for name in storage().filter(|name| !known.contains(&name.as_str())) {
        // Skip formatting: each of these errors contains all stored versions.
        if errors.is_full() {
            break;
        }
        let detail = format!(
            "must have the storage version {}",
            name.as_str().unwrap_or_default()
        );
        errors.push(FieldError::invalid(at, &json!(stored), detail));
    }
}

/// Validates a version's name and its deprecation warning.
fn version_name(version: &Value, index: usize, errors: &mut FieldErrors) {
    if let Some(problem) = label(version["name"].as_str().unwrap_or_default()) {
        let name = json!(version["name"].as_str().unwrap_or_default());
        errors.push(FieldError::invalid(
            format!("spec.versions[{index}].name"),
            &name,
            problem,
        ));
    }
    let warning = &version["deprecationWarning"];
    if *warning == "" {
        let at = format!("spec.versions[{index}].deprecationWarning");
        errors.push(FieldError::invalid(
            at,
            warning,
            "must not be an empty string",
        ));
    }
    if version["deprecated"] != true && !version["deprecationWarning"].is_null() {
        let at = format!("spec.versions[{index}].deprecationWarning");
        let detail = "can only be set for deprecated versions";
        errors.push(FieldError::invalid(
            at,
            &version["deprecationWarning"],
            detail,
        ));
    }
}

fn names(names: &Value, errors: &mut FieldErrors) {
    for key in ["plural", "singular", "kind", "listKind"] {
        let at = format!("spec.names.{key}");
        let name = names[key].as_str().unwrap_or_default();
        let mixed = key == "kind" || key == "listKind";
        let checked = if mixed {
            name.to_lowercase()
        } else {
            name.into()
        };
        match label(&checked) {
            _ if name.is_empty() => errors.push(FieldError::required(at, "")),
            Some(problem) if mixed => {
                let detail = format!("may have mixed case, but should otherwise match: {problem}");
                errors.push(FieldError::invalid(at, &names[key], detail));
            }
            Some(problem) => errors.push(FieldError::invalid(at, &names[key], problem)),
            None => {}
        }
    }
    if names["kind"].as_str().is_some_and(|kind| !kind.is_empty())
        && names["kind"] == names["listKind"]
    {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(
            "spec.names.listKind",
            &names["listKind"],
            detail,
        ));
    }
    for key in ["shortNames", "categories"] {
        for (index, name) in list(&names[key]).iter().enumerate() {
            if let Some(problem) = label(name.as_str().unwrap_or_default()) {
                errors.push(FieldError::invalid(
                    format!("spec.names.{key}[{index}]"),
                    name,
                    problem,
                ));
            }
        }
    }
}

/// Returns the parts that all versions have in common. The real server moves them up to the spec.
pub(super) fn common_parts(spec: &Value) -> Vec<&'static str> {
    let versions = list(&spec["versions"]);
    let is_common = |key: &&str| {
        versions
            .iter()
            .all(|version| !version[*key].is_null() && version[*key] == versions[0][*key])
    };
    [
        "schema",
        "subresources",
        "additionalPrinterColumns",
        "selectableFields",
    ]
    .into_iter()
    .filter(is_common)
    .collect()
}

/// Returns the path at which errors about a part of a version are reported.
pub(super) fn field_path(common: &[&str], index: usize, key: &str, shared: &str) -> String {
    if common.contains(&key) {
        format!("spec.{shared}")
    } else {
        format!("spec.versions[{index}].{key}")
    }
}

/// Validates the root of a version's schema. `schema` validates its content.
pub(super) fn version(
    version: &Value,
    index: usize,
    at: &dyn Fn(&str, &str) -> String,
    has_status: bool,
) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let schema = &version["schema"]["openAPIV3Schema"];
    if !schema.is_object() {
        errors.push(FieldError::required(
            format!("spec.versions[{index}].schema.openAPIV3Schema"),
            "",
        ));
    }
    if has_status
        && schema["type"]
            .as_str()
            .is_some_and(|kind| !kind.is_empty() && kind != "object")
    {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is \
                      enabled";
        let at = format!("{}.openAPIV3Schema.type", at("schema", "validation"));
        errors.push(FieldError::invalid(at, &schema["type"], detail));
    }
    let allowed = |key: &String| ROOT_FIELDS.iter().any(|(_, field)| field == key);
    if has_status
        && schema
            .as_object()
            .is_some_and(|schema| !schema.keys().all(allowed))
    {
        let fields: Vec<_> = ROOT_FIELDS.iter().map(|(name, _)| *name).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            fields.join(" ")
        );
        let at = format!("{}.openAPIV3Schema", at("schema", "validation"));
        errors.push(FieldError::invalid(at, schema, detail));
    }
    errors
}

/// Validates the subresources and printer columns of a version.
pub(super) fn version_parts(version: &Value, at: &dyn Fn(&str, &str) -> String) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let subresources = at("subresources", "subresources");
    scale(
        &version["subresources"]["scale"],
        &format!("{subresources}.scale"),
        &mut errors,
    );
    let columns = at("additionalPrinterColumns", "additionalPrinterColumns");
    for (index, column) in list(&version["additionalPrinterColumns"])
        .iter()
        .enumerate()
    {
        self::column(column, &format!("{columns}[{index}]"), &mut errors);
    }
    errors
}

fn scale(scale: &Value, at: &str, errors: &mut FieldErrors) {
    if !scale.is_object() {
        return;
    }
    for (key, roots, expected) in [
        ("specReplicasPath", &[".spec."][..], ".spec"),
        ("statusReplicasPath", &[".status."], ".status"),
        (
            "labelSelectorPath",
            &[".spec.", ".status."],
            "either .spec or .status",
        ),
    ] {
        let at = format!("{at}.{key}");
        match scale[key].as_str().unwrap_or_default() {
            "" if key == "labelSelectorPath" => {}
            "" => errors.push(FieldError::required(at, "")),
            path if !path.starts_with('.') => {
                errors.push(FieldError::invalid(
                    at,
                    &scale[key],
                    "must be a simple json path starting with .",
                ));
            }
            path if !roots.iter().any(|root| path.starts_with(root)) => {
                errors.push(FieldError::invalid(
                    at,
                    &scale[key],
                    format!("should be a json path under {expected}"),
                ));
            }
            _ => {}
        }
    }
}

fn column(column: &Value, at: &str, errors: &mut FieldErrors) {
    let field = |key: &str| column[key].as_str().unwrap_or_default();
    if field("name").is_empty() {
        errors.push(FieldError::required(format!("{at}.name"), ""));
    }
    let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
    match field("type") {
        "" => errors.push(FieldError::required(format!("{at}.type"), detail)),
        kind if !COLUMN_TYPES.contains(&kind) => {
            errors.push(FieldError::invalid(
                format!("{at}.type"),
                &column["type"],
                detail,
            ));
        }
        _ => {}
    }
    if !field("format").is_empty() && !COLUMN_FORMATS.contains(&field("format")) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.push(FieldError::invalid(
            format!("{at}.format"),
            &column["format"],
            detail,
        ));
    }
    match field("jsonPath") {
        "" => errors.push(FieldError::required(format!("{at}.JSONPath"), "")),
        path if !path.starts_with('.') => {
            let detail = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(
                format!("{at}.JSONPath"),
                &column["jsonPath"],
                detail,
            ));
        }
        _ => {}
    }
}

/// Validates selectable fields: they must exist and have a scalar type.
pub(super) fn selectable(fields: &[Value], schema: &Schema, at: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut unique = BTreeSet::new();
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
        if text.contains('[') {
            errors.push(FieldError::invalid(
                at,
                path,
                "is an invalid path: array notation is not allowed",
            ));
            continue;
        }
        let keys = keys(text);
        let found = keys
            .iter()
            .try_fold(schema.root(), |node, key| schema.field(node, key));
        let Some(node) = found else {
            let detail = "is an invalid path: does not refer to a valid field";
            errors.push(FieldError::invalid(at, path, detail));
            continue;
        };
        if keys[0] == "metadata" {
            errors.push(FieldError::invalid(
                &at,
                path,
                "must not point to fields in metadata",
            ));
        }
        if !matches!(
            node.kind,
            ValueType::String | ValueType::Boolean | ValueType::Integer
        ) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                          with formats are allowed.";
            errors.push(FieldError::invalid(&at, path, detail));
        }
        if !unique.insert(text) {
            errors.push(FieldError::duplicate(at, path));
        }
    }
    if unique.len() > MAX_SELECTABLE {
        errors.push(FieldError::too_many(at, unique.len(), MAX_SELECTABLE));
    }
    errors
}

/// Validates an update. Group and plural are immutable; scope and kind are once the CRD is
/// established. Stored versions must stay.
pub(super) fn update(crd: &Value, old: &Value) -> FieldErrors {
    let always = ["/spec/group", "/spec/names/plural"];
    let established = ["/spec/scope", "/spec/names/kind"];
    let fixed = always.into_iter().chain(
        established
            .into_iter()
            .filter(|_| super::status::is_established(old)),
    );
    let changed = |at: &&str| crd.pointer(at) != old.pointer(at);
    let mut errors: FieldErrors = fixed
        .filter(changed)
        .map(|at| {
            let value = crd.pointer(at).unwrap_or(&Value::Null);
            FieldError::invalid(at[1..].replace('/', "."), value, "field is immutable")
        })
        .collect();
    let versions: HashSet<_> = list(&crd["spec"]["versions"])
        .iter()
        .map(|version| version["name"].as_str())
        .collect();
    for (index, stored) in list(&old["status"]["storedVersions"]).iter().enumerate() {
        if !versions.contains(&stored.as_str()) {
            let name = stored.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {name} and removes \
                 {name} from status.storedVersions"
            );
            errors.push(FieldError::invalid(
                format!("status.storedVersions[{index}]"),
                stored,
                detail,
            ));
        }
    }
    errors
}

fn one_of(at: &str, value: &Value, allowed: &[&str], errors: &mut FieldErrors) {
    match value.as_str() {
        None | Some("") => errors.push(FieldError::required(at, "")),
        Some(found) if !allowed.contains(&found) => {
            errors.push(FieldError::not_supported(at, value, allowed));
        }
        Some(_) => {}
    }
}
