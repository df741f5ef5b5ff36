//! Events: one stored object, two views of it. It is stored as the core group's; `events.k8s.io` renames its fields.
//!
//! Selectors, columns and validation all work on the stored form.

use super::cells::text;
use super::prepare::fill;
use super::validate::{at, immutable};
use crate::meta::names;
use crate::status::{FieldError, FieldErrors};
use serde_json::{Value, json};

/// The group of the newer view.
pub(super) const GROUP: &str = "events.k8s.io";

/// Fields that the views name differently: as stored, and as `events.k8s.io/v1` shows them.
const RENAMED: &[(&str, &str)] = &[
    ("message", "note"),
    ("involvedObject", "regarding"),
    ("reportingComponent", "reportingController"),
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("source", "deprecatedSource"),
];

/// A stored event as `events.k8s.io/v1` shows it.
pub(super) fn to_view(mut stored: Value) -> Value {
    rename(&mut stored, "events.k8s.io/v1", RENAMED.iter().copied());
    // Only the core view shows these when they are empty.
    if let Some(event) = stored.as_object_mut() {
        event.retain(|key, value| !(key.starts_with("reporting") && value == ""));
    }
    stored
}

/// An event of `events.k8s.io/v1` as it is stored.
pub(super) fn from_view(mut view: Value) -> Value {
    rename(&mut view, "v1", RENAMED.iter().map(|(stored, shown)| (*shown, *stored)));
    view
}

/// Fills in what the core view always shows. It also shows times that are not there, as null: nothing stores those.
pub(super) fn prepare(stored: &mut Value, _: Option<&Value>) {
    fill(stored, "source", json!({}));
    fill(stored, "reportingComponent", "");
    fill(stored, "reportingInstance", "");
}

fn rename(event: &mut Value, api_version: &str, names: impl Iterator<Item = (&'static str, &'static str)>) {
    let Some(event) = event.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(value) = event.remove(from) {
            event.insert(to.into(), value);
        }
    }
    // Items of a list have none.
    if let Some(shown) = event.get_mut("apiVersion") {
        *shown = api_version.into();
    }
}

/// An event as it is stored, written through the core view.
pub(super) fn validate(object: &Value, _: Option<&Value>) -> FieldErrors {
    stored_event(object, "reportingComponent")
}

fn stored_event(object: &Value, reporter: &str) -> FieldErrors {
    let involved = at(object, "involvedObject.namespace").as_str().unwrap_or_default();
    let own = text(object, "/metadata/namespace");
    let new = !text(object, "/eventTime").is_empty();
    let fits = match (involved, new) {
        // What lives in no namespace is told of in one of these.
        ("", false) => matches!(own, "" | "default"),
        ("", true) => matches!(own, "default" | "kube-system"),
        (_, true) => true,
        (involved, false) => involved == own,
    };
    let mut errors = FieldErrors::new();
    if !fits {
        let why = "does not match event.namespace";
        errors.push(FieldError::invalid("involvedObject.namespace", &json!(involved), why));
    }
    if new {
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
                errors.extend(names::qualified(name).iter().map(|why| FieldError::invalid(field, &json!(name), why)));
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

fn too_many_characters(field: &str, most: usize) -> FieldError {
    FieldError::invalid(field, &json!(""), format!("can have at most {most} characters"))
}

/// An event as it is stored, written through the newer view, which is stricter.
pub(super) fn validate_new(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = stored_event(object, "reportingController");
    let series = &object["series"];
    if !series.is_null() && old.is_none_or(|old| old["series"] != *series) {
        if series["count"].as_i64().unwrap_or_default() < 2 {
            errors.push(FieldError::invalid("series.count", &json!(""), "should be at least 2"));
        }
        if text(series, "/lastObservedTime").is_empty() {
            errors.push(FieldError::required("series.lastObservedTime", ""));
        }
    }
    if old.is_some() {
        let kept =
            ["involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type"];
        let also = ["eventTime", "action", "related", "reportingComponent", "reportingInstance"];
        errors.extend(kept.iter().chain(&also).filter_map(|field| immutable(object, old, field)));
        return errors;
    }
    if text(object, "/eventTime").is_empty() {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = text(object, "/type");
    if kind != "Normal" && kind != "Warning" {
        errors.push(FieldError::invalid("type", &json!(""), format!("has invalid value: {kind}")));
    }
    let is_set = |field: &&&str| match &object[**field] {
        Value::Null => false,
        Value::Object(map) => !map.is_empty(),
        value => *value != 0,
    };
    let set = ["firstTimestamp", "lastTimestamp", "count", "source"];
    errors.extend(set.iter().filter(is_set).map(|field| FieldError::invalid(*field, &json!(""), "needs to be unset")));
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
    fn the_two_views_say_the_same_under_other_names() {
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
    fn only_the_core_view_shows_an_event_s_empty_fields() {
        let mut event = json!({});
        prepare(&mut event, None);
        assert_eq!(event, json!({"source": {}, "reportingComponent": "", "reportingInstance": ""}));
        assert_eq!(to_view(event), json!({"deprecatedSource": {}}));
    }

    #[test]
    fn an_item_of_a_list_is_given_no_version() {
        assert_eq!(to_view(json!({"message": "m"})), json!({"note": "m"}));
    }

    #[test]
    fn an_event_lives_where_what_it_tells_of_lives() {
        let wrong = |own: &str, involved: &str| {
            let event = json!({"metadata": {"namespace": own}, "involvedObject": {"namespace": involved}});
            validate(&event, None).into_iter().map(|it| it.field).collect::<Vec<_>>()
        };
        assert!(wrong("a", "a").is_empty() && wrong("default", "").is_empty());
        assert_eq!(wrong("a", "b"), ["involvedObject.namespace"]);
        assert_eq!(wrong("a", ""), ["involvedObject.namespace"]);
    }

    #[test]
    fn a_new_event_says_who_tells_it_and_leaves_old_fields_alone() {
        let fields = |errors: FieldErrors| errors.into_iter().map(|it| it.field).collect::<Vec<_>>();
        assert!(validate(&stored(), None).is_empty());
        assert_eq!(fields(validate_new(&stored(), None)), ["firstTimestamp", "lastTimestamp", "count", "source"]);
        let mut silent = stored();
        silent["reportingComponent"] = json!("");
        // It is missing, it is empty, and it has the wrong form.
        assert_eq!(fields(validate(&silent, None)), ["reportingComponent"; 3]);
        assert_eq!(fields(validate_new(&silent, Some(&silent))), ["reportingController"; 3]);
        let mut changed = stored();
        changed["message"] = json!("it is not so");
        assert_eq!(fields(validate_new(&changed, Some(&stored()))), ["message"]);
    }
}
