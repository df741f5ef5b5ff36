//! Tests of CRD parsing with valid and invalid CRDs.

use super::Definition;
use crate::{resource::Cell, status::FieldErrors};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn widget() -> Value {
    let v1 = json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["color"],
                "properties": {
                    "color": {"type": "string", "enum": ["red", "green"]},
                    "replicas": {"type": "integer", "default": 1, "minimum": 0, "maximum": 10},
                    "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "required": ["name"], "properties": {
                            "name": {"type": "string"}, "protocol": {"type": "string", "default": "TCP"}}}},
                    "maxUnavailable": {"x-kubernetes-int-or-string": true},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                },
            },
            "status": {"type": "object", "properties": {"replicas": {"type": "integer"},
                "selector": {"type": "string"}}},
        },
    });
    let old = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "color": {"type": "string"}}}}});
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [
                {
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": v1},
                    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
                    "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
                    "selectableFields": [{"jsonPath": ".spec.color"}],
                },
                {"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": old}},
                {"name": "v1alpha1", "served": false, "storage": false, "schema": {"openAPIV3Schema": old}},
            ],
        },
    })
}

fn prepare_and_parse(mut crd: Value) -> Result<Definition, FieldErrors> {
    Definition::prepare(&mut crd);
    Definition::parse(&crd)
}

