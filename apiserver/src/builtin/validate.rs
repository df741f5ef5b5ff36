//! Validation of built-in kinds beyond schema and metadata. `events`, `pods`, `rbac` and
//! `workloads` have files of their own.

use super::cells::{items, text};
use crate::meta::names;
use crate::status::{FieldError, FieldErrors};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

/// Maximum size of the data of a config map or secret.
const MAX_DATA_BYTES: usize = 1 << 20;

/// For kinds without further validation.
pub(super) fn nothing(_: &Value, _: Option<&Value>) -> FieldErrors {
    FieldErrors::new()
}

/// Returns the value at a dotted path; null if it is missing.
pub(super) fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, key| &value[key])
}

/// Rejects a change of the field at a dotted path.
pub(super) fn immutable(object: &Value, old: Option<&Value>, path: &str) -> Option<FieldError> {
    let new = at(object, path);
    let old = at(old?, path);
    (new != old).then(|| FieldError::invalid(path, new, "field is immutable"))
}

/// Rejects a negative number at a dotted path.
pub(super) fn not_negative(object: &Value, path: &str) -> Option<FieldError> {
    let value = at(object, path);
    value.as_i64().filter(|it| *it < 0)?;
    Some(FieldError::invalid(
        path,
        value,
        "must be greater than or equal to 0",
    ))
}

/// Rejects a value at a dotted path that is not supported.
pub(super) fn one_of(object: &Value, path: &str, supported: &[&str]) -> Option<FieldError> {
    let value = at(object, path);
    let found = value.as_str().unwrap_or_default();
    (!supported.contains(&found)).then(|| FieldError::not_supported(path, &json!(found), supported))
}

/// Rejects an invalid port number.
pub(super) fn port_number(value: &Value, field: &str) -> Option<FieldError> {
    let fits = value.as_i64().is_some_and(|it| (1..=65535).contains(&it));
    (!fits).then(|| FieldError::invalid(field, value, "must be between 1 and 65535, inclusive"))
}

/// Rejects a value at a dotted path that is neither a count nor a percentage.
pub(super) fn count_or_percentage(object: &Value, path: &str) -> Option<FieldError> {
    let value = at(object, path);
    let Some(percentage) = value.as_str() else {
        return not_negative(object, path);
    };
    let number = percentage
        .strip_suffix('%')
        .filter(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()));
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

/// Validates the label selector at `path`.
pub(super) fn label_selector(selector: &Value, path: &str) -> FieldErrors {
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
                errors.push(FieldError::invalid(
                    format!("{field}.operator"),
                    &it["operator"],
                    why,
                ));
            }
        }
    }
    errors
}

/// Rejects changes of an object with `immutable: true`.
fn immutable_fields(object: &Value, old: Option<&Value>, fields: &[&str]) -> FieldErrors {
    let Some(old) = old.filter(|old| old["immutable"] == true) else {
        return FieldErrors::new();
    };
    let changed = |field: &&&str| object[**field] != old[**field];
    let rejected =
        |field: &&str| FieldError::forbidden(*field, "field is immutable when `immutable` is set");
    ["immutable"]
        .iter()
        .chain(fields)
        .filter(changed)
        .map(rejected)
        .collect()
}

/// Validates the finalizers in the spec of a namespace.
pub(super) fn namespace(object: &Value, old: Option<&Value>) -> FieldErrors {
    let finalizers = items(object, "/spec/finalizers").iter().enumerate();
    let unqualified = finalizers.filter(|(_, name)| {
        !name
            .as_str()
            .is_some_and(|name| name.contains('/') || name == "kubernetes")
    });
    let why = "name is neither a standard finalizer name nor is it fully qualified";
    // The real server adds the index only on an update.
    let field = |at| {
        if old.is_some() {
            format!("spec.finalizers[{at}]")
        } else {
            "spec.finalizers".into()
        }
    };
    unqualified
        .map(|(at, name)| FieldError::invalid(field(at), name, why))
        .collect()
}

