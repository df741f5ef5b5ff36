//! Validation of object metadata, the same for all types.
//!
//! Runs after the server has set its own fields (name, uid, timestamps). Reports all errors at
//! once.

pub(crate) mod names;
mod owners;
pub(crate) mod types;

pub(crate) use owners::dedupe_owner_references;

use crate::{
    resource::Resource,
    status::{FieldError, FieldErrors},
};
use rand::{Rng, seq::IndexedRandom};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

const MAX_ANNOTATIONS: usize = 256 << 10;

/// No vowels, so that no words appear, and no characters that look alike.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
const MAX_NAME: usize = 63;

/// Returns `base`, shortened if necessary, with a random suffix.
pub(crate) fn generate_name(base: &str, rng: &mut impl Rng) -> String {
    let base = &base[..base.floor_char_boundary(MAX_NAME - SUFFIX_LENGTH)];
    let suffix = (0..SUFFIX_LENGTH)
        .filter_map(|_| SUFFIX_ALPHABET.choose(rng))
        .map(|&byte| char::from(byte));
    base.chars().chain(suffix).collect()
}

/// Validates the metadata of a new object.
pub(crate) fn validate_create(resource: &Resource, object: &Value) -> FieldErrors {
    let meta = &object["metadata"];
    let rule = resource.strategy.name;
    let mut errors = FieldErrors::new();
    match text(meta, "generateName") {
        "" => {}
        base => errors.extend(invalid(
            "metadata.generateName",
            base,
            names::prefix(rule, base),
        )),
    }
    match text(meta, "name") {
        "" => errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        )),
        name => errors.extend(invalid("metadata.name", name, names::name(rule, name))),
    }
    match (resource.namespaced, text(meta, "namespace")) {
        (true, "") => errors.push(FieldError::required("metadata.namespace", "")),
        (true, namespace) => errors.extend(invalid(
            "metadata.namespace",
            namespace,
            names::label(namespace),
        )),
        (false, "") => {}
        (false, _) => errors.push(FieldError::forbidden(
            "metadata.namespace",
            "not allowed on this type",
        )),
    }
    errors.extend(validate_lists(meta));
    errors.extend(validate_unqualified_finalizers(resource, meta));
    errors
}

/// Validates the metadata of a resource inside a custom resource, all of which is optional.
pub(crate) fn validate_embedded(meta: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for field in ["generateName", "name"] {
        let path = format!("metadata.{field}");
        let value = text(meta, field);
        errors.extend(invalid(&path, value, names::path_segment(value)));
    }
    match text(meta, "namespace") {
        "" => {}
        namespace => errors.extend(invalid(
            "metadata.namespace",
            namespace,
            names::label(namespace),
        )),
    }
    errors.extend(validate_lists(meta));
    errors
}

/// Validates labels, annotations, owner references and finalizers of a new object.
fn validate_lists(meta: &Value) -> FieldErrors {
    let mut errors = validate_labels(meta);
    errors.extend(validate_annotations(meta));
    errors.extend(owners::validate(meta));
    let finalizers = texts(meta, "finalizers");
    errors.extend(
        finalizers
            .iter()
            .flat_map(|name| invalid("metadata.finalizers", name, names::qualified(name))),
    );
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(
            "metadata.finalizers",
            &meta["finalizers"],
            why,
        ));
    }
    errors
}

/// Validates the metadata of an object that replaces `old`.
pub(crate) fn validate_update(resource: &Resource, new: &Value, old: &Value) -> FieldErrors {
    let meta = &new["metadata"];
    let old = &old["metadata"];
    let mut errors = FieldErrors::new();
    if !old["deletionTimestamp"].is_null() {
        let before: BTreeSet<_> = texts(old, "finalizers").into_iter().collect();
        let after: BTreeSet<_> = texts(meta, "finalizers").into_iter().collect();
        let added: Vec<_> = after
            .difference(&before)
            .map(|name| format!("{name:?}"))
            .collect();
        if !added.is_empty() {
            let why = "no new finalizers can be added if the object is being deleted, found new finalizers";
            let why = format!("{why} []string{{{}}}", added.join(", "));
            errors.push(FieldError::forbidden("metadata.finalizers", why));
        }
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let value = &meta[field];
        if *value != old[field] {
            let shown = if value.is_null() {
                "\"\"".into()
            } else {
                value.to_string()
            };
            errors.push(FieldError::invalid_formatted(
                format!("metadata.{field}"),
                &shown,
                "field is immutable",
            ));
        }
    }
    errors.extend(validate_labels(meta));
    errors.extend(validate_annotations(meta));
    errors.extend(owners::validate(meta));
    errors.extend(validate_unqualified_finalizers(resource, meta));
    errors
}

