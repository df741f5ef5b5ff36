//! Tests of the request and response types of the hooks.

use super::from;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use steersman_controllers::extension_config::catalog::{
    Catalog, Hook, Request, Response,
    hooks::{
        self, BeforeClusterCreateResponse, BeforeClusterDeleteRequest, Discovery,
        GeneratePatchesResponse, PatchType, ResponseStatus, UpdateMachine,
        ValidateTopologyResponse,
    },
};

/// Calls `$check::<H>($arguments)` with each hook of Cluster API.
macro_rules! for_each_hook {
    ($check:ident($($argument:expr),*)) => {
        for_each_hook!(@ $check($($argument),*)
            Discovery BeforeClusterCreate AfterControlPlaneInitialized BeforeClusterUpgrade
            BeforeControlPlaneUpgrade AfterControlPlaneUpgrade BeforeWorkersUpgrade
            AfterWorkersUpgrade AfterClusterUpgrade BeforeClusterDelete GeneratePatches
            ValidateTopology DiscoverVariables CanUpdateMachine CanUpdateMachineSet UpdateMachine
            GenerateUpgradePlan)
    };
    (@ $check:ident $arguments:tt $($hook:ident)+) => {
        $(for_each_hook!(@@ $check $hook $arguments);)+
    };
    (@@ $check:ident $hook:ident ($($argument:expr),*)) => { $check::<hooks::$hook>($($argument),*) };
}

/// Returns the requests and responses that Cluster API writes, by the name of the hook.
fn fixtures() -> BTreeMap<String, Value> {
    let fixtures: Vec<Value> =
        serde_json::from_str(include_str!("../fixtures/hooks.json")).expect("JSON");
    let name = |fixture: &Value| fixture["name"].as_str().expect("a name").to_owned();
    fixtures
        .into_iter()
        .map(|fixture| (name(&fixture), fixture))
        .collect()
}

/// Removes `apiVersion` and `kind`, and replaces values that Go reads as the same zero value.
fn normalized(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), normalized(value)))
            .collect(),
        Value::Array(items) if !items.is_empty() => items.iter().map(normalized).collect(),
        Value::String(text) if !text.is_empty() => value.clone(),
        Value::Array(_) | Value::String(_) => Value::Null,
        value => value.clone(),
    }
}

fn without_type(value: &Value) -> Value {
    let mut value = value.clone();
    let fields = value.as_object_mut().expect("an object");
    fields.remove("apiVersion").expect("an API version");
    fields.remove("kind").expect("a kind");
    value
}

fn written(value: &impl serde::Serialize) -> Value {
    normalized(&serde_json::to_value(value).expect("JSON"))
}

fn assert_fields_are_kept<H: Hook>(fixtures: &BTreeMap<String, Value>) {
    let fixture = &fixtures[H::NAME];
    for name in ["request", "zeroRequest"] {
        let expected = without_type(&fixture[name]);
        let request: H::Request = from(&expected);
        assert_eq!(
            written(&request),
            normalized(&expected),
            "{} {name}",
            H::NAME
        );
    }
    for name in ["response", "zeroResponse"] {
        let expected = without_type(&fixture[name]);
        let response: H::Response = from(&expected);
        assert_eq!(
            written(&response),
            normalized(&expected),
            "{} {name}",
            H::NAME
        );
    }
}

#[test]
fn requests_and_responses_have_the_fields_of_cluster_api() {
    let fixtures = fixtures();
    for_each_hook!(assert_fields_are_kept(&fixtures));
}

fn assert_default_has_required_fields<H: Hook>(fixtures: &BTreeMap<String, Value>) {
    let keys = |value: &Value| {
        let fields = value.as_object().expect("an object");
        fields.keys().cloned().collect::<Vec<_>>()
    };
    let fixture = &fixtures[H::NAME];
    let request: H::Request = from(&json!({}));
    assert_eq!(
        keys(&written(&request)),
        keys(&without_type(&fixture["zeroRequest"])),
        "{} request",
        H::NAME
    );
    assert_eq!(
        written(&H::Response::default()),
        normalized(&without_type(&fixture["zeroResponse"])),
        "{} response",
        H::NAME
    );
}

#[test]
fn required_fields_are_written_when_empty_and_optional_ones_are_not() {
    let fixtures = fixtures();
    for_each_hook!(assert_default_has_required_fields(&fixtures));
}

