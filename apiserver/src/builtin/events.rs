//! Events. Stored in the form of the core group; `events.k8s.io` serves them with other field
//! names.
//!
//! Selectors, columns and validation use the stored form.

use super::cells::text;
use super::prepare::set_default;
use super::validate::{at, immutable};
use crate::meta::names;
use crate::status::{FieldError, FieldErrors};
use serde_json::{Value, json};

/// API group with the newer form of events.
pub(super) const GROUP: &str = "events.k8s.io";

/// Fields with different names: stored name, and name in `events.k8s.io/v1`.
const RENAMED: &[(&str, &str)] = &[
    ("message", "note"),
    ("involvedObject", "regarding"),
    ("reportingComponent", "reportingController"),
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("source", "deprecatedSource"),
];

/// Converts a stored event to `events.k8s.io/v1`.
pub(super) fn to_view(mut stored: Value) -> Value {
    rename(&mut stored, "events.k8s.io/v1", RENAMED.iter().copied());
    // Only the core group includes these fields when they are empty.
    if let Some(event) = stored.as_object_mut() {
        event.retain(|key, value| !(key.starts_with("reporting") && value == ""));
    }
    stored
}

/// Converts an event of `events.k8s.io/v1` to its stored form.
pub(super) fn from_view(mut view: Value) -> Value {
    rename(
        &mut view,
        "v1",
        RENAMED.iter().map(|(stored, served)| (*served, *stored)),
    );
    view
}

/// Sets the fields that the core group always includes. It also includes missing times as null,
/// which are not stored.
pub(super) fn prepare(stored: &mut Value, _: Option<&Value>) {
    set_default(stored, "source", json!({}));
    set_default(stored, "reportingComponent", "");
    set_default(stored, "reportingInstance", "");
}

fn rename(
    event: &mut Value,
    api_version: &str,
    names: impl Iterator<Item = (&'static str, &'static str)>,
) {
    let Some(event) = event.as_object_mut() else {
        return;
    };
    for (from, to) in names {
        if let Some(value) = event.remove(from) {
            event.insert(to.into(), value);
        }
    }
    // Items of lists have no apiVersion.
    if let Some(served) = event.get_mut("apiVersion") {
        *served = api_version.into();
    }
}

/// Validates a stored event that was written in the core group.
pub(super) fn validate(object: &Value, _: Option<&Value>) -> FieldErrors {
    stored_event(object, "reportingComponent")
}

fn stored_event(object: &Value, reporter: &str) -> FieldErrors {
    let involved = at(object, "involvedObject.namespace")
        .as_str()
        .unwrap_or_default();
    let namespace = text(object, "/metadata/namespace");
    let has_event_time = !text(object, "/eventTime").is_empty();
    let valid = match (involved, has_event_time) {
        // Events about cluster-scoped objects are in one of these namespaces.
        ("", false) => matches!(namespace, "" | "default"),
        ("", true) => matches!(namespace, "default" | "kube-system"),
        (_, true) => true,
        (involved, false) => involved == namespace,
    };
    let mut errors = FieldErrors::new();
    if !valid {
        let why = "does not match event.namespace";
        errors.push(FieldError::invalid(
            "involvedObject.namespace",
            &json!(involved),
            why,
        ));
    }
    if has_event_time {
        for (field, path) in [
            (reporter, "/reportingComponent"),
            ("reportingInstance", "/reportingInstance"),
            ("action", "/action"),
            ("reason", "/reason"),
        ] {
            if path == "/reportingComponent" {
                let name = text(object, path);
                if name.is_empty() {
                    errors.push(FieldError::required(field, ""));
                }
                errors.extend(
                    names::qualified(name)
                        .iter()
                        .map(|why| FieldError::invalid(field, &json!(name), why)),
                );
                continue;
            }
            match text(object, path).len() {
                0 => errors.push(FieldError::required(field, "")),
                129.. => errors.push(too_many_characters(field, 128)),
                _ => {}
            }
        }
        if text(object, "/message").len() > 1024 {
            errors.push(too_many_characters("message", 1024));
        }
    }
    errors
}

fn too_many_characters(field: &str, max: usize) -> FieldError {
    FieldError::invalid(
        field,
        &json!(""),
        format!("can have at most {max} characters"),
    )
}

