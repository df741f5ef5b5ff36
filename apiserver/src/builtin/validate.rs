//! What the server refuses of built-in kinds, beyond schema and metadata. Kinds with more to them have files of their
//! own: `events`, `pods`, `rbac`, `workloads`.

use super::cells::{items, text};
use crate::meta::names;
use crate::status::{FieldError, FieldErrors};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

/// The most that the data of a config map or secret may come to.
const MAX_DATA: usize = 1 << 20;

/// For kinds of which nothing is refused.
pub(super) fn nothing(_: &Value, _: Option<&Value>) -> FieldErrors {
    FieldErrors::new()
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

/// Refuses what is no number of a port.
pub(super) fn port_number(value: &Value, field: &str) -> Option<FieldError> {
    let fits = value.as_i64().is_some_and(|it| (1..=65535).contains(&it));
    (!fits).then(|| FieldError::invalid(field, value, "must be between 1 and 65535, inclusive"))
}

/// Refuses what is neither a count nor a share at a dotted path.
pub(super) fn count_or_share(object: &Value, path: &str) -> Option<FieldError> {
    let value = at(object, path);
    let Some(share) = value.as_str() else { return not_negative(object, path) };
    let number = share.strip_suffix('%').filter(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()));
    let why = match number.map(str::parse::<u32>) {
        None => {
            "a valid percent string must be a numeric string followed by an ending '%' \
             (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
        }
        Some(Ok(0..=100)) => return None,
        Some(_) => "must not be greater than 100%",
    };
    Some(FieldError::invalid(path, value, why))
}

/// Refuses what is wrong in a label selector at `path`.
pub(super) fn bad_selector(selector: &Value, path: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for (index, it) in items(selector, "/matchExpressions").iter().enumerate() {
        let field = format!("{path}.matchExpressions[{index}]");
        let none = items(it, "/values").is_empty();
        match text(it, "/operator") {
            "In" | "NotIn" if none => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(format!("{field}.values"), why));
            }
            "Exists" | "DoesNotExist" if !none => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(format!("{field}.values"), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => {
                let why = "not a valid selector operator";
                errors.push(FieldError::invalid(format!("{field}.operator"), &it["operator"], why));
            }
        }
    }
    errors
}

/// What cannot change once an object says that it is immutable.
fn frozen(object: &Value, old: Option<&Value>, fields: &[&str]) -> FieldErrors {
    let Some(old) = old.filter(|old| old["immutable"] == true) else { return FieldErrors::new() };
    let changed = |field: &&&str| object[**field] != old[**field];
    let refused = |field: &&str| FieldError::forbidden(*field, "field is immutable when `immutable` is set");
    ["immutable"].iter().chain(fields).filter(changed).map(refused).collect()
}

/// Its finalizers are named as those of metadata are.
pub(super) fn namespace(object: &Value, old: Option<&Value>) -> FieldErrors {
    let finalizers = items(object, "/spec/finalizers").iter().enumerate();
    let short =
        finalizers.filter(|(_, name)| !name.as_str().is_some_and(|name| name.contains('/') || name == "kubernetes"));
    let why = "name is neither a standard finalizer name nor is it fully qualified";
    // Which of them it is, is said only of a change.
    let field = |at| if old.is_some() { format!("spec.finalizers[{at}]") } else { "spec.finalizers".into() };
    short.map(|(at, name)| FieldError::invalid(field(at), name, why)).collect()
}

/// A namespace's phase says whether it is being deleted.
pub(super) fn namespace_phase(object: &Value) -> FieldErrors {
    let (phase, why) = if text(object, "/metadata/deletionTimestamp").is_empty() {
        ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
    } else {
        ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
    };
    let found = text(object, "/status/phase");
    let wrong = (found != phase).then(|| FieldError::invalid("status.Phase", &found.into(), why));
    wrong.into_iter().collect()
}

fn map<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object[field].as_object().into_iter().flatten()
}

fn bad_keys(object: &Value, field: &str) -> FieldErrors {
    let error = |(key, _): (&String, _)| {
        let wrong = names::config_key(key);
        wrong
            .into_iter()
            .map(|why| FieldError::invalid(format!("{field}[{key}]"), &json!(key), why))
            .collect::<Vec<_>>()
    };
    map(object, field).flat_map(error).collect()
}

/// How many bytes base64 stands for.
fn decoded_len(text: &Value) -> usize {
    let text = text.as_str().unwrap_or_default();
    text.len() / 4 * 3 - text.bytes().rev().take_while(|byte| *byte == b'=').count().min(2)
}

pub(super) fn config_map(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = frozen(object, old, &["data", "binaryData"]);
    errors.extend(bad_keys(object, "data"));
    errors.extend(map(object, "data").filter(|(key, _)| object["binaryData"].get(*key).is_some()).map(|(key, _)| {
        FieldError::invalid(format!("data[{key}]"), &json!(key), "duplicate of key present in binaryData")
    }));
    errors.extend(bad_keys(object, "binaryData"));
    let size = map(object, "data").map(|(_, value)| value.as_str().unwrap_or_default().len()).sum::<usize>()
        + map(object, "binaryData").map(|(_, value)| decoded_len(value)).sum::<usize>();
    if size > MAX_DATA {
        // About the whole object: that is how the real server's path to it reads.
        errors.push(FieldError::too_long("[]", MAX_DATA));
    }
    errors
}