fn validate_labels(meta: &Value) -> FieldErrors {
    let labels = entries(meta, "labels");
    let errors = labels.flat_map(|(key, value)| {
        let key_errors = invalid("metadata.labels", key, names::qualified(key));
        key_errors.chain(invalid("metadata.labels", value, names::label_value(value)))
    });
    errors.collect()
}

fn validate_annotations(meta: &Value) -> FieldErrors {
    // Upper case is allowed in keys of annotations.
    let problems = |key: &str| names::qualified(&key.to_lowercase());
    let mut errors: FieldErrors = entries(meta, "annotations")
        .flat_map(|(key, _)| invalid("metadata.annotations", key, problems(key)))
        .collect();
    if entries(meta, "annotations")
        .map(|(key, value)| key.len() + value.len())
        .sum::<usize>()
        > MAX_ANNOTATIONS
    {
        errors.push(FieldError::too_long(
            "metadata.annotations",
            MAX_ANNOTATIONS,
        ));
    }
    errors
}

/// Returns warnings about new finalizers of custom resources that have no domain.
pub(crate) fn finalizer_warnings<'a>(
    new: &'a Value,
    old: Option<&'a Value>,
) -> impl Iterator<Item = String> + use<'a> {
    let before: BTreeSet<_> = old
        .map(|old| texts(&old["metadata"], "finalizers"))
        .into_iter()
        .flatten()
        .collect();
    let unqualified = texts(&new["metadata"], "finalizers")
        .into_iter()
        .filter(move |name| {
            !name.contains('/')
                && !matches!(*name, "orphan" | "foregroundDeletion")
                && !before.contains(name)
        });
    let why = "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers";
    unqualified.map(move |name| format!("metadata.finalizers: {name:?}: {why}"))
}

/// Rejects finalizers without a domain on built-in types, except for those of Kubernetes. Does not
/// apply to custom resources and CRDs: the apiextensions server accepts any name.
fn validate_unqualified_finalizers(resource: &Resource, meta: &Value) -> FieldErrors {
    if resource.strategy.custom || &*resource.group == "apiextensions.k8s.io" {
        return FieldErrors::new();
    }
    let finalizers = texts(meta, "finalizers").into_iter().enumerate();
    let foreign = finalizers.filter(|(_, name)| {
        !name.contains('/') && !matches!(*name, "kubernetes" | "orphan" | "foregroundDeletion")
    });
    let why = "name is neither a standard finalizer name nor is it fully qualified";
    foreign
        .map(|(at, name)| {
            FieldError::invalid(format!("metadata.finalizers[{at}]"), &name.into(), why)
        })
        .collect()
}