/// Validates a stored event that was written in `events.k8s.io`, which is stricter.
pub(super) fn validate_new(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = stored_event(object, "reportingController");
    let series = &object["series"];
    if !series.is_null() && old.is_none_or(|old| old["series"] != *series) {
        if series["count"].as_i64().unwrap_or_default() < 2 {
            errors.push(FieldError::invalid(
                "series.count",
                &json!(""),
                "should be at least 2",
            ));
        }
        if text(series, "/lastObservedTime").is_empty() {
            errors.push(FieldError::required("series.lastObservedTime", ""));
        }
    }
    if old.is_some() {
        let immutable_core = [
            "involvedObject",
            "reason",
            "message",
            "source",
            "firstTimestamp",
            "lastTimestamp",
            "count",
            "type",
        ];
        let immutable_new = [
            "eventTime",
            "action",
            "related",
            "reportingComponent",
            "reportingInstance",
        ];
        errors.extend(
            immutable_core
                .iter()
                .chain(&immutable_new)
                .filter_map(|field| immutable(object, old, field)),
        );
        return errors;
    }
    if text(object, "/eventTime").is_empty() {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = text(object, "/type");
    if kind != "Normal" && kind != "Warning" {
        errors.push(FieldError::invalid(
            "type",
            &json!(""),
            format!("has invalid value: {kind}"),
        ));
    }
    let is_set = |field: &&&str| match &object[**field] {
        Value::Null => false,
        Value::Object(map) => !map.is_empty(),
        value => *value != 0,
    };
    let set = ["firstTimestamp", "lastTimestamp", "count", "source"];
    errors.extend(
        set.iter()
            .filter(is_set)
            .map(|field| FieldError::invalid(*field, &json!(""), "needs to be unset")),
    );
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": "e", "namespace": "a"},
            "message": "it is so", "reason": "Because", "type": "Normal",
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "a"},
            "reportingComponent": "c", "reportingInstance": "i", "action": "Do",
            "count": 2, "firstTimestamp": "1", "lastTimestamp": "2", "source": {"component": "s"},
            "eventTime": "3", "series": {"count": 2, "lastObservedTime": "4"},
        })
    }

    #[test]
    fn both_groups_serve_the_same_event_with_different_field_names() {
        let view = to_view(stored());
        assert_eq!(
            view,
            json!({
                "apiVersion": "events.k8s.io/v1", "kind": "Event",
                "metadata": {"name": "e", "namespace": "a"},
                "note": "it is so", "reason": "Because", "type": "Normal",
                "regarding": {"kind": "Pod", "name": "p", "namespace": "a"},
                "reportingController": "c", "reportingInstance": "i", "action": "Do",
                "deprecatedCount": 2, "deprecatedFirstTimestamp": "1", "deprecatedLastTimestamp": "2",
                "deprecatedSource": {"component": "s"},
                "eventTime": "3", "series": {"count": 2, "lastObservedTime": "4"},
            })
        );
        assert_eq!(from_view(view), stored());
    }

    #[test]
    fn only_the_core_group_includes_empty_fields() {
        let mut event = json!({});
        prepare(&mut event, None);
        assert_eq!(
            event,
            json!({"source": {}, "reportingComponent": "", "reportingInstance": ""})
        );
        assert_eq!(to_view(event), json!({"deprecatedSource": {}}));
    }

    #[test]
    fn an_item_of_a_list_gets_no_apiversion() {
        assert_eq!(to_view(json!({"message": "m"})), json!({"note": "m"}));
    }

    #[test]
    fn an_event_is_in_the_namespace_of_its_object() {
        let invalid_fields = |namespace: &str, involved: &str| {
            let event = json!({"metadata": {"namespace": namespace}, "involvedObject": {"namespace": involved}});
            validate(&event, None)
                .into_iter()
                .map(|it| it.field)
                .collect::<Vec<_>>()
        };
        assert!(invalid_fields("a", "a").is_empty() && invalid_fields("default", "").is_empty());
        assert_eq!(invalid_fields("a", "b"), ["involvedObject.namespace"]);
        assert_eq!(invalid_fields("a", ""), ["involvedObject.namespace"]);
    }

    #[test]
    fn a_new_event_has_a_reporter_and_no_deprecated_fields() {
        let fields =
            |errors: FieldErrors| errors.into_iter().map(|it| it.field).collect::<Vec<_>>();
        assert!(validate(&stored(), None).is_empty());
        assert_eq!(
            fields(validate_new(&stored(), None)),
            ["firstTimestamp", "lastTimestamp", "count", "source"]
        );
        let mut unreported = stored();
        unreported["reportingComponent"] = json!("");
        // Three errors: missing, empty and malformed.
        assert_eq!(
            fields(validate(&unreported, None)),
            ["reportingComponent"; 3]
        );
        assert_eq!(
            fields(validate_new(&unreported, Some(&unreported))),
            ["reportingController"; 3]
        );
        let mut changed = stored();
        changed["message"] = json!("it is not so");
        assert_eq!(fields(validate_new(&changed, Some(&stored()))), ["message"]);
    }
}
