//! What the server refuses of built-in kinds, beyond schema and metadata. Kinds with more to them have files of their
//! own: `events`, `pods`, `rbac`, `workloads`.

use super::cells::{items, text};
use crate::status::FieldError;
use serde_json::{Value, json};

/// The most that the data of a config map or secret may come to.
const MAX_DATA: usize = 1 << 20;

/// For kinds of which nothing is refused.
pub(super) fn nothing(_: &Value, _: Option<&Value>) -> Vec<FieldError> {
    Vec::new()
}

/// The value at a dotted path; null if there is none.
pub(super) fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, key| &value[key])
}

/// Refuses a change of the field at a dotted path.
pub(super) fn immutable(object: &Value, old: Option<&Value>, path: &str) -> Option<FieldError> {
    let (new, old) = (at(object, path), at(old?, path));
    (new != old).then(|| FieldError::invalid(path, new, "field is immutable"))
}

/// Refuses a number below zero at a dotted path.
pub(super) fn not_negative(object: &Value, path: &str) -> Option<FieldError> {
    let value = at(object, path);
    value.as_i64().filter(|it| *it < 0)?;
    Some(FieldError::invalid(path, value, "must be greater than or equal to 0"))
}

/// Refuses a value at a dotted path that is not one of those supported.
pub(super) fn one_of(object: &Value, path: &str, supported: &[&str]) -> Option<FieldError> {
    let value = at(object, path);
    let found = value.as_str().unwrap_or_default();
    (!supported.contains(&found)).then(|| FieldError::not_supported(path, &json!(found), supported))
}

/// What cannot change once an object says that it is immutable.
fn frozen(object: &Value, old: Option<&Value>, fields: &[&str]) -> Vec<FieldError> {
    let Some(old) = old.filter(|old| old["immutable"] == true) else { return Vec::new() };
    let changed = |field: &&&str| object[**field] != old[**field];
    let refused = |field: &&str| FieldError::forbidden(*field, "field is immutable when `immutable` is set");
    ["immutable"].iter().chain(fields).filter(changed).map(refused).collect()
}

/// Its finalizers are named as those of metadata are.
pub(super) fn namespace(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let finalizers = items(object, "/spec/finalizers").iter().enumerate();
    let short =
        finalizers.filter(|(_, name)| !name.as_str().is_some_and(|name| name.contains('/') || name == "kubernetes"));
    let why = "name is neither a standard finalizer name nor is it fully qualified";
    // Which of them it is, is said only of a change.
    let field = |at| if old.is_some() { format!("spec.finalizers[{at}]") } else { "spec.finalizers".into() };
    short.map(|(at, name)| FieldError::invalid(field(at), name, why)).collect()
}

/// A namespace's phase says whether it is being deleted.
pub(crate) fn namespace_phase(object: &Value) -> Option<FieldError> {
    let (phase, why) = if text(object, "/metadata/deletionTimestamp").is_empty() {
        ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
    } else {
        ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
    };
    let found = text(object, "/status/phase");
    (found != phase).then(|| FieldError::invalid("status.Phase", &found.into(), why))
}

fn map<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object[field].as_object().into_iter().flatten()
}

fn bad_keys(object: &Value, field: &str) -> Vec<FieldError> {
    let wrong = |key: &str| {
        let plain = !key.is_empty() && key.chars().all(|it| it.is_ascii_alphanumeric() || "-._".contains(it));
        match key {
            _ if key.len() > 253 => Some("must be no more than 253 bytes"),
            _ if !plain => Some("a valid config key must consist of alphanumeric characters, '-', '_' or '.'"),
            "." => Some("must not be '.'"),
            _ if key.starts_with("..") => Some("must not start with '..'"),
            _ => None,
        }
    };
    let error =
        |(key, _): (&String, _)| wrong(key).map(|why| FieldError::invalid(format!("{field}[{key}]"), &json!(key), why));
    map(object, field).filter_map(error).collect()
}

/// How many bytes base64 stands for.
fn decoded_len(text: &Value) -> usize {
    let text = text.as_str().unwrap_or_default();
    text.len() / 4 * 3 - text.bytes().rev().take_while(|byte| *byte == b'=').count().min(2)
}

