//! Behaviour of `FieldManager` that clients of an API server can observe.

use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};
use structured_merge::{
    ApplyError, ConvertError, FieldManager, Filter, GroupVersionKind, Path, Time, Versions,
    equal_ignoring_timestamps, extract,
    schema::{CrdVersion, Schema, Type},
};

const NOW: Time = Time::from_seconds(1_700_000_000);
const LATER: Time = Time::from_seconds(1_700_000_060);

/// Kind with versions `v1` and `v2` of one schema, where `replicas` defaults to 1.
struct Widgets(Arc<Schema>);

impl Widgets {
    fn new() -> Self {
        let port = json!({
            "type": "object",
            "required": ["containerPort"],
            "properties": {
                "containerPort": {"type": "integer"},
                "protocol": {"type": "string", "default": "TCP"},
                "name": {"type": "string"},
            },
        });
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "color": {"type": "string"},
                "replicas": {"type": "integer"},
                "tags": {
                    "type": "array",
                    "items": {"type": "string"},
                    "x-kubernetes-list-type": "set",
                },
                "ports": {
                    "type": "array",
                    "items": port,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["containerPort", "protocol"],
                },
            }},
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        }});
        let versions = ["v1", "v2"].map(|name| CrdVersion {
            name,
            schema: Some(&schema),
        });
        let schema = Schema::from_crd(versions, false).expect("the schema is valid");
        Self(Arc::new(schema))
    }
}

impl Versions for Widgets {
    fn type_of(&self, api_version: &str, _: &str) -> Option<Type> {
        self.0.find(api_version.strip_prefix("example.com/")?)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ConvertError> {
        let mut object = object.clone();
        object["apiVersion"] = json!(api_version);
        Ok(object)
    }

    fn apply_defaults(&self, object: &mut Value) {
        if object["spec"].get("replicas").is_none() {
            object["spec"]["replicas"] = json!(1);
        }
    }
}

fn manager_at(version: &str, subresource: &str) -> FieldManager<Widgets> {
    let reset = match subresource {
        "" => vec![Path::fields(["status"])],
        _ => vec![Path::fields(["metadata"]), Path::fields(["spec"])],
    };
    let filter = Filter::Exclude(reset.into_iter().collect());
    let filters = BTreeMap::from([(format!("example.com/{version}"), filter)]);
    let kind = GroupVersionKind::new("example.com", version, "Widget");
    FieldManager::new(Widgets::new(), kind, subresource).with_reset_fields(filters)
}

fn manager() -> FieldManager<Widgets> {
    manager_at("v1", "")
}

fn widget(spec: Value) -> Value {
    json!({
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": spec,
    })
}

fn apply(live: &Value, spec: Value, name: &str) -> Result<Value, ApplyError> {
    manager().apply(live, &widget(spec), name, false, NOW)
}

fn created(spec: Value, name: &str) -> Value {
    let empty = manager().empty_object();
    let mut live = apply(&empty, spec, name).expect("a create does not conflict");
    live["metadata"]["uid"] = json!("1");
    live
}

/// Returns `manager operation: fields` of each entry.
fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array();
    entries
        .into_iter()
        .flatten()
        .map(|entry| {
            let subresource = entry
                .get("subresource")
                .map_or(String::new(), |s| format!("/{s}"));
            let (manager, operation) = (&entry["manager"], &entry["operation"]);
            format!("{manager}{subresource} {operation}: {}", entry["fieldsV1"]).replace('"', "")
        })
        .collect()
}

#[test]
fn an_apply_creates_an_object_that_its_manager_owns() {
    let live = created(json!({"color": "red"}), "m1");
    assert_eq!(live["spec"], json!({"color": "red", "replicas": 1}));
    assert_eq!(
        live["metadata"]["managedFields"],
        json!([{
            "manager": "m1",
            "operation": "Apply",
            "apiVersion": "example.com/v1",
            "time": "2023-11-14T22:13:20Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:color": {}}},
        }])
    );
}

#[test]
fn defaults_are_owned_after_an_update_and_not_after_an_apply() {
    let applied = created(json!({"color": "red"}), "m1");
    assert!(apply(&applied, json!({"replicas": 3}), "m2").is_ok());
    let spec = json!({"color": "red", "replicas": 1});
    let updated = manager()
        .update(
            &manager().empty_object(),
            widget(spec),
            "kubectl-create",
            NOW,
        )
        .unwrap();
    let error = apply(&updated, json!({"replicas": 3}), "m2").unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"kubectl-create\" using example.com/v1: \
         .spec.replicas"
    );
}