/// Returns the errors of the widget CRD after `value` is set at `at`.
fn errors(at: &str, value: Value) -> Vec<String> {
    let mut crd = widget();
    let (parent, key) = at.rsplit_once('/').unwrap();
    crd.pointer_mut(parent).unwrap()[key] = value;
    Definition::prepare(&mut crd);
    super::validate(&crd, None)
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn missing_fields_get_their_defaults() {
    let mut crd = widget();
    Definition::prepare(&mut crd);
    assert_eq!(crd["spec"]["names"]["singular"], "widget");
    assert_eq!(crd["spec"]["names"]["listKind"], "WidgetList");
    assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(crd.get("status"), None);
}

#[test]
fn each_served_version_is_a_resource() {
    let definition = prepare_and_parse(widget()).unwrap();
    let served = definition
        .versions()
        .iter()
        .filter(|version| version.served);
    let resources: Vec<_> = served.map(|version| definition.resource(version)).collect();
    assert_eq!(
        resources
            .iter()
            .map(|resource| &*resource.version)
            .collect::<Vec<_>>(),
        ["v1", "v1beta1"]
    );
    assert_eq!(&*definition.storage().unwrap().name, "v1");
    assert_eq!(definition.versions().len(), 3);
    let v1 = &resources[0];
    assert_eq!(v1.api_version(), "example.com/v1");
    assert_eq!(
        (&*v1.kind, &*v1.list_kind, &*v1.plural, &*v1.singular),
        ("Widget", "WidgetList", "widgets", "widget")
    );
    assert!(v1.namespaced && v1.strategy.custom && v1.strategy.status.is_some());
    let scale = v1.strategy.scale.as_ref().unwrap();
    assert_eq!(scale.spec_replicas, ["spec", "replicas"]);
    assert_eq!(
        scale.selector.as_deref(),
        Some(&["status".to_owned(), "selector".to_owned()][..])
    );
    assert_eq!(v1.selectable[0].name, "spec.color");
    assert_eq!(
        v1.columns[0].description,
        "Custom resource definition column (in JSONPath format): .spec.color"
    );
    let beta = &resources[1];
    assert!(beta.strategy.status.is_none() && beta.strategy.scale.is_none());
    assert!(
        matches!(&beta.columns[0].cell, Cell::Path(path) if path == ".metadata.creationTimestamp")
    );
}

#[test]
fn a_custom_resource_is_pruned_defaulted_and_validated() {
    let definition = prepare_and_parse(widget()).unwrap();
    let schema = &definition.storage().unwrap().schema;
    let mut object = json!({"metadata": {"name": "a"}, "spec": {"color": "red", "replicas": null, "nope": 1,
        "maxUnavailable": "50%", "free": {"any": [1]}, "ports": [{"name": "a"}]}});
    assert_eq!(*schema.prune(&mut object), ["spec.nope"]);
    schema.default(&mut object);
    assert_eq!(
        object["spec"],
        json!({"color": "red", "replicas": 1, "maxUnavailable": "50%", "free": {"any": [1]},
            "ports": [{"name": "a", "protocol": "TCP"}]})
    );
    assert!(schema.validate(&object, None).errors.is_empty());
}

#[test]
fn the_name_consists_of_plural_and_group() {
    assert_eq!(
        errors("/metadata/name", json!("widget.example.com")),
        [
            r#"metadata.name: Invalid value: "widget.example.com": must be spec.names.plural+"."+spec.group"#
        ]
    );
    assert!(
        errors("/spec/group", json!("example"))
            .iter()
            .any(|text| text.contains("at least one dot"))
    );
    assert!(
        errors("/spec/group", json!("Example.com"))
            .iter()
            .any(|text| text.contains("RFC 1123 subdomain"))
    );
}

#[test]
fn invalid_names_are_rejected() {
    assert_eq!(errors("/spec/names/kind", json!("")).len(), 3);
    let kind = errors("/spec/names/kind", json!("My Widget"));
    assert!(
        kind.iter()
            .any(|text| text.starts_with("spec.names.kind: ")
                && text.contains("may have mixed case"))
    );
    assert!(
        errors("/spec/names/shortNames", json!(["W"]))[0]
            .starts_with("spec.names.shortNames[0]: Invalid value")
    );
    assert!(
        errors("/spec/names/listKind", json!("Widget"))[0]
            .ends_with("kind and listKind may not be the same")
    );
    assert!(
        errors("/spec/versions/1/name", json!("V 1"))[0]
            .starts_with("spec.versions[1].name: Invalid value")
    );
    assert!(
        errors("/spec/names/categories", json!(["-"]))[0]
            .starts_with("spec.names.categories[0]: Invalid value")
    );
}

#[test]
fn one_version_is_the_storage_version_and_version_names_are_unique() {
    for value in [false, true] {
        let at = format!("/spec/versions/{}/storage", usize::from(value));
        assert!(
            errors(&at, json!(value))[0]
                .ends_with("must have exactly one version marked as storage version")
        );
    }
    assert!(
        errors("/spec/versions/1/name", json!("v1"))[0]
            .ends_with("must contain unique version names")
    );
    assert_eq!(
        errors("/spec/versions/1/storage", json!(true))[1],
        r#"status.storedVersions: Invalid value: ["v1"]: must have the storage version v1beta1"#
    );
}

#[test]
fn unsupported_scope_and_conversion_are_rejected() {
    assert_eq!(
        errors("/spec/scope", json!("Global")),
        [r#"spec.scope: Unsupported value: "Global": supported values: "Cluster", "Namespaced""#]
    );
    assert_eq!(
        errors("/spec/conversion", json!({"strategy": "Webhook"})),
        [
            "spec.conversion.strategy: Forbidden: the embedded API server has no conversion webhooks; \
          use the strategy None, or a real kube-apiserver"
        ]
    );
    assert_eq!(errors("/spec/preserveUnknownFields", json!(true)).len(), 1);
}

#[test]
fn every_version_has_a_structural_schema() {
    assert_eq!(
        errors("/spec/versions/1/schema", json!(null)),
        ["spec.versions[1].schema.openAPIV3Schema: Required value"]
    );
    assert_eq!(
        errors(
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/type",
            json!("")
        ),
        [
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].type: Required value: must not be empty for \
          specified object fields"
        ]
    );
    let at = "/spec/versions/0/schema/openAPIV3Schema/additionalProperties";
    assert!(
        errors(at, json!(true))
            .iter()
            .any(|text| text.contains("if the status subresource is enabled"))
    );
}

#[test]
fn errors_in_a_schema_shared_by_all_versions_are_reported_once() {
    let mut crd = widget();
    for version in crd["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"] = json!({"openAPIV3Schema": {"type": "string"}});
        version["selectableFields"] = Value::Null;
    }
    let found = prepare_and_parse(crd).unwrap_err();
    let fields: Vec<_> = found.iter().map(|error| &*error.field).collect();
    assert_eq!(fields, ["spec.validation.openAPIV3Schema.type"; 2]);
    assert!(
        found[0]
            .body
            .ends_with("if the status subresource is enabled")
    );
    assert!(found[1].body.ends_with("must be object at the root"));
}

