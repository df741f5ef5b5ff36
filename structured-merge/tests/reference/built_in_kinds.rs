use crate::fixtures::{read, text};
use serde_json::Value;
use std::{borrow::Cow, sync::Arc};
use structured_merge::{
    Duplicates, Set, TypedValue,
    schema::{Schema, Type},
};

fn typed<'c>(case: &'c Value, name: &str, r#type: &Type) -> TypedValue<'c> {
    TypedValue::new(Cow::Borrowed(&case[name]), r#type, Duplicates::Rejected)
        .unwrap_or_else(|error| panic!("{error} in {case}"))
}

fn check_set(case: &Value, name: &str, set: &Set) {
    assert_eq!(
        serde_json::to_string(set).unwrap(),
        text(case, name),
        "{name} of {case}"
    );
}

#[test]
fn values_of_built_in_kinds_merge_like_in_the_reference() {
    let mut cases = read("builtin.jsonl.gz").into_iter();
    let table = cases.next().expect("the fixture begins with a table");
    let schema = Arc::new(Schema::from_table(&table).expect("the table is valid"));
    assert!(cases.len() >= 60);
    for case in cases {
        let r#type = schema.find(text(&case, "type")).expect("the kind exists");
        let old = typed(&case, "lhs", &r#type);
        let new = typed(&case, "rhs", &r#type);
        check_set(&case, "lhsSet", &old.field_set().unwrap());
        let comparison = old.compare(&new).unwrap();
        check_set(&case, "removed", &comparison.removed);
        check_set(&case, "modified", &comparison.modified);
        check_set(&case, "added", &comparison.added);
        assert_eq!(*old.merge(&new).unwrap().value(), case["merged"], "{case}");
    }
}

#[test]
fn types_of_openapi_definitions_merge_like_in_the_reference() {
    let mut objects = 0;
    for case in read("openapi.jsonl.gz") {
        let definitions = case["models"].as_object().unwrap();
        let schema = Schema::from_openapi(definitions, false).expect("the definitions are valid");
        let r#type = Arc::new(schema).find("com.example.v1.Widget").unwrap();
        for case in case["objects"].as_array().unwrap() {
            objects += 1;
            let base = typed(case, "lhs", &r#type);
            let over = typed(case, "rhs", &r#type);
            check_set(case, "lhsSet", &base.field_set().unwrap());
            assert_eq!(
                *base.merge(&over).unwrap().value(),
                case["merged"],
                "{case}"
            );
        }
    }
    assert!(objects > 50);
}
