use crate::{
    fixtures::{read, text},
    typed_values::check_error_text,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};
use structured_merge::{
    ApplyError, ConvertError, FieldManager, Filter, GroupVersionKind, Path, Time, Versions,
    schema::{CrdVersion, Schema, Type},
};

const GROUP: &str = "example.com";

/// Versions `v1` and `v2` of a custom resource without conversion.
struct Widgets(Arc<Schema>);

impl Versions for Widgets {
    fn type_of(&self, api_version: &str, kind: &str) -> Option<Type> {
        let version = api_version.strip_prefix("example.com/")?;
        (kind == "Widget").then(|| self.0.find(version)).flatten()
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ConvertError> {
        if self.type_of(api_version, "Widget").is_none() {
            return Err(ConvertError::MissingVersion(api_version.to_owned()));
        }
        let mut object = object.clone();
        object["apiVersion"] = api_version.into();
        Ok(object)
    }
}

fn schema(schemas: &Value) -> Arc<Schema> {
    let versions = ["v1", "v2"].map(|name| CrdVersion {
        name,
        schema: schemas.get(name),
    });
    Arc::new(Schema::from_crd(versions, false).expect("the schema is valid"))
}

fn field_manager(schema: &Arc<Schema>, op: &Value) -> FieldManager<Widgets> {
    let kind = GroupVersionKind::new(GROUP, text(op, "version"), "Widget");
    let reset: &[&str] = match text(op, "subresource") {
        "" => &["status"],
        _ => &["metadata", "spec"],
    };
    let filters = ["v1", "v2"].map(|version| {
        let reset = reset.iter().map(|name| Path::fields([*name])).collect();
        (format!("{GROUP}/{version}"), Filter::Exclude(reset))
    });
    FieldManager::new(Widgets(Arc::clone(schema)), kind, text(op, "subresource"))
        .with_reset_fields(BTreeMap::from(filters))
}

/// Returns the time of a step: one minute each, from 2020-01-01T00:00:00Z.
fn now(step: usize) -> Time {
    Time::from_seconds(1_577_836_800 + 60 * i64::try_from(step).unwrap())
}

fn causes(error: &ApplyError) -> Vec<String> {
    let ApplyError::Conflicts(conflicts) = error else {
        return Vec::new();
    };
    let mut causes: Vec<String> = conflicts
        .as_slice()
        .iter()
        .map(|conflict| format!("{}: {}", conflict.path, conflict.cause_message()))
        .collect();
    causes.sort();
    causes
}

#[test]
fn objects_and_managed_fields_equal_those_of_the_reference() {
    let cases = read("managers.jsonl.gz");
    assert!(cases.len() >= 200);
    let (mut operations, mut conflicts, mut errors) = (0, 0, 0);
    for (index, case) in cases.iter().enumerate() {
        let schema = schema(&case["schemas"]);
        let mut live: Option<Value> = None;
        for (step, op) in case["ops"].as_array().unwrap().iter().enumerate() {
            operations += 1;
            let manager = field_manager(&schema, op);
            let context = json!({"case": index + 1, "step": step, "live": live, "op": op});
            let name = text(op, "manager");
            let before = live.clone().unwrap_or_else(|| manager.empty_object());
            let result = if op["type"] == "update" {
                manager.update(&before, op["object"].clone(), name, now(step))
            } else {
                let force = op["force"] == true;
                manager.apply(&before, &op["object"], name, force, now(step))
            };
            match result {
                Err(error) => {
                    errors += 1;
                    let expected = text(op, "error");
                    check_error_text(expected, &error.to_string(), &context);
                    if let Some(expected) = op.get("causes") {
                        conflicts += 1;
                        assert_eq!(json!(causes(&error)), *expected, "causes of {context}");
                    }
                }
                Ok(object) => {
                    // The reference returns an unchanged object at the version of `live`.
                    let mut expected = op["result"].clone();
                    if op["type"] == "apply" {
                        expected["apiVersion"] = object["apiVersion"].clone();
                    }
                    assert_eq!(object, expected, "{context}");
                    let mut object = object;
                    object["apiVersion"] = format!("{GROUP}/v1").into();
                    object["metadata"]["uid"] = "1".into();
                    if op["untracked"] == true {
                        object["metadata"]
                            .as_object_mut()
                            .unwrap()
                            .remove("managedFields");
                    }
                    live = Some(object);
                }
            }
        }
    }
    assert!(operations > 1_000, "{operations} operations");
    assert!(conflicts > 50, "{conflicts} conflicts");
    assert!(errors > conflicts, "{errors} errors");
}