fn assert_settings_and_retry<H: Hook>(fixtures: &BTreeMap<String, Value>) {
    let fixture = &fixtures[H::NAME];
    let mut request: H::Request = from(&without_type(&fixture["request"]));
    let settings = request.settings_mut();
    let settings = settings.map(|settings| serde_json::to_value(settings).expect("JSON"));
    let expected = (fixture["hasSettings"] == true).then(|| fixture["request"]["settings"].clone());
    assert_eq!(settings, expected, "{}", H::NAME);

    let mut response: H::Response = from(&without_type(&fixture["response"]));
    response.set_retry_after_seconds(42);
    let expected = if fixture["hasRetry"] == true { 42 } else { 0 };
    assert_eq!(response.retry_after_seconds(), expected, "{}", H::NAME);
    assert_eq!(response.status(), &ResponseStatus::Success, "{}", H::NAME);
    response.set_status(ResponseStatus::Failure, "quota exceeded".into());
    assert_eq!(response.status(), &ResponseStatus::Failure, "{}", H::NAME);
    assert_eq!(response.message(), "quota exceeded", "{}", H::NAME);
}

#[test]
fn settings_and_retries_are_accessible_where_cluster_api_has_them() {
    let fixtures = fixtures();
    for_each_hook!(assert_settings_and_retry(&fixtures));
}

#[test]
fn the_catalog_has_all_hooks_of_cluster_api() {
    let catalog = Catalog::cluster_api();
    let mut hooks: Vec<_> = catalog.iter().map(ToString::to_string).collect();
    let fixtures = fixtures();
    let mut expected: Vec<_> = fixtures
        .values()
        .map(|fixture| fixture["hook"].as_str().expect("a hook").to_owned())
        .collect();
    hooks.sort();
    expected.sort();
    assert_eq!(hooks, expected);
    assert_eq!(hooks.len(), 17);
}

#[test]
fn a_catalog_has_only_the_hooks_that_were_added() {
    let catalog = Catalog::new()
        .with::<UpdateMachine>()
        .with::<UpdateMachine>();
    assert!(catalog.contains(&UpdateMachine::group_version_hook()));
    assert!(!catalog.contains(&Discovery::group_version_hook()));
    assert_eq!(catalog.iter().count(), 1);
}

fn assert_null_is_the_default<H: Hook>(fixtures: &BTreeMap<String, Value>) {
    let fixture = &fixtures[H::NAME];
    let nulls = |name: &str| -> Value {
        let value = without_type(&fixture[name]);
        let fields = value.as_object().expect("an object");
        fields
            .keys()
            .map(|key| (key.clone(), Value::Null))
            .collect()
    };
    let empty: H::Request = from(&json!({}));
    let request: H::Request = from(&nulls("request"));
    assert_eq!(written(&request), written(&empty), "{} request", H::NAME);
    let response: H::Response = from(&nulls("response"));
    assert_eq!(
        written(&response),
        written(&H::Response::default()),
        "{} response",
        H::NAME
    );
}

#[test]
fn null_is_read_as_the_default() {
    let fixtures = fixtures();
    for_each_hook!(assert_null_is_the_default(&fixtures));
}

#[test]
fn unknown_fields_of_a_response_are_ignored() {
    let response: BeforeClusterCreateResponse =
        from(&json!({"status": "Success", "retryAfterSeconds": 3, "later": {"field": 1}}));
    assert_eq!(response.retry_after_seconds, 3);
}

#[test]
fn an_unknown_status_is_kept() {
    let response: ValidateTopologyResponse = from(&json!({"status": "Perhaps", "message": "m"}));
    assert_eq!(response.status, ResponseStatus::Other("Perhaps".into()));
    let response: ValidateTopologyResponse = from(&json!({}));
    assert_eq!(response.status, ResponseStatus::Missing);
}

#[test]
fn patches_are_bytes_in_base64() {
    let fixtures = fixtures();
    let response: GeneratePatchesResponse = from(&fixtures["GeneratePatches"]["response"]);
    assert_eq!(response.items[0].patch_type, PatchType::JsonMergePatch);
    assert_eq!(response.items[0].patch.0, br#"{"spec":{}}"#);
    assert_eq!(response.items[1].patch_type, PatchType::Missing);
    let patch = json!({"items": [{"uid": "1", "patchType": "JSONPatch", "patch": "not base64!"}]});
    serde_json::from_value::<GeneratePatchesResponse>(patch).expect_err("no base64");
}

#[test]
fn objects_in_requests_keep_all_fields() {
    let cluster = json!({"metadata": {"name": "shop"}, "spec": {"anything": [1, 2.5, null]}});
    let request: BeforeClusterDeleteRequest = from(&json!({"cluster": cluster}));
    assert_eq!(request.cluster, cluster);
}