#[test]
fn subresources_columns_and_selectable_fields_are_checked() {
    let scale = "/spec/versions/0/subresources/scale/specReplicasPath";
    assert_eq!(
        errors(scale, json!(".status.x")),
        [
            r#"spec.versions[0].subresources.scale.specReplicasPath: Invalid value: ".status.x": should be a json path under .spec"#
        ]
    );
    let column = "/spec/versions/0/additionalPrinterColumns/0/type";
    assert!(
        errors(column, json!("text"))[0]
            .ends_with("must be one of boolean,date,integer,number,string")
    );
    let field = "/spec/versions/0/selectableFields/0/jsonPath";
    assert!(errors(field, json!(".spec.nope"))[0].ends_with("does not refer to a valid field"));
    assert!(
        errors(field, json!(".spec.free"))[0]
            .contains("must point to a field of type string, boolean or integer")
    );
    let fields = "/spec/versions/0/selectableFields";
    assert!(
        errors(
            fields,
            json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.color"}])
        )[0]
        .contains("Duplicate")
    );
}

#[test]
fn scope_is_immutable_once_a_crd_is_established() {
    let mut old = widget();
    let mut new = widget();
    new["spec"]["scope"] = json!("Cluster");
    new["spec"]["group"] = json!("example.org");
    let found = |new: &Value, old: &Value| -> Vec<_> {
        Definition::check_update(new, old)
            .into_iter()
            .map(|error| error.field)
            .collect()
    };
    assert_eq!(found(&new, &old), ["spec.group"]);
    old["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
    assert_eq!(found(&new, &old), ["spec.group", "spec.scope"]);
    assert_eq!(found(&old, &old), Vec::<String>::new());
}

#[test]
fn a_stored_version_cannot_be_removed() {
    let mut old = widget();
    old["status"] = json!({"storedVersions": ["v1alpha0", "v1"]});
    let found = Definition::check_update(&widget(), &old);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].field, "status.storedVersions[0]");
}

/// Returns a schema as large as those of Cluster API: thousands of nodes with defaults, patterns
/// and alternatives.
fn large_schema() -> Value {
    let condition = json!({"type": "object", "required": ["type", "status"], "properties": {
        "type": {"type": "string", "maxLength": 316,
            "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
    }});
    let variable = |n: usize| {
        let mut node = json!({"type": "object", "properties": {
            "name": {"type": "string", "minLength": 1}, "required": {"type": "boolean", "default": false},
            "value": {"x-kubernetes-preserve-unknown-fields": true},
            "max": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                "items": condition},
        }});
        for depth in 0..4 {
            node = json!({"type": "object", "description": format!("level {depth} of {n}"), "properties": {
                "inner": node, "labels": {"type": "object", "additionalProperties": {"type": "string"}}}});
        }
        node
    };
    let properties: serde_json::Map<_, _> = (0..200)
        .map(|n| (format!("part{n}"), variable(n)))
        .collect();
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": properties}, "status": {"type": "object"},
    }})
}

#[test]
fn a_crd_as_large_as_cluster_apis_is_parsed_quickly() {
    let mut crd = widget();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = large_schema();
    crd["spec"]["versions"][0]["selectableFields"] = Value::Null;
    assert!(crd.to_string().len() > 200_000);
    let start = Instant::now();
    let definition = prepare_and_parse(crd).unwrap();
    // Most of the time is spent on patterns. Unoptimized builds are about twenty times slower.
    assert!(
        start.elapsed() < Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 1 }),
        "{:?}",
        start.elapsed()
    );
    let schema = &definition.storage().unwrap().schema;
    let part =
        json!({"inner": {"inner": {"inner": {"inner": {"name": "a"}}}}, "labels": {"a": "b"}});
    let mut object = json!({"spec": {"part7": part}});
    assert!(schema.prune(&mut object).is_empty());
    schema.default(&mut object);
    assert_eq!(
        object.pointer("/spec/part7/inner/inner/inner/inner/required"),
        Some(&json!(false))
    );
    assert!(schema.validate(&object, None).errors.is_empty());
}