pub(super) fn config_map(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = frozen(object, old, &["data", "binaryData"]);
    errors.extend(bad_keys(object, "data"));
    errors.extend(map(object, "data").filter(|(key, _)| object["binaryData"].get(*key).is_some()).map(|(key, _)| {
        FieldError::invalid(format!("data[{key}]"), &json!(key), "duplicate of key present in binaryData")
    }));
    errors.extend(bad_keys(object, "binaryData"));
    let size = map(object, "data").map(|(_, value)| value.as_str().unwrap_or_default().len()).sum::<usize>()
        + map(object, "binaryData").map(|(_, value)| decoded_len(value)).sum::<usize>();
    if size > MAX_DATA {
        // About the whole object, which the real server's path for that has no name for.
        errors.push(FieldError::too_long("", MAX_DATA));
    }
    errors
}

pub(super) fn secret(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors: Vec<_> = immutable(object, old, "type").into_iter().collect();
    errors.extend(frozen(object, old, &["data"]));
    errors.extend(bad_keys(object, "data"));
    if map(object, "data").map(|(_, value)| decoded_len(value)).sum::<usize>() > MAX_DATA {
        errors.push(FieldError::too_long("data", MAX_DATA));
    }
    let required: &[&str] = match text(object, "/type") {
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        // One of the two is enough.
        "kubernetes.io/basic-auth" if ["username", "password"].iter().all(|it| object["data"].get(it).is_none()) => {
            &["username", "password"]
        }
        _ => &[],
    };
    let missing = required.iter().filter(|key| object["data"].get(**key).is_none());
    errors.extend(missing.map(|key| FieldError::required(format!("data[{key}]"), "")));
    let account = "kubernetes.io/service-account.name";
    if text(object, "/type") == "kubernetes.io/service-account-token"
        && object["metadata"]["annotations"][account].as_str().unwrap_or_default().is_empty()
    {
        errors.push(FieldError::required(format!("metadata.annotations[{account}]"), ""));
    }
    errors
}

pub(super) fn service(object: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    let mut errors: Vec<_> = one_of(object, "spec.type", &kinds).into_iter().collect();
    let kind = text(object, "/spec/type");
    let ports = items(object, "/spec/ports");
    if ports.is_empty() && kind != "ExternalName" && object["spec"]["clusterIP"] != "None" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    if kind == "ExternalName" && text(object, "/spec/externalName").is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    }
    for (index, port) in ports.iter().enumerate() {
        let field = format!("spec.ports[{index}]");
        if ports.len() > 1 && text(port, "/name").is_empty() {
            errors.push(FieldError::required(format!("{field}.name"), ""));
        }
        if !port["port"].as_i64().is_some_and(|it| (1..=65535).contains(&it)) {
            let why = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(format!("{field}.port"), &port["port"], why));
        }
    }
    errors
}