/// Checks that the phase of a namespace matches its deletion timestamp.
pub(super) fn namespace_phase(object: &Value) -> FieldErrors {
    let (phase, why) = if text(object, "/metadata/deletionTimestamp").is_empty() {
        (
            "Active",
            "may only be 'Active' if `deletionTimestamp` is empty",
        )
    } else {
        (
            "Terminating",
            "may only be 'Terminating' if `deletionTimestamp` is not empty",
        )
    };
    let found = text(object, "/status/phase");
    let problems =
        (found != phase).then(|| FieldError::invalid("status.Phase", &found.into(), why));
    problems.into_iter().collect()
}

fn map<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object[field].as_object().into_iter().flatten()
}

fn data_keys(object: &Value, field: &str) -> FieldErrors {
    let error = |(key, _): (&String, _)| {
        let problems = names::config_key(key);
        problems
            .into_iter()
            .map(|why| FieldError::invalid(format!("{field}[{key}]"), &json!(key), why))
            .collect::<Vec<_>>()
    };
    map(object, field).flat_map(error).collect()
}

/// Returns the number of bytes that a base64 text encodes.
fn decoded_len(text: &Value) -> usize {
    let text = text.as_str().unwrap_or_default();
    text.len() / 4 * 3
        - text
            .bytes()
            .rev()
            .take_while(|byte| *byte == b'=')
            .count()
            .min(2)
}

pub(super) fn config_map(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = immutable_fields(object, old, &["data", "binaryData"]);
    errors.extend(data_keys(object, "data"));
    errors.extend(
        map(object, "data")
            .filter(|(key, _)| object["binaryData"].get(*key).is_some())
            .map(|(key, _)| {
                FieldError::invalid(
                    format!("data[{key}]"),
                    &json!(key),
                    "duplicate of key present in binaryData",
                )
            }),
    );
    errors.extend(data_keys(object, "binaryData"));
    let size = map(object, "data")
        .map(|(_, value)| value.as_str().unwrap_or_default().len())
        .sum::<usize>()
        + map(object, "binaryData")
            .map(|(_, value)| decoded_len(value))
            .sum::<usize>();
    if size > MAX_DATA_BYTES {
        // The real server's path to the whole object is `[]`.
        errors.push(FieldError::too_long("[]", MAX_DATA_BYTES));
    }
    errors
}

/// Returns the error of a base64 text whose content is not JSON.
fn json_error(text: &Value) -> Option<String> {
    let bytes = STANDARD.decode(text.as_str()?).ok()?;
    let error = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).err()?;
    let what = if bytes.is_empty() {
        "unexpected end of JSON input"
    } else {
        "invalid character"
    };
    Some(format!("{what}: {error}"))
}

pub(super) fn secret(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors: FieldErrors = immutable(object, old, "type").into_iter().collect();
    errors.extend(immutable_fields(object, old, &["data"]));
    errors.extend(data_keys(object, "data"));
    if map(object, "data")
        .map(|(_, value)| decoded_len(value))
        .sum::<usize>()
        > MAX_DATA_BYTES
    {
        errors.push(FieldError::too_long("data", MAX_DATA_BYTES));
    }
    let required: &[&str] = match text(object, "/type") {
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        // One of the two keys is enough.
        "kubernetes.io/basic-auth"
            if ["username", "password"]
                .iter()
                .all(|it| object["data"].get(it).is_none()) =>
        {
            &["username", "password"]
        }
        _ => &[],
    };
    let missing = required
        .iter()
        .filter(|key| object["data"].get(**key).is_none());
    errors.extend(missing.map(|key| FieldError::required(format!("data[{key}]"), "")));
    let documents = required.iter().filter(|key| key.starts_with(".docker"));
    errors.extend(
        documents
            .filter_map(|key| json_error(&object["data"][*key]).map(|why| (key, why)))
            .map(|(key, why)| {
                FieldError::invalid(
                    format!("data[{key}]"),
                    &json!("<secret contents redacted>"),
                    why,
                )
            }),
    );
    let account = "kubernetes.io/service-account.name";
    if text(object, "/type") == "kubernetes.io/service-account-token"
        && object["metadata"]["annotations"][account]
            .as_str()
            .unwrap_or_default()
            .is_empty()
    {
        errors.push(FieldError::required(
            format!("metadata.annotations[{account}]"),
            "",
        ));
    }
    errors
}

