use crate::fixtures::{read, text};
use serde_json::Value;
use std::{borrow::Cow, sync::Arc};
use structured_merge::{
    Duplicates, Filter, PathElement, Pattern, Set, TypedValue, ValidationErrors,
    schema::{CrdVersion, Schema, Type},
};

struct Case {
    record: Value,
    v1: Type,
    v2: Type,
}

impl Case {
    fn new(case: Value) -> Self {
        let versions = ["v1", "v2"].map(|name| CrdVersion {
            name,
            schema: case["schemas"].get(name),
        });
        let schema = Arc::new(Schema::from_crd(versions, false).expect("the schema is valid"));
        Self {
            v1: schema.find("v1").expect("v1 exists"),
            v2: schema.find("v2").expect("v2 exists"),
            record: case,
        }
    }

    fn typed(
        &self,
        name: &str,
        duplicates: Duplicates,
    ) -> Result<TypedValue<'_>, ValidationErrors> {
        TypedValue::new(Cow::Borrowed(&self.record[name]), &self.v1, duplicates)
    }

    fn set(&self, name: &str) -> Set {
        serde_json::from_str(text(&self.record, name)).expect("the fixture is a field set")
    }

    /// Compares a set with that of the reference, including its order.
    fn check_set(&self, name: &str, set: &Set) {
        let written = serde_json::to_string(set).unwrap();
        assert_eq!(
            written,
            text(&self.record, name),
            "{name} of {}",
            self.record
        );
    }

    fn check_error<T>(&self, name: &str, result: &Result<T, ValidationErrors>) {
        let error = result
            .as_ref()
            .err()
            .map(ToString::to_string)
            .unwrap_or_default();
        check_error_text(text(&self.record, name), &error, &self.record);
    }
}

/// Compares the lines of an error, because the Go package visits maps in random order.
///
/// `*` means an error whose text differs between runs of the Go package.
pub(crate) fn check_error_text(expected: &str, error: &str, case: &Value) {
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    if expected == "*" {
        assert!(!error.is_empty(), "no error for {case}");
    } else {
        assert_eq!(lines(error), lines(expected), "error of {case}");
    }
}

/// Returns the cases whose values are valid if duplicates are allowed.
fn valid_cases() -> impl Iterator<Item = Case> {
    read("typed.jsonl.gz")
        .into_iter()
        .filter(|case| case.get("lhsSet").is_some())
        .map(Case::new)
}

#[test]
fn values_are_validated_like_in_the_reference() {
    let cases = read("typed.jsonl.gz");
    assert!(cases.len() >= 200);
    for case in cases.into_iter().map(Case::new) {
        for name in ["lhs", "rhs"] {
            let strict = case.typed(name, Duplicates::Rejected);
            case.check_error(&format!("{name}Error"), &strict);
            let lenient = case.typed(name, Duplicates::Allowed);
            case.check_error(&format!("{name}ErrorWithDuplicates"), &lenient);
        }
    }
}

#[test]
fn field_sets_of_values_equal_those_of_the_reference() {
    for case in valid_cases() {
        for name in ["lhs", "rhs"] {
            let set = case
                .typed(name, Duplicates::Allowed)
                .unwrap()
                .field_set()
                .unwrap();
            case.check_set(&format!("{name}Set"), &set);
        }
    }
}

#[test]
fn differences_of_values_equal_those_of_the_reference() {
    for case in valid_cases() {
        let old = case.typed("lhs", Duplicates::Allowed).unwrap();
        let new = case.typed("rhs", Duplicates::Allowed).unwrap();
        let comparison = old.compare(&new);
        case.check_error("compareError", &comparison);
        if let Ok(comparison) = comparison {
            case.check_set("removed", &comparison.removed);
            case.check_set("modified", &comparison.modified);
            case.check_set("added", &comparison.added);
        }
    }
}

#[test]
fn merged_values_equal_those_of_the_reference() {
    for case in valid_cases() {
        let base = case.typed("lhs", Duplicates::Allowed).unwrap();
        let over = case.typed("rhs", Duplicates::Allowed).unwrap();
        let merged = base.merge(&over);
        case.check_error("mergeError", &merged);
        if let Ok(merged) = merged {
            assert_eq!(*merged.value(), case.record["merged"], "{}", case.record);
        }
    }
}

#[test]
fn values_without_items_and_with_only_items_equal_those_of_the_reference() {
    for case in valid_cases() {
        let value = case.typed("lhs", Duplicates::Allowed).unwrap();
        let items = case.set("items");
        let results = [
            ("without", value.remove_items(&items)),
            ("only", value.extract_items(&items)),
            ("onlyLeaves", value.extract_items(&items.leaves())),
            (
                "onlyWithKeys",
                value.extract_items_with_keys(&items.leaves()),
            ),
        ];
        for (name, result) in results {
            assert_eq!(
                *result.value(),
                case.record[name],
                "{name} of {}",
                case.record
            );
        }
    }
}

#[test]
fn set_operations_equal_those_of_the_reference() {
    for case in valid_cases() {
        let set = case.set("items");
        let other = case.set("other");
        case.check_set("items", &set);
        case.check_set("union", &set.union(&other));
        case.check_set("intersection", &set.intersection(&other));
        case.check_set("difference", &set.difference(&other));
        case.check_set("recursiveDifference", &set.recursive_difference(&other));
        case.check_set("leaves", &set.leaves());
    }
}

#[test]
fn patterns_select_the_fields_that_the_reference_selects() {
    for case in valid_cases() {
        let patterns = case.record["patterns"].as_array().unwrap().iter();
        let pattern = patterns
            .map(|steps| {
                let steps = steps.as_array().unwrap().iter();
                Pattern::prefix(steps.map(|step| PathElement::parse(step.as_str()?).unwrap()))
            })
            .reduce(Pattern::or)
            .unwrap();
        let fields = case.set("lhsSet").union(&case.set("rhsSet"));
        case.check_set("included", &Filter::Include(pattern).apply(fields));
    }
}

#[test]
fn field_sets_are_adapted_to_a_changed_schema_like_in_the_reference() {
    let mut adapted = 0;
    for case in valid_cases().filter(|case| case.record.get("v2Set").is_some()) {
        let v1 = case.typed("lhs", Duplicates::Allowed).unwrap();
        let mut object = case.record["lhs"].clone();
        object["apiVersion"] = "example.com/v2".into();
        let v2 = TypedValue::new(Cow::Owned(object), &case.v2, Duplicates::Allowed).unwrap();
        case.check_set("v2Set", &v2.field_set().unwrap());
        for (name, from, to) in [
            ("reconciled", "v2Set", &v1),
            ("reconciledToV2", "lhsSet", &v2),
        ] {
            let set = case.set(from);
            let reconciled = to
                .reconcile_field_set(&set)
                .unwrap()
                .unwrap_or_else(|| set.clone());
            if reconciled != set {
                adapted += 1;
            }
            let name = if case.record.get(name).is_some() {
                name
            } else {
                from
            };
            case.check_set(name, &reconciled);
        }
    }
    assert!(adapted > 20, "only {adapted} sets were adapted");
}
