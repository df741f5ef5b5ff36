use super::*;
use crate::external::contract::control_plane;
use serde_json::json;

fn object(content: Value) -> DynamicObject {
    let mut object: DynamicObject =
        serde_json::from_value(json!({"metadata": {"name": "a"}})).expect("an object");
    object.data = content;
    object
}

fn text<T: std::fmt::Debug>(result: Result<T, FieldError>) -> String {
    result.expect_err("an invalid field").to_string()
}

#[test]
fn the_contract_names_the_field_that_reports_readiness() {
    let old = object(json!({"status": {"ready": true, "initialized": false}}));
    let new = object(json!({"status": {"initialization": {
        "provisioned": false, "controlPlaneInitialized": true,
    }}}));
    assert_eq!(provisioned("v1beta1", &old), Ok(Some(true)));
    assert_eq!(provisioned("v1beta2", &old), Ok(None));
    assert_eq!(provisioned("v1beta2", &new), Ok(Some(false)));
    assert_eq!(provisioned("v1beta1", &new), Ok(None));
    assert_eq!(control_plane::initialized("v1beta1", &old), Ok(Some(false)));
    assert_eq!(control_plane::initialized("v1beta2", &old), Ok(None));
    assert_eq!(control_plane::initialized("v1beta2", &new), Ok(Some(true)));
}

#[test]
fn a_field_that_is_not_a_boolean_is_an_error() {
    let old = object(json!({"status": {"ready": "true", "initialized": null}}));
    assert_eq!(
        text(provisioned("v1beta1", &old)),
        "failed to get .status.ready from object: .status.ready accessor error: true is of the \
         type string, expected bool"
    );
    assert_eq!(
        text(control_plane::initialized("v1beta1", &old)),
        "failed to get .status.initialized from object: .status.initialized accessor error: <nil> \
         is of the type <nil>, expected bool"
    );
    let new = object(json!({"status": {"initialization": 1.5}}));
    assert_eq!(
        text(provisioned("v1beta2", &new)),
        "failed to get .status.initialization.provisioned from object: \
         .status.initialization.provisioned accessor error: 1.5 is of the type float64, expected \
         map[string]interface{}"
    );
}

#[test]
fn an_endpoint_can_be_missing_or_half_set() {
    let endpoint = |content| control_plane_endpoint(&object(content));
    assert_eq!(endpoint(json!({})), Ok(None));
    let half = endpoint(json!({"spec": {"controlPlaneEndpoint": {"host": "a", "extra": 1}}}));
    let half = half.expect("an endpoint").expect("the endpoint is set");
    assert_eq!((half.host(), half.port()), (Some("a"), None));
    let null = endpoint(json!({"spec": {"controlPlaneEndpoint": {"host": null, "port": 1}}}));
    assert_eq!(
        null.expect("an endpoint")
            .expect("the endpoint is set")
            .port(),
        Some(1)
    );
}

#[test]
fn an_endpoint_that_is_not_a_map_is_an_error() {
    let endpoint = |content| text(control_plane_endpoint(&object(content)));
    assert_eq!(
        endpoint(json!({"spec": {"controlPlaneEndpoint": "a:1"}})),
        "failed to get .spec.controlPlaneEndpoint from object: .spec.controlPlaneEndpoint accessor \
         error: a:1 is of the type string, expected map[string]interface{}"
    );
    let wrong = endpoint(json!({"spec": {"controlPlaneEndpoint": {"port": "1"}}}));
    let start = "failed to unmarshal field at .spec.controlPlaneEndpoint to json: ";
    assert!(wrong.starts_with(start), "{wrong}");
}

#[test]
fn failure_domains_of_contract_v1beta1_are_a_map() {
    let domains = object(json!({"status": {"failureDomains": {
        "b": {"controlPlane": true, "attributes": {"zone": "1"}}, "a": {}, "c": null,
    }}}));
    let found = failure_domains("v1beta1", &domains)
        .expect("domains")
        .expect("set");
    let expected = [
        ("a", false, None),
        ("b", true, Some("1")),
        ("c", false, None),
    ];
    for (domain, (name, control_plane, zone)) in found.iter().zip(expected) {
        assert_eq!(domain.name, name);
        assert_eq!(domain.control_plane, Some(control_plane));
        assert_eq!(domain.attributes.get("zone").map(|it| &**it), zone);
    }
    assert_eq!(found.len(), expected.len());
    let error = text(failure_domains("v1beta2", &domains));
    assert!(error.ends_with("expected []interface{}"), "{error}");
}

#[test]
fn failure_domains_of_contract_v1beta2_are_a_list() {
    let domains = object(json!({"status": {"failureDomains": [
        {"name": "b", "controlPlane": true}, {"name": "a", "attributes": {"zone": "1"}},
    ]}}));
    let found = failure_domains("v1beta2", &domains)
        .expect("domains")
        .expect("set");
    let short: Vec<_> = found
        .iter()
        .map(|domain| (&*domain.name, domain.control_plane))
        .collect();
    assert_eq!(short, [("a", Some(false)), ("b", Some(true))]);
    assert_eq!(found[0].attributes["zone"], "1");
    assert_eq!(
        text(failure_domains("v1beta1", &domains)),
        "failed to get .status.failureDomains from object: .status.failureDomains accessor error: \
         [map[controlPlane:true name:b] map[attributes:map[zone:1] name:a]] is of the type \
         []interface {}, expected map[string]interface{}"
    );
    assert_eq!(failure_domains("v1beta2", &object(json!({}))), Ok(None));
    let wrong = object(json!({"status": {"failureDomains": ["a"]}}));
    let error = text(failure_domains("v1beta2", &wrong));
    let start = "failed to unmarshal field at .status.failureDomains to json: ";
    assert!(error.starts_with(start), "{error}");
}