#[test]
fn conflicts_name_each_owner_and_field() {
    let live = created(json!({"color": "red", "replicas": 1}), "m1");
    let mut new = live.clone();
    new["spec"]["tags"] = json!(["a"]);
    new["spec"]["replicas"] = json!(2);
    let live = manager().update(&live, new, "m2", NOW).unwrap();
    let error = apply(&live, json!({"color": "blue", "replicas": 3}), "m3").unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"m1\":\n- .spec.color\nconflicts with \
         \"m2\" using example.com/v1:\n- .spec.replicas"
    );
    let ApplyError::Conflicts(conflicts) = error else {
        panic!("{error} is not a conflict");
    };
    let causes: Vec<String> = conflicts
        .as_slice()
        .iter()
        .map(|conflict| format!("{}: {}", conflict.path, conflict.cause_message()))
        .collect();
    assert_eq!(
        causes,
        [
            ".spec.color: conflict with \"m1\"",
            ".spec.replicas: conflict with \"m2\" using example.com/v1",
        ]
    );
}

#[test]
fn a_forced_apply_takes_over_conflicting_fields() {
    let live = created(json!({"color": "red", "tags": ["a"]}), "m1");
    let config = widget(json!({"color": "blue"}));
    let live = manager().apply(&live, &config, "m2", true, LATER).unwrap();
    assert_eq!(live["spec"]["color"], "blue");
    assert_eq!(
        owners(&live),
        [
            "m1 Apply: {f:spec:{f:tags:{v:\\a\\:{}}}}",
            "m2 Apply: {f:spec:{f:color:{}}}"
        ]
    );
}

#[test]
fn managers_that_apply_the_same_value_own_it_together() {
    let live = created(json!({"color": "red"}), "m1");
    let live = apply(&live, json!({"color": "red"}), "m2").unwrap();
    let live = apply(&live, json!({}), "m1").unwrap();
    assert_eq!(live["spec"]["color"], "red");
    let live = apply(&live, json!({}), "m2").unwrap();
    assert_eq!(live["spec"].get("color"), None);
}

#[test]
fn an_item_is_identified_by_the_defaults_of_its_keys() {
    let live = created(json!({"ports": [{"containerPort": 80}]}), "m1");
    assert_eq!(
        owners(&live),
        [
            "m1 Apply: {f:spec:{f:ports:{k:{\\containerPort\\:80,\\protocol\\:\\TCP\\}:{.:{},\
          f:containerPort:{}}}}}"
        ]
    );
    let spec = json!({"ports": [{"containerPort": 80, "protocol": "TCP", "name": "http"}]});
    let live = apply(&live, spec, "m2").unwrap();
    let ports = json!([{"containerPort": 80, "protocol": "TCP", "name": "http"}]);
    assert_eq!(live["spec"]["ports"], ports);
}

#[test]
fn an_apply_that_changes_nothing_keeps_the_times() {
    let live = created(json!({"color": "red"}), "m1");
    let config = widget(json!({"color": "red"}));
    let again = manager().apply(&live, &config, "m1", false, LATER).unwrap();
    assert_eq!(again, live);
}

#[test]
fn objects_with_other_timestamps_are_equal_ignoring_timestamps() {
    let live = created(json!({"color": "red"}), "m1");
    let mut later = live.clone();
    later["metadata"]["managedFields"][0]["time"] = json!("2030-01-01T00:00:00Z");
    assert!(equal_ignoring_timestamps(&live, &later));
    later["metadata"]["managedFields"][0]["manager"] = json!("m2");
    assert!(!equal_ignoring_timestamps(&live, &later));
    let mut other = live.clone();
    other["spec"]["color"] = json!("blue");
    assert!(!equal_ignoring_timestamps(&live, &other));
}