/// Why what base64 stands for is no JSON; nothing if there is nothing.
fn not_json(text: &Value) -> Option<String> {
    let bytes = STANDARD.decode(text.as_str()?).ok()?;
    let error = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).err()?;
    let what = if bytes.is_empty() { "unexpected end of JSON input" } else { "invalid character" };
    Some(format!("{what}: {error}"))
}

pub(super) fn secret(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors: FieldErrors = immutable(object, old, "type").into_iter().collect();
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
    let documents = required.iter().filter(|key| key.starts_with(".docker"));
    errors.extend(
        documents
            .filter_map(|key| not_json(&object["data"][*key]).map(|why| (key, why)))
            .map(|(key, why)| FieldError::invalid(format!("data[{key}]"), &json!("<secret contents redacted>"), why)),
    );
    let account = "kubernetes.io/service-account.name";
    if text(object, "/type") == "kubernetes.io/service-account-token"
        && object["metadata"]["annotations"][account].as_str().unwrap_or_default().is_empty()
    {
        errors.push(FieldError::required(format!("metadata.annotations[{account}]"), ""));
    }
    errors
}

pub(super) fn lease(object: &Value, _: Option<&Value>) -> FieldErrors {
    let duration = at(object, "spec.leaseDurationSeconds");
    let mut errors = FieldErrors::new();
    if duration.as_i64().is_some_and(|it| it <= 0) {
        errors.push(FieldError::invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"));
    }
    errors.extend(not_negative(object, "spec.leaseTransitions"));
    errors
}

pub(super) fn autoscaler(object: &Value, _: Option<&Value>) -> FieldErrors {
    let (min, max) = (at(object, "spec.minReplicas"), at(object, "spec.maxReplicas"));
    let mut errors = FieldErrors::new();
    if min.as_i64().is_some_and(|it| it < 0) {
        errors.push(FieldError::invalid("spec.minReplicas", min, "must be greater than or equal to 0"));
    }
    if max.as_i64().unwrap_or_default() < min.as_i64().unwrap_or(1) {
        errors.push(FieldError::invalid("spec.maxReplicas", max, "must be greater than or equal to `minReplicas`"));
    }
    let empty = |path: &str| at(object, path).as_str().unwrap_or_default().is_empty();
    let target = ["spec.scaleTargetRef.kind", "spec.scaleTargetRef.name"];
    errors.extend(target.into_iter().filter(|path| empty(path)).map(|path| FieldError::required(path, "")));
    // Kinds of the core group do not scale.
    if !text(object, "/spec/scaleTargetRef/apiVersion").contains('/')
        && text(object, "/spec/scaleTargetRef/kind") != "ReplicationController"
    {
        let value = json!(text(object, "/spec/scaleTargetRef/apiVersion"));
        errors.push(FieldError::invalid("spec.scaleTargetRef.apiVersion", &value, "apiVersion must specify API group"));
    }
    let metrics = items(object, "/spec/metrics");
    let kinds = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    for (index, metric) in metrics.iter().enumerate() {
        errors.extend(one_of(metric, "type", &kinds).map(|mut error| {
            error.field = format!("spec.metrics[{index}].type");
            error
        }));
    }
    if *min == 0 && !metrics.iter().any(|metric| matches!(text(metric, "/type"), "Object" | "External")) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FieldError::forbidden("spec.metrics", why));
    }
    if max.as_i64().unwrap_or_default() == 0 {
        errors.push(FieldError::required("spec.maxReplicas", ""));
    }
    errors
}

pub(super) fn disruption_budget(object: &Value, _: Option<&Value>) -> FieldErrors {
    let spec = &object["spec"];
    let mut errors = FieldErrors::new();
    if ["minAvailable", "maxUnavailable"].iter().all(|field| !spec[field].is_null()) {
        // The real server shows it as Go has it.
        let shown = format!(
            r#"{{"MinAvailable":{},"Selector":{},"MaxUnavailable":{},"UnhealthyPodEvictionPolicy":{}}}"#,
            spec["minAvailable"], spec["selector"], spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"],
        );
        errors.push(FieldError::invalid_as("spec", &shown, "minAvailable and maxUnavailable cannot be both set"));
        return errors;
    }
    errors.extend(["spec.minAvailable", "spec.maxUnavailable"].iter().filter_map(|path| count_or_share(object, path)));
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(errors: FieldErrors) -> Vec<String> {
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
        assert_eq!(told(errors), ["[]: Too long: may not be more than 1048576 bytes"]);

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
    fn a_budget_says_one_thing_and_at_most_all() {
        let errors = disruption_budget(&json!({"spec": {"minAvailable": "101%", "maxUnavailable": -1}}), None);
        let fields: Vec<_> = errors.into_iter().map(|it| it.field).collect();
        assert_eq!(fields, ["spec"]);
        assert_eq!(disruption_budget(&json!({"spec": {"minAvailable": "101%"}}), None).len(), 1);
        assert!(disruption_budget(&json!({"spec": {"minAvailable": "100%"}}), None).is_empty());
    }

    #[test]
    fn an_autoscaler_has_room() {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"});
        let errors = |min, max| {
            let spec = json!({"minReplicas": min, "maxReplicas": max, "scaleTargetRef": target});
            autoscaler(&json!({"spec": spec}), None).len()
        };
        assert_eq!((errors(1, 1), errors(2, 1), errors(0, 1), errors(1, 0)), (0, 1, 1, 2));
    }
}