fn invalid<'a>(
    field: &'a str,
    value: &str,
    problems: Vec<String>,
) -> impl Iterator<Item = FieldError> + use<'a> {
    let value = Value::from(value);
    problems
        .into_iter()
        .map(move |why| FieldError::invalid(field, &value, why))
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn texts<'a>(meta: &'a Value, field: &str) -> Vec<&'a str> {
    meta[field]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn entries<'a>(meta: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = meta[field].as_object().map(Map::iter).into_iter().flatten();
    map.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{Generation, NameRule, Strategy};
    use proptest::prelude::*;
    use rand::{SeedableRng, rngs::StdRng};
    use serde_json::json;

    fn resource(namespaced: bool, custom: bool, name: NameRule) -> Resource {
        Resource {
            group: "example.com".into(),
            version: "v1".into(),
            kind: "Widget".into(),
            list_kind: "WidgetList".into(),
            plural: "widgets".into(),
            singular: "widget".into(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced,
            verbs: &[],
            strategy: Strategy {
                custom,
                generation: Generation::None,
                unconditional_update: false,
                create_on_update: false,
                returns_deleted: false,
                grace: None,
                status: None,
                scale: None,
                name,
                prepare: |_, _| {},
                validate: |_, _| FieldErrors::new(),
                validate_status: |_| FieldErrors::new(),
                dependencies: crate::builtin::Dependencies::Nothing,
                warn: |_| Vec::new(),
            },
            schema: crate::resource::ResourceSchema::Custom(crate::schema::Schema::any().into()),
            columns: Vec::new(),
            selectable: Vec::new(),
            deprecation: None,
            storage: "v1".into(),
        }
    }

    fn widgets() -> Resource {
        resource(true, true, NameRule::Subdomain)
    }

    /// Returns a valid object with some metadata fields replaced.
    fn object(changed: &Value) -> Value {
        let mut object = json!({"metadata": {"name": "a", "namespace": "default", "uid": "u"}});
        for (field, value) in changed.as_object().unwrap() {
            object["metadata"][field] = value.clone();
        }
        object
    }

    fn created(changed: Value) -> Vec<String> {
        validate_create(&widgets(), &object(&changed))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn updated(old: Value, new: Value) -> Vec<String> {
        validate_update(&widgets(), &object(&new), &object(&old))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_name_is_required_and_follows_the_grammar_of_its_type() {
        assert_eq!(created(json!({})), [""; 0]);
        assert_eq!(
            created(json!({"name": ""})),
            ["metadata.name: Required value: name or generateName is required"]
        );
        assert!(created(json!({"name": "A"}))[0].starts_with(
            "metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case"
        ));
        assert!(
            created(json!({"generateName": "A-"}))[0]
                .starts_with("metadata.generateName: Invalid value: \"A-\": ")
        );
        let role = resource(false, false, NameRule::PathSegment);
        let errors = validate_create(&role, &json!({"metadata": {"name": "a/b"}}));
        assert_eq!(
            errors[0].to_string(),
            "metadata.name: Invalid value: \"a/b\": may not contain '/'"
        );
    }

    #[test]
    fn every_grammar_rejects_names_that_change_the_path() {
        for rule in [NameRule::Subdomain, NameRule::Label, NameRule::PathSegment] {
            for name in [".", "..", "a/b", "../a", "a%2fb", "/"] {
                let errors =
                    validate_create(&resource(true, true, rule), &object(&json!({"name": name})));
                assert!(!errors.is_empty(), "{rule:?} {name}");
            }
        }
    }

    #[test]
    fn a_namespace_is_required_for_namespaced_types_and_forbidden_for_others() {
        assert_eq!(
            created(json!({"namespace": ""})),
            ["metadata.namespace: Required value"]
        );
        assert_eq!(
            created(json!({"namespace": "a.b"})),
            ["metadata.namespace: Invalid value: \"a.b\": must not contain dots"]
        );
        let errors = validate_create(
            &resource(false, true, NameRule::Subdomain),
            &object(&json!({})),
        );
        assert_eq!(
            errors[0].to_string(),
            "metadata.namespace: Forbidden: not allowed on this type"
        );
    }

    #[test]
    fn labels_and_annotations_are_checked_on_every_write() {
        let bad = json!({"labels": {"a b": "c", "d": "e f"}, "annotations": {"g h": "i", "Example.com/J": "k l"}});
        for errors in [created(bad.clone()), updated(json!({}), bad)] {
            let starts = [
                "metadata.labels: Invalid value: \"a b\"",
                "metadata.labels: Invalid value: \"e f\"",
                "metadata.annotations: Invalid value: \"g h\"",
            ];
            assert_eq!(errors.len(), 3);
            assert!(
                errors
                    .iter()
                    .zip(starts)
                    .all(|(error, start)| error.starts_with(start)),
                "{errors:?}"
            );
        }
    }

    #[test]
    fn annotations_are_limited_to_256_kibibytes() {
        assert_eq!(
            created(json!({"annotations": {"a": "x".repeat(MAX_ANNOTATIONS - 1)}})),
            [""; 0]
        );
        assert_eq!(
            created(json!({"annotations": {"a": "x".repeat(MAX_ANNOTATIONS)}})),
            ["metadata.annotations: Too long: may not be more than 262144 bytes"]
        );
    }

    #[test]
    fn owner_references_are_complete_and_at_most_one_is_a_controller() {
        let owner = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": true});
        assert_eq!(created(json!({"ownerReferences": [owner("p")]})), [""; 0]);
        let errors = created(json!({"ownerReferences": [owner("p"), owner("q")]}));
        assert!(
            errors[0].ends_with("Found \"true\" in references for Pod/p and Pod/q"),
            "{errors:?}"
        );
        assert_eq!(
            created(json!({"ownerReferences": [{"apiVersion": "a/", "kind": "", "name": "n"}]})),
            [
                "metadata.ownerReferences[0].apiVersion: Invalid value: \"a/\": must be <group>/<version> or <version>",
                "metadata.ownerReferences[0].kind: Required value: must not be empty",
                "metadata.ownerReferences[0].uid: Required value: must not be empty",
            ]
        );
    }

    #[test]
    fn a_finalizer_is_a_qualified_name() {
        assert!(
            created(json!({"finalizers": ["a b"]}))[0]
                .starts_with("metadata.finalizers: Invalid value: \"a b\"")
        );
        assert_eq!(created(json!({"finalizers": ["short"]})), [""; 0]);
        let errors = validate_create(
            &resource(true, false, NameRule::Subdomain),
            &object(&json!({"finalizers": ["short"]})),
        );
        assert_eq!(errors[0].field, "metadata.finalizers[0]");
        assert_eq!(
            created(json!({"finalizers": ["orphan", "foregroundDeletion"]})).len(),
            1
        );
    }

    #[test]
    fn identifying_fields_are_immutable() {
        for field in ["name", "namespace", "uid", "creationTimestamp"] {
            let mut new = json!({});
            new[field] = "other".into();
            let expected =
                format!("metadata.{field}: Invalid value: \"other\": field is immutable");
            assert_eq!(updated(json!({}), new), [expected]);
        }
    }

    #[test]
    fn an_object_being_deleted_gets_no_new_finalizers() {
        let deleting =
            json!({"deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["a/b", "c/d"]});
        let with = |finalizers: Value| json!({"deletionTimestamp": deleting["deletionTimestamp"], "finalizers": finalizers});
        assert_eq!(updated(deleting.clone(), with(json!(["c/d"]))), [""; 0]);
        assert_eq!(
            updated(deleting.clone(), with(json!(["a/b", "z/y", "e/f"]))),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, \
              found new finalizers []string{\"e/f\", \"z/y\"}"
            ]
        );
        assert_eq!(updated(json!({}), json!({"finalizers": ["e/f"]})), [""; 0]);
    }

    #[test]
    fn duplicate_owner_references_are_removed() {
        let mut twice =
            object(&json!({"ownerReferences": [{"uid": "1"}, {"uid": "2"}, {"uid": "1"}]}));
        let warning = dedupe_owner_references(&mut twice, false).unwrap();
        assert!(
            warning.ends_with("duplicate UID(s) observed: 1"),
            "{warning}"
        );
        assert_eq!(
            twice["metadata"]["ownerReferences"],
            json!([{"uid": "1"}, {"uid": "2"}])
        );
        assert_eq!(dedupe_owner_references(&mut twice, false), None);
    }

    steersman_testkit::properties! {
        #[test]
        fn a_generated_name_is_short_and_starts_with_its_base(base in "[a-z]{1,80}-", seed: u64) {
            let name = generate_name(&base, &mut StdRng::seed_from_u64(seed));
            prop_assert!(name.len() <= MAX_NAME);
            let (start, suffix) = name.split_at(name.len() - SUFFIX_LENGTH);
            prop_assert_eq!(start, &base[..base.len().min(58)]);
            prop_assert!(suffix.bytes().all(|byte| SUFFIX_ALPHABET.contains(&byte)));
        }
    }
}