pub(super) fn lease(object: &Value, _: Option<&Value>) -> FieldErrors {
    let duration = at(object, "spec.leaseDurationSeconds");
    let mut errors = FieldErrors::new();
    if duration.as_i64().is_some_and(|it| it <= 0) {
        errors.push(FieldError::invalid(
            "spec.leaseDurationSeconds",
            duration,
            "must be greater than 0",
        ));
    }
    errors.extend(not_negative(object, "spec.leaseTransitions"));
    errors
}

pub(super) fn autoscaler(object: &Value, _: Option<&Value>) -> FieldErrors {
    let min = at(object, "spec.minReplicas");
    let max = at(object, "spec.maxReplicas");
    let mut errors = FieldErrors::new();
    if min.as_i64().is_some_and(|it| it < 0) {
        errors.push(FieldError::invalid(
            "spec.minReplicas",
            min,
            "must be greater than or equal to 0",
        ));
    }
    if max.as_i64().unwrap_or_default() < min.as_i64().unwrap_or(1) {
        errors.push(FieldError::invalid(
            "spec.maxReplicas",
            max,
            "must be greater than or equal to `minReplicas`",
        ));
    }
    let empty = |path: &str| at(object, path).as_str().unwrap_or_default().is_empty();
    let target = ["spec.scaleTargetRef.kind", "spec.scaleTargetRef.name"];
    errors.extend(
        target
            .into_iter()
            .filter(|path| empty(path))
            .map(|path| FieldError::required(path, "")),
    );
    // Only one kind of the core group has a scale subresource.
    if !text(object, "/spec/scaleTargetRef/apiVersion").contains('/')
        && text(object, "/spec/scaleTargetRef/kind") != "ReplicationController"
    {
        let value = json!(text(object, "/spec/scaleTargetRef/apiVersion"));
        errors.push(FieldError::invalid(
            "spec.scaleTargetRef.apiVersion",
            &value,
            "apiVersion must specify API group",
        ));
    }
    let metrics = items(object, "/spec/metrics");
    let kinds = [
        "ContainerResource",
        "External",
        "Object",
        "Pods",
        "Resource",
    ];
    for (index, metric) in metrics.iter().enumerate() {
        errors.extend(one_of(metric, "type", &kinds).map(|mut error| {
            error.field = format!("spec.metrics[{index}].type");
            error
        }));
    }
    if *min == 0
        && !metrics
            .iter()
            .any(|metric| matches!(text(metric, "/type"), "Object" | "External"))
    {
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
    if ["minAvailable", "maxUnavailable"]
        .iter()
        .all(|field| !spec[field].is_null())
    {
        // The real server prints the Go struct.
        let formatted = format!(
            r#"{{"MinAvailable":{},"Selector":{},"MaxUnavailable":{},"UnhealthyPodEvictionPolicy":{}}}"#,
            spec["minAvailable"],
            spec["selector"],
            spec["maxUnavailable"],
            spec["unhealthyPodEvictionPolicy"],
        );
        errors.push(FieldError::invalid_formatted(
            "spec",
            &formatted,
            "minAvailable and maxUnavailable cannot be both set",
        ));
        return errors;
    }
    errors.extend(
        ["spec.minAvailable", "spec.maxUnavailable"]
            .iter()
            .filter_map(|path| count_or_percentage(object, path)),
    );
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(errors: FieldErrors) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn keys_of_data_are_valid_and_unique() {
        let object =
            json!({"data": {"a/b": "", "c": "", "..": "", "ok.A-1_": ""}, "binaryData": {"c": ""}});
        let fields: Vec<_> = config_map(&object, None)
            .into_iter()
            .map(|it| it.field)
            .collect();
        assert_eq!(fields, ["data[..]", "data[a/b]", "data[c]"]);
    }

    #[test]
    fn data_is_limited_to_one_mebibyte() {
        let data = "a".repeat(MAX_DATA_BYTES);
        assert!(config_map(&json!({"data": {"a": data}}), None).is_empty());
        let errors = config_map(&json!({"data": {"a": data, "b": "b"}}), None);
        assert_eq!(
            messages(errors),
            ["[]: Too long: may not be more than 1048576 bytes"]
        );

        // The limit of a secret is about the decoded data.
        let encoded = format!("{}YQ==", "YWFh".repeat(MAX_DATA_BYTES / 3));
        assert!(secret(&json!({"type": "Opaque", "data": {"a": encoded}}), None).is_empty());
        let errors = secret(
            &json!({"type": "Opaque", "data": {"a": encoded, "b": "YQ=="}}),
            None,
        );
        assert_eq!(
            messages(errors),
            ["data: Too long: may not be more than 1048576 bytes"]
        );
    }

    #[test]
    fn immutable_data_cannot_change() {
        let old = json!({"immutable": true, "data": {"a": "1"}});
        let new = json!({"data": {"a": "2"}});
        let fields: Vec<_> = config_map(&new, Some(&old))
            .into_iter()
            .map(|it| (it.kind, it.field))
            .collect();
        let forbidden = crate::status::FieldErrorKind::Forbidden;
        assert_eq!(
            fields,
            [(forbidden, "immutable".into()), (forbidden, "data".into())]
        );
        assert!(config_map(&old, Some(&old)).is_empty());
        assert!(config_map(&new, Some(&json!({"data": {}}))).is_empty());
    }

    #[test]
    fn the_type_of_a_secret_is_immutable_and_determines_its_keys() {
        let tls = json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}});
        assert_eq!(
            messages(secret(&tls, None)),
            ["data[tls.key]: Required value"]
        );
        let errors = secret(&json!({"type": "Opaque"}), Some(&json!({"type": "mine"})));
        assert_eq!(
            messages(errors),
            [r#"type: Invalid value: "Opaque": field is immutable"#]
        );
        let either = json!({"type": "kubernetes.io/basic-auth", "data": {"password": ""}});
        assert!(secret(&either, None).is_empty());
    }

    #[test]
    fn a_lease_has_a_positive_duration() {
        let errors = lease(
            &json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}),
            None,
        );
        assert_eq!(
            messages(errors),
            [
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ]
        );
        assert!(lease(&json!({"spec": {"leaseDurationSeconds": 1}}), None).is_empty());
    }

    #[test]
    fn a_disruption_budget_has_one_limit_of_at_most_100_percent() {
        let errors = disruption_budget(
            &json!({"spec": {"minAvailable": "101%", "maxUnavailable": -1}}),
            None,
        );
        let fields: Vec<_> = errors.into_iter().map(|it| it.field).collect();
        assert_eq!(fields, ["spec"]);
        assert_eq!(
            disruption_budget(&json!({"spec": {"minAvailable": "101%"}}), None).len(),
            1
        );
        assert!(disruption_budget(&json!({"spec": {"minAvailable": "100%"}}), None).is_empty());
    }

    #[test]
    fn an_autoscaler_has_a_valid_range_of_replicas() {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"});
        let errors = |min, max| {
            let spec = json!({"minReplicas": min, "maxReplicas": max, "scaleTargetRef": target});
            autoscaler(&json!({"spec": spec}), None).len()
        };
        assert_eq!(
            (errors(1, 1), errors(2, 1), errors(0, 1), errors(1, 0)),
            (0, 1, 1, 2)
        );
    }
}