pub(super) fn lease(object: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let duration = at(object, "spec.leaseDurationSeconds");
    let mut errors: Vec<_> = not_negative(object, "spec.leaseTransitions").into_iter().collect();
    if duration.as_i64().is_some_and(|it| it <= 0) {
        errors.insert(0, FieldError::invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"));
    }
    if !text(object, "/spec/preferredHolder").is_empty() && text(object, "/spec/strategy").is_empty() {
        let why = "may only be specified if `strategy` is defined";
        errors.push(FieldError::forbidden("spec.preferredHolder", why));
    }
    errors
}

pub(super) fn autoscaler(object: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let (min, max) = (at(object, "spec.minReplicas"), at(object, "spec.maxReplicas"));
    let mut errors = Vec::new();
    if min.as_i64().is_some_and(|it| it < 1) {
        errors.push(FieldError::invalid("spec.minReplicas", min, "must be greater than or equal to 1"));
    }
    match max.as_i64().unwrap_or_default() {
        0 => errors.push(FieldError::required("spec.maxReplicas", "must be set and greater than 0")),
        ..0 => errors.push(FieldError::invalid("spec.maxReplicas", max, "must be greater than or equal to 1")),
        most if most < min.as_i64().unwrap_or(1) => {
            errors.push(FieldError::invalid("spec.maxReplicas", max, "must be greater than or equal to `minReplicas`"));
        }
        _ => {}
    }
    let target = ["kind", "name"].map(|key| format!("spec.scaleTargetRef.{key}"));
    errors.extend(
        target
            .iter()
            .filter(|path| at(object, path).as_str().unwrap_or_default().is_empty())
            .map(|path| FieldError::required(path, "")),
    );
    errors
}

pub(super) fn disruption_budget(object: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    if ["minAvailable", "maxUnavailable"].iter().all(|field| !spec[field].is_null()) {
        errors.push(FieldError::invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"));
    }
    for path in ["spec.minAvailable", "spec.maxUnavailable"] {
        errors.extend(not_negative(object, path));
        let value = at(object, path);
        let Some(share) = value.as_str() else { continue };
        match share.strip_suffix('%').and_then(|share| share.parse::<u32>().ok()) {
            None => errors.push(FieldError::invalid(path, value, "must be a percentage, such as '5%' or '100%'")),
            Some(101..) => errors.push(FieldError::invalid(path, value, "must not be greater than 100%")),
            Some(_) => {}
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn keys_of_data_are_plain_and_in_one_place() {
        let object = json!({"data": {"a/b": "", "c": "", "..": "", "ok.A-1_": ""}, "binaryData": {"c": ""}});
        let fields: Vec<_> = config_map(&object, None).into_iter().map(|it| it.field).collect();
        assert_eq!(fields, ["data[..]", "data[a/b]", "data[c]"]);
    }

    #[test]
    fn data_may_come_to_one_mebibyte() {
        let most = "a".repeat(MAX_DATA);
        assert!(config_map(&json!({"data": {"a": most}}), None).is_empty());
        let errors = config_map(&json!({"data": {"a": most, "b": "b"}}), None);
        assert_eq!(told(errors), [": Too long: may not be more than 1048576 bytes"]);

        // Of a secret, what its base64 stands for counts.
        let encoded = format!("{}YQ==", "YWFh".repeat(MAX_DATA / 3));
        assert!(secret(&json!({"type": "Opaque", "data": {"a": encoded}}), None).is_empty());
        let errors = secret(&json!({"type": "Opaque", "data": {"a": encoded, "b": "YQ=="}}), None);
        assert_eq!(told(errors), ["data: Too long: may not be more than 1048576 bytes"]);
    }

    #[test]
    fn immutable_data_stays() {
        let old = json!({"immutable": true, "data": {"a": "1"}});
        let new = json!({"data": {"a": "2"}});
        let fields: Vec<_> = config_map(&new, Some(&old)).into_iter().map(|it| (it.kind, it.field)).collect();
        let forbidden = crate::status::FieldErrorKind::Forbidden;
        assert_eq!(fields, [(forbidden, "immutable".into()), (forbidden, "data".into())]);
        assert!(config_map(&old, Some(&old)).is_empty());
        assert!(config_map(&new, Some(&json!({"data": {}}))).is_empty());
    }

    #[test]
    fn a_secret_keeps_its_type_and_has_what_that_needs() {
        let tls = json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}});
        assert_eq!(told(secret(&tls, None)), ["data[tls.key]: Required value"]);
        let errors = secret(&json!({"type": "Opaque"}), Some(&json!({"type": "mine"})));
        assert_eq!(told(errors), [r#"type: Invalid value: "Opaque": field is immutable"#]);
        let either = json!({"type": "kubernetes.io/basic-auth", "data": {"password": ""}});
        assert!(secret(&either, None).is_empty());
    }

    #[test]
    fn a_lease_lasts() {
        let errors = lease(&json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}), None);
        assert_eq!(
            told(errors),
            [
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ]
        );
        assert!(lease(&json!({"spec": {"leaseDurationSeconds": 1}}), None).is_empty());
    }

    #[test]
    fn a_service_has_ports_unless_it_has_no_address() {
        assert_eq!(told(service(&json!({"spec": {"type": "ClusterIP"}}), None)), ["spec.ports: Required value"]);
        assert!(service(&json!({"spec": {"type": "ClusterIP", "clusterIP": "None"}}), None).is_empty());
        let errors =
            service(&json!({"spec": {"type": "NodePort", "ports": [{"port": 0, "name": "a"}, {"port": 1}]}}), None);
        let fields: Vec<_> = errors.into_iter().map(|it| it.field).collect();
        assert_eq!(fields, ["spec.ports[0].port", "spec.ports[1].name"]);
    }

    #[test]
    fn a_budget_says_one_thing_and_at_most_all() {
        let errors = disruption_budget(&json!({"spec": {"minAvailable": "101%", "maxUnavailable": -1}}), None);
        let fields: Vec<_> = errors.into_iter().map(|it| it.field).collect();
        assert_eq!(fields, ["spec", "spec.minAvailable", "spec.maxUnavailable"]);
        assert!(disruption_budget(&json!({"spec": {"minAvailable": "100%"}}), None).is_empty());
    }

    #[test]
    fn an_autoscaler_has_room() {
        let target = json!({"kind": "Deployment", "name": "a"});
        let errors = |min, max| {
            let spec = json!({"minReplicas": min, "maxReplicas": max, "scaleTargetRef": target});
            autoscaler(&json!({"spec": spec}), None).len()
        };
        assert_eq!((errors(1, 1), errors(2, 1), errors(0, 1), errors(1, 0)), (0, 1, 1, 1));
    }
}