#[test]
fn duplicates_are_rejected_in_a_configuration_and_allowed_in_an_update() {
    let ports = json!([{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]);
    let error = apply(&manager().empty_object(), json!({"ports": ports}), "m1").unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to create typed patch object (ns/w; example.com/v1, Kind=Widget): .spec.ports: \
         duplicate entries for key [containerPort=80,protocol=\"TCP\"]"
    );
    let new = widget(json!({"ports": ports}));
    assert!(
        manager()
            .update(&manager().empty_object(), new, "m1", NOW)
            .is_ok()
    );
}

#[test]
fn fields_of_an_untracked_object_are_owned_by_before_first_apply() {
    let mut live = widget(json!({"color": "red"}));
    live["metadata"]["uid"] = json!("1");
    let updated = manager().update(&live, live.clone(), "u", NOW).unwrap();
    assert!(owners(&updated).is_empty());
    let applied = apply(&live, json!({"tags": ["a"]}), "m1").unwrap();
    assert_eq!(
        owners(&applied),
        [
            "m1 Apply: {f:spec:{f:tags:{v:\\a\\:{}}}}",
            "before-first-apply Update: {f:spec:{.:{},f:color:{}}}",
        ]
    );
}

#[test]
fn an_empty_list_of_managed_fields_removes_all_managers() {
    let live = created(json!({"color": "red"}), "m1");
    for reset in [json!([]), json!([{}])] {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = reset;
        let reset = manager().update(&live, new, "m2", NOW).unwrap();
        assert_eq!(reset["metadata"].get("managedFields"), None);
    }
}

#[test]
fn an_update_without_managed_fields_keeps_the_managers() {
    let live = created(json!({"color": "red"}), "m1");
    let mut new = live.clone();
    new["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    assert_eq!(manager().update(&live, new, "m2", NOW).unwrap(), live);
}

#[test]
fn an_apply_to_status_owns_status_alone() {
    let live = created(json!({"color": "red"}), "m1");
    let mut config = widget(json!({"color": "blue"}));
    config["status"] = json!({"phase": "Ready"});
    let status = manager_at("v1", "status");
    let live = status.apply(&live, &config, "m2", false, LATER).unwrap();
    assert_eq!(
        owners(&live),
        [
            "m1 Apply: {f:spec:{f:color:{}}}",
            "m2/status Apply: {f:status:{f:phase:{}}}"
        ]
    );
}

#[test]
fn the_oldest_of_many_update_managers_are_merged() {
    let mut live = created(json!({}), "m1");
    for index in 0..14 {
        let mut new = live.clone();
        new["metadata"]["labels"][format!("l{index}")] = json!("x");
        let now = Time::from_seconds(NOW.seconds() + index);
        live = manager()
            .update(&live, new, &format!("u{index}"), now)
            .unwrap();
    }
    let owners = owners(&live);
    assert_eq!(owners.len(), 11, "{owners:?}");
    let merged = "ancient-changes Update: {f:metadata:{f:labels:{.:{},f:l0:{},f:l1:{},f:l2:{},\
                  f:l3:{},f:l4:{}}}}";
    assert!(owners.contains(&merged.to_owned()), "{owners:?}");
}

#[test]
fn a_manager_keeps_its_fields_when_it_applies_another_version() {
    let live = created(json!({"color": "red", "tags": ["a"]}), "m1");
    let mut config = widget(json!({"tags": ["a"]}));
    config["apiVersion"] = json!("example.com/v2");
    let v2 = manager_at("v2", "")
        .apply(&live, &config, "m1", false, LATER)
        .unwrap();
    assert_eq!(v2["spec"], json!({"replicas": 1, "tags": ["a"]}));
    assert_eq!(owners(&v2), ["m1 Apply: {f:spec:{f:tags:{v:\\a\\:{}}}}"]);
    assert_eq!(
        v2["metadata"]["managedFields"][0]["apiVersion"],
        "example.com/v2"
    );
}

#[test]
fn kubectl_takes_over_fields_of_its_client_side_apply() {
    let mut live = widget(json!({"color": "red"}));
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let configuration = widget(json!({"color": "red"})).to_string();
    live["metadata"]["annotations"] = json!({annotation: configuration});
    let live = manager()
        .update(
            &manager().empty_object(),
            live,
            "kubectl-client-side-apply",
            NOW,
        )
        .unwrap();
    assert!(matches!(
        apply(&live, json!({"color": "blue"}), "m1"),
        Err(ApplyError::Conflicts(_))
    ));
    let applied = apply(&live, json!({"color": "blue"}), "kubectl").unwrap();
    assert_eq!(applied["spec"]["color"], "blue");
    let refreshed = applied["metadata"]["annotations"][annotation]
        .as_str()
        .unwrap();
    let refreshed: Value = serde_json::from_str(refreshed).unwrap();
    assert_eq!(refreshed["spec"], json!({"color": "blue"}));
}

#[test]
fn a_request_for_another_kind_or_with_managed_fields_is_a_bad_request() {
    let mut other = widget(json!({}));
    other["kind"] = json!("Gadget");
    let mut managed = widget(json!({}));
    managed["metadata"]["managedFields"] = json!([]);
    for (config, message) in [
        (other, "invalid object type: example.com/v1, Kind=Gadget"),
        (managed, "metadata.managedFields must be nil"),
    ] {
        let empty = manager().empty_object();
        match manager().apply(&empty, &config, "m", false, NOW) {
            Err(ApplyError::BadRequest(text)) => assert_eq!(text, message),
            other => panic!("{other:?} instead of {message}"),
        }
    }
}

#[test]
fn an_update_that_does_not_fit_the_schema_keeps_the_managed_fields() {
    let live = created(json!({"color": "red"}), "m1");
    let mut new = live.clone();
    new["spec"]["unknown"] = json!(1);
    assert!(manager().update(&live, new.clone(), "m2", NOW).is_err());
    let kept = manager().update_or_keep(&live, new.clone(), "m2", NOW);
    assert_eq!(
        kept["metadata"]["managedFields"],
        live["metadata"]["managedFields"]
    );
    assert_eq!(kept["spec"], new["spec"]);
}

#[test]
fn an_applied_configuration_is_extracted_from_the_object() {
    let live = created(
        json!({"ports": [{"containerPort": 80, "name": "http"}]}),
        "m1",
    );
    let live = apply(&live, json!({"color": "red"}), "m2").unwrap();
    let r#type = Widgets::new().type_of("example.com/v1", "Widget").unwrap();
    assert_eq!(
        extract(&live, &r#type, "m1", "").unwrap(),
        Some(json!({
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "spec": {"ports": [{"containerPort": 80, "name": "http"}]},
        }))
    );
    assert_eq!(extract(&live, &r#type, "m3", "").unwrap(), None);
}
